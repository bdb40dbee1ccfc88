// Lambda is a function behind SQS: each message is a call to the vendor. What does not fit now, or fails, comes again.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	sluice "github.com/OWNER/sluice/bindings/go"
)

// Message is a message of SQS, and Failure names one that is to come again (github.com/aws/aws-lambda-go/events has both).
type (
	Message struct{ MessageId, Body string }
	Failure struct {
		ItemIdentifier string `json:"itemIdentifier"`
	}
	Response struct {
		BatchItemFailures []Failure `json:"batchItemFailures"`
	}
)

type function struct {
	http http.Client
}

func (f *function) handle(ctx context.Context, messages []Message) (Response, error) {
	var response Response
	for _, message := range messages {
		// A refusal, a timeout, an error: this message comes again, and the others do not.
		if err := f.call(ctx, message.Body); err != nil {
			response.BatchItemFailures = append(response.BatchItemFailures, Failure{message.MessageId})
		}
	}
	return response, nil
}

func (f *function) call(ctx context.Context, body string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://api.openai.com/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	reply, err := f.http.Do(request)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	// To its end: it says how many tokens the call used.
	if _, err = io.Copy(io.Discard, reply.Body); err != nil {
		return err
	}
	if reply.StatusCode >= 400 {
		return fmt.Errorf("the vendor answered %d", reply.StatusCode)
	}
	return nil
}

func main() {
	// Once: it lives as long as the function's environment, also while that is frozen.
	client, err := sluice.FromEnv(context.Background())
	if err != nil {
		panic(err)
	}
	transport := &sluice.Transport{Client: client, Vendor: "openai", Patience: 5 * time.Second}
	f := &function{http.Client{Transport: transport, Timeout: 20 * time.Second}}
	// lambda.Start(f.handle) of github.com/aws/aws-lambda-go/lambda.
	fmt.Println(f.handle(context.Background(), nil))
}
