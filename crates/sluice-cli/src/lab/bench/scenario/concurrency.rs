//! Slots held for a moment: 100 for 64 callers, so that one is always free; and 10 for 64, which wait.

use std::time::Duration;

use sluice_sdk::{ClientBuilder, Leases};

use super::processes::case_name;
use super::{Plan, in_virtual_time};
use crate::failure::Failure;
use crate::lab::bench::buckets::slots;
use crate::lab::bench::load::{Contestant, Load, WhenRefused};
use crate::lab::bench::measure::{Case, Measure, compare};
use crate::lab::bench::system::{InLine, Sluice};
use crate::lab::bench::world::{Stage, World};

const CALLERS: usize = 64;
const HOLD: Duration = Duration::from_millis(5);
const AMPLE: i32 = 100;
const SCARCE: i32 = 10;

pub(super) async fn run(plan: &Plan) -> Result<Vec<Measure>, Failure> {
    let world = World::loopback(0).await?;
    plan.progress.step("concurrency: 100 slots over loopback");
    let mut measures = ample(&world, plan.length).await?;
    plan.progress.step("concurrency: 10 slots over loopback");
    measures.extend(scarce(&world, plan.length).await?);
    let plan = plan.clone();
    let modelled = async move || {
        plan.progress.step("concurrency: 100 slots, DynamoDB modelled");
        let mut measures = ample(&World::modelled().await?, plan.length).await?;
        plan.progress.step("concurrency: 10 slots, DynamoDB modelled");
        measures.extend(scarce(&World::modelled().await?, plan.length).await?);
        Ok(measures)
    };
    measures.extend(in_virtual_time(modelled).await?);
    Ok(measures)
}

fn inline(settings: ClientBuilder) -> ClientBuilder {
    settings.leases(Leases::Inline)
}

/// Over loopback in one process, whose lanes write together. Against the model, each caller is a process, as
/// in Lambda.
async fn ample(world: &World, length: Duration) -> Result<Vec<Measure>, Failure> {
    let (processes, callers) = match world.stage {
        Stage::Loopback => (1, CALLERS),
        Stage::DynamoProfile => (CALLERS, 1),
    };
    buckets(world, AMPLE).await?;
    let mut contestants =
        vec![Contestant::new("row leases", sluice(world, processes, "row", AMPLE, |settings| settings))];
    contestants.push(Contestant::new("inline leases", sluice(world, processes, "inline", AMPLE, inline)));
    contestants
        .push(Contestant::new("reference", world.reference(processes, &[(&name("reference", AMPLE), 1)])));
    let load = Load { callers, length, hold: HOLD, when_refused: WhenRefused::AskAgain };
    let text = format!("100 slots, {}", case_name(processes, callers));
    let case = Case { scenario: "concurrency", name: &text, callers: CALLERS };
    Ok(compare(world, case, &contestants, load, 1).await)
}

async fn scarce(world: &World, length: Duration) -> Result<Vec<Measure>, Failure> {
    let (processes, callers) = match world.stage {
        Stage::Loopback => (1, CALLERS),
        Stage::DynamoProfile => (CALLERS, 1),
    };
    buckets(world, SCARCE).await?;
    let in_line = |system: &str, settings: fn(ClientBuilder) -> ClientBuilder| -> Vec<InLine> {
        let dimension = name(system, SCARCE);
        let processes = world.sluice(processes, &[(&dimension, 1)], settings);
        processes
            .into_iter()
            .map(|Sluice { client, .. }| InLine { client, dimension: dimension.clone(), hold: HOLD })
            .collect()
    };
    let load = Load { callers, length, hold: Duration::ZERO, when_refused: WhenRefused::Wait };
    let text = format!("10 slots, {} wait", case_name(processes, callers));
    let case = Case { scenario: "concurrency", name: &text, callers: CALLERS };
    let mut contestants = vec![Contestant::new("row leases", in_line("row", |settings| settings))];
    contestants.push(Contestant::new("inline leases", in_line("inline", inline)));
    let mut measures = compare(world, case, &contestants, load, 1).await;
    // The reference algorithm has no queue: a caller that is refused comes again after the wait of a retry.
    let reference =
        [Contestant::new("reference", world.reference(processes, &[(&name("reference", SCARCE), 1)]))];
    measures.extend(compare(world, case, &reference, Load { hold: HOLD, ..load }, 1).await);
    Ok(measures)
}

fn sluice(
    world: &World,
    processes: usize,
    system: &str,
    slots: i32,
    settings: fn(ClientBuilder) -> ClientBuilder,
) -> Vec<Sluice> {
    world.sluice(processes, &[(&name(system, slots), 1)], settings)
}

async fn buckets(world: &World, count: i32) -> Result<(), Failure> {
    for system in ["row", "inline", "reference"] {
        let limit = slots(count)?;
        world.bucket(&name(system, count), &limit, limit.capacity()).await?;
    }
    Ok(())
}

fn name(system: &str, slots: i32) -> String {
    format!("{system}{slots}#concurrent")
}
