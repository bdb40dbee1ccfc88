package sluice_test

import (
	"slices"
	"testing"
	"time"

	sluice "github.com/OWNER/sluice/bindings/go"
)

// The same acquires as those of the example `overhead` of the SDK of Rust, which is measured beside them.
// Link a release archive (README.md).

// benchmarked has room for every call of a benchmark.
func benchmarked(b *testing.B, config sluice.Config) {
	rpm := declare(b, sluice.Requests(10_000_000, time.Minute), "rpm")
	if config.Prefetch != nil {
		config.Prefetch = []string{rpm}
	}
	measured, err := sluice.FromEnv(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	defer measured.Close(b.Context())
	take := func() {
		if grant, retry, err := measured.Acquire(b.Context(), sluice.On(rpm)); grant == nil {
			b.Fatal(retry, err)
		}
	}
	// The first calls connect, and find out how much stock they need.
	for range 500 {
		take()
	}
	var times []time.Duration
	for b.Loop() {
		began := time.Now()
		take()
		times = append(times, time.Since(began))
	}
	// As that of Rust: a few calls that take long are the machine's affair.
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1e3, "median-us")
}

func BenchmarkAcquireFromStock(b *testing.B) {
	benchmarked(b, sluice.Config{Prefetch: []string{}})
}

func BenchmarkAcquireWithOneWrite(b *testing.B) {
	benchmarked(b, sluice.Config{})
}
