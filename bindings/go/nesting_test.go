package sluice_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	sluice "github.com/OWNER/sluice/bindings/go"
)

func TestASlotInsideOfASlotOfTheSameBucketIsAnError(t *testing.T) {
	slots, other := declare(t, sluice.Concurrent(2), "concurrent"), declare(t, sluice.Concurrent(2), "concurrent")
	nested := func(err error) {
		t.Helper()
		if !errors.Is(err, sluice.ErrRequest) || !strings.Contains(err.Error(), "inside of another slot") {
			t.Fatal(err)
		}
	}
	asked := sluice.On(slots).MaxWait(5 * time.Second)
	within(t, t.Context(), client, slots, func(ctx context.Context) {
		within(t, ctx, client, other, func(ctx context.Context) {
			nested(client.WithSlot(ctx, asked, func(context.Context, *sluice.Slot) error { panic("the call ran") }))
			_, err := client.Grant(ctx, sluice.On(slots, other).MaxWait(5*time.Second))
			nested(err)
		})
	})
	if err := client.WithSlot(t.Context(), asked, pass); err != nil {
		t.Fatal(err)
	}
	if level(t, slots) != 2 || level(t, other) != 2 {
		t.Fatal("a slot is still held")
	}
}

func TestWhatIsNoNestingPasses(t *testing.T) {
	slots, rpm := declare(t, sluice.Concurrent(2), "concurrent"), declare(t, sluice.Requests(100, time.Minute), "rpm")
	another, err := sluice.FromEnv(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer another.Close(t.Context())
	within(t, t.Context(), client, rpm, func(ctx context.Context) {
		// Rates do not wait for each other.
		within(t, ctx, client, rpm, func(context.Context) {})
	})
	var left context.Context
	within(t, t.Context(), client, slots, func(ctx context.Context) {
		left = ctx
		within(t, ctx, another, slots, func(context.Context) {})
		within(t, t.Context(), client, slots, func(context.Context) {})
	})
	// The slot around it has ended.
	within(t, left, client, slots, func(context.Context) {})
}

func TestALimitedCallInsideOfASlotOfItsBucketPasses(t *testing.T) {
	slots := declare(t, sluice.Concurrent(1), "concurrent", "nestvendor")
	vendor := newVendor(t)
	transport := &sluice.Transport{Client: client, Vendor: "nestvendor", Patience: 5 * time.Second}
	call := func(ctx context.Context) {
		response, err := vendor.chat(ctx, transport, "")
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response, err)
		}
		response.Body.Close()
	}
	within(t, t.Context(), client, slots, call)
	call(t.Context())
	eventually(t, "the slot is back", 5*time.Second, func() bool { return level(t, slots) == 1 })
}

func pass(context.Context, *sluice.Slot) error { return nil }

// within runs something in a slot.
func within(t *testing.T, ctx context.Context, client *sluice.Client, dimension string, run func(context.Context)) {
	t.Helper()
	asked := sluice.On(dimension).MaxWait(5 * time.Second)
	err := client.WithSlot(ctx, asked, func(ctx context.Context, _ *sluice.Slot) error {
		run(ctx)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
