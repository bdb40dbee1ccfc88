package sluice

// #include "include/sluice.h"
// extern void sluiceGoLog(uintptr_t context, char *record, uintptr_t length);
// extern void sluiceGoForget(uintptr_t context);
import "C"

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime/cgo"
	"unsafe"
)

var levels = []struct {
	name  string
	level slog.Level
}{
	{"debug", slog.LevelDebug},
	{"info", slog.LevelInfo},
	{"warn", slog.LevelWarn},
	{"error", slog.LevelError},
}

// SetLogger sends the SDK's events to a logger from now on, and no longer to another; to nobody if it is nil,
// as at the start. The message is the name of an event, as limit.near, with what happened; its fields are
// attributes, which are texts. There is one logger for a process. The lowest level that it takes is asked for
// here: after a change, set it again.
func SetLogger(logger *slog.Logger) {
	for _, lowest := range levels {
		if logger != nil && logger.Enabled(context.Background(), lowest.level) {
			_, err := told(C.sluice_log(letters(lowest.name), C.uintptr_t(len(lowest.name)), C.SluiceLog(C.sluiceGoLog),
				C.uintptr_t(cgo.NewHandle(logger)), C.SluiceForget(C.sluiceGoForget)))
			if err != nil {
				logger.Error("sluice logs nothing", "error", err)
			}
			return
		}
	}
	C.sluice_log_end()
}

// sluiceGoLog is told an event, in a thread that does nothing else.
//
//export sluiceGoLog
func sluiceGoLog(of C.uintptr_t, record *C.char, length C.uintptr_t) {
	var event struct {
		Level, Event, Message string
		Fields                [][2]string
	}
	if json.Unmarshal(C.GoBytes(unsafe.Pointer(record), C.int(length)), &event) != nil {
		return
	}
	text := event.Event
	if text != "" && event.Message != "" {
		text += ": "
	}
	attributes := make([]slog.Attr, len(event.Fields))
	for at, field := range event.Fields {
		attributes[at] = slog.String(field[0], field[1])
	}
	var level slog.Level
	for _, known := range levels {
		if known.name == event.Level {
			level = known.level
		}
	}
	cgo.Handle(of).Value().(*slog.Logger).LogAttrs(context.Background(), level, text+event.Message, attributes...)
}
