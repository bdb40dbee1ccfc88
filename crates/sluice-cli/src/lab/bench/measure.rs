//! The figures of one system in one case.

use std::time::Duration;

use serde::Serialize;
use sluice_testkit::{Operation, Usage};

use super::load::{Contestant, Load, Tally};
use super::process::processor_time;
use super::world::{Stage, World};

/// The results of one system. Fields named `per_grant` are for each grant; what was not measured is left out.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) struct Measure {
    pub(crate) scenario: &'static str,
    pub(crate) case: String,
    pub(crate) stage: Stage,
    pub(crate) system: &'static str,
    pub(crate) callers: usize,
    pub(crate) seconds: f64,
    pub(crate) grants: u64,
    pub(crate) grants_per_second: f64,
    /// Refusals although there was quota, or because other callers were faster.
    pub(crate) false_refusals: u64,
    pub(crate) refusals: u64,
    pub(crate) errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) requests_per_grant: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) writes_per_grant: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failed_writes_per_grant: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) write_units_per_grant: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) read_units_per_grant: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) acquire_p50_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) acquire_p99_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) acquire_p999_us: Option<f64>,
    /// Processor time of the clients only, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_us_per_grant: Option<f64>,
    /// Resident memory of the clients' process at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resident_kb: Option<u64>,
    /// How much the resident memory of the clients' process has grown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) growth_kb: Option<i64>,
    /// The share that was used of what the limit allowed in the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) quota_used: Option<f64>,
    /// Grants that started before the limit allowed them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) above_bound: Option<u64>,
    /// Grants that started after a grant that was asked for later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) out_of_order: Option<u64>,
}

/// What is used while one system is loaded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Used {
    pub(crate) tally: Tally,
    pub(crate) seconds: f64,
    pub(crate) usage: Usage,
    pub(crate) writes: u64,
    pub(crate) failed_writes: u64,
    pub(crate) cpu: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Case<'a> {
    pub(crate) scenario: &'static str,
    pub(crate) name: &'a str,
    pub(crate) callers: usize,
}

/// Loads each contestant in turn, in several rounds: other work of the machine affects all alike.
pub(crate) async fn compare(
    world: &World,
    case: Case<'_>,
    contestants: &[Contestant],
    load: Load,
    rounds: u32,
) -> Vec<Measure> {
    // The first call of a process opens its connections and reads its buckets.
    let warm_up = Load { length: Duration::from_millis(50), ..load };
    for contestant in contestants {
        contestant.load(warm_up).await;
    }
    let round = Load { length: load.length / rounds, ..load };
    let mut used: Vec<Used> = contestants.iter().map(|_| Used::default()).collect();
    for _ in 0..rounds {
        for (used, contestant) in used.iter_mut().zip(contestants) {
            used.add_round(world, contestant, round).await;
        }
    }
    contestants
        .iter()
        .zip(used)
        .map(|(contestant, used)| used.measure(world.stage, case, contestant.name))
        .collect()
}

impl Used {
    async fn add_round(&mut self, world: &World, contestant: &Contestant, round: Load) {
        world.meter.reset();
        let began = processor_time();
        self.tally.add(contestant.load(round).await);
        self.note(world, began);
        self.seconds += round.length.as_secs_f64();
    }

    /// Adds the meter's figures, and the processor time since `began`.
    pub(crate) fn note(&mut self, world: &World, began: Option<Duration>) {
        const WRITES: [Operation; 4] =
            [Operation::PutItem, Operation::UpdateItem, Operation::DeleteItem, Operation::TransactWriteItems];
        self.writes += WRITES.iter().map(|operation| world.meter.of(*operation).requests).sum::<u64>();
        self.failed_writes += world.meter.failed_writes();
        self.usage = self.usage + world.meter.reset();
        // In virtual time, the processor time is that of the engine and the model.
        if world.stage == Stage::Loopback
            && let (Some(now), Some(began)) = (processor_time(), began)
        {
            self.cpu = Some(self.cpu.unwrap_or_default() + now.saturating_sub(began));
        }
    }

    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn measure(self, stage: Stage, case: Case<'_>, system: &'static str) -> Measure {
        let Tally { grants, late, false_refusals, refusals, errors, last_error, latencies } = self.tally;
        let all = grants + late;
        let each = |amount: f64| (all > 0).then(|| amount / all as f64);
        let has_units = stage == Stage::DynamoProfile;
        Measure {
            scenario: case.scenario,
            case: case.name.to_owned(),
            stage,
            system,
            callers: case.callers,
            seconds: self.seconds,
            grants,
            grants_per_second: if self.seconds > 0.0 { grants as f64 / self.seconds } else { 0.0 },
            false_refusals,
            refusals,
            errors,
            last_error,
            requests_per_grant: each(self.usage.requests as f64),
            writes_per_grant: each(self.writes as f64),
            failed_writes_per_grant: each(self.failed_writes as f64),
            write_units_per_grant: each(self.usage.write_units as f64).filter(|_| has_units),
            read_units_per_grant: each(self.usage.read_units).filter(|_| has_units),
            acquire_p50_us: latencies.percentile_us(500),
            acquire_p99_us: latencies.percentile_us(990),
            acquire_p999_us: latencies.percentile_us(999),
            cpu_us_per_grant: self.cpu.and_then(|cpu| each(cpu.as_secs_f64() * 1e6)),
            resident_kb: super::process::resident_kb().filter(|_| stage == Stage::Loopback),
            growth_kb: None,
            quota_used: None,
            above_bound: None,
            out_of_order: None,
        }
    }
}
