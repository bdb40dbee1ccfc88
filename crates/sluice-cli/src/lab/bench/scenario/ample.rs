//! Callers of one process on one bucket with ample tokens.

use std::time::Duration;

use super::{Plan, in_virtual_time};
use crate::failure::Failure;
use crate::lab::bench::buckets::{PLENTY, plenty};
use crate::lab::bench::load::{Contestant, Load, WhenRefused};
use crate::lab::bench::measure::{Case, Measure, compare};
use crate::lab::bench::world::World;

const CALLERS: [usize; 4] = [1, 8, 64, 512];

pub(super) async fn run(plan: &Plan) -> Result<Vec<Measure>, Failure> {
    let world = World::loopback(0).await?;
    let mut measures = Vec::new();
    for callers in CALLERS {
        plan.progress.step(format_args!("ample: {callers} callers over loopback"));
        // One caller's time is compared with a precision of a few per cent, so it needs more rounds.
        let rounds = if callers == 1 { 10 } else { 2 };
        measures.extend(case(&world, callers, plan.length, rounds).await?);
    }
    let plan = plan.clone();
    measures.extend(
        in_virtual_time(async move || {
            let mut measures = Vec::new();
            for callers in CALLERS {
                plan.progress.step(format_args!("ample: {callers} callers, DynamoDB modelled"));
                measures.extend(case(&World::modelled().await?, callers, plan.length, 1).await?);
            }
            Ok(measures)
        })
        .await?,
    );
    Ok(measures)
}

async fn case(world: &World, callers: usize, length: Duration, rounds: u32) -> Result<Vec<Measure>, Failure> {
    let name = |system: &str| format!("{system}{callers}#rpm");
    for system in ["sluice", "reference", "lone", "own"] {
        world.bucket(&name(system), &plenty()?, PLENTY).await?;
    }
    let mut contestants = vec![
        Contestant::new("sluice", world.sluice(1, &[(&name("sluice"), 1)], |settings| settings)),
        Contestant::new("reference", world.reference(1, &[(&name("reference"), 1)])),
        Contestant::new("lone update", world.lone_update(1, &name("lone"))),
    ];
    if callers == 1 {
        contestants.push(Contestant::new("own update", vec![world.own_update(&name("own")).await?]));
    }
    let load = Load { callers, length, hold: Duration::ZERO, when_refused: WhenRefused::AskAgain };
    let text = format!("{callers} {}", if callers == 1 { "caller" } else { "callers" });
    let case = Case { scenario: "ample", name: &text, callers };
    Ok(compare(world, case, &contestants, load, rounds).await)
}
