//! Callers of several processes, each process with its own client, on one bucket with ample tokens.

use std::time::Duration;

use super::{Plan, in_virtual_time};
use crate::failure::Failure;
use crate::lab::bench::buckets::{PLENTY, plenty};
use crate::lab::bench::load::{Contestant, Load, WhenRefused};
use crate::lab::bench::measure::{Case, Measure, compare};
use crate::lab::bench::world::World;

/// Numbers of processes, and of callers in each.
const CASES: [(usize, usize); 3] = [(1, 16), (4, 16), (8, 16)];
/// With one caller in each process, no writes can be combined: the result is DynamoDB's limit for single
/// writes.
const ALONE: (usize, usize) = (64, 1);

pub(super) async fn run(plan: &Plan) -> Result<Vec<Measure>, Failure> {
    let world = World::loopback(0).await?;
    let mut measures = Vec::new();
    for (processes, callers) in CASES {
        plan.progress.step(format_args!("processes: {processes} of {callers} callers over loopback"));
        measures.extend(case(&world, processes, callers, plan.length, 2).await?);
    }
    let plan = plan.clone();
    let modelled = async move || {
        let mut measures = Vec::new();
        for (processes, callers) in CASES.into_iter().chain([ALONE]) {
            plan.progress
                .step(format_args!("processes: {processes} of {callers} callers, DynamoDB modelled"));
            measures.extend(case(&World::modelled().await?, processes, callers, plan.length, 1).await?);
        }
        Ok(measures)
    };
    measures.extend(in_virtual_time(modelled).await?);
    Ok(measures)
}

async fn case(
    world: &World,
    processes: usize,
    callers: usize,
    length: Duration,
    rounds: u32,
) -> Result<Vec<Measure>, Failure> {
    let name = |system: &str| format!("{system}{processes}#rpm");
    for system in ["sluice", "reference", "lone"] {
        world.bucket(&name(system), &plenty()?, PLENTY).await?;
    }
    let contestants = [
        Contestant::new("sluice", world.sluice(processes, &[(&name("sluice"), 1)], |settings| settings)),
        Contestant::new("reference", world.reference(processes, &[(&name("reference"), 1)])),
        Contestant::new("lone update", world.lone_update(processes, &name("lone"))),
    ];
    let load = Load { callers, length, hold: Duration::ZERO, when_refused: WhenRefused::AskAgain };
    let text = case_name(processes, callers);
    let case = Case { scenario: "processes", name: &text, callers: processes * callers };
    Ok(compare(world, case, &contestants, load, rounds).await)
}

pub(super) fn case_name(processes: usize, callers: usize) -> String {
    match (processes, callers) {
        (1, _) => format!("1 process, {callers} callers"),
        (_, 1) => format!("{processes} processes, 1 caller each"),
        _ => format!("{processes} processes, {callers} callers each"),
    }
}
