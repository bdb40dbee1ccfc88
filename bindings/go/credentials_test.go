package sluice_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sluice "github.com/OWNER/sluice/bindings/go"
)

// asked is who sent a request.
type asked struct{ key, region, token string }

// watched is a DynamoDB that notes who asks it: it passes requests on to the sandbox.
type watched struct {
	endpoint string
	lock     sync.Mutex
	seen     []asked
}

var signature = regexp.MustCompile(`Credential=([^/]+)/\d+/([^/]+)/`)

func watch(t *testing.T) *watched {
	sandbox, err := url.Parse(os.Getenv("SLUICE_ENDPOINT_URL"))
	if err != nil {
		t.Fatal(err)
	}
	of := &watched{}
	pass := httputil.NewSingleHostReverseProxy(sandbox)
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		found := signature.FindStringSubmatch(request.Header.Get("Authorization"))
		of.lock.Lock()
		of.seen = append(of.seen, asked{found[1], found[2], request.Header.Get("X-Amz-Security-Token")})
		of.lock.Unlock()
		pass.ServeHTTP(writer, request)
	}))
	t.Cleanup(server.Close)
	of.endpoint = server.URL
	return of
}

// take takes three requests, one after the other, and returns who asked.
func (of *watched) take(t *testing.T, config sluice.Config) ([]asked, error) {
	t.Helper()
	config.Endpoint = of.endpoint
	watched, err := sluice.FromEnv(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Close(t.Context())
	rpm := declare(t, sluice.Requests(100, days), "rpm")
	of.lock.Lock()
	of.seen = nil
	of.lock.Unlock()
	for range 3 {
		if _, retry, err := watched.Acquire(t.Context(), sluice.On(rpm)); err != nil || retry != nil {
			return nil, err
		}
	}
	of.lock.Lock()
	defer of.lock.Unlock()
	return of.seen, nil
}

// lasting are credentials that end after a time, with a new key each time. It counts how often it is asked.
func lasting(time_ time.Duration) (credentials func(context.Context) (sluice.Credentials, error), count *atomic.Int64) {
	count = new(atomic.Int64)
	return func(context.Context) (sluice.Credentials, error) {
		key := "AKID" + strconv.FormatInt(count.Add(1), 10)
		return sluice.Credentials{key, "secret", "token", time.Now().Add(time_)}, nil
	}, count
}

func TestCredentialsAndRegionOfTheProgramSignTheRequests(t *testing.T) {
	dynamo := watch(t)
	credentials, count := lasting(time.Hour)
	seen, err := dynamo.take(t, sluice.Config{Credentials: credentials, Region: "eu-west-3"})
	if err != nil || count.Load() != 1 {
		t.Fatal(err, count)
	}
	for _, one := range seen {
		if one != (asked{"AKID1", "eu-west-3", "token"}) {
			t.Fatal(seen)
		}
	}
	if seen, err = dynamo.take(t, sluice.Config{}); err != nil || seen[0].key != "sandbox" || seen[0].token != "" {
		t.Fatal(seen, err)
	}
}

func TestAProgramIsAskedAgainWhenItsCredentialsEnd(t *testing.T) {
	credentials, count := lasting(time.Second)
	seen, err := watch(t).take(t, sluice.Config{Credentials: credentials})
	if err != nil || count.Load() < 3 || seen[0].key == seen[len(seen)-1].key {
		t.Fatal(seen, err, count)
	}
}

func TestTheErrorOfAProgramsCredentialsIsThatOfTheRequest(t *testing.T) {
	dynamo := watch(t)
	for text, credentials := range map[string]func(context.Context) (sluice.Credentials, error){
		"no profile of this name": func(context.Context) (sluice.Credentials, error) {
			return sluice.Credentials{}, errors.New("no profile of this name")
		},
		"secret access key": func(context.Context) (sluice.Credentials, error) {
			return sluice.Credentials{AccessKeyID: "AKID"}, nil
		},
	} {
		_, err := dynamo.take(t, sluice.Config{Credentials: credentials})
		if !errors.Is(err, sluice.ErrCredentials) || !regexp.MustCompile(text).MatchString(err.Error()) {
			t.Fatal(text, err)
		}
	}
}

func TestCredentialsAreForgottenWithTheirClient(t *testing.T) {
	dynamo := watch(t)
	forgotten := make(chan struct{})
	func() {
		held := new([64]byte)
		runtime.AddCleanup(held, func(done chan struct{}) { close(done) }, forgotten)
		credentials := func(context.Context) (sluice.Credentials, error) {
			held[0]++
			return sluice.Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret"}, nil
		}
		if _, err := dynamo.take(t, sluice.Config{Credentials: credentials}); err != nil {
			t.Fatal(err)
		}
	}()
	collected(t, forgotten)
	stacks := make([]byte, 1<<20)
	eventually(t, "no goroutine is left", 5*time.Second, func() bool {
		return !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "sluice.tell(")
	})
}

// collected waits until something is collected.
func collected(t *testing.T, is chan struct{}) {
	t.Helper()
	eventually(t, "it is collected", 10*time.Second, func() bool {
		runtime.GC()
		select {
		case <-is:
			return true
		default:
			return false
		}
	})
}
