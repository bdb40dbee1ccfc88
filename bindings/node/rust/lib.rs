//! The border to Node: operations as promises. What they are and what they answer is in `sluice-bindings`,
//! and the types are in TypeScript (`src/`).

#![allow(missing_docs, reason = "`src/native.ts` tells what each is")]

use std::sync::Arc;

use napi::bindgen_prelude::{Buffer, Either, FnArgs};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Error, Result, Status};
use napi_derive::napi;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sluice_bindings::logs::{self, Record};
use sluice_bindings::{Answer, Begun, CredentialsQuestion, Failure, Target, UnderWay, begin};
use tokio::runtime::Runtime;

/// A failure travels as JSON in the message of an error.
fn raise(failure: &Failure) -> Error {
    Error::new(Status::GenericFailure, failure.to_json())
}

fn parse(arguments: &str) -> Result<Value> {
    serde_json::from_str(arguments).map_err(|error| Error::new(Status::InvalidArg, error.to_string()))
}

fn runtime() -> Result<&'static Runtime> {
    sluice_bindings::runtime().map_err(|message| Error::new(Status::GenericFailure, message))
}

/// What operations are called on.
#[napi(js_name = "Target")]
pub struct NativeTarget(Target);

#[napi]
impl NativeTarget {
    #[napi(factory)]
    pub fn client(settings: String) -> Result<Self> {
        runtime()?.block_on(Target::client(parse(&settings)?)).map(Self).map_err(|failure| raise(&failure))
    }

    /// The same with credentials of the program: `ask` is called with a question when they are needed.
    #[napi(factory)]
    pub fn client_with_credentials(settings: String, ask: Ask) -> Result<Self> {
        let asks = move |question| {
            // A process that ends answers nothing: the question is dropped with the call.
            ask.call(NativeQuestion(Mutex::new(Some(question))), ThreadsafeFunctionCallMode::NonBlocking);
        };
        runtime()?
            .block_on(Target::client_with_credentials(parse(&settings)?, asks))
            .map(Self)
            .map_err(|failure| raise(&failure))
    }

    #[napi(factory)]
    pub fn estimator(settings: String) -> Result<Self> {
        Target::estimator(parse(&settings)?).map(Self).map_err(|failure| raise(&failure))
    }

    /// Begins an operation. Most grants from stock are there at once: then there is no operation, but the
    /// answer. Otherwise `mailbox` is told the answer, with this number.
    #[napi]
    pub fn call(
        &self,
        name: String,
        arguments: String,
        bytes: Option<Buffer>,
        mailbox: &Mailbox,
        number: u32,
    ) -> Result<Either<NativeAnswer, NativeOperation>> {
        let work = self.0.call(&name, parse(&arguments)?, bytes.map(Vec::from));
        match begin(work, runtime()?.handle()) {
            Begun::Done(Ok(answer)) => Ok(Either::A(NativeAnswer::new(answer))),
            Begun::Done(Err(failure)) => Err(raise(&failure)),
            Begun::Waits(waits) => {
                let told = Arc::clone(&mailbox.0);
                Ok(Either::B(NativeOperation(waits.tell(move |answer| {
                    let (answer, failure) = match answer {
                        Some(Ok(answer)) => (Some(NativeAnswer::new(answer)), None),
                        Some(Err(failure)) => (None, Some(failure.to_json())),
                        None => (None, None),
                    };
                    // Of a worker thread that has ended, nobody is told: the answer is dropped, and gives
                    // back what it holds.
                    told.call((number, answer, failure).into(), ThreadsafeFunctionCallMode::NonBlocking);
                }))))
            }
        }
    }

    /// What can be told, or done, without a wait.
    #[napi]
    pub fn look(&self, name: String, arguments: String) -> Result<NativeAnswer> {
        let arguments = parse(&arguments)?;
        let _in_runtime = runtime()?.enter();
        self.0.look(&name, arguments).map(NativeAnswer::new).map_err(|failure| raise(&failure))
    }

    /// Puts a grant into a tracker.
    #[napi]
    pub fn store(&self, arguments: String, grant: &NativeTarget) -> Result<NativeAnswer> {
        let arguments = parse(&arguments)?;
        let _in_runtime = runtime()?.enter();
        self.0.store(arguments, &grant.0).map(NativeAnswer::new).map_err(|failure| raise(&failure))
    }

    /// Reads a piece of a reply's body.
    #[napi]
    pub fn feed(&self, piece: Buffer) {
        self.0.feed(&piece);
    }
}

/// A call of a function of the program from any thread. It does not keep the process alive, and at most so
/// many calls wait.
type Weakly<T, const MOST: usize = 0> = ThreadsafeFunction<T, (), T, Status, false, true, MOST>;

type Ask = Weakly<NativeQuestion>;

type Log = Weakly<String, { logs::MOST_WAITING }>;

/// A question for credentials of AWS.
#[napi(js_name = "CredentialsQuestion")]
pub struct NativeQuestion(Mutex<Option<CredentialsQuestion>>);

#[napi]
impl NativeQuestion {
    #[napi]
    pub fn answer(&self, keys: String) -> Result<()> {
        let (question, keys) = (self.0.lock().take(), parse(&keys)?);
        if let Some(question) = question {
            question.answer(keys);
        }
        Ok(())
    }

    #[napi]
    pub fn fail(&self, why: String) {
        if let Some(question) = self.0.lock().take() {
            question.fail(why);
        }
    }
}

/// Sends the events of the process of this level and above to `log`, as JSON.
#[napi]
pub fn log_to(level: String, log: Log) -> Result<()> {
    let level = logs::level(&level).map_err(|failure| raise(&failure))?;
    logs::log_in_place(level, move |record: Record| {
        let mut told = json!(record);
        told["line"] = record.line().into();
        log.call(told.to_string(), ThreadsafeFunctionCallMode::NonBlocking) == Status::Ok
    });
    Ok(())
}

/// Sends events to nobody.
#[napi]
pub fn end_log() {
    logs::log_to(None);
}

/// Where the answers of one thread of JavaScript come: the number of the operation, its answer or its
/// failure, and neither if it was cancelled.
#[napi]
pub struct Mailbox(Arc<Callback>);

type Callback = ThreadsafeFunction<Telling, (), Telling, Status, false, true>;

type Telling = FnArgs<(u32, Option<NativeAnswer>, Option<String>)>;

#[napi]
impl Mailbox {
    #[napi(constructor)]
    pub fn new(callback: Callback) -> Self {
        Self(Arc::new(callback))
    }
}

/// An operation that is under way.
#[napi(js_name = "Operation")]
pub struct NativeOperation(UnderWay);

#[napi]
impl NativeOperation {
    #[napi]
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

/// The answer to an operation.
#[napi(js_name = "Answer")]
pub struct NativeAnswer {
    value: String,
    made: Option<Target>,
    more: Vec<(Value, Target)>,
    bytes: Option<Vec<u8>>,
}

impl NativeAnswer {
    fn new(answer: Answer) -> Self {
        let Answer { value, made, more, bytes } = answer;
        Self { value: value.to_string(), made, more, bytes }
    }
}

#[napi]
impl NativeAnswer {
    /// What is told, as JSON.
    #[napi(getter)]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// What was made. Once only.
    #[napi]
    pub fn take_made(&mut self) -> Option<NativeTarget> {
        self.made.take().map(NativeTarget)
    }

    /// The body. Once only.
    #[napi]
    pub fn take_bytes(&mut self) -> Option<Buffer> {
        self.bytes.take().map(Buffer::from)
    }

    /// The first of more that was made, with its value. Each once only.
    #[napi]
    pub fn take_next(&mut self) -> Option<NativeAnswer> {
        if self.more.is_empty() {
            return None;
        }
        let (value, made) = self.more.remove(0);
        Some(Self { value: value.to_string(), made: Some(made), more: Vec::new(), bytes: None })
    }
}
