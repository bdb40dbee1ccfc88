//! What a program hands over: its credentials of AWS, and its log. Both are functions that threads of this
//! library call.

#![allow(unsafe_code, reason = "pointers of C; each function says what they must be")]

use std::ffi::c_char;

use serde_json::{Value, json};
use sluice_bindings::{Answer, CredentialsQuestion, Target, logs};

use crate::abi::{arguments, bytes, failure, given, made, name};
use crate::work::{SluiceAnswer, at_once, blocking};

/// Told, once, that nothing is called with this context any more.
pub type SluiceForget = extern "C" fn(context: usize);

/// What the caller's functions are called with.
struct Context {
    context: usize,
    forget: SluiceForget,
}

impl Context {
    // A closure that names the field would take that alone, and drop the rest at once.
    const fn get(&self) -> usize {
        self.context
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        (self.forget)(self.context);
    }
}

/// A question for credentials of AWS. Answer it once, with `sluice_credentials`, in any thread.
#[derive(Debug)]
pub struct SluiceCredentialsQuestion(CredentialsQuestion);

/// Asks for credentials, in a thread of sluice, when they are needed. It must not block.
pub type SluiceAskCredentials = extern "C" fn(context: usize, question: *mut SluiceCredentialsQuestion);

/// The same with credentials of the program: `ask` is asked for them at the first request, and again before
/// they end. When the client and all that it made are gone, `forget` is told.
///
/// # Safety
/// `settings` points at `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_client_with_credentials(
    settings: *const c_char,
    length: usize,
    ask: SluiceAskCredentials,
    context: usize,
    forget: SluiceForget,
) -> *mut SluiceAnswer {
    let of_caller = Context { context, forget };
    // SAFETY: the caller's promise.
    let settings = arguments(unsafe { bytes(settings, length) });
    let asks =
        move |question| ask(of_caller.get(), Box::into_raw(Box::new(SluiceCredentialsQuestion(question))));
    given(blocking(async { Target::client_with_credentials(settings?, asks).await.map(made) }))
}

/// Answers a question, and frees it: with JSON (`accessKeyId`, `secretAccessKey`, `sessionToken`, `expiresMs`
/// since 1970; the last two may be missing), or with `{"error": "why there are none"}`.
///
/// # Safety
/// `question` is of this library and not answered; `keys` points at `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_credentials(
    question: *mut SluiceCredentialsQuestion,
    keys: *const c_char,
    length: usize,
) {
    // SAFETY: the caller's promise.
    let (question, keys) = unsafe { (Box::from_raw(question), bytes(keys, length)) };
    let keys = serde_json::from_slice(keys).unwrap_or(Value::Null);
    drop(at_once(|| {
        match keys["error"].as_str() {
            Some(why) => question.0.fail(why),
            None => question.0.answer(keys),
        }
        Ok(Answer::default())
    }));
}

/// Told one event as JSON (`level`, `event`, `message`, `fields` as pairs), in a thread that does nothing
/// else.
pub type SluiceLog = extern "C" fn(context: usize, record: *const c_char, length: usize);

/// Sends the events of the process of this level (`error`, `warn`, `info`, `debug`) and above to `log` from
/// now on, and no longer to another. When another took its place, and `log` was told what happened before,
/// `forget` is told.
///
/// # Safety
/// `level` points at `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_log(
    level: *const c_char,
    length: usize,
    log: SluiceLog,
    context: usize,
    forget: SluiceForget,
) -> *mut SluiceAnswer {
    let of_caller = Context { context, forget };
    // SAFETY: the caller's promise.
    let level = unsafe { bytes(level, length) };
    given(at_once(|| {
        let tell = move |record| {
            let text = json!(record).to_string();
            log(of_caller.get(), text.as_ptr().cast(), text.len());
        };
        let started = logs::log_in_thread(logs::level(name(level)?)?, tell);
        started.map_err(|error| failure(format!("sluice cannot start a thread: {error}")))?;
        Ok(Answer::default())
    }))
}

/// Sends events to nobody.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_log_end() {
    drop(at_once(|| {
        logs::log_to(None);
        Ok(Answer::default())
    }));
}
