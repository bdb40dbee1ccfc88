//! The fleet goes by DynamoDB's time, whatever its machines believe.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use sluice_core::{Amount, Cost, Limit, LimitType, Rate, Timestamp};
use sluice_sdk::{Client, Clock, Outcome};
use tokio::time::{Instant, sleep};

use crate::world::{World, dimension};

pub(crate) mod anchors;
mod asked;
mod forgotten;
mod leases;
mod service;
mod signatures;

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600 * SECOND;

/// A machine whose clock a test sets, and whose steady clock nobody does.
#[derive(Clone, Default)]
struct Machine {
    off: Arc<AtomicI64>,
    /// For how long its steady clock stood still.
    stood: Arc<AtomicI64>,
}

impl Machine {
    fn client(
        &self,
        world: &World,
        settings: impl Fn(sluice_sdk::ClientBuilder) -> sluice_sdk::ClientBuilder,
    ) -> Client {
        let (time, off) = (world.dynamo.clock().clone(), Arc::clone(&self.off));
        let steady = world.dynamo.clock().clone();
        let now = move || Timestamp::from_micros(time.now().micros() + off.load(Ordering::SeqCst));
        let clock = Clock::from_fn(now);
        let stood = Arc::clone(&self.stood);
        let clock = clock.steady_by(move || {
            Duration::from_micros((steady.now().micros() - stood.load(Ordering::SeqCst)).unsigned_abs())
        });
        world.client_with(|builder| settings(builder.clock(clock.clone())))
    }

    /// The machine stands still while time passes; then its clock is set, and its steady clock goes on from
    /// where it was.
    fn stop(&self, world: &World, time: Duration) {
        world.pass(time);
        self.stood.fetch_add(i64::try_from(time.as_micros()).unwrap(), Ordering::SeqCst);
    }

    fn set_clock_by(&self, micros: i64) {
        self.off.fetch_add(micros, Ordering::SeqCst);
    }
}

/// A requests bucket of this capacity and refill rate.
async fn rate(world: &World, name: &str, capacity: i32, per_second: &str) {
    let rate: Rate = per_second.parse().unwrap();
    let limit = Limit::rate(LimitType::Requests, Amount::from_tokens(capacity), rate, Cost::ONE).unwrap();
    world.client().ops().apply_limit(&dimension(name), &limit).await.unwrap();
}
