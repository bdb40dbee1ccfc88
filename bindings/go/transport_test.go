package sluice_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sluice "github.com/OWNER/sluice/bindings/go"
	"github.com/OWNER/sluice/bindings/go/sluicetest"
)

// vendor is one of chat completions on this machine, which does what each request tells it to.
type vendor struct {
	*httptest.Server
	mutex sync.Mutex
	calls int
	next  func(http.ResponseWriter)
}

const usage = `{"prompt_tokens": 30, "completion_tokens": 20, "total_tokens": 50}`

func newVendor(t *testing.T) *vendor {
	v := &vendor{}
	v.Server = httptest.NewServer(http.HandlerFunc(v.answer))
	t.Cleanup(func() {
		v.CloseClientConnections()
		v.Close()
	})
	return v
}

func (v *vendor) answer(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Stream        bool   `json:"stream"`
		User          string `json:"user"`
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	_ = json.NewDecoder(r.Body).Decode(&asked)
	w.Header().Set("Content-Type", "application/json")
	v.mutex.Lock()
	v.calls++
	next := v.next
	v.next = nil
	v.mutex.Unlock()
	switch {
	case next != nil:
		next(w)
	case asked.User == "hang up":
		panic(http.ErrAbortHandler)
	case asked.Stream:
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"choices\": [{\"index\": 0, \"delta\": {\"content\": \"Hel\"}}]}\n\n")
		w.(http.Flusher).Flush()
		if asked.User == "pause" {
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, "data: {\"choices\": [{\"index\": 0, \"delta\": {}, \"finish_reason\": \"stop\"}]}\n\n")
		if asked.StreamOptions.IncludeUsage {
			fmt.Fprintf(w, "data: {\"choices\": [], \"usage\": %s}\n\n", usage)
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	default:
		fmt.Fprintf(w, `{"id": "1", "choices": [{"index": 0, "message": {"content": "Hello"}, "finish_reason": "stop"}], "usage": %s}`, usage)
	}
}

func (v *vendor) chat(ctx context.Context, through http.RoundTripper, more string) (*http.Response, error) {
	return chat(ctx, v.URL+"/v1", through, more)
}

func chat(ctx context.Context, base string, through http.RoundTripper, more string) (*http.Response, error) {
	body := `{"model": "m", "max_tokens": 400, "messages": [{"role": "user", "content": "Hello"}]` + more + `}`
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	return (&http.Client{Transport: through}).Do(request)
}

// acme has the buckets of a vendor of its own.
type acme struct {
	t    *testing.T
	name string
}

func newAcme(t *testing.T) acme {
	of := acme{t, fmt.Sprintf("acme%d", number.Add(1))}
	declare(t, sluice.Requests(1_000, days), "rpm", of.name)
	tpm := declare(t, sluice.Tokens(20_000, days), "tpm", of.name)
	declare(t, sluice.Concurrent(2), "concurrent", of.name)
	// Not full: a full bucket takes back no more than has room.
	acquire(t, sluice.On(tpm).Cost(tpm, 10_000))
	return of
}

func (a acme) transport() *sluice.Transport {
	return &sluice.Transport{Client: client, Vendor: a.name}
}

// become waits until so much is taken of requests and tokens, and held of the slots.
func (a acme) become(expected ...float64) {
	a.t.Helper()
	now := func() [3]float64 {
		return [3]float64{
			math.Round(1_000 - level(a.t, a.name+"#rpm")),
			math.Round(10_000 - level(a.t, a.name+"#tpm")),
			2 - level(a.t, a.name+"#concurrent"),
		}
	}
	for until := time.Now().Add(5 * time.Second); now() != [3]float64(expected); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			a.t.Fatal("requests, tokens, slots: ", now(), ", not ", expected)
		}
	}
}

func TestACallIsLimitedAndSettledToTheTokenStreamsToo(t *testing.T) {
	v, a := newVendor(t), newAcme(t)
	through := a.transport()
	through.AskUsage = true
	for calls, more := range []string{"", `, "stream": true`} {
		response, err := v.chat(t.Context(), through, more)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil || !strings.Contains(string(body), "Hel") {
			t.Fatal(string(body), err)
		}
		response.Body.Close()
		a.become(float64(calls+1), float64(calls+1)*50, 0)
	}
}

func TestABodyThatIsLeftGivesItsSlotBackAndItsTokensStay(t *testing.T) {
	v, a := newVendor(t), newAcme(t)
	response, err := v.chat(t.Context(), a.transport(), `, "stream": true, "user": "pause"`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := response.Body.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	a.become(1, 406, 1)
	response.Body.Close()
	a.become(1, 406, 0)
	if _, err := v.chat(t.Context(), a.transport(), `, "user": "hang up"`); err == nil {
		t.Fatal("it hung up")
	}
	a.become(2, 812, 0)
}

func TestARefusalCoolsDownAndTheBodyReachesTheClientWhole(t *testing.T) {
	v, a := newVendor(t), newAcme(t)
	v.next = func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprintf(w, `{"error": {"message": "slow down%s", "code": "rate_limit_exceeded"}}`, strings.Repeat("!", 200_000))
	}
	response, err := v.chat(t.Context(), a.transport(), "")
	if err != nil || response.StatusCode != http.StatusTooManyRequests {
		t.Fatal(response, err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil || len(body) < 200_000 || !json.Valid(body) {
		t.Fatal(len(body), err)
	}
	response.Body.Close()
	_, retry, err := client.Acquire(t.Context(), sluice.On(a.name+"#rpm"))
	if err != nil || retry == nil || retry.Reason != "cooling_down" {
		t.Fatal(retry, err)
	}
}

func TestBeyondThePatienceTheReplyIsA429AndTheCallIsNotMade(t *testing.T) {
	v := newVendor(t)
	rpm := declare(t, sluice.Requests(1, days), "rpm")
	through := &sluice.Transport{Client: client, Vendor: "openai", Buckets: []string{rpm}, Patience: 300 * time.Millisecond}
	for _, status := range []int{200, 429} {
		response, err := v.chat(t.Context(), through, "")
		if err != nil || response.StatusCode != status {
			t.Fatal(response, err)
		}
		body, _ := io.ReadAll(response.Body)
		if status == 429 && (response.Header.Get("Retry-After") == "" || !strings.Contains(string(body), "the call was not made")) {
			t.Fatal(response.Header, string(body))
		}
	}
	if v.calls != 1 {
		t.Fatal(v.calls)
	}
}

func TestAContextEndsTheWaitOfACall(t *testing.T) {
	v := newVendor(t)
	rpm := declare(t, sluice.Requests(1, 20*time.Second), "rpm")
	acquire(t, sluice.On(rpm))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	through := &sluice.Transport{Client: client, Vendor: "acme", Buckets: []string{rpm}}
	if _, err := v.chat(ctx, through, ""); !errors.Is(err, context.DeadlineExceeded) || v.calls != 0 {
		t.Fatal(err, v.calls)
	}
}

func TestACallThatCannotBeSentGivesEverythingBack(t *testing.T) {
	v, a := newVendor(t), newAcme(t)
	v.Close()
	if _, err := v.chat(t.Context(), a.transport(), ""); err == nil {
		t.Fatal("nobody is there")
	}
	a.become(0, 0, 0)
}

func TestCallsArePaidByAShare(t *testing.T) {
	v := newVendor(t)
	slots := declare(t, sluice.Concurrent(3), "concurrent")
	shares := map[string]sluice.Share{"search": {Part: 0.67}}
	if _, err := client.Ops().ApplyShares(t.Context(), slots, sluice.Concurrent(3), shares); err != nil {
		t.Fatal(err)
	}
	through := &sluice.Transport{Client: client, Vendor: "openai", Buckets: []string{slots}, Share: "search"}
	response, err := v.chat(t.Context(), through, `, "stream": true`)
	if err != nil {
		t.Fatal(err)
	}
	if common, search := level(t, slots), level(t, slots+"@search"); common != 1 || search != 1 {
		t.Fatal(common, search)
	}
	response.Body.Close()
	if _, err := v.chat(t.Context(), &sluice.Transport{Client: client, Share: "no good"}, ""); err == nil || !strings.Contains(err.Error(), `malformed share "no good"`) {
		t.Fatal(err)
	}
}

func TestATransportWithoutAClientSaysSo(t *testing.T) {
	v := newVendor(t)
	if _, err := v.chat(t.Context(), &sluice.Transport{}, ""); !errors.Is(err, sluice.ErrConfig) {
		t.Fatal(err)
	}
}

// The demo's vendor judges by its own books.
func TestTheVendorRefusesManyCallsWithoutTheLimiterAndNoneWithIt(t *testing.T) {
	sandbox := sluicetest.Start(t, sluicetest.Options{Vendors: true})
	own, err := sluice.FromEnv(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close(t.Context())
	base := sandbox.Variables["OPENAI_BASE_URL"]
	refused := func(through http.RoundTripper) (refused int64) {
		var calls sync.WaitGroup
		var count atomic.Int64
		for n := range 80 {
			calls.Add(1)
			go func() {
				defer calls.Done()
				more := ""
				if n%2 == 1 {
					more = `, "stream": true`
				}
				response, err := chat(t.Context(), base, through, more)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
				if response.StatusCode == http.StatusTooManyRequests {
					count.Add(1)
				}
			}()
		}
		calls.Wait()
		return count.Load()
	}
	if refused := refused(&sluice.Transport{Client: own, Vendor: "openai", AskUsage: true}); refused != 0 {
		t.Fatal(refused)
	}
	if refused := refused(http.DefaultTransport); refused < 20 {
		t.Fatal(refused)
	}
}
