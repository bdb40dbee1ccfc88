//! What healing reads and writes, by all processes together.

use sluice_core::schema::{HEAL_AFTER, HEAL_POSITION};
use sluice_sdk::ClientBuilder;

use super::large::{fill, table_units};
use super::*;
use crate::world::all_or_first;

pub(super) const TEN_MINUTES: Duration = Duration::from_secs(600);

/// Refuses each of `clients` every few seconds, for `time`.
pub(super) async fn ask(clients: &[Client], time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        for client in clients {
            refusal(client, SLOTS).await;
        }
        sleep(Duration::from_secs(4)).await;
    }
}

/// One slot, held for an hour, in a table of so many pages of a megabyte, and processes that want it.
pub(super) async fn saturated(
    pages: u32,
    processes: usize,
    settings: impl Fn(ClientBuilder) -> ClientBuilder,
) -> (World, Vec<Client>) {
    let world = World::embedded().await;
    world.slots(SLOTS, 1).await;
    fill(&world, pages);
    let holder = world.client_with(|settings| settings.lease_ttl(Duration::from_secs(3_600)));
    std::mem::forget(take(&holder, SLOTS).await);
    let clients = (0..processes).map(|_| world.client_with(&settings)).collect();
    (world, clients)
}

#[tokio::test(start_paused = true)]
async fn the_budget_holds_over_ten_minutes_with_one_process_and_with_five() {
    for (processes, per_minute) in all_or_first(&[(1, 1_500), (5, 1_500)]).iter().copied() {
        let (world, clients) = saturated(30, processes, |settings| settings.heal_budget(per_minute)).await;
        world.dynamo.meter().reset();
        ask(&clients, TEN_MINUTES).await;
        let used = world.dynamo.meter().of(Operation::Scan).read_units;
        let budget = f64::from(per_minute) * 10.0;
        // The last turn is paid for after it.
        let most = budget + f64::from(per_minute) * 8.0 / 60.0 + 129.0;
        assert!(used <= most, "{processes} processes used {used} of {budget}");
        assert!(used >= 0.8 * budget, "{processes} processes used {used} of {budget}");
    }
}

/// A page costs 128 units, which ten a minute pay for in 13 minutes.
#[tokio::test(start_paused = true)]
async fn the_smallest_budget_pays_for_each_page_before_the_next() {
    let (world, clients) = saturated(3, 2, |settings| settings.heal_budget(10)).await;
    world.dynamo.meter().reset();
    ask(&clients, TEN_MINUTES).await;
    assert_eq!(scans(&world), 1);
    let row = world.row(HEAL_KEY).await.unwrap();
    assert!(row.contains_key(HEAL_AFTER) && row.contains_key(HEAL_POSITION));
}

#[tokio::test(start_paused = true)]
async fn without_a_budget_nothing_is_scanned_and_inline_leases_come_back() {
    let world = World::with_slots(SLOTS, 2).await;
    crash(&world, 1).await;
    let inline = world.client_with(|settings| settings.leases(Leases::Inline));
    std::mem::forget(take(&inline, SLOTS).await);
    world.pass_lease();
    world.dynamo.meter().reset();
    let client = world.client_with(|settings| settings.heal_budget(0));
    refusal(&client, SLOTS).await;
    settle().await;
    assert_eq!((world.free(SLOTS).await.as_str(), scans(&world)), ("1", 0));
}

/// The table that the stated figures are of: a megabyte costs 128 units.
#[tokio::test(start_paused = true)]
async fn a_megabyte_costs_128_units() {
    let world = World::embedded().await;
    fill(&world, 4);
    let units = table_units(&world).await;
    assert!((480..=540).contains(&units), "{units}");
}

/// Each process notes itself once in 8 s, reads the mark, and one of them marks. Nothing grows faster than
/// that.
#[tokio::test(start_paused = true)]
async fn waiting_processes_write_one_unit_each_in_eight_seconds() {
    for processes in [1_u32, 10, 100] {
        let (world, clients) = saturated(0, usize::try_from(processes).unwrap(), |settings| settings).await;
        ask(&clients, HEAL_EVERY).await;
        world.dynamo.meter().reset();
        let periods = 10;
        ask(&clients, HEAL_EVERY * periods).await;
        let writes = world.dynamo.meter().of(Operation::UpdateItem).write_units;
        // A note each, a try more where the period begins, and the mark.
        let most = u64::from(periods + 1) * u64::from(processes + 2 + processes / 10);
        // And as many notes as periods that lie in this time whole.
        let least = u64::from(periods - 1) * u64::from(processes);
        assert!(writes <= most, "{processes} processes: {writes} write units, {most} are stated");
        assert!(
            writes >= least,
            "{processes} processes: {writes} write units, {least} are their notes alone"
        );
    }
}
