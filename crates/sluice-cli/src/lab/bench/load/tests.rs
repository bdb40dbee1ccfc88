use super::*;
use crate::lab::bench::buckets::{PLENTY, plenty, slots};
use crate::lab::bench::measure::{Case, compare};
use crate::lab::bench::world::World;

const LENGTH: Duration = Duration::from_millis(1_500);

async fn compared(world: &World, contestant: Contestant, callers: usize, hold: Duration) -> (u64, f64) {
    let load = Load { callers, length: LENGTH, hold, when_refused: WhenRefused::Wait };
    let case = Case { scenario: "test", name: "test", callers };
    let measure = compare(world, case, &[contestant], load, 1).await.remove(0);
    assert_eq!((measure.errors, measure.last_error), (0, None));
    (measure.grants, measure.failed_writes_per_grant.unwrap())
}

#[tokio::test(start_paused = true)]
async fn the_reference_conserves_slots_under_conflict() {
    let world = World::modelled().await.unwrap();
    let limit = slots(3).unwrap();
    world.bucket("a#concurrent", &limit, limit.capacity()).await.unwrap();
    let reference = Contestant::new("reference", world.reference(8, &[("a#concurrent", 1)]));
    let (grants, failed) = compared(&world, reference, 1, Duration::from_millis(5)).await;
    assert!(grants > 0 && failed > 0.5, "{grants} {failed}");
    assert_eq!(world.number("a#concurrent", "tokens"), Some(3.0));
    assert_eq!(world.leases().await, 0);
}

#[tokio::test(start_paused = true)]
async fn the_reference_takes_a_token_for_each_grant() {
    let world = World::modelled().await.unwrap();
    world.bucket("a#rpm", &plenty().unwrap(), PLENTY).await.unwrap();
    let reference = world.reference(4, &[("a#rpm", 1)]);
    let runs = reference.into_iter().map(|system| async move {
        let mut grants = 0;
        for _ in 0..10 {
            if let TakeResult::Granted { held, .. } = system.take().await.unwrap() {
                system.finish(held).await.unwrap();
                grants += 1;
            }
        }
        grants
    });
    let grants: i32 = futures::future::join_all(runs).await.into_iter().sum();
    assert!(grants > 10, "{grants}");
    assert_eq!(world.number("a#rpm", "version"), Some(f64::from(grants)));
    let elapsed = world.number("a#rpm", "last_refill_at").unwrap() - 1_800_000_000.0;
    let spent = 900_000_000.0 + elapsed * 10.0 - world.number("a#rpm", "tokens").unwrap();
    assert!((spent - f64::from(grants)).abs() < 0.5, "{spent} {grants}");
    assert_eq!(world.leases().await, 0);
}

#[tokio::test(start_paused = true)]
async fn sluice_and_the_lone_update_count_what_they_grant() {
    let world = World::modelled().await.unwrap();
    world.bucket("a#rpm", &plenty().unwrap(), PLENTY).await.unwrap();
    let lone = Contestant::new("lone update", world.lone_update(2, "a#rpm"));
    compared(&world, lone, 1, Duration::ZERO).await;
    let after_lone = world.number("a#rpm", "version").unwrap();
    assert_eq!(world.number("a#rpm", "tokens"), Some(900_000_000.0 - after_lone));
    let sluice = Contestant::new("sluice", world.sluice(2, &[("a#rpm", 1)], |settings| settings));
    let (grants, _) = compared(&world, sluice, 1, Duration::ZERO).await;
    assert!(grants > 300, "{grants}");
}
