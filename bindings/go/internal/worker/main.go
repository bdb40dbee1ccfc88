// Worker is one of tests/languages/run: goroutines that acquire, hold and release until the time is over.
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
	write := func(of event) {
		lock.Lock()
		defer lock.Unlock()
		// A line that is missing is found by the count of the last.
		_ = lines.Encode(of)
		written++
	}
	until := time.Now().Add(time.Duration(length * float64(time.Second)))
	errs := make(chan error, callers)
	for caller := range callers {
		go func() { errs <- work(ctx, client, caller, names, wants, until, write) }()
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
	write func(event)) error {
	for number := 0; time.Now().Before(until); number++ {
		dimension := names[rand.Intn(len(names))]
		cost := wants[dimension]
		asked := time.Now().UnixMicro()
		grant, retry, err := client.Acquire(ctx, sluice.On(dimension).Cost(dimension, cost))
		if errors.Is(err, sluice.ErrStore) {
			of := refused(dimension, asked)
			of["error"] = err.Error()
			write(of)
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if err != nil {
			return err
		}
		if retry != nil {
			write(refused(dimension, asked))
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

// A request that was granted nothing.
func refused(dimension string, asked int64) event {
	return event{
		"event": "refused", "process": fmt.Sprintf("go-%d", os.Getpid()), "dimensions": []string{dimension},
		"asked_at_micros": asked, "at_micros": time.Now().UnixMicro(), "booked": false,
	}
}
