package sluice_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	sluice "github.com/OWNER/sluice/bindings/go"
)

func TestACallTakesWhatIsThereAndARefusalSaysWhenToComeBack(t *testing.T) {
	rpm := declare(t, sluice.Requests(2, 2*time.Minute), "rpm")
	grant := acquire(t, sluice.On(rpm))
	if grant.Costs[rpm] != 1 || grant.Basis != "table" || grant.HasEnded() {
		t.Fatal(grant)
	}
	acquire(t, sluice.On(rpm))
	none, retry, err := client.Acquire(t.Context(), sluice.On(rpm))
	if none != nil || err != nil || retry.Dimension != rpm || retry.Reason != "exhausted" || retry.Ticket != nil {
		t.Fatal(none, retry, err)
	}
	if retry.Wait <= 55*time.Second || retry.Wait > time.Minute || retry.DelaySeconds < 56 {
		t.Fatal(retry.Wait, retry.DelaySeconds)
	}
	if released, err := grant.Release(t.Context()); released != "given_back" || err != nil {
		t.Fatal(released, err)
	}
	if _, err := grant.Release(t.Context()); !errors.Is(err, sluice.ErrEnded) || !errors.Is(err, sluice.ErrLimit) {
		t.Fatal(err)
	}
}

func TestAShareOfABucketIsKeptForItsProduct(t *testing.T) {
	limit := sluice.Requests(20, 24*time.Hour)
	rpm := declare(t, limit, "rpm")
	shares := map[string]sluice.Share{"search": {Part: 0.5}, "checkout/batch": {Part: 0.1, Background: true}}
	if applied, err := client.Ops().ApplyShares(t.Context(), rpm, limit, shares); applied != "changed" || err != nil {
		t.Fatal(applied, err)
	}
	if applied, err := client.Ops().ApplyLimit(t.Context(), rpm, limit); applied != "unchanged" || err != nil {
		t.Fatal("its shares do not stay:", applied, err)
	}
	taken := 0
	for ; taken <= 20; taken++ {
		if grant, _, err := client.Acquire(t.Context(), sluice.On(rpm)); grant == nil || err != nil {
			break
		}
	}
	if taken < 8 || taken >= 20 {
		t.Fatal("neither what the common line has nor what others lend:", taken)
	}
	acquire(t, sluice.On(rpm).Share("search"))
	if applied, err := client.Ops().ApplyShares(t.Context(), rpm, limit, nil); applied != "changed" || err != nil {
		t.Fatal(applied, err)
	}
	for name, part := range map[string]float64{"search": 1.5, "two words": 0.5} {
		wrong := map[string]sluice.Share{name: {Part: part}}
		if _, err := client.Ops().ApplyShares(t.Context(), rpm, limit, wrong); err == nil {
			t.Fatal(name, part)
		}
	}
}

func TestTheEnvironmentNamesTheShareThatPays(t *testing.T) {
	limit, floor := sluice.Requests(10, days), 5.0
	rpm := declare(t, limit, "rpm")
	shares := map[string]sluice.Share{"search": {Part: 0.5, Floor: &floor}}
	if _, err := client.Ops().ApplyShares(t.Context(), rpm, limit, shares); err != nil {
		t.Fatal(err)
	}
	for isGranted(t, client, rpm) {
	}
	for share, want := range map[string]bool{"common": false, "search": true} {
		admission, err := client.Admit(t.Context(), sluice.On(rpm).Share(share), time.Second, 0)
		if err != nil || admission.Admitted != want {
			t.Error(share, admission, err)
		}
	}
	if _, err := client.Admit(t.Context(), sluice.On(rpm, "b"), time.Second, 0); !errors.Is(err, sluice.ErrRequest) {
		t.Error("it judges one dimension:", err)
	}
	t.Setenv("SLUICE_SHARE", "search")
	for share, want := range map[string]bool{"": true, "common": false} {
		if isGranted(t, clientOf(t, sluice.Config{Share: share}), rpm) != want {
			t.Error(share, "is granted:", !want)
		}
	}
}

func TestACallNamesTheShareThatPays(t *testing.T) {
	rpm := declare(t, sluice.Requests(5, 24*time.Hour), "rpm")
	// A bucket that does not have the share is asked as if none was named.
	acquire(t, sluice.On(rpm).Share("search"))
	if _, _, err := client.Acquire(t.Context(), sluice.On(rpm).Share("two words")); !errors.Is(err, sluice.ErrRequest) {
		t.Fatal(err)
	}
	wrong := sluice.On(rpm).Share("two words")
	if _, err := client.Grant(t.Context(), wrong); !errors.Is(err, sluice.ErrRequest) {
		t.Fatal(err)
	}
	if _, err := client.OnRateLimited(t.Context(), wrong, sluice.Reply{Status: 429}); err == nil {
		t.Fatal("it is no name of a share")
	}
	if _, err := sluice.FromEnv(t.Context(), sluice.Config{Share: "two words"}); err == nil {
		t.Fatal("it is no name of a share")
	}
}

func TestErrorsHaveTheirClassAndTheTextOfTheSDK(t *testing.T) {
	_, _, err := client.Acquire(t.Context(), sluice.On("never#declared"))
	if !errors.Is(err, sluice.ErrUnknownDimension) || !errors.Is(err, sluice.ErrAcquire) || errors.Is(err, sluice.ErrStore) {
		t.Fatal(err)
	}
	var told *sluice.Error
	if !errors.As(err, &told) || told.Class != "UnknownDimensionError" || told.DelaySeconds() != 1 {
		t.Fatal(err)
	}
	if _, _, err = client.Acquire(t.Context(), sluice.On("no name")); !errors.Is(err, sluice.ErrRequest) {
		t.Fatal(err)
	}
	rpm := declare(t, sluice.Requests(2, days), "rpm")
	if _, _, err = client.Acquire(t.Context(), sluice.On(rpm).Cost(rpm, 3)); !errors.Is(err, sluice.ErrNeverSatisfiable) {
		t.Fatal(err)
	}
	if _, err = sluice.New(t.Context(), sluice.Config{}); !errors.Is(err, sluice.ErrConfig) {
		t.Fatal(err)
	}
	if _, err = sluice.FromEnv(t.Context(), sluice.Config{LeaseTTL: time.Millisecond}); !errors.Is(err, sluice.ErrArgument) {
		t.Fatal(err)
	}
	part := 3.0
	for text, config := range map[string]sluice.Config{
		"Config.LeaseTTL = 1ms: it must be at least 1s":                {LeaseTTL: time.Millisecond},
		"Config.AttemptTimeout = 20µs: it must be at least 50ms":       {AttemptTimeout: 20 * time.Microsecond},
		`Config.Mode = "off": it must be enforce or shadow`:            {Mode: "off"},
		"Config.WarnAt = 3: it must be between 0 and 1, as in 0.8":     {WarnAt: &part},
		`Config.Leases = "none": it must be concurrent, all or inline`: {Leases: "none"},
	} {
		if _, err := sluice.FromEnv(t.Context(), config); err == nil || err.Error() != text {
			t.Error(err)
		}
	}
	config := sluice.Config{Table: "no-such-table", Region: "local", Endpoint: os.Getenv("SLUICE_ENDPOINT_URL")}
	elsewhere, err := sluice.New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err = elsewhere.Acquire(t.Context(), sluice.On(rpm)); !errors.Is(err, sluice.ErrNoTable) {
		t.Fatal(err)
	}
}

func TestWhatACallUsedIsSettledAndAFailedCallGivesItsTokensBack(t *testing.T) {
	tpm := declare(t, sluice.Tokens(1_000, days), "tpm")
	acquire(t, sluice.On(tpm).Cost(tpm, 500))
	grant := acquire(t, sluice.On(tpm).Cost(tpm, 300))
	settled, err := grant.Settle(t.Context(), tpm, 100)
	if err != nil || settled.Outcome != "returned" || math.Round(settled.Amount) != 200 {
		t.Fatal(settled, err)
	}
	if left := math.Round(level(t, tpm)); left != 400 {
		t.Fatal(left)
	}
	if _, err := acquire(t, sluice.On(tpm).Cost(tpm, 300)).Failed(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := acquire(t, sluice.On(tpm).Cost(tpm, 300)).Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := math.Round(level(t, tpm)); left != 400 {
		t.Fatal(left)
	}
}

func TestARefusalOfTheVendorCoolsDownAndCanBeUndone(t *testing.T) {
	rpm := declare(t, sluice.Requests(10, days), "rpm")
	reply := sluice.Reply{Status: 429, Header: http.Header{"Retry-After": {"7"}}}
	decision, err := client.OnRateLimited(t.Context(), sluice.On(rpm), reply)
	if err != nil || decision.Action != "requeue" || decision.Wait < 7*time.Second {
		t.Fatal(decision, err)
	}
	if _, retry, err := client.Acquire(t.Context(), sluice.On(rpm)); err != nil || retry.Reason != "cooling_down" {
		t.Fatal(retry, err)
	}
	if until, err := client.EndCoolDown(t.Context(), rpm); err != nil || until.Before(time.Now()) {
		t.Fatal(until, err)
	}
	if until, err := client.EndCoolDown(t.Context(), rpm); err != nil || !until.IsZero() {
		t.Fatal(until, err)
	}
	grant := acquire(t, sluice.On(rpm))
	replied, err := grant.Reply(t.Context(), sluice.Reply{Status: 200}, map[string]float64{rpm: 1})
	if err != nil || replied.Decision.Action != "not_refused" {
		t.Fatal(replied, err)
	}
}

func TestLevelsAreLoweredSetAndRead(t *testing.T) {
	rpm := declare(t, sluice.Requests(100, days), "rpm")
	if left, applied, err := client.Penalize(t.Context(), rpm, 0.5); err != nil || !applied || left != 50 {
		t.Fatal(left, applied, err)
	}
	if err := client.Refill(t.Context(), rpm); err != nil || level(t, rpm) != 100 {
		t.Fatal(err)
	}
	if limit, err := client.Limit(t.Context(), rpm); err != nil || limit.Capacity != 100 || limit.Type != "requests" {
		t.Fatal(limit, err)
	}
	if limit, err := client.Limit(t.Context(), "never#declared"); err != nil || limit != nil {
		t.Fatal(limit, err)
	}
	if admission, err := client.Admit(t.Context(), sluice.On(rpm), time.Second, 0); err != nil || !admission.Admitted {
		t.Fatal(admission, err)
	}
	if admission, err := client.Admit(t.Context(), sluice.On(rpm), time.Second, 100); err != nil || admission.Reason != "over_slo" {
		t.Fatal(admission, err)
	}
	until, err := client.CoolDown(t.Context(), rpm, time.Minute)
	if err != nil || time.Until(until) < 50*time.Second {
		t.Fatal(until, err)
	}
	if admission, err := client.Admit(t.Context(), sluice.On(rpm), time.Second, 0); err != nil || admission.Admitted {
		t.Fatal(admission, err)
	}
}

func TestAClientTellsItsTimesAndASweepItsOwn(t *testing.T) {
	t.Setenv("SLUICE_INLINE_RETRY_THRESHOLD", "7")
	of, err := sluice.FromEnv(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if of.InlineRetryThreshold() != 7*time.Second || of.LongestAcquire() < time.Second || of.Table() != client.Table() {
		t.Fatal(of.InlineRetryThreshold(), of.LongestAcquire(), of.Table())
	}
	if report, err := client.Ops().Sweep(t.Context(), 0); err != nil || report.Duration <= 0 || report.RowsScanned == 0 {
		t.Fatal(report, err)
	}
}

func TestLeasesAreRenewed(t *testing.T) {
	slots := declare(t, sluice.Concurrent(1), "concurrent")
	grant := acquire(t, sluice.On(slots))
	before := grant.LeaseEnds()
	// The end of a lease is in whole seconds.
	eventually(t, "it ends later", 5*time.Second, func() bool {
		if err := grant.Renew(t.Context()); err != nil || grant.IsLeaseLost() {
			t.Fatal(err)
		}
		return grant.LeaseEnds().After(before)
	})
	if _, err := grant.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestALeaseThatWasSweptIsNotRenewed(t *testing.T) {
	slots := declare(t, sluice.Concurrent(1), "concurrent")
	frozen, err := sluice.FromEnv(t.Context(), sluice.Config{LeaseTTL: time.Second, RenewLeases: new(bool)})
	if err != nil {
		t.Fatal(err)
	}
	late, err := frozen.Grant(t.Context(), sluice.On(slots))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the slot is swept", 20*time.Second, func() bool {
		if _, err := client.Ops().Sweep(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		return level(t, slots) == 1
	})
	if err := late.Renew(t.Context()); !errors.Is(err, sluice.ErrLeaseGone) || !late.IsLeaseLost() {
		t.Fatal(err)
	}
}

func TestPrefetchedTokensAreGrantedFromMemory(t *testing.T) {
	rpm := declare(t, sluice.Requests(100_000, time.Minute), "rpm")
	stocked, err := sluice.FromEnv(t.Context(), sluice.Config{Prefetch: []string{rpm}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2_000 {
		if grant, retry, err := stocked.Acquire(t.Context(), sluice.On(rpm)); grant == nil {
			t.Fatal(retry, err)
		}
	}
	// Ahead of what was granted, by the stock.
	if taken := 100_000 - level(t, rpm); taken < 1_000 {
		t.Fatal(taken)
	}
	if _, err := stocked.Close(t.Context()); err != nil || level(t, rpm) > 100_000 {
		t.Fatal(err, level(t, rpm))
	}
}

func TestATicketKeepsAPlaceAndIsRedeemedOnce(t *testing.T) {
	rpm := declare(t, sluice.Requests(10, 5*time.Second), "rpm")
	for range 10 {
		acquire(t, sluice.On(rpm))
	}
	_, retry, err := client.Acquire(t.Context(), sluice.On(rpm).TicketWithin(10*time.Second))
	if err != nil || retry.Ticket == nil {
		t.Fatal(retry, err)
	}
	eventually(t, "the start", 5*time.Second, func() bool { return client.Now().After(retry.Ticket.StartAt) })
	acquire(t, sluice.On(rpm).WithTicket(retry.Ticket.Text))
	if grant, _, reason, err := client.Redeem(t.Context(), retry.Ticket.Text); grant != nil || reason != "spent" || err != nil {
		t.Fatal(grant, reason, err)
	}
	if _, _, _, err := client.Redeem(t.Context(), "no ticket"); !errors.Is(err, sluice.ErrRedeem) {
		t.Fatal(err)
	}
}

func TestACallRunsInItsSlotAndEveryWayOutGivesBack(t *testing.T) {
	slots, tpm := declare(t, sluice.Concurrent(1), "concurrent"), declare(t, sluice.Tokens(1_000, days), "tpm")
	acquire(t, sluice.On(tpm).Cost(tpm, 500))
	request := sluice.On(slots, tpm).Cost(tpm, 400)
	err := client.WithSlot(t.Context(), request, func(ctx context.Context, slot *sluice.Slot) error {
		if level(t, slots) != 0 || slot.Basis != "table" || slot.IsLeaseLost() {
			t.Error(slot)
		}
		if at := slot.StartIn(tpm); at.IsZero() || at.After(slot.StartAt) || !slot.StartIn(slots).IsZero() {
			t.Error(at, slot.StartIn(slots))
		}
		return slot.Used(tpm, 100)
	})
	if err != nil || level(t, slots) != 1 || math.Round(level(t, tpm)) != 400 {
		t.Fatal(err, level(t, slots), level(t, tpm))
	}
	broken := errors.New("broken")
	err = client.WithSlot(t.Context(), request, func(context.Context, *sluice.Slot) error { return broken })
	if err != broken || level(t, slots) != 1 || math.Round(level(t, tpm)) != 400 {
		t.Fatal(err, level(t, slots), level(t, tpm))
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic passes")
			}
		}()
		_ = client.WithSlot(t.Context(), sluice.On(slots), func(context.Context, *sluice.Slot) error { panic("broken") })
	}()
	if level(t, slots) != 1 {
		t.Fatal(level(t, slots))
	}
	allFree(t, slots, 1, false)
}

func TestAClientThatIsClosedWhileACallRunsIsAnErrorUnlessTheCallHasItsOwn(t *testing.T) {
	slots, broken := declare(t, sluice.Concurrent(1), "concurrent"), errors.New("broken")
	for _, of := range []struct{ call, want error }{{nil, sluice.ErrClosed}, {broken, broken}} {
		ending, err := sluice.FromEnv(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = ending.WithSlot(t.Context(), sluice.On(slots), func(ctx context.Context, _ *sluice.Slot) error {
			soon, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			if closed, err := ending.Close(soon); err != nil || !closed.CutOff {
				t.Error(closed, err)
			}
			return of.call
		})
		if !errors.Is(err, of.want) {
			t.Fatal(err)
		}
	}
	allFree(t, slots, 1, false)
}

func TestBeyondItsWaitASlotIsRefused(t *testing.T) {
	rpm := declare(t, sluice.Requests(1, days), "rpm")
	acquire(t, sluice.On(rpm))
	err := client.WithSlot(t.Context(), sluice.On(rpm).MaxWait(200*time.Millisecond), nil)
	var refused *sluice.Error
	if !errors.Is(err, sluice.ErrRefused) || !errors.As(err, &refused) || refused.Retry.Dimension != rpm {
		t.Fatal(err)
	}
}

func TestAContextEndsAWaitAtOnceAndGivesBackWhatItHad(t *testing.T) {
	slots, rpm := declare(t, sluice.Concurrent(1), "concurrent"), declare(t, sluice.Requests(1, 20*time.Second), "rpm")
	acquire(t, sluice.On(rpm))
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	// It holds the slot, and has booked the request.
	ended := make(chan error)
	go func() { ended <- client.WithSlot(ctx, sluice.On(slots, rpm).MaxWait(time.Minute), nil) }()
	eventually(t, "the slot is taken", 5*time.Second, func() bool { return level(t, slots) == 0 && level(t, rpm) < 0 })
	began := time.Now()
	cancel(enough)
	if err := <-ended; err != enough || time.Since(began) > time.Second {
		t.Fatal(err, time.Since(began))
	}
	eventually(t, "all is back", 5*time.Second, func() bool { return level(t, slots) == 1 && level(t, rpm) >= 0 })
	late, cancel2 := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel2()
	if _, err := client.Grant(late, sluice.On(rpm).MaxWait(time.Minute)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if _, _, err := client.Acquire(ctx, sluice.On(slots)); err != enough {
		t.Fatal(err)
	}
	allFree(t, slots, 1, false)
}

func TestAWaitThatIsOverLeavesNothingOnAConcurrencyBucket(t *testing.T) {
	slots, rpm := declare(t, sluice.Concurrent(1), "concurrent"), declare(t, sluice.Requests(1, 20*time.Second), "rpm")
	acquire(t, sluice.On(rpm))
	held := acquire(t, sluice.On(slots))
	never := func(context.Context, *sluice.Slot) error { panic("it is not called") }
	waits := func(request sluice.Request) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if err := client.WithSlot(ctx, request.MaxWait(time.Minute), never); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		err := client.WithSlot(t.Context(), request.MaxWait(300*time.Millisecond), never)
		if !errors.Is(err, sluice.ErrRefused) {
			t.Fatal(err)
		}
	}
	// For the slot.
	waits(sluice.On(slots))
	if _, err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	// With the slot, for the request.
	waits(sluice.On(slots, rpm))
	allFree(t, slots, 1, false)
}

func TestAGoroutineThatEndsInItsCallGivesBack(t *testing.T) {
	slots, ended := declare(t, sluice.Concurrent(1), "concurrent"), make(chan struct{})
	go func() {
		defer close(ended)
		_ = client.WithSlot(t.Context(), sluice.On(slots), func(context.Context, *sluice.Slot) error {
			runtime.Goexit()
			return nil
		})
	}()
	<-ended
	if left := level(t, slots); left != 1 {
		t.Fatal(left)
	}
	allFree(t, slots, 1, false)
}

func TestWhatNobodyTakesOutOfATrackerIsReleased(t *testing.T) {
	slots := declare(t, sluice.Concurrent(2), "concurrent")
	tracker, err := client.Reservations(sluice.TrackerConfig{MaxReservationAge: 200 * time.Millisecond, StaleCleanupInterval: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	tracker.Start()
	tracker.Start()
	store := func() {
		if _, err := tracker.Store("request", slots, acquire(t, sluice.On(slots))); err != nil {
			t.Fatal(err)
		}
	}
	store()
	eventually(t, "the slot is back", 10*time.Second, func() bool { return level(t, slots) == 2 })
	eventually(t, "it is counted", 10*time.Second, func() bool { return tracker.StaleReport().GivenBack == 1 })
	if err := tracker.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	store()
	eventually(t, "it is stale", 10*time.Second, func() bool {
		report, err := tracker.ReleaseStale(t.Context())
		return err == nil && report.GivenBack == 1
	})
	if ratio, left := tracker.StaleEntryRatio(), level(t, slots); ratio != 0 || left != 2 {
		t.Fatal(ratio, left)
	}
}

func TestHeadersLowerTheBucketOfACall(t *testing.T) {
	rpm := declare(t, sluice.Requests(500, time.Minute), "observed#rpm", "openai")
	said := func(left string) sluice.Reply {
		header := http.Header{}
		header.Set("X-Ratelimit-Limit-Requests", "500")
		header.Set("X-Ratelimit-Remaining-Requests", left)
		return sluice.Reply{Status: 200, Header: header}
	}
	if observed, err := client.Observe(t.Context(), rpm, said("3")); err != nil || observed.Level != "no_grant" {
		t.Fatal(observed, err)
	}
	grant := acquire(t, sluice.On(rpm))
	if observed, err := grant.Observe(t.Context(), rpm, said("3")); err != nil || observed.Level != "lowered" {
		t.Fatal(observed, err)
	}
	if left := level(t, rpm); left >= 30 {
		t.Fatal(left)
	}
	if _, err := grant.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := grant.Observe(t.Context(), rpm, said("1")); !errors.Is(err, sluice.ErrEnded) {
		t.Fatal(err)
	}
}

func TestATrackerHoldsGrants(t *testing.T) {
	slots := declare(t, sluice.Concurrent(3), "concurrent")
	tracker, err := client.Reservations(sluice.TrackerConfig{MaxReservations: 2})
	if err != nil {
		t.Fatal(err)
	}
	first, second, third := acquire(t, sluice.On(slots)), acquire(t, sluice.On(slots)), acquire(t, sluice.On(slots))
	if id, err := tracker.Store("r1", slots, first); err != nil || id == "" {
		t.Fatal(id, err)
	}
	if _, err := tracker.Store("r1", slots, second); !errors.Is(err, sluice.ErrReservationTaken) {
		t.Fatal(err)
	}
	if _, err := tracker.Store("r2", slots, second); err != nil {
		t.Fatal(err)
	}
	if _, err := tracker.Store("r3", slots, third); !errors.Is(err, sluice.ErrReservationCapacity) || !errors.Is(err, sluice.ErrReservation) {
		t.Fatal(err)
	}
	if tracker.ReservationCount() != 2 || tracker.RequestCount() != 2 {
		t.Fatal(tracker.ReservationCount(), tracker.RequestCount())
	}
	if known, err := tracker.Get("r1", slots); err != nil || known.RequestID != "r1" {
		t.Fatal(known, err)
	}
	taken, err := tracker.GetAndClear("r1", slots)
	if err != nil || taken.Reservation.BucketID != slots {
		t.Fatal(taken, err)
	}
	if released, err := taken.Grant.Release(t.Context()); err != nil || released != "given_back" {
		t.Fatal(released, err)
	}
	if taken, err := tracker.GetAndClear("r1", slots); taken != nil || err != nil {
		t.Fatal(taken, err)
	}
	if all, err := tracker.ClearAllForRequest("r2"); len(all) != 1 || err != nil {
		t.Fatal(all, err)
	}
	if removed := tracker.CompactHeap(); removed != 2 {
		t.Fatal(removed)
	}
	if stale, err := tracker.GetAndClearStale(time.Time{}); len(stale) != 0 || err != nil {
		t.Fatal(stale, err)
	}
}

func TestATrackerTakesOutTheOldestOfARequestAndWhatWasStoredBeforeAMoment(t *testing.T) {
	slots := declare(t, sluice.Concurrent(2), "concurrent")
	tracker, err := client.Reservations(sluice.TrackerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, bucket := range []string{"b", "a"} {
		if _, err := tracker.Store("r", bucket, acquire(t, sluice.On(slots))); err != nil {
			t.Fatal(err)
		}
	}
	if none, err := tracker.GetAndClear("other", ""); none != nil || err != nil {
		t.Fatal(none, err)
	}
	oldest, err := tracker.GetAndClear("r", "")
	if err != nil || oldest.Reservation.BucketID != "b" {
		t.Fatal(oldest, err)
	}
	left, err := tracker.Get("r", "a")
	if err != nil {
		t.Fatal(err)
	}
	if stale, err := tracker.GetAndClearStale(left.CreatedAt); len(stale) != 0 || err != nil {
		t.Fatal(stale, err)
	}
	if stale, err := tracker.GetAndClearStale(time.Now().Add(time.Minute)); len(stale) != 1 || err != nil {
		t.Fatal(stale, err)
	}
}

func TestAnEstimatorLearnsWhatCallsUse(t *testing.T) {
	estimator, err := sluice.NewTokenEstimator(sluice.EstimatorConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if estimator.EstimateOr("chat", 500) != 500 {
		t.Fatal("too few calls are known")
	}
	for range 100 {
		estimator.Observe("chat", 100)
	}
	if likely, known := estimator.Estimate("chat"); !known || estimator.EstimateOr("chat", 500) != likely {
		t.Fatal(likely, known)
	}
	estimator.Observe("summary", 100)
	if keys := estimator.KeyCount(); keys != 2 {
		t.Fatal(keys)
	}
}

func TestTenThousandGoroutinesOnOneBucketAreAllGrantedAndNoneIsLeft(t *testing.T) {
	rpm := declare(t, sluice.Requests(11_000, days), "rpm")
	crowd := func(calls int) {
		var waiting sync.WaitGroup
		for range calls {
			waiting.Add(1)
			go func() {
				defer waiting.Done()
				if grant, retry, err := client.Acquire(t.Context(), sluice.On(rpm)); grant == nil {
					t.Error(retry, err)
				}
			}()
		}
		waiting.Wait()
	}
	// Each thread of the library that has ever told an answer counts as a goroutine.
	crowd(1_000)
	before, atFirst := runtime.NumGoroutine(), threads(t)
	crowd(10_000)
	// A call that waited in a thread of its own would leave 10,000.
	if after := threads(t); after > atFirst+100 {
		t.Fatalf("threads of the process: %d, and %d after the crowd", atFirst, after)
	}
	if _, retry, err := client.Acquire(t.Context(), sluice.On(rpm)); retry == nil || err != nil {
		t.Fatal(err)
	}
	eventually(t, "no goroutine is left", 5*time.Second, func() bool { return runtime.NumGoroutine() <= before })
}

// threads are those of the process, Go's and the library's.
func threads(t testing.TB) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Skip("only Linux tells")
	}
	return len(tasks)
}

func TestAGrantThatIsForgottenGivesItsSlotBackWhenItIsCollected(t *testing.T) {
	slots := declare(t, sluice.Concurrent(1), "concurrent")
	acquire(t, sluice.On(slots))
	eventually(t, "the slot is back", 5*time.Second, func() bool {
		runtime.GC()
		return level(t, slots) == 1
	})
}

// TestHolder is no test of its own: it is what a process does that is killed, or ends without Close.
func TestHolder(t *testing.T) {
	slots := os.Getenv("HOLDS")
	if slots == "" {
		t.Skip("for another test")
	}
	holder, err := sluice.FromEnv(t.Context(), sluice.Config{LeaseTTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if grant, _, err := holder.Acquire(t.Context(), sluice.On(slots)); grant == nil {
		t.Fatal(err)
	}
	if os.Getenv("LEAVES") != "" {
		os.Exit(0)
	}
	process, _ := os.FindProcess(os.Getpid())
	_ = process.Kill()
	select {}
}

func TestWhatAProcessHeldThatWasKilledIsSwept(t *testing.T) {
	slots := declare(t, sluice.Concurrent(1), "concurrent")
	holder := exec.Command(os.Args[0], "-test.run=^TestHolder$")
	holder.Env = append(os.Environ(), "HOLDS="+slots)
	if err := holder.Run(); err == nil {
		t.Fatal("it was not killed")
	}
	if level(t, slots) != 0 {
		t.Fatal("it held nothing")
	}
	leases, err := client.Ops().Leases(t.Context())
	if err != nil || len(leases) == 0 {
		t.Fatal(leases, err)
	}
	allFree(t, slots, 1, true)
	if removed, err := client.Ops().RemoveBucket(t.Context(), slots); !removed || err != nil {
		t.Fatal(removed, err)
	}
	if bucket, err := client.Ops().Bucket(t.Context(), slots); bucket != nil || err != nil {
		t.Fatal(bucket, err)
	}
}

func TestWhatAProgramHeldThatEndsWithoutCloseIsSwept(t *testing.T) {
	slots := declare(t, sluice.Concurrent(1), "concurrent")
	leaver := exec.Command(os.Args[0], "-test.run=^TestHolder$")
	leaver.Env = append(os.Environ(), "HOLDS="+slots, "LEAVES=1")
	if output, err := leaver.CombinedOutput(); err != nil {
		t.Fatal(err, string(output))
	}
	if level(t, slots) != 0 {
		t.Fatal("it held nothing")
	}
	allFree(t, slots, 1, true)
}

func TestAClientThatIsClosedGrantsNothing(t *testing.T) {
	slots := declare(t, sluice.Concurrent(1), "concurrent")
	closing, err := sluice.FromEnv(t.Context(), sluice.Config{Mode: "shadow"})
	if err != nil {
		t.Fatal(err)
	}
	for _, basis := range []string{"table", "shadow"} {
		if grant, _, err := closing.Acquire(t.Context(), sluice.On(slots)); err != nil || grant.Basis != basis {
			t.Fatal(grant, err)
		}
	}
	if _, err := closing.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := closing.Acquire(t.Context(), sluice.On(slots)); !errors.Is(err, sluice.ErrClosed) {
		t.Fatal(err)
	}
}
