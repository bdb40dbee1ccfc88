package sluice

import (
	"context"
	"time"
)

// Slot is a slot that is under way.
type Slot struct {
	target *target
	// Acquiring is how long DynamoDB took to grant the slot.
	Acquiring time.Duration
	// StartAt is when the call was allowed to start.
	StartAt time.Time
	// Basis is table, or a decision of this process: see Grant.
	Basis string
}

// WithSlot waits for a start, runs call, and gives back what the slot held on every way out: after success,
// an error, a panic. The context bounds the wait, and that of the call is made of it: inside of call, use the
// one that it is given. The tokens of a call that returns an error go back, unless a successful reply was
// reported. If the client was closed while the call ran, a call without an error is ErrClosed.
func (c *Client) WithSlot(
	ctx context.Context, request Request, call func(context.Context, *Slot) error,
) (err error) {
	came, err := c.target.call(ctx, "slot", request.inside(ctx, c), nil)
	if err != nil {
		return err
	}
	var told struct {
		AcquiringMs float64  `json:"acquiringMs"`
		StartAt     instant  `json:"startAt"`
		Basis       string   `json:"basis"`
		Limits      []string `json:"concurrencyLimits"`
	}
	if err := came.into(&told); err != nil {
		return err
	}
	slot := &Slot{came.made, duration(told.AcquiringMs), told.StartAt.Time, told.Basis}
	hasFailed := true
	around := &block{client: c.target, limits: told.Limits, around: innermost(ctx)}
	defer func() {
		around.hasEnded.Store(true)
		// Not cut short. A failed release is logged by the SDK, and the sweep gives the slot back.
		_, ended := slot.target.call(context.WithoutCancel(ctx), "end", map[string]any{"hasFailed": hasFailed}, nil)
		if err == nil {
			err = ended
		}
	}()
	err = call(context.WithValue(ctx, blockKey{}, around), slot)
	hasFailed = err != nil
	return err
}

// Used records what the call really used of a dimension; it is settled when the slot ends.
func (s *Slot) Used(dimension string, used float64) error {
	_, err := s.target.look("used", map[string]any{"dimension": dimension, "used": used})
	return err
}

// Observe applies the rate-limit headers of the reply to one bucket.
func (s *Slot) Observe(ctx context.Context, dimension string, reply Reply) (Observed, error) {
	return observed(s.target.call(ctx, "observe", reply.headers(dimension), nil))
}

// Reply reports the vendor's reply: applies the headers to every bucket of the slot, or lets the fleet react to a refusal,
// and records what was used (nil if that is not known).
func (s *Slot) Reply(ctx context.Context, reply Reply, used map[string]float64) (Replied, error) {
	return replied(s.target.call(ctx, "reply", reply.args(used), reply.Body))
}

// StartIn is when one rate limit alone allowed the start; zero for a limit that the slot was not asked for, and for a
// concurrency limit.
func (s *Slot) StartIn(dimension string) time.Time {
	var at instant
	if came, err := s.target.look("startIn", dimension); err == nil {
		_ = came.into(&at)
	}
	return at.Time
}

// IsLeaseLost tells whether the lease ended while the call ran, so that the slot may be in use twice.
func (s *Slot) IsLeaseLost() (isLost bool) {
	if came, err := s.target.look("isLeaseLost", struct{}{}); err == nil {
		_ = came.into(&isLost)
	}
	return isLost
}
