package sluice

import (
	"context"
	"sync/atomic"
)

// block is the call of a slot: what runs in it, has it in its context. A wait inside of it for another slot
// of the same bucket would be a wait for itself.
type block struct {
	client   *target
	limits   []string
	around   *block
	hasEnded atomic.Bool
}

type blockKey struct{}

// innermost is the innermost call of a slot that has not ended.
func innermost(ctx context.Context) *block {
	of, _ := ctx.Value(blockKey{}).(*block)
	for of != nil && of.hasEnded.Load() {
		of = of.around
	}
	return of
}

// inside has the concurrency limits of a client of which the calls around hold slots.
func inside(ctx context.Context, client *target) []string {
	limits := []string{}
	for of := innermost(ctx); of != nil; of = of.around {
		if of.client == client && !of.hasEnded.Load() {
			limits = append(limits, of.limits...)
		}
	}
	return limits
}

// inside has the arguments of a wait for a start.
func (r Request) inside(ctx context.Context, client *Client) map[string]any {
	// Whoever waits for its start needs no ticket for it.
	r.ticketWithin, r.ticket = nil, nil
	args := r.args()
	args["inside"] = inside(ctx, client.target)
	return args
}
