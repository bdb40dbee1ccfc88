package sluice

// #include "include/sluice.h"
import "C"

import "runtime/cgo"

// sluiceGoDone is told the answer to an operation, in a thread of sluice. The channel has room for it.
//
//export sluiceGoDone
func sluiceGoDone(context C.uintptr_t, answer *C.SluiceAnswer) {
	cgo.Handle(context).Value().(chan *C.SluiceAnswer) <- answer
}

// sluiceGoForget is told that a handle is not used any more.
//
//export sluiceGoForget
func sluiceGoForget(context C.uintptr_t) {
	cgo.Handle(context).Delete()
}
