package sluice

import "net/http"

// Reply is a vendor's reply.
type Reply struct {
	Status int
	Header http.Header
	// Body is its body, if it was read. Some vendors say only there that an account is used up.
	Body []byte
}

// ReplyOf is a response of net/http, with its body if that was read.
func ReplyOf(response *http.Response, body []byte) Reply {
	return Reply{response.StatusCode, response.Header, body}
}

func (r Reply) pairs() [][2]string {
	return pairs(r.Header)
}

func (r Reply) headers(dimension string) map[string]any {
	return map[string]any{"dimension": dimension, "headers": r.pairs()}
}

func observed(came *answer, err error) (Observed, error) {
	if err != nil {
		return Observed{}, err
	}
	var observed Observed
	return observed, came.into(&observed)
}

func pairs(header http.Header) [][2]string {
	pairs := make([][2]string, 0, len(header))
	for name, values := range header {
		for _, value := range values {
			pairs = append(pairs, [2]string{name, value})
		}
	}
	return pairs
}

func (r Reply) args(used map[string]float64) map[string]any {
	args := map[string]any{"status": r.Status, "headers": r.pairs()}
	if used != nil {
		args["used"] = used
	}
	return args
}

type toldReplied struct {
	Decision toldDecision        `json:"decision"`
	Observed map[string]Observed `json:"observed"`
}

func replied(came *answer, err error) (Replied, error) {
	if err != nil {
		return Replied{}, err
	}
	var told toldReplied
	err = came.into(&told)
	return Replied{told.Decision.decision(), told.Observed}, err
}
