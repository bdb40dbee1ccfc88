// Lambda is a function behind SQS: each message is a call to the vendor. What does not fit now goes back into the queue.
package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"sluice"
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
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://api.openai.com/v1/chat/completions",
			strings.NewReader(message.Body))
		if err != nil {
			return response, err
		}
		request.Header.Set("Content-Type", "application/json")
		reply, err := f.http.Do(request)
		if err != nil {
			return response, err
		}
		reply.Body.Close()
		if reply.StatusCode == http.StatusTooManyRequests {
			response.BatchItemFailures = append(response.BatchItemFailures, Failure{message.MessageId})
		}
	}
	return response, nil
}

func main() {
	// Once: it lives as long as the function's environment, also while that is frozen.
	client, err := sluice.FromEnv(context.Background())
	if err != nil {
		panic(err)
	}
	transport := &sluice.Transport{Client: client, Vendor: "openai", Patience: 5 * time.Second}
	f := &function{http.Client{Transport: transport}}
	// lambda.Start(f.handle) of github.com/aws/aws-lambda-go/lambda.
	fmt.Println(f.handle(context.Background(), nil))
}
