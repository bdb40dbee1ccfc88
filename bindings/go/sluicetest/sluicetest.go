// Package sluicetest serves a DynamoDB for the tests of a product: the embedded engine of `sluice sandbox`.
package sluicetest

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
	"time"
)

var advanced = regexp.MustCompile(`(advanced)`)

// vendors are the variables by which the packages of these vendors find those of the sandbox, in the order in which it
// prints them.
var vendors = []string{"OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"}

const longestStart = 30 * time.Second

const longestAnswer = 10 * time.Second

// memory is how long a client answers a refusal from memory, and a little more.
const memory = 1100 * time.Millisecond

// Sandbox is a sandbox that runs.
type Sandbox struct {
	// Variables are what to set, so that sluice.FromEnv finds the sandbox.
	Variables map[string]string

	command string
	process *exec.Cmd
	input   io.WriteCloser
	printed chan string
}

// Options say which sandbox to run. The zero value is for most tests.
type Options struct {
	// Command is the path of the command sluice; by default that of SLUICE_COMMAND, or the one on PATH.
	Command string
	// Faults is the part of the requests that are throttled, lost, late, or applied without a reply.
	Faults float64
	// Vendors serves vendors too, which answer 429 above their limits, and has buckets for them. The packages of OpenAI
	// and Anthropic call them by the variables OPENAI_BASE_URL and ANTHROPIC_BASE_URL.
	Vendors bool
}

// Start starts a sandbox for a test, and sets the variables by which sluice.FromEnv finds it. The sandbox ends with the
// test.
func Start(t testing.TB, options ...Options) *Sandbox {
	t.Helper()
	sandbox, err := Run(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sandbox.Stop)
	for name, value := range sandbox.Variables {
		t.Setenv(name, value)
	}
	return sandbox
}

// Run starts a sandbox, for TestMain.
func Run(options ...Options) (*Sandbox, error) {
	var of Options
	if len(options) > 0 {
		of = options[0]
	}
	command := cmp.Or(of.Command, os.Getenv("SLUICE_COMMAND"), "sluice")
	arguments := []string{"sandbox", "--port", "0", "--control"}
	if of.Faults > 0 {
		arguments = append(arguments, "--faults", fmt.Sprint(of.Faults))
	}
	variables := []string{"SLUICE_ENDPOINT_URL"}
	if of.Vendors {
		arguments = append(arguments, "--vendors")
		variables = append(variables, vendors...)
	}
	process := exec.Command(command, arguments...)
	process.Stderr = os.Stderr
	input, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, fmt.Errorf("%s sandbox: %w (SLUICE_COMMAND names the command)", command, err)
	}
	sandbox := &Sandbox{command: command, process: process, input: input, printed: make(chan string, 64)}
	go func() {
		defer close(sandbox.printed)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			sandbox.printed <- lines.Text()
		}
	}()
	sandbox.Variables = map[string]string{
		"SLUICE_ENV":            "sandbox",
		"AWS_ACCESS_KEY_ID":     "sandbox",
		"AWS_SECRET_ACCESS_KEY": "sandbox",
	}
	for _, name := range variables {
		url, err := sandbox.expect(regexp.MustCompile(name+`=(\S+)`), longestStart)
		if err != nil {
			sandbox.Stop()
			return nil, err
		}
		sandbox.Variables[name] = url
	}
	return sandbox, nil
}

// Advance moves the time of the table forward, and sweeps: tokens refill, cool-downs end, slots of leases that have ended
// come back. It takes 1.1 s, after which no client refuses from memory any more. Clients learn the time with their next
// request; a wait that is under way is not shortened.
func (s *Sandbox) Advance(by time.Duration) error {
	if by < 0 {
		return fmt.Errorf("the time of a sandbox moves forward alone: %v is less than 0", by)
	}
	if _, err := fmt.Fprintf(s.input, "advance %dms\n", by.Milliseconds()); err != nil {
		return fmt.Errorf("%s sandbox: %w", s.command, err)
	}
	if _, err := s.expect(advanced, longestAnswer); err != nil {
		return err
	}
	time.Sleep(memory)
	return nil
}

// Stop ends the sandbox.
func (s *Sandbox) Stop() {
	_ = s.process.Process.Signal(syscall.SIGTERM)
	// What is left, so that the reader ends.
	for range s.printed {
	}
	_ = s.process.Wait()
}

// expect returns what the sandbox prints.
func (s *Sandbox) expect(pattern *regexp.Regexp, within time.Duration) (string, error) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		select {
		case line, is := <-s.printed:
			if !is {
				return "", fmt.Errorf("%s sandbox: it has ended", s.command)
			}
			if match := pattern.FindStringSubmatch(line); match != nil {
				return match[1], nil
			}
		case <-timer.C:
			return "", fmt.Errorf("%s sandbox does not answer within %v", s.command, within)
		}
	}
}
