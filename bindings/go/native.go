package sluice

// #cgo CFLAGS: -I${SRCDIR}/include
// #cgo LDFLAGS: -L${SRCDIR}/lib -lsluice_c
// #cgo linux LDFLAGS: -lm -ldl -lpthread
// #cgo darwin LDFLAGS: -framework Security -framework CoreFoundation
// #include "sluice.h"
// extern void sluiceGoDone(uintptr_t context, SluiceAnswer *answer);
// extern void sluiceGoAsk(uintptr_t context, SluiceCredentialsQuestion *question);
// extern void sluiceGoForget(uintptr_t context);
import "C"

import (
	"context"
	"encoding/json"
	"runtime"
	"runtime/cgo"
	"unsafe"
)

// target is what operations are called on. When it is collected, what it holds goes back.
type target struct {
	native *C.SluiceTarget
}

func newTarget(native *C.SluiceTarget) *target {
	made := &target{native}
	runtime.SetFinalizer(made, func(made *target) { C.sluice_target_free(made.native) })
	return made
}

// answer is what an operation told and made.
type answer struct {
	value json.RawMessage
	made  *target
	body  []byte
}

// into reads what was told.
func (a *answer) into(value any) error {
	return json.Unmarshal(a.value, value)
}

func connect(settings any, credentials provider) (*target, error) {
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	var native *C.SluiceAnswer
	if credentials == nil {
		native = C.sluice_client(chars(text), C.uintptr_t(len(text)))
	} else {
		native = C.sluice_client_with_credentials(chars(text), C.uintptr_t(len(text)),
			C.SluiceAskCredentials(C.sluiceGoAsk), C.uintptr_t(cgo.NewHandle(credentials)), C.SluiceForget(C.sluiceGoForget))
	}
	made, err := told(native)
	if err != nil {
		return nil, err
	}
	return made.made, nil
}

func estimate(settings any) (*target, error) {
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	made, err := told(C.sluice_estimator(chars(text), C.uintptr_t(len(text))))
	if err != nil {
		return nil, err
	}
	return made.made, nil
}

// call waits for an operation. The context ends it: it gives back what it has.
func (t *target) call(ctx context.Context, name string, args any, body []byte) (*answer, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	text, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	done := make(chan *C.SluiceAnswer, 1)
	handle := cgo.NewHandle(done)
	defer handle.Delete()
	var ready *C.SluiceAnswer
	wait := waitInThread()
	operation := C.sluice_call(t.native, letters(name), C.uintptr_t(len(name)), chars(text), C.uintptr_t(len(text)),
		chars(body), C.uintptr_t(len(body)), C.SluiceDone(C.sluiceGoDone), C.uintptr_t(handle), wait, &ready)
	runtime.KeepAlive(t)
	if wait > 0 {
		<-inThread
	}
	if operation == nil {
		return told(ready)
	}
	defer C.sluice_operation_free(operation)
	select {
	case came := <-done:
		return told(came)
	case <-ctx.Done():
		C.sluice_cancel(operation)
		if came := <-done; came != nil {
			giveBack(told(came))
		}
		return nil, context.Cause(ctx)
	}
}

// inThread has room for the calls that wait in their thread for one request to the table, rather than in Go:
// the scheduler of Go wakes a goroutine later than the system wakes a thread. Each needs a thread, so they
// are few, and a context ends their wait that much later.
var inThread = make(chan struct{}, 4)

const inThreadMs = 2

// waitInThread takes room, if there is some, and tells for how many milliseconds the call may wait in its
// thread.
func waitInThread() C.uint32_t {
	select {
	case inThread <- struct{}{}:
		return inThreadMs
	default:
		return 0
	}
}

// giveBack gives back what came although nobody waits for it any more.
func giveBack(came *answer, err error) {
	if err == nil && came.made != nil {
		// A slot has no such operation: it goes back when it is freed.
		_, _ = came.made.call(context.Background(), "cancel", struct{}{}, nil)
	}
}

// look asks for what is told or done at once.
func (t *target) look(name string, args any) (*answer, error) {
	return told(t.looked(name, args))
}

func (t *target) looked(name string, args any) *C.SluiceAnswer {
	// What is passed here can always be written as JSON.
	text, _ := json.Marshal(args)
	defer runtime.KeepAlive(t)
	return C.sluice_look(t.native, letters(name), C.uintptr_t(len(name)), chars(text), C.uintptr_t(len(text)))
}

// list asks for what is told at once, and what comes with it.
func (t *target) list(name string, args any) ([]*answer, error) {
	native := t.looked(name, args)
	var all []*answer
	for next := C.sluice_answer_next(native); next != nil; next = C.sluice_answer_next(native) {
		// What was taken out did not fail.
		one, _ := told(next)
		all = append(all, one)
	}
	_, err := told(native)
	return all, err
}

func (t *target) store(args any, grant *target) (*answer, error) {
	text, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	defer runtime.KeepAlive(t)
	defer runtime.KeepAlive(grant)
	return told(C.sluice_store(t.native, chars(text), C.uintptr_t(len(text)), grant.native))
}

func (t *target) feed(piece []byte) {
	if len(piece) > 0 {
		C.sluice_feed(t.native, chars(piece), C.uintptr_t(len(piece)))
		runtime.KeepAlive(t)
	}
}

// told reads an answer and frees it.
func told(native *C.SluiceAnswer) (*answer, error) {
	defer C.sluice_answer_free(native)
	var length C.uintptr_t
	if failure := C.sluice_answer_failure(native, &length); failure != nil {
		return nil, failed(C.GoBytes(unsafe.Pointer(failure), C.int(length)))
	}
	value := C.sluice_answer_value(native, &length)
	read := &answer{value: C.GoBytes(unsafe.Pointer(value), C.int(length))}
	if made := C.sluice_answer_made(native); made != nil {
		read.made = newTarget(made)
	}
	if body := C.sluice_answer_bytes(native, &length); body != nil {
		read.body = C.GoBytes(unsafe.Pointer(body), C.int(length))
	}
	return read, nil
}

func chars(text []byte) *C.char {
	return (*C.char)(unsafe.Pointer(unsafe.SliceData(text)))
}

func letters(text string) *C.char {
	return (*C.char)(unsafe.Pointer(unsafe.StringData(text)))
}
