package sluice_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sluice "github.com/OWNER/sluice/bindings/go"
	"github.com/OWNER/sluice/bindings/go/sluicetest"
)

var client *sluice.Client

// days is so long that nothing flows back meanwhile.
const days = 100 * 24 * time.Hour

func TestMain(m *testing.M) {
	if os.Getenv("HOLDS") != "" || os.Getenv("FROZEN") != "" {
		// Of another test: it uses the sandbox of that.
		os.Exit(m.Run())
	}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if name != "SLUICE_COMMAND" && (strings.HasPrefix(name, "SLUICE_") || strings.HasPrefix(name, "AWS_")) {
			os.Unsetenv(name)
		}
	}
	sandbox, err := sluicetest.Run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for name, value := range sandbox.Variables {
		os.Setenv(name, value)
	}
	if client, err = sluice.FromEnv(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	sandbox.Stop()
	os.Exit(code)
}

var number atomic.Int64

// declare makes a bucket that no other test uses.
func declare(t testing.TB, limit sluice.Limit, metric string, vendor ...string) string {
	t.Helper()
	name := fmt.Sprintf("test%d", number.Add(1))
	if len(vendor) > 0 {
		name = vendor[0]
	}
	dimension := name + "#" + metric
	applied, err := client.Ops().ApplyLimit(t.Context(), dimension, limit)
	if err != nil || applied != "created" {
		t.Fatal(applied, err)
	}
	return dimension
}

// level is tokens or free slots at this moment, as the table has them.
func level(t testing.TB, dimension string) float64 {
	t.Helper()
	bucket, err := client.Ops().Bucket(context.Background(), dimension)
	if err != nil || bucket == nil {
		t.Fatal(bucket, err)
	}
	return bucket.Level
}

// allFree waits until all slots of a bucket are free, and no lease is left; with sweeps, if it is swept.
func allFree(t testing.TB, dimension string, slots float64, isSwept bool) {
	t.Helper()
	eventually(t, dimension+" is free", 20*time.Second, func() bool {
		if isSwept {
			if _, err := client.Ops().Sweep(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
		leases, err := client.Ops().Leases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		isOf := func(lease sluice.Lease) bool { return lease.Dimension == dimension }
		return level(t, dimension) == slots && !slices.ContainsFunc(leases, isOf)
	})
}

// eventually waits until something comes true. What is given back in the background is waited for.
func eventually(t testing.TB, what string, within time.Duration, isSo func() bool) {
	t.Helper()
	for until := time.Now().Add(within); !isSo(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("not in time: ", what)
		}
	}
}

func acquire(t testing.TB, request sluice.Request) *sluice.Grant {
	t.Helper()
	grant, retry, err := client.Acquire(t.Context(), request)
	if err != nil || grant == nil {
		t.Fatal(retry, err)
	}
	return grant
}
