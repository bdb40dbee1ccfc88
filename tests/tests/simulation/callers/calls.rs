//! What a call does with its vendor: it arrives, takes in the reply, is refused at times, and says what it
//! used.

use std::time::Duration;

use fastrand::Rng;
use sluice_core::Dimension;
use sluice_sdk::vendors::{Kept, Vendors};
use sluice_sdk::{Grant, Reply, SettleError, Settled, Slot};
use tokio::time::sleep;

use super::{Caller, Dying, Need};
use crate::ledger::Said;
use crate::liveness::Public;
use crate::row::Micros;
use crate::vendors::VendorReply;

/// What one call used of one rate bucket, in millionths, and what its vendor said.
pub(super) struct Used {
    bucket: String,
    cost: Micros,
    used: Micros,
    answer: VendorReply,
}

impl Used {
    pub(super) fn bucket(&self) -> &str {
        &self.bucket
    }

    pub(super) const fn used(&self) -> Micros {
        self.used
    }
}

impl Caller {
    pub(super) fn calls_vendors(&mut self, need: &Need) -> Vec<Used> {
        let mut rng = self.rng.fork();
        self.calls_vendors_by(need, &mut rng)
    }

    /// The call arrives. Half of them use what they took, the others less, nothing, or more.
    pub(super) fn calls_vendors_by(&self, need: &Need, rng: &mut Rng) -> Vec<Used> {
        let now = self.universe.time();
        let mut vendors = self.universe.vendors.lock().unwrap();
        let call = |(bucket, cost): &(String, i32)| {
            let cost = Micros::from(*cost) * 1_000_000;
            let used = match rng.u32(0..10) {
                0..=4 => cost,
                5..=7 => cost * Micros::from(rng.u32(0..100)) / 100,
                8 => 0,
                _ => cost + cost * Micros::from(rng.u32(1..=50)) / 100,
            };
            let answer = vendors.call(bucket, used, now, rng)?;
            Some(Used { bucket: bucket.clone(), cost, used, answer })
        };
        need.parts.iter().filter_map(call).collect()
    }

    /// Takes in what the vendors said, some of it late; whether the call counts as failed.
    pub(super) async fn hears(&mut self, need: &Need, used: &[Used], grant: &Grant) -> bool {
        for call in used {
            if self.rng.u32(0..3) == 0 {
                continue;
            }
            if self.rng.u32(0..4) == 0 {
                sleep(Duration::from_millis(self.rng.u64(0..400))).await;
            }
            self.said(call, grant.start_at().micros());
            let observed = self.process.client.observe(&call.bucket, &call.answer.headers, Some(grant));
            let _ = self.watch(Public::Observe).on(observed).await;
        }
        let Some(wait) = used.iter().find_map(|call| call.answer.refused_for) else { return false };
        if self.rng.bool() {
            return false;
        }
        self.is_refused(need, wait).await;
        self.rng.bool()
    }

    pub(super) async fn hears_in_slot(&self, slot: &Slot, used: &[Used], rng: &mut Rng) {
        for call in used {
            if rng.u32(0..3) > 0 {
                self.said(call, slot.start_at().micros());
                let _ =
                    self.watch(Public::Observe).on(slot.observe(&call.bucket, &call.answer.headers)).await;
            }
        }
    }

    /// Does what is to be done about a 429, of each kind.
    async fn is_refused(&mut self, need: &Need, wait: Duration) {
        let seconds = wait.as_secs_f64().min(3.0);
        let (status, headers, body): (u16, Vec<(&str, String)>, &[u8]) = match self.rng.u32(0..6) {
            0 | 1 => (429, vec![("retry-after-ms", format!("{:.0}", seconds * 1_000.0))], b""),
            2 => (429, vec![("retry-after", format!("{:.0}", seconds.ceil()))], b""),
            3 => (529, Vec::new(), b""),
            4 => (429, Vec::new(), br#"{"detail": {"status": "too_many_concurrent_requests"}}"#),
            _ => (429, Vec::new(), b""),
        };
        self.universe.act("a vendor refuses", &format!("{}: {status} {headers:?}", self.process.name));
        let reply = Reply { status, headers: &headers, body: Some(body) };
        let refused = self.process.client.on_rate_limited(need.request(), reply);
        let _ = self.watch(Public::Refused(need.parts.len())).on(refused).await;
    }

    fn said(&self, call: &Used, start: i64) {
        let Some(left) = call.answer.left else { return };
        let (process, bucket) = (self.process.name.to_string(), call.bucket.clone());
        let said = Said { process, bucket, left, start: start.into(), cost: call.cost };
        self.universe.ledger(|ledger| ledger.said(said));
    }

    /// Settles at once, later, twice, not at all, or goes away in the middle.
    pub(super) async fn settles(&mut self, id: &str, used: &[Used], grant: &mut Grant) {
        for call in used.iter().filter(|call| call.used != call.cost) {
            match self.rng.u32(0..8) {
                0 => continue,
                1 => sleep(Duration::from_millis(self.rng.u64(0..2_000))).await,
                _ => {}
            }
            let surplus = self.begins_to_settle(id, call);
            let dies_at = (self.rng.u32(0..4) == 0).then(|| self.rng.u32(1..4));
            let settle = self.watch(Public::Settle).on(grant.settle(&call.bucket, amount(call.used)));
            let settle = Dying::new(settle, dies_at).await;
            let settled = match settle {
                Some(settled) => settled,
                None => {
                    self.universe.act("dropped at an await", &format!("{}: settle", self.process.name));
                    if self.rng.bool() {
                        continue;
                    }
                    // Nobody told it whether the write goes on.
                    self.universe.count("settled again after a drop");
                    grant.settle(&call.bucket, amount(call.used)).await
                }
            };
            let rest = self.left_over(&call.bucket, surplus, &settled);
            let is_over = settled.is_ok();
            if is_over && self.rng.u32(0..3) == 0 {
                self.universe.act("settled twice", &format!("{}: {}", self.process.name, call.bucket));
                self.universe
                    .ledger(|ledger| ledger.account(&self.process.name, &call.bucket).settles_again(rest));
                let settled = grant.settle(&call.bucket, amount(call.used)).await;
                self.left_over(&call.bucket, rest, &settled);
            }
        }
    }

    /// What of a surplus a settle found no room for.
    fn left_over(&self, bucket: &str, surplus: Micros, settled: &Result<Settled, SettleError>) -> Micros {
        let Ok(Settled::Returned(back)) = settled else { return 0 };
        let rest = surplus - Micros::from(back.micros());
        self.universe.ledger(|ledger| ledger.account(&self.process.name, bucket).found_no_room(rest));
        rest
    }

    /// Says in a slot what the call used, to be settled at its end; of what was said twice, the last word
    /// counts. Returns what it told.
    pub(super) fn says_what_it_used(
        &self,
        id: &str,
        slot: &Slot,
        used: &[Used],
        rng: &mut Rng,
    ) -> Vec<String> {
        let mut told = Vec::new();
        for call in used.iter().filter(|call| call.used != call.cost) {
            if rng.u32(0..4) == 0 {
                continue;
            }
            if rng.u32(0..4) == 0 {
                let _ = slot.used(&call.bucket, amount(call.cost / 2));
            }
            if slot.used(&call.bucket, amount(call.used)).is_ok() {
                self.begins_to_settle(id, call);
                told.push(call.bucket.clone());
            }
        }
        told
    }

    /// A call that failed keeps what its vendor counts of it, and what it told before stays.
    pub(super) fn fails(&self, id: &str, need: &Need, used: &[Used], told: &[String]) {
        self.universe.act("a call fails", &format!("{}: {:?}", self.process.name, need.parts));
        for call in used.iter().filter(|call| !told.contains(&call.bucket)) {
            let Some(bucket) = self.universe.scenario.bucket(&call.bucket) else { continue };
            let dimension = Dimension::new(&call.bucket).unwrap();
            let kept = Vendors::builtin().of(&dimension).kept_by_failure(bucket.limit.limit_type());
            if kept == Kept::Nothing {
                let nothing =
                    Used { used: 0, bucket: call.bucket.clone(), answer: call.answer.clone(), ..*call };
                self.begins_to_settle(id, &nothing);
            }
        }
    }

    /// From here on what it did not use may go back. Returns how much.
    pub(super) fn begins_to_settle(&self, id: &str, call: &Used) -> Micros {
        let (now, surplus) = (self.universe.time(), (call.cost - call.used).max(0));
        self.universe.record(|record| record.settled(id, &call.bucket, call.used.min(call.cost), now));
        self.universe.ledger(|ledger| ledger.account(&self.process.name, &call.bucket).settles(surplus));
        surplus
    }
}

pub(super) fn amount(micros: Micros) -> sluice_core::Amount {
    sluice_core::Amount::from_micros(i64::try_from(micros).unwrap())
}
