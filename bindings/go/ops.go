package sluice

import (
	"context"
	"time"
)

// Ops is what operators do with a table; for tests and scripts.
type Ops struct {
	client *Client
}

// Ops are the operations on the client's table.
func (c *Client) Ops() Ops {
	return Ops{c}
}

// ApplyLimit gives a bucket this limit: creates it, full, or changes the limit and keeps the level. It returns created,
// unchanged, repaired or changed. Shares of the bucket stay.
func (o Ops) ApplyLimit(ctx context.Context, dimension string, limit Limit) (string, error) {
	var applied string
	args := map[string]any{"dimension": dimension, "limit": limit.told()}
	return applied, o.ask(ctx, "ops.applyLimit", args, &applied)
}

// Share is what a product is guaranteed of a bucket.
type Share struct {
	// The part of the bucket's capacity and refill rate, above 0 and below 1.
	Part float64
	// What others leave there when they borrow, in tokens or slots; nil for a quarter, and at least one call.
	Floor *float64
	// For work that can wait: the last to borrow.
	Background bool
}

// ApplyShares is ApplyLimit for a bucket that has these shares and no others.
func (o Ops) ApplyShares(ctx context.Context, dimension string, limit Limit, shares map[string]Share) (string, error) {
	var applied string
	told := map[string]any{}
	for name, share := range shares {
		terms := map[string]any{"part": share.Part, "background": share.Background}
		if share.Floor != nil {
			terms["floor"] = *share.Floor
		}
		told[name] = terms
	}
	args := map[string]any{"dimension": dimension, "limit": limit.told(), "shares": told}
	return applied, o.ask(ctx, "ops.applyLimit", args, &applied)
}

type toldBucket struct {
	Dimension        string    `json:"dimension"`
	Limit            toldLimit `json:"limit"`
	Level            float64   `json:"level"`
	CoolingDownUntil instant   `json:"coolingDownUntil"`
}

func (t toldBucket) bucket() Bucket {
	return Bucket{t.Dimension, t.Limit.limit(), t.Level, t.CoolingDownUntil.Time}
}

// Bucket is the bucket; nil if there is none.
func (o Ops) Bucket(ctx context.Context, dimension string) (*Bucket, error) {
	var told *toldBucket
	if err := o.ask(ctx, "ops.bucket", map[string]any{"dimension": dimension}, &told); err != nil || told == nil {
		return nil, err
	}
	bucket := told.bucket()
	return &bucket, nil
}

// Buckets are all that can be read. A scan: for people and tests.
func (o Ops) Buckets(ctx context.Context) ([]Bucket, error) {
	var told []toldBucket
	if err := o.ask(ctx, "ops.buckets", struct{}{}, &told); err != nil {
		return nil, err
	}
	buckets := make([]Bucket, len(told))
	for at, one := range told {
		buckets[at] = one.bucket()
	}
	return buckets, nil
}

// RemoveBucket removes a bucket; false if there was none.
func (o Ops) RemoveBucket(ctx context.Context, dimension string) (bool, error) {
	var removed bool
	return removed, o.ask(ctx, "ops.removeBucket", map[string]any{"dimension": dimension}, &removed)
}

// Leases are all leases. A scan: for people and tests.
func (o Ops) Leases(ctx context.Context) ([]Lease, error) {
	var told []struct {
		Key       string  `json:"key"`
		Dimension string  `json:"dimension"`
		Ends      instant `json:"ends"`
		Caller    string  `json:"caller"`
		IsInline  bool    `json:"isInline"`
	}
	if err := o.ask(ctx, "ops.leases", struct{}{}, &told); err != nil {
		return nil, err
	}
	leases := make([]Lease, len(told))
	for at, one := range told {
		leases[at] = Lease{one.Key, one.Dimension, one.Ends.Time, one.Caller, one.IsInline}
	}
	return leases, nil
}

// Sweep gives back what crashed callers held. Nothing new begins after budget; zero for no such time.
func (o Ops) Sweep(ctx context.Context, budget time.Duration) (SweepReport, error) {
	args := map[string]any{}
	set(args, "budgetMs", optional(budget))
	var told struct {
		SweepReport
		DurationMs float64 `json:"durationMs"`
	}
	err := o.ask(ctx, "ops.sweep", args, &told)
	told.Duration = duration(told.DurationMs)
	return told.SweepReport, err
}

func (o Ops) ask(ctx context.Context, name string, args any, told any) error {
	return o.client.ask(ctx, name, args, told)
}
