//! Requests and tokens per minute in one answer, from ample buckets.

use std::time::Duration;

use super::{Plan, in_virtual_time};
use crate::failure::Failure;
use crate::lab::bench::buckets::{PLENTY, plenty};
use crate::lab::bench::load::{Contestant, Load, WhenRefused};
use crate::lab::bench::measure::{Case, Measure, compare};
use crate::lab::bench::world::World;

const CALLERS: usize = 64;
/// The tokens of a call.
const TOKENS: u32 = 100;

pub(super) async fn run(plan: &Plan) -> Result<Vec<Measure>, Failure> {
    plan.progress.step("together: requests and tokens over loopback");
    let mut measures = case(&World::loopback(0).await?, plan.length, 2).await?;
    let plan = plan.clone();
    let modelled = async move || {
        plan.progress.step("together: requests and tokens, DynamoDB modelled");
        case(&World::modelled().await?, plan.length, 1).await
    };
    measures.extend(in_virtual_time(modelled).await?);
    Ok(measures)
}

async fn case(world: &World, length: Duration, rounds: u32) -> Result<Vec<Measure>, Failure> {
    for name in ["sluice#rpm", "sluice#tpm", "reference#rpm", "reference#tpm"] {
        world.bucket(name, &plenty()?, PLENTY).await?;
    }
    let of = |rpm, tpm| [(rpm, 1), (tpm, TOKENS)];
    let contestants = [
        Contestant::new("sluice", world.sluice(1, &of("sluice#rpm", "sluice#tpm"), |settings| settings)),
        Contestant::new("reference", world.reference(1, &of("reference#rpm", "reference#tpm"))),
    ];
    let load = Load { callers: CALLERS, length, hold: Duration::ZERO, when_refused: WhenRefused::AskAgain };
    let case = Case { scenario: "together", name: "rpm + tpm, 64 callers", callers: CALLERS };
    Ok(compare(world, case, &contestants, load, rounds).await)
}
