//! The C interface: all that is not safe. A pointer that a function returns belongs to the caller, who frees
//! it once.

#![allow(unsafe_code, reason = "pointers of C; each function says what they must be")]

use std::ffi::c_char;
use std::ptr::{null, null_mut};
use std::slice;
use std::time::Duration;

use serde_json::Value;
use sluice_bindings::{Answer, Failure, Target};

use crate::work::{SluiceAnswer, SluiceOperation, SluiceTarget, at_once, begin, blocking};

/// Told the answer to an operation, once, in a thread of sluice; null if the operation was cancelled. It must
/// not block.
pub type SluiceDone = extern "C" fn(context: usize, answer: *mut SluiceAnswer);

/// The text at `text`, of `length` bytes.
///
/// # Safety
/// `text` points at `length` bytes, or `length` is 0.
pub(crate) unsafe fn bytes<'a>(text: *const c_char, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(text.cast(), length) }
}

pub(crate) fn name(text: &[u8]) -> Result<&str, Failure> {
    str::from_utf8(text).map_err(|error| failure(error.to_string()))
}

pub(crate) fn arguments(text: &[u8]) -> Result<Value, Failure> {
    if text.is_empty() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    serde_json::from_slice(text).map_err(|error| failure(format!("the arguments are no JSON: {error}")))
}

pub(crate) fn failure(message: String) -> Failure {
    Failure { class: "ArgumentError", message, retry: Value::Null }
}

pub(crate) fn given(answer: SluiceAnswer) -> *mut SluiceAnswer {
    Box::into_raw(Box::new(answer))
}

pub(crate) fn made(target: Target) -> Answer {
    Answer { made: Some(target), ..Answer::default() }
}

/// Connects a client with settings in JSON; without a table, those of the environment. Makes no request.
///
/// # Safety
/// `settings` points at `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_client(settings: *const c_char, length: usize) -> *mut SluiceAnswer {
    // SAFETY: the caller's promise.
    let settings = arguments(unsafe { bytes(settings, length) });
    given(blocking(async { Target::client(settings?).await.map(made) }))
}

/// Makes an estimator of tokens with settings in JSON.
///
/// # Safety
/// `settings` points at `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_estimator(settings: *const c_char, length: usize) -> *mut SluiceAnswer {
    // SAFETY: the caller's promise.
    let settings = arguments(unsafe { bytes(settings, length) });
    given(at_once(|| Target::estimator(settings?).map(made)))
}

/// Begins the operation `name` with `args` in JSON and, if `body` is not null, a body. Waits for the answer
/// in this thread, at most `wait_ms` milliseconds. Returns null if the answer came: it is in `ready` then.
/// Otherwise `done` is told the answer later, once; free the operation after that.
///
/// # Safety
/// `target` is of this library and not freed; the texts point at their lengths in bytes; `ready` points at a
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_call(
    target: *const SluiceTarget,
    name_text: *const c_char,
    name_length: usize,
    args: *const c_char,
    args_length: usize,
    body: *const c_char,
    body_length: usize,
    done: SluiceDone,
    context: usize,
    wait_ms: u32,
    ready: *mut *mut SluiceAnswer,
) -> *mut SluiceOperation {
    // SAFETY: the caller's promise.
    let (target, name_text, args) =
        unsafe { (&(*target).0, bytes(name_text, name_length), bytes(args, args_length)) };
    // SAFETY: the caller's promise.
    let body = (!body.is_null()).then(|| unsafe { bytes(body, body_length) }.to_vec());
    let operation = || match (name(name_text), arguments(args)) {
        (Ok(name), Ok(args)) => target.call(name, args, body),
        (Err(failure), _) | (_, Err(failure)) => Box::pin(async move { Err(failure) }),
    };
    let tell = move |answer: Option<SluiceAnswer>| done(context, answer.map_or(null_mut(), given));
    match begin(operation, Duration::from_millis(wait_ms.into()), tell) {
        Ok(cancelled) => Box::into_raw(Box::new(SluiceOperation(cancelled))),
        Err(answer) => {
            // SAFETY: the caller's promise.
            unsafe { *ready = given(answer) };
            null_mut()
        }
    }
}

/// Cancels an operation: it gives back what it has, and `done` is told null, unless it was told the answer
/// before.
///
/// # Safety
/// `operation` is of `sluice_call` and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_cancel(operation: *const SluiceOperation) {
    // SAFETY: the caller's promise.
    unsafe { (*operation).0.cancel() }
}

/// What can be told, or done, without a wait.
///
/// # Safety
/// `target` is of this library and not freed; the texts point at their lengths in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_look(
    target: *const SluiceTarget,
    name_text: *const c_char,
    name_length: usize,
    args: *const c_char,
    args_length: usize,
) -> *mut SluiceAnswer {
    // SAFETY: the caller's promise.
    let (target, name_text, args) =
        unsafe { (&(*target).0, bytes(name_text, name_length), bytes(args, args_length)) };
    given(at_once(|| target.look(name(name_text)?, arguments(args)?)))
}

/// Puts a grant into a tracker; after a failure, the caller holds it still.
///
/// # Safety
/// Both targets are of this library and not freed; `args` points at `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_store(
    tracker: *const SluiceTarget,
    args: *const c_char,
    length: usize,
    grant: *const SluiceTarget,
) -> *mut SluiceAnswer {
    // SAFETY: the caller's promise.
    let (tracker, args, grant) = unsafe { (&(*tracker).0, bytes(args, length), &(*grant).0) };
    given(at_once(|| tracker.store(arguments(args)?, grant)))
}

/// Reads a piece of a reply's body, decoded.
///
/// # Safety
/// `target` is of this library and not freed; `piece` points at `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_feed(target: *const SluiceTarget, piece: *const c_char, length: usize) {
    // SAFETY: the caller's promise.
    let (target, piece) = unsafe { (&(*target).0, bytes(piece, length)) };
    drop(at_once(|| {
        target.feed(piece);
        Ok(Answer::default())
    }));
}

fn told(text: &[u8], length: &mut usize) -> *const c_char {
    *length = text.len();
    text.as_ptr().cast()
}

/// What is told, as JSON that is not terminated. It lives as long as the answer.
///
/// # Safety
/// `answer` is of this library and not freed; `length` points at a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_answer_value(
    answer: *const SluiceAnswer,
    length: *mut usize,
) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { told((*answer).value.as_bytes(), &mut *length) }
}

/// Why the operation failed, as JSON (`class`, `message`, `retry`); null if it did not.
///
/// # Safety
/// `answer` is of this library and not freed; `length` points at a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_answer_failure(
    answer: *const SluiceAnswer,
    length: *mut usize,
) -> *const c_char {
    // SAFETY: the caller's promise.
    let (answer, length) = unsafe { (&*answer, &mut *length) };
    if answer.failure.is_empty() { null() } else { told(answer.failure.as_bytes(), length) }
}

/// The body of a request or a reply; null if there is none. It lives as long as the answer.
///
/// # Safety
/// `answer` is of this library and not freed; `length` points at a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_answer_bytes(
    answer: *const SluiceAnswer,
    length: *mut usize,
) -> *const c_char {
    // SAFETY: the caller's promise.
    let (answer, length) = unsafe { (&*answer, &mut *length) };
    answer.bytes.as_ref().map_or(null(), |body| told(body, length))
}

/// Takes out what was made; null if there is nothing.
///
/// # Safety
/// `answer` is of this library and not freed, and nobody else uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_answer_made(answer: *mut SluiceAnswer) -> *mut SluiceTarget {
    // SAFETY: the caller's promise.
    let taken = unsafe { (*answer).made.take() };
    taken.map_or(null_mut(), |target| Box::into_raw(Box::new(SluiceTarget(target))))
}

/// Takes out the first of more that was made, as an answer of its own; null if there is no more.
///
/// # Safety
/// `answer` is of this library and not freed, and nobody else uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_answer_next(answer: *mut SluiceAnswer) -> *mut SluiceAnswer {
    // SAFETY: the caller's promise.
    unsafe { (*answer).next() }.map_or(null_mut(), given)
}

/// Frees a target. What it holds goes back; nobody waits for that.
///
/// # Safety
/// `target` is of this library and not freed, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_target_free(target: *mut SluiceTarget) {
    if !target.is_null() {
        // SAFETY: the caller's promise.
        let target = unsafe { Box::from_raw(target) };
        drop(at_once(|| {
            drop(target);
            Ok(Answer::default())
        }));
    }
}

/// Frees an operation. It goes on, if it is under way.
///
/// # Safety
/// `operation` is of this library and not freed, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_operation_free(operation: *mut SluiceOperation) {
    if !operation.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(operation) });
    }
}

/// Frees an answer, with what was made and not taken out.
///
/// # Safety
/// `answer` is of this library and not freed, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_answer_free(answer: *mut SluiceAnswer) {
    if !answer.is_null() {
        // SAFETY: the caller's promise.
        let answer = unsafe { Box::from_raw(answer) };
        drop(at_once(|| {
            drop(answer);
            Ok(Answer::default())
        }));
    }
}
