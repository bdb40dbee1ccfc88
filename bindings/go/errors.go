package sluice

import (
	"encoding/json"
	"errors"
	"time"
)

// Error is what went wrong, with the text of the SDK. Compare its class by errors.Is:
//
//	errors.Is(err, sluice.ErrUnknownDimension)
type Error struct {
	// Class names the kind of error, as in every language: UnknownDimensionError.
	Class string
	// Message says what was wrong, and what to do.
	Message string
	// Retry is the refusal, of ErrRefused.
	Retry *Retry
}

func (e *Error) Error() string {
	return e.Message
}

// Is tells whether target is the class of this error, or a class that contains it.
func (e *Error) Is(target error) bool {
	class, is := target.(errorClass)
	for own := errorClass(e.Class); is && own != ""; own = contains[own] {
		if own == class {
			return true
		}
	}
	return false
}

// DelaySeconds tells in how many seconds another try is worthwhile: for Retry-After, or for SQS's DelaySeconds.
func (e *Error) DelaySeconds() int {
	if e.Retry != nil {
		return e.Retry.DelaySeconds
	}
	return 1
}

type errorClass string

func (c errorClass) Error() string {
	return "sluice: " + string(c)
}

// The classes of errors. ErrLimit contains all of Acquire and WithSlot but wrong arguments; ErrStore those of the table.
var (
	ErrArgument            error = errorClass("ArgumentError")
	ErrConfig              error = errorClass("ConfigError")
	ErrLimit               error = errorClass("LimitError")
	ErrRefused             error = errorClass("RefusedError")
	ErrTimedOut            error = errorClass("TimedOutError")
	ErrClosed              error = errorClass("ClosedError")
	ErrEnded               error = errorClass("EndedError")
	ErrAcquire             error = errorClass("AcquireError")
	ErrRequest             error = errorClass("RequestError")
	ErrUnknownDimension    error = errorClass("UnknownDimensionError")
	ErrNeverSatisfiable    error = errorClass("NeverSatisfiableError")
	ErrTooLargeForInline   error = errorClass("TooLargeForInlineError")
	ErrCorruptRow          error = errorClass("CorruptRowError")
	ErrStore               error = errorClass("StoreError")
	ErrNoTable             error = errorClass("NoTableError")
	ErrCredentials         error = errorClass("CredentialsError")
	ErrAccessDenied        error = errorClass("AccessDeniedError")
	ErrUnavailable         error = errorClass("UnavailableError")
	ErrContended           error = errorClass("ContendedError")
	ErrRejected            error = errorClass("RejectedError")
	ErrSettle              error = errorClass("SettleError")
	ErrRelease             error = errorClass("ReleaseError")
	ErrLeaseGone           error = errorClass("LeaseGoneError")
	ErrRedeem              error = errorClass("RedeemError")
	ErrPenalize            error = errorClass("PenalizeError")
	ErrRefill              error = errorClass("RefillError")
	ErrLimits              error = errorClass("LimitsError")
	ErrSweep               error = errorClass("SweepError")
	ErrReservation         error = errorClass("ReservationError")
	ErrReservationCapacity error = errorClass("ReservationCapacityError")
	ErrReservationTaken    error = errorClass("ReservationTakenError")
)

// contains has for each class the one that contains it.
var contains = map[errorClass]errorClass{
	"RefusedError":             "LimitError",
	"TimedOutError":            "LimitError",
	"ClosedError":              "LimitError",
	"EndedError":               "LimitError",
	"AcquireError":             "LimitError",
	"RequestError":             "AcquireError",
	"UnknownDimensionError":    "AcquireError",
	"NeverSatisfiableError":    "AcquireError",
	"TooLargeForInlineError":   "AcquireError",
	"CorruptRowError":          "AcquireError",
	"StoreError":               "AcquireError",
	"NoTableError":             "StoreError",
	"CredentialsError":         "StoreError",
	"AccessDeniedError":        "StoreError",
	"UnavailableError":         "StoreError",
	"ContendedError":           "StoreError",
	"RejectedError":            "StoreError",
	"SettleError":              "LimitError",
	"ReleaseError":             "LimitError",
	"LeaseGoneError":           "LimitError",
	"RedeemError":              "LimitError",
	"PenalizeError":            "LimitError",
	"RefillError":              "LimitError",
	"ReservationCapacityError": "ReservationError",
	"ReservationTakenError":    "ReservationError",
}

// failed reads the error that the native library told.
func failed(text []byte) error {
	var failure struct {
		Class   string     `json:"class"`
		Message string     `json:"message"`
		Retry   *toldRetry `json:"retry"`
	}
	if err := json.Unmarshal(text, &failure); err != nil {
		return errors.New(string(text))
	}
	told := &Error{Class: failure.Class, Message: failure.Message}
	if failure.Retry != nil {
		told.Retry = failure.Retry.retry()
	}
	return told
}

// milliseconds as the native library takes and tells them.
func milliseconds(d time.Duration) float64 {
	return float64(d) / float64(time.Millisecond)
}

func duration(ms float64) time.Duration {
	return time.Duration(ms * float64(time.Millisecond))
}

// optional is nil for zero, which stands for the default.
func optional(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	ms := milliseconds(d)
	return &ms
}

// instant reads milliseconds since 1970.
type instant struct{ time.Time }

func (i *instant) UnmarshalJSON(text []byte) error {
	var ms *float64
	if err := json.Unmarshal(text, &ms); err != nil || ms == nil {
		return err
	}
	i.Time = time.UnixMicro(int64(*ms * 1e3)).UTC()
	return nil
}
