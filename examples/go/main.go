// A worker in Go: it takes jobs from a queue, calls the vendor for each, and ends in order when it is told to. The limits are
// in the transport of its HTTP client.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	sluice "github.com/OWNER/sluice/bindings/go"
)

// A job that is put back is due again after a delay, as in SQS.
type job struct {
	text string
}

type worker struct {
	vendor http.Client
	url    string
	done   atomic.Int64
	later  atomic.Int64
	// putBack sends a job to the queue with a delay.
	putBack func(job, time.Duration)
}

// errBusy is a refusal of the limiter or of the vendor, with the time to wait.
type errBusy struct{ wait time.Duration }

func (e errBusy) Error() string { return fmt.Sprintf("busy for %s", e.wait) }

// work takes jobs until the queue is closed or ctx ends. A job that has begun ends.
func (w *worker) work(ctx context.Context, jobs <-chan job) {
	for {
		select {
		case <-ctx.Done():
			return
		case next, open := <-jobs:
			if !open {
				return
			}
			w.handle(context.WithoutCancel(ctx), next)
		}
	}
}

func (w *worker) handle(ctx context.Context, next job) {
	err := w.call(ctx, next.text)
	var busy errBusy
	switch {
	case err == nil:
		w.done.Add(1)
	case errors.As(err, &busy):
		w.later.Add(1)
		w.putBack(next, busy.wait)
	default:
		fmt.Fprintln(os.Stderr, "job failed:", err)
	}
}

func (w *worker) call(ctx context.Context, text string) error {
	body, err := json.Marshal(map[string]any{
		"model": "small", "max_completion_tokens": 50,
		"messages": []map[string]string{{"role": "user", "content": text}},
	})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	reply, err := w.vendor.Do(request)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if reply.StatusCode == http.StatusTooManyRequests {
		seconds, _ := strconv.Atoi(reply.Header.Get("Retry-After"))
		return errBusy{time.Duration(max(seconds, 1)) * time.Second}
	}
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("the vendor answered %s", reply.Status)
	}
	// To its end: it says how many tokens the call used.
	var answer struct{ Choices []any }
	return json.NewDecoder(reply.Body).Decode(&answer)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := sluice.FromEnv(ctx)
	if err != nil {
		panic(err)
	}
	// A wait of up to 2 s is in the limiter's queue; a longer one puts the job back.
	limited := &sluice.Transport{Client: client, Vendor: "openai", Patience: 2 * time.Second}

	const sent = 100
	jobs := make(chan job, sent)
	w := &worker{vendor: http.Client{Transport: limited, Timeout: 30 * time.Second}, url: os.Getenv("OPENAI_BASE_URL")}
	w.putBack = func(again job, delay time.Duration) { time.AfterFunc(delay, func() { jobs <- again }) }
	for at := range sent {
		jobs <- job{fmt.Sprintf("text %d", at)}
	}
	ctx, finish := context.WithTimeout(ctx, time.Minute)
	defer finish()
	var workers sync.WaitGroup
	for range 60 {
		workers.Add(1)
		go func() {
			defer workers.Done()
			w.work(ctx, jobs)
		}()
	}
	for w.done.Load() < sent && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
	}
	finish()
	workers.Wait()
	later := w.later.Load()
	wait, err := w.putBackInCoolDown(client)
	if err != nil {
		panic(err)
	}
	if _, err := client.Close(context.Background()); err != nil {
		panic(err)
	}
	fmt.Printf("%d of %d jobs done, %d put back on the way\n", w.done.Load(), sent, later)
	fmt.Printf("during a cool-down of 60 s: one more is put back for %s\n", wait)
	if w.done.Load() < sent || wait < 20*time.Second || wait > 61*time.Second {
		os.Exit(1)
	}
}

// putBackInCoolDown returns for how long a job is put back after a 429 that another product met; 0 if it is done.
func (w *worker) putBackInCoolDown(client *sluice.Client) (time.Duration, error) {
	ctx := context.Background()
	if _, err := client.CoolDown(ctx, "openai#rpm", time.Minute); err != nil {
		return 0, err
	}
	var wait time.Duration
	w.putBack = func(_ job, delay time.Duration) { wait = delay }
	w.handle(ctx, job{"one more"})
	return wait, nil
}
