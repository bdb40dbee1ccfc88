//! What the fleet spends on waiting: the units of N processes that wait for one full bucket.

use std::time::Duration;

use sluice_sdk::{Client, ClientBuilder};
use sluice_testkit::Operation;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::kind::Kind;
use crate::world::{World, all_or_first, take};

mod slots;

const SLOTS: &str = "elevenlabs#concurrent";
/// Until each process has counted the others: its first note may come before theirs, its second after them.
const UNTIL_COUNTED: Duration = Duration::from_secs(12);
const MEASURED: Duration = Duration::from_secs(8);

/// Units a second that `processes` spend of which each has a caller in line: read, written, and read by looks
/// alone.
async fn spent_by(processes: usize, kind: Kind) -> [f64; 3] {
    let world = World::embedded().await.with(kind);
    world.slots(SLOTS, 1).await;
    // It lives as long as all of this.
    let lease = |settings: ClientBuilder| settings.lease_ttl(Duration::from_secs(600));
    let _held = take(&world.client_with(lease), SLOTS).await;
    let clients: Vec<Client> = (0..processes).map(|_| world.client()).collect();
    // Dropped at the end, they wait no more.
    let mut waiting = JoinSet::new();
    for client in clients {
        let slot = client.slot(SLOTS).timeout(Duration::from_secs(300));
        waiting.spawn(async move { slot.run(async |_| Ok::<_, sluice_sdk::LimitError>(())).await });
        // As processes come: not all in one moment.
        sleep(Duration::from_millis(7)).await;
    }
    sleep(UNTIL_COUNTED).await;
    world.dynamo.meter().reset();
    sleep(MEASURED).await;
    let (all, looks) = (world.dynamo.meter().total(), world.dynamo.meter().of(Operation::GetItem));
    [all.read_units, all.write_units as f64, looks.read_units].map(|units| units / MEASURED.as_secs_f64())
}

#[tokio::test(start_paused = true)]
async fn the_units_of_waiting_grow_slower_than_the_processes_that_wait() {
    for (kind, crowds) in all_or_first(&[(Kind::Inline, &[1, 100][..]), (Kind::Rows, &[1, 10, 100, 500])]) {
        grow_slower(*kind, crowds).await;
    }
}

#[tokio::test(start_paused = true)]
#[ignore = "takes a minute: task test:long"]
async fn the_units_of_waiting_grow_slower_than_500_processes_with_inline_leases() {
    grow_slower(Kind::Inline, &[1, 500]).await;
}

#[allow(clippy::print_stdout)]
async fn grow_slower(kind: Kind, crowds: &[usize]) {
    let mut before = None::<(usize, f64)>;
    for processes in crowds.iter().copied() {
        let [read, written, looks] = spent_by(processes, kind).await;
        println!(
            "{kind:?}: {processes} wait: {read:.0} read units a second ({looks:.0} of looks), {written:.1} written"
        );
        if let Some((fewer, less)) = before {
            // Up to 25 processes look as often as one alone does; pauses are drawn, so that one sample is off
            // by some per cent.
            let most = if processes <= 25 { 1.2 } else { 0.5 } * (processes / fewer) as f64;
            assert!(read / less <= most, "{kind:?}: {processes} read {read}, {fewer} read {less}");
        }
        assert!(read <= 1_000.0 && looks <= 600.0, "{kind:?}: {processes}: {read}, {looks}");
        before = Some((processes, read));
    }
}
