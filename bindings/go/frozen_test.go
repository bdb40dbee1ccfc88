package sluice_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	sluice "github.com/OWNER/sluice/bindings/go"
)

// TestFunction is no test of its own: it is what a process does that is frozen, one call for each two lines
// that it reads.
func TestFunction(t *testing.T) {
	slots := os.Getenv("FROZEN")
	if slots == "" {
		t.Skip("for another test")
	}
	began := time.Now()
	function, err := sluice.FromEnv(t.Context(), sluice.Config{LeaseTTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("ready", time.Since(began).Milliseconds())
	asked := bufio.NewScanner(os.Stdin)
	for asked.Scan() {
		isLost := false
		request := sluice.On(slots).MaxWait(10 * time.Second)
		err := function.WithSlot(t.Context(), request, func(_ context.Context, slot *sluice.Slot) error {
			fmt.Println("calls")
			asked.Scan()
			time.Sleep(300 * time.Millisecond)
			isLost = slot.IsLeaseLost()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("lost", isLost)
	}
	if _, err := function.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// line is a way to the engine whose connections can be cut, as they are while a process is frozen.
type line struct {
	url      string
	listener net.Listener
	lock     sync.Mutex
	open     []net.Conn
}

func newLine(t *testing.T) *line {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	way := &line{url: "http://" + listener.Addr().String(), listener: listener}
	go way.accept(strings.TrimPrefix(os.Getenv("SLUICE_ENDPOINT_URL"), "http://"))
	t.Cleanup(func() {
		listener.Close()
		way.cut()
	})
	return way
}

func (l *line) accept(address string) {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", address)
		if err != nil {
			near.Close()
			continue
		}
		l.lock.Lock()
		l.open = append(l.open, near, far)
		l.lock.Unlock()
		go func() { _, _ = io.Copy(near, far) }()
		go func() { _, _ = io.Copy(far, near) }()
	}
}

func (l *line) cut() {
	l.lock.Lock()
	defer l.lock.Unlock()
	for _, connection := range l.open {
		connection.Close()
	}
	l.open = nil
}

func TestAFrozenProcessGoesOnAndLeaksNothing(t *testing.T) {
	slots := declare(t, sluice.Concurrent(1), "concurrent")
	way := newLine(t)
	function := exec.Command(os.Args[0], "-test.run=^TestFunction$")
	function.Env = append(os.Environ(), "FROZEN="+slots, "SLUICE_ENDPOINT_URL="+way.url)
	function.Stderr = os.Stderr
	asks, err := function.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := function.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := function.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = function.Process.Kill() })
	told := bufio.NewScanner(output)
	answers := func(begin string) string {
		t.Helper()
		for told.Scan() {
			if strings.HasPrefix(told.Text(), begin) {
				return told.Text()
			}
		}
		t.Fatal("it ended without saying ", begin)
		return ""
	}
	signal := func(signal syscall.Signal) {
		if err := function.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
	}
	init := answers("ready")

	// In the middle of a call, until its lease has ended and another has the slot.
	fmt.Fprintln(asks, "an invocation")
	answers("calls")
	signal(syscall.SIGSTOP)
	way.cut()
	eventually(t, "the slot is swept", 20*time.Second, func() bool {
		if _, err := client.Ops().Sweep(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		return level(t, slots) == 1
	})
	other := acquire(t, sluice.On(slots))
	signal(syscall.SIGCONT)
	fmt.Fprintln(asks, "the vendor's answer")
	if lost := answers("lost"); lost != "lost true" {
		t.Fatal(lost)
	}
	if level(t, slots) != 0 {
		t.Fatal("it gave back what was not its own any more")
	}
	if _, err := other.Release(t.Context()); err != nil {
		t.Fatal(err)
	}

	// Between two calls.
	signal(syscall.SIGSTOP)
	way.cut()
	time.Sleep(2 * time.Second)
	signal(syscall.SIGCONT)
	fmt.Fprintln(asks, "an invocation")
	answers("calls")
	fmt.Fprintln(asks, "the vendor's answer")
	if lost := answers("lost"); lost != "lost false" {
		t.Fatal(lost)
	}
	asks.Close()
	for told.Scan() {
	}
	if err := function.Wait(); err != nil {
		t.Fatal(err)
	}
	if level(t, slots) != 1 {
		t.Fatal("a slot is not back")
	}
	leases, err := client.Ops().Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, lease := range leases {
		if lease.Dimension == slots {
			t.Fatal(lease)
		}
	}
	fmt.Println("from nothing to a client:", strings.TrimPrefix(init, "ready "), "ms")
}
