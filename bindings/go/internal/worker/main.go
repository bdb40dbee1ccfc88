// Worker is one of tests/languages/run: goroutines that acquire, hold and release until the time is over. If there are
// several buckets, every second goroutine waits in a slot for all of them, and tells how many tokens it used.
//
//	worker HISTORY SECONDS
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	sluice "github.com/OWNER/sluice/bindings/go"
)

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type event map[string]any

func run(history, seconds string) error {
	var wants map[string]float64
	if err := json.Unmarshal([]byte(os.Getenv("WANTS")), &wants); err != nil {
		return err
	}
	var names []string
	for name := range wants {
		names = append(names, name)
	}
	callers := 4
	if text := os.Getenv("WORKERS"); text != "" {
		number, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		callers = number
	}
	length, err := strconv.ParseFloat(seconds, 64)
	if err != nil {
		return err
	}
	file, err := os.Create(history)
	if err != nil {
		return err
	}
	defer file.Close()
	ctx := context.Background()
	client, err := sluice.FromEnv(ctx, sluice.Config{Caller: "go"})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(file, os.Getenv("HISTORY_HEADER")); err != nil {
		return err
	}
	var lock sync.Mutex
	written := 1
	lines := json.NewEncoder(file)
	write := func(all ...event) {
		lock.Lock()
		defer lock.Unlock()
		// A line that is missing is found by the count of the last.
		for _, of := range all {
			_ = lines.Encode(of)
			written++
		}
	}
	until := time.Now().Add(time.Duration(length * float64(time.Second)))
	errs := make(chan error, callers)
	for caller := range callers {
		of := work
		if caller%2 == 1 && len(names) > 1 {
			of = wait
		}
		go func() { errs <- of(ctx, client, caller, names, wants, until, write) }()
	}
	for range callers {
		if err := <-errs; err != nil {
			return err
		}
	}
	write(event{"event": "end", "events": written})
	_, err = client.Close(ctx)
	return err
}

func work(ctx context.Context, client *sluice.Client, caller int, names []string, wants map[string]float64, until time.Time,
	write func(...event)) error {
	for number := 0; time.Now().Before(until); number++ {
		dimension := names[rand.Intn(len(names))]
		cost := wants[dimension]
		asked := time.Now().UnixMicro()
		grant, retry, err := client.Acquire(ctx, sluice.On(dimension).Cost(dimension, cost))
		if errors.Is(err, sluice.ErrStore) {
			of := refused(asked, dimension)
			of["error"] = err.Error()
			write(of)
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if err != nil {
			return err
		}
		if retry != nil {
			write(refused(asked, dimension))
			time.Sleep(min(retry.Wait, 200*time.Millisecond))
			continue
		}
		id := fmt.Sprintf("go-%d-%d-%d", os.Getpid(), caller, number)
		granted := event{
			"event": "granted", "id": id, "process": fmt.Sprintf("go-%d", os.Getpid()), "dimension": dimension,
			"cost_micros": int64(cost * 1e6), "asked_at_micros": asked, "granted_at_micros": time.Now().UnixMicro(),
			"start_at_micros": grant.StartAt.UnixMicro(), "booked": false,
		}
		if ends := grant.LeaseEnds(); !ends.IsZero() {
			granted["ends_at_micros"] = ends.UnixMicro()
		}
		write(granted)
		time.Sleep(time.Duration(5+rand.Intn(10)) * time.Millisecond)
		write(event{"event": "released", "id": id, "dimension": dimension, "at_micros": time.Now().UnixMicro(), "how": "released"})
		// If that fails, the sweep gives back what the lease holds.
		if _, err := grant.Release(ctx); err != nil && !errors.Is(err, sluice.ErrLimit) {
			return err
		}
	}
	return nil
}

// A slot does not tell when its lease ends: at the earliest so long after it was asked for, since ends are whole seconds.
func leastLease() time.Duration {
	ttl, err := strconv.Atoi(os.Getenv("SLUICE_LEASE_TTL"))
	if err != nil {
		ttl = 300
	}
	return time.Duration(ttl-1) * time.Second
}

func wait(ctx context.Context, client *sluice.Client, caller int, names []string, wants map[string]float64, until time.Time,
	write func(...event)) error {
	request := sluice.On(names...).MaxWait(2 * time.Second)
	for _, name := range names {
		request = request.Cost(name, wants[name])
	}
	for number := 0; time.Now().Before(until); number++ {
		// Without a pause, bookings would leave nothing to callers that do not wait.
		time.Sleep(time.Duration(500+rand.Intn(500)) * time.Millisecond)
		asked, hasBegun := time.Now(), false
		err := client.WithSlot(ctx, request, func(_ context.Context, slot *sluice.Slot) error {
			hasBegun = true
			id, granted := fmt.Sprintf("go-%d-%d-%d", os.Getpid(), caller, number), time.Now()
			ends := asked.Add(leastLease())
			if ends.Before(granted) {
				ends = granted
			}
			var grants, releases []event
			for _, name := range names {
				// Each rate bucket has a start of its own.
				start := slot.StartIn(name)
				if start.IsZero() {
					start = slot.StartAt
				}
				grants = append(grants, event{
					"event": "granted", "id": id, "process": fmt.Sprintf("go-%d", os.Getpid()), "dimension": name,
					"cost_micros": int64(wants[name] * 1e6), "asked_at_micros": asked.UnixMicro(),
					"granted_at_micros": granted.UnixMicro(), "start_at_micros": start.UnixMicro(), "booked": true,
					"ends_at_micros": ends.UnixMicro(),
				})
			}
			write(grants...)
			time.Sleep(time.Duration(5+rand.Intn(10)) * time.Millisecond)
			for _, name := range names {
				if strings.HasSuffix(name, "#tpm") {
					used := wants[name] / 2 * (1 + rand.Float64())
					if err := slot.Used(name, used); err != nil {
						return err
					}
					write(event{
						"event": "settled", "id": id, "dimension": name, "at_micros": time.Now().UnixMicro(),
						"used_micros": int64(used * 1e6),
					})
				}
				releases = append(releases, event{
					"event": "released", "id": id, "dimension": name, "at_micros": time.Now().UnixMicro(), "how": "released",
				})
			}
			write(releases...)
			return nil
		})
		switch {
		// At the end of the slot: the sweep gives back what the lease holds.
		case err == nil || hasBegun && errors.Is(err, sluice.ErrLimit):
		case errors.Is(err, sluice.ErrRefused) || errors.Is(err, sluice.ErrStore):
			of := refused(asked.UnixMicro(), names...)
			of["booked"] = true
			if !errors.Is(err, sluice.ErrRefused) {
				of["error"] = err.Error()
			}
			write(of)
		default:
			return err
		}
	}
	return nil
}

// A request that was granted nothing.
func refused(asked int64, dimensions ...string) event {
	return event{
		"event": "refused", "process": fmt.Sprintf("go-%d", os.Getpid()), "dimensions": dimensions,
		"asked_at_micros": asked, "at_micros": time.Now().UnixMicro(), "booked": false,
	}
}
