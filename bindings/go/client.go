package sluice

import (
	"context"
	"fmt"
	"time"
)

// Client shares vendors' quotas through one DynamoDB table. One client serves all goroutines of a process.
type Client struct {
	target *target
}

// Request is what a call asks for. Make one with On.
type Request struct {
	dimensions   []string
	costs        map[string]float64
	share        *string
	maxWait      *float64
	ticketWithin *float64
	ticket       *string
}

// On asks for one call of each dimension, as openai#rpm.
func On(dimensions ...string) Request {
	return Request{dimensions: dimensions}
}

// Cost names what the call takes of a dimension. A bucket of tokens needs it.
func (r Request) Cost(dimension string, cost float64) Request {
	costs := map[string]float64{dimension: cost}
	for other, of := range r.costs {
		if other != dimension {
			costs[other] = of
		}
	}
	r.costs = costs
	return r
}

// Share names the share that pays, in place of the client's own; common is the part that no share has.
func (r Request) Share(share string) Request {
	r.share = &share
	return r
}

// MaxWait names how long the start of a slot may be away; by default SLUICE_DEFAULT_SLOT_TIMEOUT, 30 s.
// Acquire does not wait and ignores it.
func (r Request) MaxWait(longest time.Duration) Request {
	ms := milliseconds(longest)
	r.maxWait = &ms
	return r
}

// TicketWithin lets a refusal of Acquire carry a booked start up to so far ahead. WithSlot and
// Grant wait instead, and ignore it.
func (r Request) TicketWithin(longest time.Duration) Request {
	ms := milliseconds(longest)
	r.ticketWithin = &ms
	return r
}

// WithTicket redeems the ticket of an earlier refusal first. It is of Acquire; WithSlot and Grant ignore it.
func (r Request) WithTicket(ticket string) Request {
	r.ticket = &ticket
	return r
}

func (r Request) args() map[string]any {
	args := map[string]any{"dimensions": r.dimensions}
	if r.costs != nil {
		args["costs"] = r.costs
	}
	set(args, "share", r.share)
	set(args, "maxWaitMs", r.maxWait)
	set(args, "ticketWithinMs", r.ticketWithin)
	set(args, "withTicket", r.ticket)
	return args
}

// Acquire takes what a call needs from all dimensions or from none; it never waits for quota. It returns a grant, or a
// refusal.
func (c *Client) Acquire(ctx context.Context, request Request) (*Grant, *Retry, error) {
	// One request may serve calls that wait and calls that do not.
	request.maxWait = nil
	return granted(c.target.call(ctx, "acquire", request.args(), nil))
}

// Grant waits for a start and returns the grant: for a call whose end is elsewhere.
func (c *Client) Grant(ctx context.Context, request Request) (*Grant, error) {
	grant, _, err := granted(c.target.call(ctx, "slotGrant", request.inside(ctx, c), nil))
	return grant, err
}

// Redeem redeems a ticket alone: for work that must not run twice. reason is spent or lapsed if nothing was granted, and
// empty otherwise.
func (c *Client) Redeem(ctx context.Context, ticket string) (grant *Grant, retry *Retry, reason string, err error) {
	came, err := c.target.call(ctx, "redeem", map[string]any{"ticket": ticket}, nil)
	if err == nil && came.made == nil {
		var told toldRetry
		if err = came.into(&told); err == nil && told.NotRedeemed != "" {
			return nil, nil, told.NotRedeemed, nil
		}
	}
	grant, retry, err = granted(came, err)
	return grant, retry, "", err
}

func granted(came *answer, err error) (*Grant, *Retry, error) {
	if err != nil {
		return nil, nil, err
	}
	if came.made != nil {
		grant, err := newGrant(came.made, came.value)
		return grant, nil, err
	}
	var told toldRetry
	if err := came.into(&told); err != nil {
		return nil, nil, err
	}
	return nil, told.retry(), nil
}

// Admit asks whether a request for one dimension is worth beginning: whether it will be done within slo (zero for no such
// time). Its cost is 1, unless the request names another. backlog is what waits in a queue of the program's own, in tokens
// or slots. Admit takes nothing, and ignores the times and tickets of the request.
func (c *Client) Admit(ctx context.Context, request Request, slo time.Duration, backlog float64) (Admission, error) {
	if len(request.dimensions) != 1 {
		message := fmt.Sprintf("admit is asked for one dimension, not for %d", len(request.dimensions))
		return Admission{}, &Error{Class: "RequestError", Message: message}
	}
	args := map[string]any{"dimension": request.dimensions[0], "backlog": backlog}
	for dimension, cost := range request.costs {
		if dimension != request.dimensions[0] {
			message := fmt.Sprintf("a cost for %s, but the request is for %s", dimension, request.dimensions[0])
			return Admission{}, &Error{Class: "RequestError", Message: message}
		}
		args["cost"] = cost
	}
	set(args, "share", request.share)
	set(args, "sloMs", optional(slo))
	came, err := c.target.call(ctx, "admit", args, nil)
	if err != nil {
		return Admission{}, err
	}
	var told toldAdmission
	err = came.into(&told)
	return told.admission(), err
}

type toldAdmission struct {
	Admitted     bool           `json:"admitted"`
	WaitMs       float64        `json:"waitMs"`
	RetryAfterMs float64        `json:"retryAfterMs"`
	Reason       string         `json:"reason"`
	WouldShed    *toldAdmission `json:"wouldShed"`
}

func (t toldAdmission) admission() Admission {
	admission := Admission{
		Admitted:   t.Admitted,
		Wait:       duration(t.WaitMs),
		RetryAfter: duration(t.RetryAfterMs),
		Reason:     t.Reason,
	}
	if t.WouldShed != nil {
		shed := t.WouldShed.admission()
		admission.WouldShed = &shed
	}
	return admission
}

// Observe applies the rate-limit headers of a reply to one bucket, whose limit they may show. Only Observe of a grant or a
// slot lowers what is left: it knows which calls the vendor has counted.
func (c *Client) Observe(ctx context.Context, dimension string, reply Reply) (Observed, error) {
	return observed(c.target.call(ctx, "observe", reply.headers(dimension), nil))
}

// OnRateLimited lets the fleet react to a refused call for the dimensions of the request.
func (c *Client) OnRateLimited(ctx context.Context, request Request, reply Reply) (Decision, error) {
	args := request.args()
	args["status"], args["headers"] = reply.Status, reply.pairs()
	came, err := c.target.call(ctx, "onRateLimited", args, reply.Body)
	if err != nil {
		return Decision{}, err
	}
	var told toldDecision
	err = came.into(&told)
	return told.decision(), err
}

// Penalize lowers the level of a bucket to this share of it, for all callers. It returns the level after it, and whether
// there was anything to take.
func (c *Client) Penalize(ctx context.Context, dimension string, factor float64) (level float64, applied bool, err error) {
	var told struct {
		Applied bool    `json:"applied"`
		Level   float64 `json:"level"`
	}
	err = c.ask(ctx, "penalize", map[string]any{"dimension": dimension, "factor": factor}, &told)
	return told.Level, told.Applied, err
}

// CoolDown lets nothing be granted for a time, for all callers. It returns when the cool-down ends, which may be later: if
// one was in force.
func (c *Client) CoolDown(ctx context.Context, dimension string, pause time.Duration) (time.Time, error) {
	var told struct {
		Until instant `json:"until"`
	}
	err := c.ask(ctx, "coolDown", map[string]any{"dimension": dimension, "pauseMs": milliseconds(pause)}, &told)
	return told.Until.Time, err
}

// EndCoolDown ends a cool-down. It returns when it would have ended; zero if none was in force.
func (c *Client) EndCoolDown(ctx context.Context, dimension string) (time.Time, error) {
	var until instant
	err := c.ask(ctx, "endCoolDown", map[string]any{"dimension": dimension}, &until)
	return until.Time, err
}

// Refill sets the level of a rate bucket to its capacity.
func (c *Client) Refill(ctx context.Context, dimension string) error {
	return c.ask(ctx, "refill", map[string]any{"dimension": dimension}, nil)
}

// SetLevel sets the level of a rate bucket.
func (c *Client) SetLevel(ctx context.Context, dimension string, level float64) error {
	return c.ask(ctx, "refill", map[string]any{"dimension": dimension, "level": level}, nil)
}

// Limit is the limit of a bucket; nil if the table has no such bucket.
func (c *Client) Limit(ctx context.Context, dimension string) (*Limit, error) {
	var told *toldLimit
	if err := c.ask(ctx, "limit", map[string]any{"dimension": dimension}, &told); err != nil || told == nil {
		return nil, err
	}
	limit := told.limit()
	return &limit, nil
}

// Now is the time by which this client decides: this machine's clock, corrected by DynamoDB's replies.
func (c *Client) Now() time.Time {
	var now instant
	if came, err := c.target.look("now", struct{}{}); err == nil {
		_ = came.into(&now)
	}
	return now.Time
}

// Table is the name of the table.
func (c *Client) Table() string {
	return c.told().Table
}

// InlineRetryThreshold is the longest wait that is worth sleeping through (SLUICE_INLINE_RETRY_THRESHOLD).
func (c *Client) InlineRetryThreshold() time.Duration {
	return duration(c.told().InlineRetryThresholdMs)
}

// LongestAcquire is the longest time until Acquire has its answer, whatever hangs.
func (c *Client) LongestAcquire() time.Duration {
	return duration(c.told().LongestAcquireMs)
}

type toldClient struct {
	Table                  string  `json:"table"`
	InlineRetryThresholdMs float64 `json:"inlineRetryThresholdMs"`
	LongestAcquireMs       float64 `json:"longestAcquireMs"`
}

func (c *Client) told() (told toldClient) {
	if came, err := c.target.look("told", struct{}{}); err == nil {
		_ = came.into(&told)
	}
	return told
}

// FinishHealing waits for the search for slots of crashed holders that a refusal began.
func (c *Client) FinishHealing(ctx context.Context) error {
	return c.ask(ctx, "finishHealing", struct{}{}, nil)
}

// Close ends the client: nothing is granted any more, and what is held goes back, until the context ends, at most in 10 s.
func (c *Client) Close(ctx context.Context) (Closed, error) {
	within := 10 * time.Second
	if deadline, is := ctx.Deadline(); is {
		within = min(within, max(time.Until(deadline), 0))
	}
	var closed Closed
	// Its own time ends it.
	err := c.ask(context.WithoutCancel(ctx), "close", map[string]any{"withinMs": milliseconds(within)}, &closed)
	return closed, err
}

func (c *Client) ask(ctx context.Context, name string, args any, told any) error {
	came, err := c.target.call(ctx, name, args, nil)
	if err != nil || told == nil {
		return err
	}
	return came.into(told)
}
