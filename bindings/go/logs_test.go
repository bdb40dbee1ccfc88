package sluice_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	sluice "github.com/OWNER/sluice/bindings/go"
)

// lines remembers what is written to it.
type lines struct {
	lock  sync.Mutex
	text  strings.Builder
	fails bool
}

func (l *lines) Write(text []byte) (int, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.text.Write(text)
	if l.fails {
		return 0, errors.New("no disk")
	}
	return len(text), nil
}

func (l *lines) all() string {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.text.String()
}

func (l *lines) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: level}))
}

// refuse does something that is logged as a warning. It returns its dimension.
func refuse(t *testing.T) string {
	t.Helper()
	rpm := declare(t, sluice.Requests(10, days), "rpm")
	reply := sluice.Reply{Status: 429, Header: http.Header{"Retry-After": {"7"}}}
	if _, err := client.OnRateLimited(t.Context(), sluice.On(rpm), reply); err != nil {
		t.Fatal(err)
	}
	return rpm
}

func TestEventsGoToTheLastLoggerFromItsLevelOn(t *testing.T) {
	t.Cleanup(func() { sluice.SetLogger(nil) })
	var first, second lines
	sluice.SetLogger(first.logger(slog.LevelWarn))
	rpm := refuse(t)
	var line string
	eventually(t, "the event is logged", 5*time.Second, func() bool {
		line, _, _ = strings.Cut(first.all(), "\n")
		return line != ""
	})
	var logged map[string]string
	if err := json.Unmarshal([]byte(line), &logged); err != nil {
		t.Fatal(err)
	}
	if logged["level"] != "WARN" || logged["msg"] != "vendor.refused" || logged["dimensions"] != rpm {
		t.Fatal(logged)
	}

	// A writer that fails fails nothing else.
	second.fails = true
	sluice.SetLogger(second.logger(slog.LevelDebug))
	other := refuse(t)
	eventually(t, "the event is logged", 5*time.Second, func() bool {
		return strings.Contains(second.all(), other) && strings.Contains(second.all(), "DEBUG")
	})
	if strings.Contains(first.all(), other) {
		t.Fatal(first.all())
	}

	for _, nobody := range []*slog.Logger{nil, second.logger(slog.LevelError + 1)} {
		sluice.SetLogger(nobody)
		if late := refuse(t); strings.Contains(second.all(), late) {
			t.Fatal(second.all())
		}
	}
}

// holding is a handler with something that can be seen to be collected.
type holding struct {
	slog.Handler
	held *[64]byte
}

func (h holding) Enabled(context.Context, slog.Level) bool {
	return h.held != nil
}

func TestALoggerIsForgottenWhenAnotherTookItsPlace(t *testing.T) {
	forgotten := make(chan struct{})
	func() {
		held := new([64]byte)
		runtime.AddCleanup(held, func(done chan struct{}) { close(done) }, forgotten)
		var written lines
		sluice.SetLogger(slog.New(holding{slog.NewTextHandler(&written, nil), held}))
		refuse(t)
	}()
	sluice.SetLogger(nil)
	collected(t, forgotten)
}
