package sluice

import (
	"context"
	"encoding/json"
	"time"
)

// Grant is permission to call the vendor. Release it when the call is over. A grant that is forgotten gives back its slots
// when it is collected; its tokens stay spent.
type Grant struct {
	target *target
	// Costs is what the grant took, by dimension.
	Costs map[string]float64
	// StartAt is when the call may be made.
	StartAt time.Time
	// BookedWait is how long after the grant that is: zero, unless a start was booked.
	BookedWait time.Duration
	// Basis is table, or local_share, unchecked or shadow: a decision of this process in an outage or in shadow mode.
	Basis string
}

func newGrant(made *target, told json.RawMessage) (*Grant, error) {
	var of struct {
		Costs        map[string]float64 `json:"costs"`
		StartAt      instant            `json:"startAt"`
		BookedWaitMs float64            `json:"bookedWaitMs"`
		Basis        string             `json:"basis"`
	}
	err := json.Unmarshal(told, &of)
	return &Grant{made, of.Costs, of.StartAt.Time, duration(of.BookedWaitMs), of.Basis}, err
}

// Release gives back what the call held: slots and lease rows. Tokens stay spent. It returns given_back, already_capped or
// lease_gone; each is fine for the caller.
func (g *Grant) Release(ctx context.Context) (string, error) {
	return g.end(ctx, "release")
}

// Failed ends a failed call: what its vendor does not count goes back too.
func (g *Grant) Failed(ctx context.Context) (string, error) {
	return g.end(ctx, "failed")
}

// Cancel gives everything back: the call was not made.
func (g *Grant) Cancel(ctx context.Context) error {
	_, err := g.target.call(context.WithoutCancel(ctx), "cancel", struct{}{}, nil)
	return err
}

// end is not cut short: what is given back half would come back when its lease ends.
func (g *Grant) end(ctx context.Context, how string) (string, error) {
	came, err := g.target.call(context.WithoutCancel(ctx), how, struct{}{}, nil)
	if err != nil {
		return "", err
	}
	var released string
	return released, came.into(&released)
}

// Renew renews the leases now.
func (g *Grant) Renew(ctx context.Context) error {
	_, err := g.target.call(ctx, "renew", struct{}{}, nil)
	return err
}

// Settle charges what the call really used of a dimension.
func (g *Grant) Settle(ctx context.Context, dimension string, used float64) (Settled, error) {
	came, err := g.target.call(ctx, "settle", map[string]any{"dimension": dimension, "used": used}, nil)
	if err != nil {
		return Settled{}, err
	}
	var settled Settled
	return settled, came.into(&settled)
}

// Observe applies the rate-limit headers of the reply to one bucket.
func (g *Grant) Observe(ctx context.Context, dimension string, reply Reply) (Observed, error) {
	return observed(g.target.call(ctx, "observe", reply.headers(dimension), nil))
}

// Reply reports the vendor's reply: settles what was used (nil if that is not known), applies the headers, or lets the
// fleet react to a refusal.
func (g *Grant) Reply(ctx context.Context, reply Reply, used map[string]float64) (Replied, error) {
	return replied(g.target.call(ctx, "reply", reply.args(used), reply.Body))
}

// HasEnded tells whether the grant was released.
func (g *Grant) HasEnded() bool {
	return g.state().HasEnded
}

// IsLeaseLost tells whether a lease ended while the grant was held, so that its slot may be in use twice.
func (g *Grant) IsLeaseLost() bool {
	return g.state().IsLeaseLost
}

// LeaseEnds is when the first of the grant's leases ends, as last renewed; zero if it has none.
func (g *Grant) LeaseEnds() time.Time {
	return g.state().LeaseEnds.Time
}

type grantState struct {
	HasEnded    bool    `json:"hasEnded"`
	IsLeaseLost bool    `json:"isLeaseLost"`
	LeaseEnds   instant `json:"leaseEnds"`
}

func (g *Grant) state() (state grantState) {
	if came, err := g.target.look("state", struct{}{}); err == nil {
		_ = came.into(&state)
	}
	return state
}
