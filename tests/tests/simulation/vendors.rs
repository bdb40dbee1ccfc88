//! The vendors of the simulation: each counts the calls that start, with a limit of its own that is lower at
//! times, and says in its replies what is left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::sleep;

use crate::row::Micros;
use crate::scenario::BucketPlan;
use crate::universe::Universe;

/// Picotokens of a millionth, by microseconds of a second.
const PICO: Micros = 1_000_000_000_000;

/// What every vendor counts, by bucket.
pub(crate) struct Vendors(BTreeMap<String, Quota>);

/// One limit, as its vendor keeps it.
struct Quota {
    full_capacity: Micros,
    full_rate: Micros,
    capacity: Micros,
    rate: Micros,
    level: Micros,
    at: Micros,
}

/// A vendor's reply.
#[derive(Clone, Debug)]
pub(crate) struct VendorReply {
    /// Millionths of a token, in whole tokens; `None` where the reply does not say.
    pub(crate) left: Option<Micros>,
    pub(crate) headers: Vec<(String, String)>,
    /// Where the vendor refused the call: after which time it would not.
    pub(crate) refused_for: Option<Duration>,
}

impl Vendors {
    pub(crate) fn new(buckets: &[BucketPlan]) -> Self {
        let rates = buckets.iter().filter(|bucket| !bucket.is_concurrent());
        let quota = |bucket: &BucketPlan| {
            let capacity = Micros::from(bucket.limit.capacity().micros());
            let rate = sluice_history::pico_per_sec(&bucket.limit.refill_rate().to_string()).unwrap().into();
            let (full_capacity, full_rate) = (capacity, rate);
            (
                bucket.name().to_owned(),
                Quota { full_capacity, full_rate, capacity, rate, level: capacity, at: 0 },
            )
        };
        Self(rates.map(quota).collect())
    }

    /// A call that uses so many millionths arrives.
    pub(crate) fn call(
        &mut self,
        bucket: &str,
        used: Micros,
        now: Micros,
        rng: &mut Rng,
    ) -> Option<VendorReply> {
        let quota = self.0.get_mut(bucket)?;
        quota.refill(now);
        let lacks = used - quota.level;
        let refused_for = (lacks > 0).then(|| quota.time_for(lacks));
        if refused_for.is_none() {
            quota.level -= used;
        }
        let whole = quota.level.max(0) / 1_000_000;
        Some(
            VendorReply {
                headers: headers(bucket, quota, whole, rng),
                left: Some(whole * 1_000_000),
                refused_for,
            }
            .or_silent(rng),
        )
    }

    /// The limit of a bucket is `percent` of what it was made for.
    fn change(&mut self, bucket: &str, percent: Micros, now: Micros) {
        if let Some(quota) = self.0.get_mut(bucket) {
            quota.refill(now);
            quota.capacity = quota.full_capacity * percent / 100;
            quota.rate = quota.full_rate * percent / 100;
            quota.level = quota.level.min(quota.capacity);
        }
    }
}

impl Quota {
    fn refill(&mut self, now: Micros) {
        let flowed = if self.at == 0 { 0 } else { self.rate * (now - self.at).max(0) / PICO };
        self.level = (self.level + flowed).min(self.capacity);
        self.at = now;
    }

    fn time_for(&self, amount: Micros) -> Duration {
        Duration::from_micros(u64::try_from(amount * PICO / self.rate + 1).unwrap_or(u64::MAX))
    }
}

impl VendorReply {
    /// Some replies have no headers, and some have one that makes no sense.
    fn or_silent(mut self, rng: &mut Rng) -> Self {
        match rng.u32(0..10) {
            0 => (self.left, self.headers) = (None, Vec::new()),
            1 => {
                self.left = None;
                self.headers.iter_mut().for_each(|(_, value)| *value = "soon".into());
            }
            _ => {}
        }
        self
    }
}

/// In the words of the vendor that the bucket is of.
fn headers(bucket: &str, quota: &Quota, whole: Micros, rng: &mut Rng) -> Vec<(String, String)> {
    let unit = if bucket.ends_with("tpm") { "tokens" } else { "requests" };
    if bucket.starts_with("anthropic") {
        return vec![(format!("anthropic-ratelimit-{unit}-remaining"), whole.to_string())];
    }
    let mut headers = vec![(format!("x-ratelimit-remaining-{unit}"), whole.to_string())];
    if rng.bool() {
        // The window follows from these: the time in which the whole quota flows back.
        let reset = quota.time_for(quota.capacity - quota.level);
        headers.push((format!("x-ratelimit-limit-{unit}"), (quota.capacity / 1_000_000).to_string()));
        headers.push((format!("x-ratelimit-reset-{unit}"), format!("{}ms", reset.as_millis().max(1))));
    }
    headers
}

/// Changes what vendors allow while everyone calls them.
pub(crate) async fn whims(universe: Arc<Universe>, mut rng: Rng) {
    while !universe.is_over() {
        sleep(Duration::from_millis(rng.u64(300..=4_000))).await;
        let bucket = rng.choice(&universe.scenario.buckets).cloned().unwrap();
        let percent = [25, 40, 75, 100][rng.usize(0..4)];
        universe.act("a vendor's limit changes", &format!("{} to {percent} %", bucket.name()));
        universe.vendors.lock().unwrap().change(bucket.name(), percent, universe.time());
    }
}
