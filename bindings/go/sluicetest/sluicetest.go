// Package sluicetest serves a DynamoDB for the tests of a product: the embedded engine of `sluice sandbox`.
package sluicetest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
	"time"
)

var endpoint = regexp.MustCompile(`SLUICE_ENDPOINT_URL=(\S+)`)

const longestStart = 30 * time.Second

// Start starts a sandbox for a test, and sets the variables by which sluice.FromEnv finds it. SLUICE_COMMAND names the
// command; otherwise it is the one on PATH. The sandbox ends with the test.
func Start(t testing.TB) {
	t.Helper()
	variables, stop, err := Run()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	for name, value := range variables {
		t.Setenv(name, value)
	}
}

// Run starts a sandbox, for TestMain. It returns the variables to set, and what ends it.
func Run() (variables map[string]string, stop func(), err error) {
	command := os.Getenv("SLUICE_COMMAND")
	if command == "" {
		command = "sluice"
	}
	sandbox := exec.Command(command, "sandbox", "--port", "0")
	sandbox.Stderr = os.Stderr
	output, err := sandbox.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := sandbox.Start(); err != nil {
		return nil, nil, fmt.Errorf("%s sandbox: %w (SLUICE_COMMAND names the command)", command, err)
	}
	stop = func() {
		_ = sandbox.Process.Signal(syscall.SIGTERM)
		_ = sandbox.Wait()
	}
	found := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(output)
		for lines.Scan() {
			if match := endpoint.FindStringSubmatch(lines.Text()); match != nil {
				select {
				case found <- match[1]:
				default:
				}
			}
		}
		close(found)
	}()
	timer := time.NewTimer(longestStart)
	defer timer.Stop()
	select {
	case url, is := <-found:
		if is {
			return map[string]string{
				"SLUICE_ENV":            "sandbox",
				"SLUICE_ENDPOINT_URL":   url,
				"AWS_ACCESS_KEY_ID":     "sandbox",
				"AWS_SECRET_ACCESS_KEY": "sandbox",
			}, stop, nil
		}
		stop()
		return nil, nil, errors.New("the sandbox ended before it served")
	case <-timer.C:
		stop()
		return nil, nil, errors.New("the sandbox is not up after 30 s")
	}
}
