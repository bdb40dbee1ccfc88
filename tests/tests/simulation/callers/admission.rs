//! Callers that ask first whether a call is worth taking on.

use std::time::Duration;

use sluice_sdk::AcquireError;
use sluice_sdk::admission::{Admission, AdmissionMode, Admitted, Shed, ShedReason};
use tokio::time::sleep;

use super::{Caller, Dying, Need};
use crate::liveness::Public;
use crate::row::Micros;

/// The longest that a caller that was shed stays away, so that the run is not over by then.
const LONGEST_AWAY: Duration = Duration::from_secs(5);

/// How a process is set, which its callers judge its answers by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admits {
    pub(crate) mode: AdmissionMode,
    pub(crate) staleness: Duration,
}

impl Admits {
    pub(crate) fn drawn(rng: &mut fastrand::Rng) -> Self {
        let modes =
            [AdmissionMode::Enforce, AdmissionMode::Enforce, AdmissionMode::Shadow, AdmissionMode::Off];
        Self { mode: modes[rng.usize(0..4)], staleness: Duration::from_secs(rng.u64(2..=8)) }
    }
}

impl Caller {
    /// Whether the call is to be begun. Half of those who ask have no SLO. Who is shed comes back when he was
    /// told to, and asks again.
    pub(super) async fn is_admitted(&mut self, need: &Need) -> bool {
        let (bucket, cost) = need.parts[0].clone();
        let slo = self.rng.bool().then(|| Duration::from_millis(self.rng.u64(0..=4_000)));
        for _ in 0..3 {
            let backlog = self.rng.i32(0..3);
            let client = self.process.client.clone();
            let ask = client.admit(&bucket, cost, slo).backlog(backlog);
            let ask = self.watch(Public::Admit).on(ask.into_future());
            let Some(answer) = Dying::new(ask, self.dies_at()).await else {
                self.universe.act("dropped at an await", &format!("{}: admit", self.process.name));
                return true;
            };
            let shed = match answer {
                Ok(Admission::Admitted(admitted)) => {
                    self.was_admitted(&bucket, slo, &admitted);
                    return true;
                }
                Ok(Admission::Shed(shed)) => shed,
                Err(AcquireError::Store(error)) => {
                    self.universe.violated(format!(
                        "{bucket}: trouble of the table is an answer of admission: {error}"
                    ));
                    return false;
                }
                Err(_) => return true,
            };
            self.was_shed(&bucket, slo, &shed);
            sleep(shed.retry_after().min(LONGEST_AWAY)).await;
            if self.universe.is_over() || !self.process.is_alive() {
                return false;
            }
            self.universe.count("a caller that was shed comes back");
        }
        false
    }

    fn was_admitted(&self, bucket: &str, slo: Option<Duration>, admitted: &Admitted) {
        self.universe
            .act("admitted", &format!("{}: {bucket} within {slo:?}: {admitted:?}", self.process.name));
        let Some(shed) = admitted.would_shed() else { return };
        if self.admits.mode != AdmissionMode::Shadow || slo.is_none() {
            self.universe
                .violated(format!("{bucket}: {:?} would shed what has {slo:?}: {shed:?}", self.admits));
        }
        self.universe.count("admitted in shadow mode, and would be shed");
        self.is_shed_for_a_reason(bucket, slo, shed);
    }

    fn was_shed(&self, bucket: &str, slo: Option<Duration>, shed: &Shed) {
        self.universe.act("shed", &format!("{}: {bucket} within {slo:?}: {shed:?}", self.process.name));
        if self.admits.mode != AdmissionMode::Enforce || slo.is_none() {
            self.universe.violated(format!("{bucket}: {:?} shed what has {slo:?}: {shed:?}", self.admits));
        }
        self.is_shed_for_a_reason(bucket, slo, shed);
    }

    fn is_shed_for_a_reason(&self, bucket: &str, slo: Option<Duration>, shed: &Shed) {
        let slo = slo.unwrap_or_default();
        // A vendor that is down is not up sooner for those who have more patience.
        let patience = if shed.reason() == ShedReason::UpstreamDown { Duration::ZERO } else { slo };
        let over = shed.wait().saturating_sub(patience).max(Duration::from_secs(1));
        if shed.retry_after() < over || shed.retry_after() > over.mul_f64(1.301) {
            self.universe
                .violated(format!("{bucket}: to come back of {shed:?} is not {over:?} and 30 % at most"));
        }
        if shed.reason() == ShedReason::OverSlo && shed.wait() <= slo {
            self.universe.violated(format!("{bucket}: {shed:?} is within {slo:?}"));
        }
        if shed.reason() == ShedReason::UpstreamDown {
            self.universe.count("shed: upstream down");
            self.is_down(bucket);
        }
    }

    /// The vendor of a bucket counts as down while its slots are held and none comes free. Where clients
    /// write that do not count what they are granted, limits change, slots are edited or time jumps, a
    /// process cannot know.
    fn is_down(&self, bucket: &str) {
        let scenario = &self.universe.scenario;
        let time_jumps = scenario.upheaval && !scenario.unswept;
        // What it has read may be from before it stood still.
        let staleness = Micros::try_from(self.admits.staleness.as_micros()).unwrap();
        let stood_still = self.process.ice.was_frozen_since(self.universe.time() - staleness - 10_000_000);
        let stands_still = time_jumps || stood_still;
        if scenario.strangers || scenario.operator || scenario.vandal || stands_still {
            return;
        }
        let (now, error) = (self.universe.time(), Micros::from(scenario.clock_error));
        self.universe.count("judged: upstream down");
        self.universe.check(self.universe.ledger(|ledger| ledger.is_down(bucket, now, staleness, error)));
    }
}
