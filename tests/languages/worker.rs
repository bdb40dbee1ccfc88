//! A worker of `run` in Rust: callers that acquire, hold and release until the time is over. If there are
//! several buckets, every second caller waits in a slot for all of them, and tells how many tokens it used.
//!
//! `language_worker HISTORY SECONDS`

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::fs::File;
use std::io::Write as _;
use std::process::id as pid;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use sluice_sdk::core::Amount;
use sluice_sdk::{AcquireError, ClientBuilder, LimitError, Outcome, Request, Slot};
use tokio::time::{Instant, sleep};

type Broken = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Broken> {
    let arguments: Vec<String> = env::args().collect();
    let [_, history, seconds] = arguments.as_slice() else {
        return Err("language_worker HISTORY SECONDS".into());
    };
    let wants: BTreeMap<String, i32> = serde_json::from_str(&env::var("WANTS")?)?;
    let until = Instant::now() + Duration::from_secs_f64(seconds.parse()?);
    let client = ClientBuilder::from_env()?.caller("rust").connect().await;
    let history = Arc::new(History { lines: Mutex::new((File::create(history)?, 0)) });
    history.line(&env::var("HISTORY_HEADER")?)?;
    let callers = env::var("WORKERS").map_or(Ok(4), |number| number.parse())?;
    let callers: Vec<_> = (0..callers)
        .map(|caller| match caller % 2 == 1 && wants.len() > 1 {
            true => tokio::spawn(wait(client.clone(), caller, wants.clone(), until, Arc::clone(&history))),
            false => tokio::spawn(work(client.clone(), caller, wants.clone(), until, Arc::clone(&history))),
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    history.write(json!({ "event": "end", "events": history.count() }))?;
    client.close(Duration::from_secs(10)).await;
    Ok(())
}

/// Each event is in the file before the caller goes on: what a killed worker held can be read there.
struct History {
    lines: Mutex<(File, u64)>,
}

impl History {
    fn line(&self, line: &str) -> Result<(), Broken> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.0.write_all(format!("{line}\n").as_bytes())?;
        lines.1 += 1;
        Ok(())
    }

    fn write(&self, event: Value) -> Result<(), Broken> {
        self.line(&event.to_string())
    }

    fn count(&self) -> u64 {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

async fn work(
    client: sluice_sdk::Client,
    caller: usize,
    wants: BTreeMap<String, i32>,
    until: Instant,
    history: Arc<History>,
) -> Result<(), Broken> {
    let wants: Vec<_> = wants.into_iter().collect();
    let mut number = 0_u64;
    while Instant::now() < until {
        let (dimension, cost) = &wants[fastrand::usize(..wants.len())];
        number += 1;
        let asked = micros();
        let request = Request::from(dimension.as_str()).cost(dimension.as_str(), Amount::from_tokens(*cost));
        let grant = match client.acquire(request).await {
            Ok(Outcome::Granted(grant)) => grant,
            Ok(Outcome::RetryIn(retry)) => {
                history.write(refused(&[dimension], asked, false))?;
                sleep(retry.wait().min(Duration::from_millis(200))).await;
                continue;
            }
            Err(AcquireError::Store(error)) => {
                let mut event = refused(&[dimension], asked, false);
                event["error"] = error.to_string().into();
                history.write(event)?;
                sleep(Duration::from_millis(50)).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let id = format!("rust-{}-{caller}-{number}", pid());
        let mut granted = json!({
            "event": "granted", "id": id, "process": format!("rust-{}", pid()), "dimension": dimension,
            "cost_micros": i64::from(*cost) * 1_000_000, "asked_at_micros": asked, "granted_at_micros": micros(),
            "start_at_micros": grant.start_at().micros(), "booked": false,
        });
        if let Some(ends) = grant.lease_ends() {
            granted["ends_at_micros"] = ends.micros().into();
        }
        history.write(granted)?;
        sleep(Duration::from_millis(fastrand::u64(5..15))).await;
        history.write(json!({
            "event": "released", "id": id, "dimension": dimension, "at_micros": micros(), "how": "released",
        }))?;
        // If that fails, the sweep gives back what the lease holds.
        let _ = grant.release().await;
    }
    Ok(())
}

async fn wait(
    client: sluice_sdk::Client,
    caller: usize,
    wants: BTreeMap<String, i32>,
    until: Instant,
    history: Arc<History>,
) -> Result<(), Broken> {
    let dimensions: Vec<&String> = wants.keys().collect();
    let mut number = 0_u64;
    while Instant::now() < until {
        // Without a pause, bookings would leave nothing to callers that do not wait.
        sleep(Duration::from_millis(fastrand::u64(500..1_000))).await;
        number += 1;
        let (asked, id) = (micros(), format!("rust-{}-{caller}-{number}", pid()));
        let mut request = Request::from(dimensions.as_slice());
        for (dimension, cost) in &wants {
            request = request.cost(dimension, Amount::from_tokens(*cost));
        }
        let has_begun = AtomicBool::new(false);
        let slot = client.slot(request.into_owned()).max_wait(Duration::from_secs(2));
        let done = slot.run(async |slot| {
            has_begun.store(true, Ordering::Relaxed);
            call(&slot, &id, asked, &wants, &history).await
        });
        match done.await {
            Ok(()) => {}
            Err(error) => match error.downcast_ref::<LimitError>() {
                // At the end of the slot: the sweep gives back what the lease holds.
                Some(_) if has_begun.load(Ordering::Relaxed) => {}
                Some(LimitError::Refused(_) | LimitError::TimedOut(_)) => {
                    history.write(refused(&dimensions, asked, true))?;
                }
                Some(LimitError::Acquire(AcquireError::Store(error))) => {
                    let mut event = refused(&dimensions, asked, true);
                    event["error"] = error.to_string().into();
                    history.write(event)?;
                }
                _ => return Err(error),
            },
        }
    }
    Ok(())
}

/// What runs in a slot of all buckets.
async fn call(
    slot: &Slot,
    id: &str,
    asked: u64,
    wants: &BTreeMap<String, i32>,
    history: &History,
) -> Result<(), Broken> {
    let granted = micros();
    // A slot does not tell when its lease ends. Ends are whole seconds: it is at the earliest a second less than
    // the lease time after the slot was asked for.
    let lease: u64 = env::var("SLUICE_LEASE_TTL").map_or(Ok(300), |seconds| seconds.parse())?;
    for (dimension, cost) in wants {
        // Each rate bucket has a start of its own.
        let start_at = slot.start_in(dimension).unwrap_or_else(|| slot.start_at());
        history.write(json!({
            "event": "granted", "id": id, "process": format!("rust-{}", pid()), "dimension": dimension,
            "cost_micros": i64::from(*cost) * 1_000_000, "asked_at_micros": asked, "granted_at_micros": granted,
            "start_at_micros": start_at.micros(), "booked": true,
            "ends_at_micros": granted.max(asked + (lease - 1) * 1_000_000),
        }))?;
    }
    sleep(Duration::from_millis(fastrand::u64(5..15))).await;
    for (dimension, cost) in wants.iter().filter(|(dimension, _)| dimension.ends_with("#tpm")) {
        let used = fastrand::i32(cost / 2..=*cost);
        slot.used(dimension, Amount::from_tokens(used))?;
        history.write(json!({
            "event": "settled", "id": id, "dimension": dimension, "at_micros": micros(),
            "used_micros": i64::from(used) * 1_000_000,
        }))?;
    }
    for dimension in wants.keys() {
        history.write(json!({
            "event": "released", "id": id, "dimension": dimension, "at_micros": micros(), "how": "released",
        }))?;
    }
    Ok(())
}

/// A request that was granted nothing.
fn refused(dimensions: &[&String], asked: u64, booked: bool) -> Value {
    json!({
        "event": "refused", "process": format!("rust-{}", pid()), "dimensions": dimensions,
        "asked_at_micros": asked, "at_micros": micros(), "booked": booked,
    })
}

fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
