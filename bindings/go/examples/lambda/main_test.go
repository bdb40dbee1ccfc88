package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	sluice "github.com/OWNER/sluice/bindings/go"
	"github.com/OWNER/sluice/bindings/go/sluicetest"
)

type vendor func(*http.Request) (*http.Response, error)

func (v vendor) RoundTrip(request *http.Request) (*http.Response, error) { return v(request) }

func TestWhatDoesNotFitComesAgain(t *testing.T) {
	sluicetest.Start(t)
	client, err := sluice.FromEnv(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(t.Context())
	for _, dimension := range []string{"openai#tpm", "openai#rpm"} {
		if _, err := client.Ops().RemoveBucket(t.Context(), dimension); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.Ops().ApplyLimit(t.Context(), "openai#rpm", sluice.Requests(2, 24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	answers := vendor(func(request *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), Request: request}, nil
	})
	transport := &sluice.Transport{Client: client, Vendor: "openai", Patience: 300 * time.Millisecond, Next: answers}
	f := &function{http.Client{Transport: transport}}
	var messages []Message
	for n := range 3 {
		messages = append(messages, Message{MessageId: fmt.Sprint(n), Body: `{"model":"gpt-5","messages":[]}`})
	}
	response, err := f.handle(t.Context(), messages)
	if err != nil || len(response.BatchItemFailures) != 1 || response.BatchItemFailures[0].ItemIdentifier != "2" {
		t.Fatal(response, err)
	}
}
