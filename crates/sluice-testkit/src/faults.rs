//! Faults between a client and DynamoDB, on demand.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::operation::Operation;
use crate::rights::Rights;

/// One fault of one request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The request never arrives: the connection breaks first.
    LoseRequest,
    /// The request is applied, and the connection breaks before the reply.
    LoseReply,
    /// The request is applied twice, as if a proxy repeated it; the second reply comes back.
    Repeat,
    /// A transaction loses its token. To DynamoDB it looks like one that comes ten minutes after the first
    /// try.
    NewToken,
    /// As [`LoseReply`](Self::LoseReply), and a transaction also loses its token: if it is sent again, it is
    /// as if ten minutes had passed.
    LoseReplyAndToken,
    /// The request never arrives, and no reply comes.
    Hang,
    /// The request arrives later.
    Delay(Duration),
    /// The request is applied, and its reply comes later.
    DelayReply(Duration),
    /// The connection breaks at once, and the request arrives later, whatever its sender has done since.
    Late(Duration),
    /// DynamoDB does not apply the request, and answers with this.
    Answer {
        /// The HTTP status.
        status: u16,
        /// The body.
        body: String,
    },
    /// The request is applied, and DynamoDB answers with an internal error (HTTP 500).
    FailAfterwards,
    /// The request is applied, and its reply is changed on the way back.
    Alter(Alteration),
    /// The request is applied. The head of the reply and half of its body arrive, and then nothing; the
    /// connection stays open.
    StallBody,
    /// The request is applied. The head of the reply and half of its body arrive, and then the connection
    /// breaks.
    CutBody,
    /// The request is applied. The body of the reply arrives one byte at a time, each after this pause.
    Trickle(Duration),
    /// The request waits at the gate until the test opens it.
    Hold(Gate),
}

impl Fault {
    /// A cancelled transaction with these reasons, one for each action (`None` for an action that is not at
    /// fault).
    #[must_use]
    pub fn cancelled(codes: &[&str]) -> Self {
        let reasons: Vec<_> =
            codes.iter().map(|code| json!({ "Code": code, "Message": "injected" })).collect();
        let message = format!(
            "Transaction cancelled, please refer cancellation reasons for specific reasons [{}]",
            codes.join(", ")
        );
        Self::service(
            "TransactionCanceledException",
            400,
            json!({ "Message": message, "CancellationReasons": reasons }),
        )
    }

    /// A write that meets a transaction on the same item.
    #[must_use]
    pub fn conflict() -> Self {
        Self::service(
            "TransactionConflictException",
            400,
            json!({ "message": "Transaction is ongoing for the item" }),
        )
    }

    /// A request above the table's throughput.
    #[must_use]
    pub fn throttled() -> Self {
        let message = "The level of configured provisioned throughput for the table was exceeded";
        Self::service("ProvisionedThroughputExceededException", 400, json!({ "message": message }))
    }

    /// One of those that happen, of a request about rows.
    fn at_random(call: Call<'_>) -> Self {
        let late = Duration::from_millis(fastrand::u64(20..200));
        match fastrand::u8(0..8) {
            0 => Self::LoseRequest,
            1 => Self::LoseReply,
            2 => Self::FailAfterwards,
            3 => Self::Delay(late),
            4 => Self::DelayReply(late),
            5 if call.operation == Operation::TransactWriteItems => {
                let mut codes = vec!["None"; call.actions()];
                if let Some(code) = codes.first_mut() {
                    *code = "TransactionConflict";
                }
                Self::cancelled(&codes)
            }
            5 if call.operation.is_write() => Self::conflict(),
            _ => Self::throttled(),
        }
    }

    /// An error of the service.
    #[must_use]
    pub fn service(exception: &str, status: u16, mut body: serde_json::Value) -> Self {
        body["__type"] = json!(format!("com.amazonaws.dynamodb.v20120810#{exception}"));
        Self::Answer { status, body: body.to_string() }
    }
}

/// A change of the body of a reply.
#[derive(Clone)]
pub struct Alteration(Alter);

type Alter = Arc<dyn Fn(&[u8]) -> Vec<u8> + Send + Sync>;

impl Alteration {
    /// Changes the body with `alter`.
    pub fn new(alter: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self(Arc::new(alter))
    }

    pub(crate) fn apply(&self, body: &[u8]) -> Vec<u8> {
        (self.0)(body)
    }
}

impl fmt::Debug for Alteration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Alteration")
    }
}

/// A request on its way to DynamoDB.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The operation.
    pub operation: Operation,
    /// The body of the request, in DynamoDB's JSON.
    pub body: &'a [u8],
}

impl Call<'_> {
    /// How many rows a transaction is about.
    fn actions(&self) -> usize {
        let request = serde_json::from_slice::<serde_json::Value>(self.body).unwrap_or_default();
        request["TransactItems"].as_array().map_or(0, Vec::len)
    }
}

/// A request that DynamoDB has answered.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    /// The request.
    pub call: Call<'a>,
    /// The HTTP status; 200 if the request was applied.
    pub status: u16,
    /// The body of the reply.
    pub reply: &'a [u8],
}

type Draw = Arc<dyn Fn(Call<'_>) -> Option<Fault> + Send + Sync>;
type Watch = Arc<dyn Fn(Answered<'_>) + Send + Sync>;

/// Faults of the next requests, by operation. Clones are one list.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<Lists>>);

#[derive(Default)]
struct Lists {
    next: HashMap<Operation, VecDeque<Fault>>,
    always: HashMap<Operation, Fault>,
    rights: Option<Rights>,
    signature_skew: Option<Duration>,
    refused_signatures: u64,
    hides_date: bool,
    draw: Option<Draw>,
    watch: Option<Watch>,
}

impl fmt::Debug for Lists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { next, always, rights, signature_skew, refused_signatures, hides_date, draw: _, watch: _ } =
            self;
        f.debug_struct("Lists")
            .field("next", next)
            .field("always", always)
            .field("rights", rights)
            .field("signature_skew", signature_skew)
            .field("refused_signatures", refused_signatures)
            .field("hides_date", hides_date)
            .finish_non_exhaustive()
    }
}

impl Faults {
    /// Gives the next request of `operation` this fault; further calls queue up.
    pub fn next(&self, operation: Operation, fault: Fault) {
        self.locked().next.entry(operation).or_default().push_back(fault);
    }

    /// Gives every request of `operation` this fault, once the queued faults are used up.
    pub fn always(&self, operation: Operation, fault: Fault) {
        self.locked().always.insert(operation, fault);
    }

    /// Calls `draw` to choose the fault of every request, once the queued faults are used up.
    pub fn draw(&self, draw: impl Fn(Call<'_>) -> Option<Fault> + Send + Sync + 'static) {
        self.locked().draw = Some(Arc::new(draw));
    }

    /// Gives this part of the requests about rows a fault at random: a request that is throttled, lost or
    /// late, or that is applied although its reply is lost, late, or an internal error; and conflicts of
    /// writes.
    pub fn at_random(&self, part: f64) {
        self.draw(move |call| {
            (call.operation.is_metered() && fastrand::f64() < part).then(|| Fault::at_random(call))
        });
    }

    /// Calls `watch` for every request that the engine has answered, in the order of the answers, once for
    /// each answer.
    pub fn watch(&self, watch: impl Fn(Answered<'_>) + Send + Sync + 'static) {
        self.locked().watch = Some(Arc::new(watch));
    }

    /// Holds the next request of `operation` at a gate.
    #[must_use]
    pub fn hold_next(&self, operation: Operation) -> Gate {
        let gate = Gate::default();
        self.next(operation, Fault::Hold(gate.clone()));
        gate
    }

    /// Denies what `rights` do not allow, from now on.
    pub fn allow_only(&self, rights: Rights) {
        self.locked().rights = Some(rights);
    }

    /// Rejects every request that was signed by a clock that is off by more than `most`, as AWS does after
    /// some minutes.
    pub fn refuse_signatures_off_by(&self, most: Duration) {
        self.locked().signature_skew = Some(most);
    }

    /// How many requests were rejected for their signature so far.
    #[must_use]
    pub fn refused_signatures(&self) -> u64 {
        self.locked().refused_signatures
    }

    /// Leaves the `Date` out of every reply, as some engines for development do. [`clear`](Self::clear) does
    /// not undo this.
    pub fn hide_date(&self) {
        self.locked().hides_date = true;
    }

    /// Removes all faults and the watcher.
    pub fn clear(&self) {
        let mut lists = self.locked();
        *lists = Lists { hides_date: lists.hides_date, ..Lists::default() };
    }

    pub(crate) fn take(&self, call: Call<'_>) -> Option<Fault> {
        let mut lists = self.locked();
        let next = lists.next.get_mut(&call.operation).and_then(VecDeque::pop_front);
        let known = next.or_else(|| lists.always.get(&call.operation).cloned());
        let draw = lists.draw.clone();
        drop(lists);
        known.or_else(|| draw?(call))
    }

    pub(crate) fn signature_skew(&self) -> Option<Duration> {
        self.locked().signature_skew
    }

    pub(crate) fn refused_signature(&self) {
        self.locked().refused_signatures += 1;
    }

    pub(crate) fn sends_date(&self) -> bool {
        !self.locked().hides_date
    }

    pub(crate) fn answered(&self, answered: Answered<'_>) {
        let watch = self.locked().watch.clone();
        if let Some(watch) = watch {
            watch(answered);
        }
    }

    /// The action in a request that the role may not do.
    pub(crate) fn denied(&self, operation: &str, body: &[u8]) -> Option<String> {
        self.locked().rights.as_ref()?.denied(operation, body)
    }

    fn locked(&self) -> MutexGuard<'_, Lists> {
        self.0.lock()
    }
}

/// A gate at which one request waits, so that a test can act in between. Clones are one gate.
#[derive(Clone, Debug)]
pub struct Gate {
    reached: Arc<Semaphore>,
    opened: Arc<Semaphore>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { reached: Arc::new(Semaphore::new(0)), opened: Arc::new(Semaphore::new(0)) }
    }
}

impl Gate {
    /// Waits until the request has reached the gate.
    pub async fn reached(&self) {
        let _ = self.reached.acquire().await;
    }

    /// Lets the request go on.
    pub fn open(&self) {
        self.opened.add_permits(1);
    }

    pub(crate) async fn wait(&self) {
        self.reached.add_permits(1);
        let _ = self.opened.acquire().await;
    }
}
