package sluice

import (
	"context"
	"encoding/json"
	"time"
)

// TrackerConfig has the settings of a tracker. A zero value stands for the default.
type TrackerConfig struct {
	MaxReservations      int           // 10,000
	MaxReservationAge    time.Duration // 5 minutes
	StaleCleanupInterval time.Duration // 30 s
}

// ReservationTracker holds grants from the start of a call to its end, by request and bucket, in this process alone. A
// grant that nobody takes within MaxReservationAge is stale: the background task, or a store that finds no room, releases
// it.
type ReservationTracker struct {
	target *target
}

// Tracked is a grant that was taken out, with what is known of it.
type Tracked struct {
	Reservation Reservation
	Grant       *Grant
}

// Reservations makes a tracker for grants of calls whose two ends do not share a scope, such as streams.
func (c *Client) Reservations(config TrackerConfig) (*ReservationTracker, error) {
	args := map[string]any{}
	if config.MaxReservations > 0 {
		args["maxReservations"] = config.MaxReservations
	}
	set(args, "maxReservationAgeMs", optional(config.MaxReservationAge))
	set(args, "staleCleanupIntervalMs", optional(config.StaleCleanupInterval))
	came, err := c.target.look("reservations", args)
	if err != nil {
		return nil, err
	}
	return &ReservationTracker{came.made}, nil
}

// Start starts the background task; it does nothing if it runs.
func (t *ReservationTracker) Start() {
	_, _ = t.target.look("start", struct{}{})
}

// Stop ends the background task, and waits for its releases under way.
func (t *ReservationTracker) Stop(ctx context.Context) error {
	_, err := t.target.call(ctx, "stop", struct{}{}, nil)
	return err
}

func ids(requestID, bucketID string) map[string]any {
	ids := map[string]any{"requestId": requestID}
	set(ids, "bucketId", text(bucketID))
	return ids
}

// Store stores a grant, and returns the id of its reservation. After an error, the caller still holds the grant.
func (t *ReservationTracker) Store(requestID, bucketID string, grant *Grant) (string, error) {
	came, err := t.target.store(ids(requestID, bucketID), grant.target)
	if err != nil {
		return "", err
	}
	var id string
	return id, came.into(&id)
}

type toldReservation struct {
	ReservationID   string   `json:"reservationId"`
	RequestID       string   `json:"requestId"`
	BucketID        string   `json:"bucketId"`
	EstimatedTokens *float64 `json:"estimatedTokens"`
	CreatedAt       instant  `json:"createdAt"`
}

func (t toldReservation) reservation() Reservation {
	reservation := Reservation{ID: t.ReservationID, RequestID: t.RequestID, BucketID: t.BucketID, CreatedAt: t.CreatedAt.Time}
	if t.EstimatedTokens != nil {
		reservation.EstimatedTokens = *t.EstimatedTokens
	}
	return reservation
}

// Get is what is known of a grant, which stays; nil if there is none.
func (t *ReservationTracker) Get(requestID, bucketID string) (*Reservation, error) {
	came, err := t.target.look("get", ids(requestID, bucketID))
	if err != nil {
		return nil, err
	}
	var told *toldReservation
	if err := came.into(&told); err != nil || told == nil {
		return nil, err
	}
	reservation := told.reservation()
	return &reservation, nil
}

// GetAndClear takes a grant out, for the end of its call; nil if there is none. Without a bucketID, it is the oldest of the
// request. If several callers take it at once, one gets it.
func (t *ReservationTracker) GetAndClear(requestID, bucketID string) (*Tracked, error) {
	taken, err := tracked(t.target.list("take", ids(requestID, bucketID)))
	if err != nil || len(taken) == 0 {
		return nil, err
	}
	return &taken[0], nil
}

// ClearAllForRequest takes out all grants of a request, oldest first: for a request that failed.
func (t *ReservationTracker) ClearAllForRequest(requestID string) ([]Tracked, error) {
	return tracked(t.target.list("takeRequest", ids(requestID, "")))
}

// GetAndClearStale takes out all grants that were stored before cutoff, oldest first; those older than
// MaxReservationAge, if cutoff is zero.
func (t *ReservationTracker) GetAndClearStale(cutoff time.Time) ([]Tracked, error) {
	args := map[string]any{}
	if !cutoff.IsZero() {
		args["storedBefore"] = float64(cutoff.UnixMicro()) / 1e3
	}
	return tracked(t.target.list("takeStale", args))
}

func tracked(came []*answer, err error) ([]Tracked, error) {
	taken := make([]Tracked, 0, len(came))
	for _, one := range came {
		var told struct {
			Reservation toldReservation `json:"reservation"`
			Grant       json.RawMessage `json:"grant"`
		}
		if err := one.into(&told); err != nil {
			return taken, err
		}
		grant, err := newGrant(one.made, told.Grant)
		if err != nil {
			return taken, err
		}
		taken = append(taken, Tracked{told.Reservation.reservation(), grant})
	}
	return taken, err
}

// ReleaseStale takes out all stale grants and releases them.
func (t *ReservationTracker) ReleaseStale(ctx context.Context) (StaleReport, error) {
	came, err := t.target.call(ctx, "releaseStale", struct{}{}, nil)
	if err != nil {
		return StaleReport{}, err
	}
	var report StaleReport
	return report, came.into(&report)
}

// StaleReport tells how the releases of stale grants ended, since the tracker was made.
func (t *ReservationTracker) StaleReport() (report StaleReport) {
	if came, err := t.target.look("staleReport", struct{}{}); err == nil {
		_ = came.into(&report)
	}
	return report
}

// CompactHeap removes taken grants from the heap of ages, and returns how many. The tracker does so by itself; this frees
// memory sooner.
func (t *ReservationTracker) CompactHeap() (removed int) {
	if came, err := t.target.look("compact", struct{}{}); err == nil {
		_ = came.into(&removed)
	}
	return removed
}

// ReservationCount is the number of grants held.
func (t *ReservationTracker) ReservationCount() int {
	return t.counts().ReservationCount
}

// RequestCount is the number of requests for which a grant is held.
func (t *ReservationTracker) RequestCount() int {
	return t.counts().RequestCount
}

// StaleEntryRatio is the share of taken grants in the heap of ages, 0 to 1.
func (t *ReservationTracker) StaleEntryRatio() float64 {
	return t.counts().StaleEntryRatio
}

type trackerCounts struct {
	StaleEntryRatio  float64 `json:"staleEntryRatio"`
	ReservationCount int     `json:"reservationCount"`
	RequestCount     int     `json:"requestCount"`
}

func (t *ReservationTracker) counts() (counts trackerCounts) {
	if came, err := t.target.look("counts", struct{}{}); err == nil {
		_ = came.into(&counts)
	}
	return counts
}

// EstimatorConfig has the settings of an estimator. A zero value stands for the default.
type EstimatorConfig struct {
	Quantile      float64
	HalfLifeCalls int
	MaxKeys       int
}

// TokenEstimator estimates what a call will most likely use, from what calls of its kind used.
type TokenEstimator struct {
	target *target
}

// NewTokenEstimator makes an estimator.
func NewTokenEstimator(config EstimatorConfig) (*TokenEstimator, error) {
	args := map[string]any{}
	if config.Quantile != 0 {
		args["quantile"] = config.Quantile
	}
	if config.HalfLifeCalls != 0 {
		args["halfLifeCalls"] = config.HalfLifeCalls
	}
	if config.MaxKeys != 0 {
		args["maxKeys"] = config.MaxKeys
	}
	made, err := estimate(args)
	if err != nil {
		return nil, err
	}
	return &TokenEstimator{made}, nil
}

// Observe tells what a call of a kind used.
func (e *TokenEstimator) Observe(key string, used uint64) {
	_, _ = e.target.look("observe", map[string]any{"key": key, "used": used})
}

// Estimate is what a call of a kind will most likely use; false while too few calls are known.
func (e *TokenEstimator) Estimate(key string) (uint64, bool) {
	var told *uint64
	if came, err := e.target.look("estimate", map[string]any{"key": key}); err == nil {
		_ = came.into(&told)
	}
	if told == nil {
		return 0, false
	}
	return *told, true
}

// EstimateOr is the estimate, at most most; that, while too few calls are known.
func (e *TokenEstimator) EstimateOr(key string, most uint64) uint64 {
	if likely, known := e.Estimate(key); known {
		return min(likely, most)
	}
	return most
}

// KeyCount is the number of kinds that the estimator knows.
func (e *TokenEstimator) KeyCount() (count int) {
	if came, err := e.target.look("keyCount", struct{}{}); err == nil {
		_ = came.into(&count)
	}
	return count
}
