package sluice

import "time"

// Ticket is a booked start, for work that waits in a queue. Its Text is to be sent with the work.
type Ticket struct {
	Text       string
	StartAt    time.Time
	UseBy      time.Time
	Dimensions []string
	Key        string
}

// Retry is a refusal: how long to wait, for which dimension, and why.
type Retry struct {
	Wait time.Duration
	// Dimension causes the longest wait.
	Dimension string
	// Reason is exhausted, no_free_slot, cooling_down or contended.
	Reason string
	// DelaySeconds is the value for SQS: one second more than the wait, at most 900.
	DelaySeconds int
	// Ticket is that of a booked start, if one was asked for.
	Ticket *Ticket
	// NoTicket says why there is none, if one was asked for.
	NoTicket string
	Message  string
}

func (r *Retry) String() string {
	return r.Message
}

type toldTicket struct {
	Text       string   `json:"text"`
	StartAt    instant  `json:"startAt"`
	UseBy      instant  `json:"useBy"`
	Dimensions []string `json:"dimensions"`
	Key        string   `json:"key"`
}

type toldRetry struct {
	WaitMs       float64     `json:"waitMs"`
	Dimension    string      `json:"dimension"`
	Reason       string      `json:"reason"`
	DelaySeconds int         `json:"delaySeconds"`
	Ticket       *toldTicket `json:"ticket"`
	NoTicket     string      `json:"noTicket"`
	Message      string      `json:"message"`
	NotRedeemed  string      `json:"notRedeemed"`
}

func (t *toldRetry) retry() *Retry {
	retry := &Retry{
		Wait:         duration(t.WaitMs),
		Dimension:    t.Dimension,
		Reason:       t.Reason,
		DelaySeconds: t.DelaySeconds,
		NoTicket:     t.NoTicket,
		Message:      t.Message,
	}
	if of := t.Ticket; of != nil {
		retry.Ticket = &Ticket{of.Text, of.StartAt.Time, of.UseBy.Time, of.Dimensions, of.Key}
	}
	return retry
}

// Settled tells how a settlement ended.
type Settled struct {
	// Outcome is as_taken, returned, owed or capped.
	Outcome string `json:"outcome"`
	// Amount went back (returned), or was taken in addition (owed, capped).
	Amount float64 `json:"amount"`
	// NotCharged is, of capped, what the call used beyond that.
	NotCharged float64 `json:"notCharged"`
}

// Decision tells what to do with a call after its reply.
type Decision struct {
	// Action is retry_inline, requeue, give_up or not_refused.
	Action string
	// Wait is zero if there is none.
	Wait         time.Duration
	DelaySeconds int
}

type toldDecision struct {
	Action       string  `json:"action"`
	WaitMs       float64 `json:"waitMs"`
	DelaySeconds int     `json:"delaySeconds"`
}

func (t toldDecision) decision() Decision {
	return Decision{t.Action, duration(t.WaitMs), t.DelaySeconds}
}

// Observed is what a vendor's headers said about one bucket, and what they changed.
type Observed struct {
	// Level is not_said, no_grant, agrees, lowered or stale.
	Level     string  `json:"level"`
	LoweredBy float64 `json:"loweredBy"`
	// Limit is not_said, not_lower, lower or adopted.
	Limit         string  `json:"limit"`
	ReportedLimit float64 `json:"reportedLimit"`
	// Unreadable is the number of headers that could not be read.
	Unreadable int `json:"unreadable"`
}

// Replied is what a reported reply meant, and what it changed.
type Replied struct {
	Decision Decision
	// Observed is by dimension; empty after a refusal.
	Observed map[string]Observed
}

// Admission tells whether a request is worth beginning. Nothing was taken.
type Admission struct {
	Admitted bool
	Wait     time.Duration
	// RetryAfter is spread, so that requests that are shed together do not return together.
	RetryAfter time.Duration
	// Reason is over_slo or upstream_down, of a request that should not begin.
	Reason string
	// WouldShed is, in shadow mode, the refusal that enforcing would have returned.
	WouldShed *Admission
}

// Closed tells how a client ended.
type Closed struct {
	// CutOff tells whether calls still ran, or grants were held, when their time was over.
	CutOff bool `json:"cutOff"`
	// Left could not be given back in time. It comes back when its lease ends.
	Left []struct {
		Dimension string `json:"dimension"`
		Lease     string `json:"lease"`
	} `json:"left"`
}

// Limit is the limit of a bucket. Make one with Requests, Tokens or Concurrent.
type Limit struct {
	// Type is requests, tokens or concurrent.
	Type string
	// Capacity is the largest burst, or the number of slots.
	Capacity float64
	// Per is the time in which Refill flows back; a minute if it is zero.
	Per time.Duration
	// Refill is the capacity if it is zero.
	Refill float64
	// CostPerCall is what a call takes if it names no cost; 1 if it is zero, and none of a bucket of tokens.
	CostPerCall float64
}

// Requests is so many requests in a time.
func Requests(capacity float64, per time.Duration) Limit {
	return Limit{Type: "requests", Capacity: capacity, Per: per}
}

// Tokens is so many tokens in a time.
func Tokens(capacity float64, per time.Duration) Limit {
	return Limit{Type: "tokens", Capacity: capacity, Per: per}
}

// Concurrent is so many calls at the same time.
func Concurrent(slots float64) Limit {
	return Limit{Type: "concurrent", Capacity: slots}
}

type toldLimit struct {
	Type        string   `json:"type"`
	Capacity    float64  `json:"capacity"`
	PerMs       *float64 `json:"perMs,omitempty"`
	Refill      *float64 `json:"refill,omitempty"`
	CostPerCall *float64 `json:"costPerCall,omitempty"`
}

func (l Limit) told() toldLimit {
	number := func(n float64) *float64 {
		if n == 0 {
			return nil
		}
		return &n
	}
	return toldLimit{l.Type, l.Capacity, optional(l.Per), number(l.Refill), number(l.CostPerCall)}
}

func (t toldLimit) limit() Limit {
	of := func(n *float64) float64 {
		if n == nil {
			return 0
		}
		return *n
	}
	return Limit{t.Type, t.Capacity, duration(of(t.PerMs)), of(t.Refill), of(t.CostPerCall)}
}

// Bucket is a bucket as it was read.
type Bucket struct {
	Dimension string
	Limit     Limit
	// Level is tokens or free slots; below zero if starts are booked ahead.
	Level float64
	// CoolingDownUntil is zero if there is no cool-down.
	CoolingDownUntil time.Time
}

// Lease is a lease as it was listed. Of one that cannot be read, the key alone is known.
type Lease struct {
	Key       string
	Dimension string
	Ends      time.Time
	Caller    string
	IsInline  bool
}

// SweepReport tells what a sweep did.
type SweepReport struct {
	RowsScanned int `json:"rowsScanned"`
	Expired     int `json:"expired"`
	// Restored is the number of leases that were given back.
	Restored      int `json:"restored"`
	RestoredSlots int `json:"restoredSlots"`
	Unparsable    int `json:"unparsable"`
	// UnreadableBuckets is the number of buckets that cannot be read: all of their callers get errors.
	UnreadableBuckets int `json:"unreadableBuckets"`
	// Left is the number of leases that are left to the next sweep.
	Left     int           `json:"left"`
	Requests int           `json:"requests"`
	Duration time.Duration `json:"-"`
}

// Reservation is what a tracker knows of a grant.
type Reservation struct {
	ID              string
	RequestID       string
	BucketID        string
	EstimatedTokens float64
	CreatedAt       time.Time
}

// StaleReport tells how the releases of stale grants ended.
type StaleReport struct {
	GivenBack int `json:"givenBack"`
	Late      int `json:"late"`
	Failed    int `json:"failed"`
}
