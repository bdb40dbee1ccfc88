package sluice_test

import (
	"context"
	"errors"
	"testing"
	"time"

	sluice "github.com/OWNER/sluice/bindings/go"
	"github.com/OWNER/sluice/bindings/go/sluicetest"
)

// clientOf is a client of a sandbox.
func clientOf(t *testing.T, config ...sluice.Config) *sluice.Client {
	t.Helper()
	made, err := sluice.FromEnv(t.Context(), config...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { made.Close(context.Background()) })
	return made
}

// isGranted is whether a call has room now; it ends at once.
func isGranted(t *testing.T, of *sluice.Client, dimension string) bool {
	t.Helper()
	grant, _, err := of.Acquire(t.Context(), sluice.On(dimension))
	if err != nil {
		t.Fatal(err)
	}
	if grant == nil {
		return false
	}
	if _, err := grant.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	return true
}

func advance(t *testing.T, sandbox *sluicetest.Sandbox, by time.Duration) {
	t.Helper()
	if err := sandbox.Advance(by); err != nil {
		t.Fatal(err)
	}
}

func TestTheTimeOfTheTableIsUnderTheControlOfTheTest(t *testing.T) {
	sandbox := sluicetest.Start(t)
	holder, other := clientOf(t, sluice.Config{LeaseTTL: 30 * time.Second}), clientOf(t)
	for dimension, limit := range map[string]sluice.Limit{
		"moved#rpm": sluice.Requests(1, time.Minute), "moved#concurrent": sluice.Concurrent(1),
	} {
		if _, err := holder.Ops().ApplyLimit(t.Context(), dimension, limit); err != nil {
			t.Fatal(err)
		}
	}
	for minute := range 3 {
		if !isGranted(t, holder, "moved#rpm") || isGranted(t, holder, "moved#rpm") {
			t.Fatal("minute", minute)
		}
		advance(t, sandbox, time.Minute)
	}
	// The slot of a holder that died, for the others.
	held, retry, err := holder.Acquire(t.Context(), sluice.On("moved#concurrent"))
	if err != nil || retry != nil || isGranted(t, other, "moved#concurrent") {
		t.Fatal(held, retry, err)
	}
	advance(t, sandbox, 10*time.Minute)
	if !isGranted(t, other, "moved#concurrent") {
		t.Fatal("the slot did not come back")
	}
	if released, err := held.Release(t.Context()); released != "lease_gone" || err != nil {
		t.Fatal(released, err)
	}
	if err := sandbox.Advance(-time.Second); err == nil {
		t.Fatal("time went back")
	}
}

func TestRequestsMeetTheFaultsThatATestAsksFor(t *testing.T) {
	sluicetest.Start(t, sluicetest.Options{Faults: 1})
	once := 1
	of := clientOf(t, sluice.Config{MaxRetries: &once})
	// Some faults only delay.
	for range 100 {
		if _, _, err := of.Acquire(t.Context(), sluice.On("openai#rpm")); errors.Is(err, sluice.ErrUnavailable) {
			return
		}
	}
	t.Fatal("no request has met a fault")
}

func TestACommandThatIsNoSandboxSaysSo(t *testing.T) {
	for _, command := range []string{"/bin/true", "/nowhere/sluice"} {
		if _, err := sluicetest.Run(sluicetest.Options{Command: command}); err == nil {
			t.Fatal(command, "served")
		}
	}
}
