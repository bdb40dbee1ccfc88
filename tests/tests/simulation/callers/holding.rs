//! Calls under a grant that their caller holds, and how they end.

use std::time::Duration;

use sluice_sdk::Grant;
use tokio::time::sleep;

use super::{Caller, Dying, Need};
use crate::liveness::Public;
use crate::record::Grip;
use crate::scenario::BucketPlan;

impl Caller {
    /// Calls the vendor under a grant, and ends as calls do.
    pub(super) async fn hold(&mut self, need: &Need, grip: Grip, mut grant: Grant) {
        let lease_ends = grant.lease_ends().map_or(i64::MAX, |ends| ends.micros());
        let transacted = grant.lease_ends().is_some();
        let id = self.granted(need, Grip { lease_ends, transacted, ..grip });
        let call = Duration::from_millis(self.rng.u64(0..1_500));
        let used = self.calls_vendors(need);
        match self.rng.u32(0..8) {
            0 => return self.streams(&id, need, used, grant).await,
            1 => return self.tracks(&id, need, grant).await,
            _ => {}
        }
        match self.rng.u32(0..20) {
            0..=10 => sleep(call).await,
            // Beyond its lease: whoever needs the slot may have it by then.
            11 if need.concurrent => {
                self.abandons(need);
                sleep(self.universe.scenario.lease_ttl * 3).await;
            }
            12 | 13 => {
                for _ in 0..self.rng.u32(1..5) {
                    sleep(self.universe.scenario.lease_ttl.mul_f64(0.6)).await;
                    self.universe.act("renewal", &self.process.name);
                    let _ = self.watch(Public::Renew(need.parts.len())).on(grant.renew()).await;
                }
            }
            14 | 15 => {
                self.universe.record(|record| record.released(&id, self.universe.time()));
                return drop(grant);
            }
            16 if need.concurrent => {
                // The crash that the reconciler is for.
                self.universe.act("holder vanishes", &self.process.name);
                self.abandons(need);
                return std::mem::forget(grant);
            }
            _ => {}
        }
        if self.hears(need, &used, &grant).await {
            self.fails(&id, need, &used, &[]);
            self.universe.record(|record| record.released(&id, self.universe.time()));
            let _ = self.watch(Public::Release).on(grant.failed()).await;
            return;
        }
        self.settles(&id, &used, &mut grant).await;
        self.universe.record(|record| record.released(&id, self.universe.time()));
        let release = self.watch(Public::Release).on(grant.release());
        let release = Dying::new(release, self.dies_at());
        if release.await.is_none() {
            self.universe.act("dropped at an await", &format!("{}: release", self.process.name));
        }
    }

    /// Leaves the leases of a call to whoever sweeps.
    fn abandons(&self, need: &Need) {
        let has_lease = |name: &String| {
            self.has_leases || self.universe.scenario.bucket(name).is_some_and(BucketPlan::is_concurrent)
        };
        let parts = u64::try_from(need.parts.iter().filter(|(name, _)| has_lease(name)).count()).unwrap();
        self.universe
            .ledger(|ledger| *ledger.abandoned.entry(self.process.name.to_string()).or_default() += parts);
    }
}
