package sluice

// #include "include/sluice.h"
import "C"

import (
	"context"
	"encoding/json"
	"runtime/cgo"
	"time"
)

// Credentials are keys of AWS.
type Credentials struct {
	AccessKeyID     string
	SecretAccessKey string
	// SessionToken is that of temporary credentials; empty for others.
	SessionToken string
	// Expires is when they end. Config.Credentials is asked again ten seconds before; if it is zero, every
	// five minutes.
	Expires time.Time
}

type provider = func(context.Context) (Credentials, error)

// longestAnswer is how long a program may look for its credentials. It is less than the time after which it
// is asked anew.
const longestAnswer = 30 * time.Second

// sluiceGoAsk is asked for credentials, in a thread of sluice, which must not wait.
//
//export sluiceGoAsk
func sluiceGoAsk(context C.uintptr_t, question *C.SluiceCredentialsQuestion) {
	go tell(question, cgo.Handle(context).Value().(provider))
}

func tell(question *C.SluiceCredentialsQuestion, credentials provider) {
	ctx, cancel := context.WithTimeout(context.Background(), longestAnswer)
	defer cancel()
	found, err := credentials(ctx)
	keys := map[string]any{
		"accessKeyId": found.AccessKeyID, "secretAccessKey": found.SecretAccessKey, "sessionToken": found.SessionToken,
	}
	if !found.Expires.IsZero() {
		keys["expiresMs"] = found.Expires.UnixMilli()
	}
	if err != nil {
		keys = map[string]any{"error": err.Error()}
	}
	// Texts and a number can always be written as JSON.
	text, _ := json.Marshal(keys)
	C.sluice_credentials(question, chars(text), C.uintptr_t(len(text)))
}
