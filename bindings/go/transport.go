package sluice

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Transport limits the calls of an http.Client:
//
//	http.Client{Transport: &sluice.Transport{Client: client, Vendor: "openai"}}
//
// Each attempt is admitted, and what it used is settled. The grant lives as long as the body of the reply. What a call
// costs, and what its reply means, is decided by sluice-http: docs/http.md.
type Transport struct {
	// Client is needed.
	Client *Client
	// Vendor is the name that the buckets begin with. Without one, calls to the hosts of known vendors are limited, and
	// others pass.
	Vendor string
	// Buckets to take from, rather than from those that the names of vendor and model lead to.
	Buckets []string
	// Share is the share that pays, in place of the client's own; "common" is the part that no share has.
	Share string
	// Patience is how long a call waits for its start; zero for SLUICE_DEFAULT_SLOT_TIMEOUT, 30 s. Beyond it, the reply is a
	// 429 with Retry-After, and the call is not made.
	Patience time.Duration
	// AskUsage asks OpenAI-like vendors to state the usage at the end of a stream.
	AskUsage bool
	// Next makes the calls; http.DefaultTransport if it is nil.
	Next http.RoundTripper

	once    sync.Once
	limiter *target
	err     error
}

const (
	// mostOfError is the most of an error's body that is read before the fleet reacts.
	mostOfError  = 64 * 1024
	longestError = 2 * time.Second
)

// RoundTrip makes a call when it may start.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	t.once.Do(t.connect)
	if t.err != nil {
		closeBody(request)
		return nil, t.err
	}
	next := t.Next
	if next == nil {
		next = http.DefaultTransport
	}
	ctx := request.Context()
	body, err := inMemory(request)
	if err != nil {
		closeBody(request)
		return nil, err
	}
	args := map[string]any{
		"method": request.Method, "url": request.URL.String(), "headers": pairs(request.Header),
		"inside": inside(ctx, t.Client.target),
	}
	started, err := t.limiter.call(ctx, "start", args, body)
	if err != nil {
		closeBody(request)
		return nil, err
	}
	call := started.made
	if call == nil {
		if string(started.value) == "null" {
			return next.RoundTrip(request)
		}
		closeBody(request)
		return refused(request, started)
	}
	if started.body != nil {
		closeBody(request)
		request = withBody(request, started.body)
	}
	response, err := next.RoundTrip(request)
	if err != nil {
		end(ctx, call, "unanswered", map[string]any{"wasSent": wasSent(err)}, nil)
		return nil, err
	}
	head := map[string]any{"status": response.StatusCode, "headers": pairs(response.Header)}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		begun := begin(response.Body)
		end(ctx, call, "failed", head, begun.beginning())
		response.Body = begun
		return response, nil
	}
	answered, err := call.look("answered", head)
	if err != nil {
		_ = response.Body.Close()
		return nil, err
	}
	response.Body = &openBody{inner: response.Body, reply: answered.made, ctx: ctx}
	return response, nil
}

func (t *Transport) connect() {
	if t.Client == nil {
		t.err = &Error{Class: "ConfigError", Message: "Transport.Client is nil: make a client by FromEnv or New"}
		return
	}
	args := map[string]any{"askUsage": t.AskUsage}
	set(args, "vendor", text(t.Vendor))
	set(args, "share", text(t.Share))
	set(args, "patienceMs", optional(t.Patience))
	if t.Buckets != nil {
		args["buckets"] = t.Buckets
	}
	var made *answer
	if made, t.err = t.Client.target.look("limiter", args); t.err == nil {
		t.limiter = made.made
	}
}

// end reports the end of a call. It is not cut short, and takes 3 s at most.
func end(ctx context.Context, call *target, how string, args any, body []byte) {
	// If it fails, the call ends when it is collected.
	_, _ = call.call(context.WithoutCancel(ctx), how, args, body)
}

// inMemory is the body of a request that can be read again; nil of any other.
func inMemory(request *http.Request) ([]byte, error) {
	if request.GetBody == nil {
		return nil, nil
	}
	body, err := request.GetBody()
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}

func closeBody(request *http.Request) {
	if request.Body != nil {
		_ = request.Body.Close()
	}
}

func withBody(request *http.Request, body []byte) *http.Request {
	other := request.Clone(request.Context())
	other.ContentLength = int64(len(body))
	other.Header.Del("Content-Length")
	other.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	other.Body, _ = other.GetBody()
	return other
}

func refused(request *http.Request, started *answer) (*http.Response, error) {
	var told struct {
		Status  int         `json:"status"`
		Headers [][2]string `json:"headers"`
	}
	if err := started.into(&told); err != nil {
		return nil, err
	}
	header := http.Header{}
	for _, pair := range told.Headers {
		header.Add(pair[0], pair[1])
	}
	return &http.Response{
		Status:        http.StatusText(told.Status),
		StatusCode:    told.Status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        header,
		Body:          io.NopCloser(bytes.NewReader(started.body)),
		ContentLength: int64(len(started.body)),
		Request:       request,
	}, nil
}

// wasSent tells whether the vendor may have had a request that failed so, and works on it.
func wasSent(err error) bool {
	var operation *net.OpError
	return !errors.As(err, &operation) || operation.Op != "dial"
}

// openBody is the body of a reply with a status of success. Its call ends with it.
type openBody struct {
	inner io.ReadCloser
	reply *target
	ctx   context.Context
	once  sync.Once
}

func (b *openBody) Read(piece []byte) (int, error) {
	n, err := b.inner.Read(piece)
	b.reply.feed(piece[:n])
	if err != nil {
		b.once.Do(func() { end(b.ctx, b.reply, "end", struct{}{}, nil) })
	}
	return n, err
}

func (b *openBody) Close() error {
	err := b.inner.Close()
	// Before the end of the body: the call ends, and nobody waits.
	b.once.Do(func() { _, _ = b.reply.look("abandon", struct{}{}) })
	return err
}

// begunBody is the body of an error, whose beginning is read before the client sees it.
type begunBody struct {
	inner io.ReadCloser
	done  chan struct{}
	mutex sync.Mutex
	read  []byte
	err   error
}

func begin(inner io.ReadCloser) *begunBody {
	body := &begunBody{inner: inner, done: make(chan struct{})}
	go func() {
		defer close(body.done)
		piece := make([]byte, 8*1024)
		for length := 0; length < mostOfError; {
			n, err := inner.Read(piece)
			length += n
			body.mutex.Lock()
			body.read, body.err = append(body.read, piece[:n]...), err
			body.mutex.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return body
}

// beginning is what came in time.
func (b *begunBody) beginning() []byte {
	timer := time.NewTimer(longestError)
	defer timer.Stop()
	select {
	case <-b.done:
	case <-timer.C:
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return bytes.Clone(b.read[:min(len(b.read), mostOfError)])
}

func (b *begunBody) Read(piece []byte) (int, error) {
	<-b.done
	b.mutex.Lock()
	n := copy(piece, b.read)
	b.read = b.read[n:]
	err := b.err
	b.mutex.Unlock()
	switch {
	case n > 0:
		return n, nil
	case err != nil:
		return 0, err
	default:
		return b.inner.Read(piece)
	}
}

func (b *begunBody) Close() error {
	return b.inner.Close()
}
