//! One request for a slot and tokens, whose buckets both have shares: slots of rows of their own, tokens of
//! lines in one row.

use std::time::Duration;

use sluice_core::{Amount, Cost, Limit, Split};
use sluice_sdk::{Basis, Client, Grant, Leases, LimitError, Mode, RetryReason};
use tokio::time::sleep;

use super::{RPM, drain, levels, name, of, share, split_in};
use crate::kind::Kind;
use crate::world::{World, dimension, refusal, settle, take};

const SLOTS: &str = "openai#concurrent";
const BOTH: [&str; 2] = [SLOTS, RPM];

/// Ten slots, and a hundred calls that hardly refill: half for search, a fifth for batch, the rest common.
async fn shared(kind: Kind) -> World {
    let world = split_in(kind.world().await).await;
    let slots = Limit::concurrent(Amount::from_tokens(10), Cost::ONE).unwrap();
    let split = Split::new(slots, &[share("search", "0.5"), share("batch", "0.2")]).unwrap();
    world.client().ops().apply_split(&dimension(SLOTS), &split).await.unwrap();
    world
}

fn search(world: &World) -> Client {
    world.client_with(|settings| settings.share(name("search")))
}

/// The free slots of the rows: common, batch, search.
async fn free(world: &World) -> Vec<String> {
    let mut free = vec![world.free(SLOTS).await];
    for share in ["batch", "search"] {
        free.push(world.free(&format!("{SLOTS}@{share}")).await);
    }
    free
}

fn lines_of(grant: &Grant) -> [Option<&str>; 2] {
    BOTH.map(|dimension| grant.paid_from(dimension))
}

/// Takes all tokens of the own line.
async fn drain_tokens(client: &Client, tokens: i32) {
    take(client, of("search").cost(RPM, tokens)).await.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_part_comes_from_its_share_and_is_borrowed_where_its_share_has_nothing() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = shared(kind).await;
        let client = search(&world);
        let own = take(&client, BOTH).await;
        assert_eq!(lines_of(&own), [Some("search"), Some("search")]);
        assert_eq!(free(&world).await, ["3", "2", "4"]);
        assert_eq!(levels(&world).await, ["30", "20", "49"]);
        let mut held = vec![own];
        for _ in 0..4 {
            held.push(take(&client, SLOTS).await);
        }
        let lent = take(&client, BOTH).await;
        assert_eq!(lines_of(&lent), [Some("common"), Some("search")], "{kind:?}");
        held.push(lent);
        for grant in held {
            grant.release().await.unwrap();
        }
        settle().await;
        assert_eq!(free(&world).await, ["3", "2", "5"], "each slot went back to its lender");
        drain_tokens(&client, 48).await;
        if kind == Kind::Rows {
            let retry = refusal(&client, BOTH).await;
            assert_eq!((retry.reason(), retry.dimension()), (RetryReason::Exhausted, &dimension(RPM)));
            assert_eq!(free(&world).await, ["3", "2", "5"], "a transaction takes all or nothing");
        } else {
            let lent = take(&client, BOTH).await;
            assert_eq!(lines_of(&lent), [Some("search"), Some("common")]);
            lent.release().await.unwrap();
        }
        let slot = client.slot(BOTH).max_wait(Duration::from_secs(1));
        let lines = slot.run(async |slot| {
            Ok::<_, LimitError>(BOTH.map(|dimension| slot.paid_from(dimension).map(str::to_owned)))
        });
        assert_eq!(lines.await.unwrap(), [Some("search".to_owned()), Some("common".to_owned())], "{kind:?}");
        settle().await;
        assert_eq!((free(&world).await.concat(), world.leases().await), ("325".to_owned(), 0));
    }
}

#[tokio::test(start_paused = true)]
async fn admission_goes_by_the_own_line_of_each_dimension() {
    let slo = Some(Duration::from_secs(5));
    let world = shared(Kind::Rows).await;
    let (client, others) = (search(&world), world.client());
    for dimension in BOTH {
        assert!(client.admit(dimension, 1, slo).await.unwrap().is_admitted());
    }
    drain_tokens(&client, 50).await;
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(take(&client, SLOTS).await);
    }
    // An admission's reading is a second old at most.
    sleep(Duration::from_secs(2)).await;
    assert!(client.admit(RPM, 1, slo).await.unwrap().shed().is_some(), "though it could borrow");
    let admitted = client.admit(SLOTS, 1, slo).await.unwrap();
    assert!(admitted.is_admitted(), "no sweep has measured a rate yet: {admitted:?}");
    assert!(client.admit(SLOTS, 6, slo).await.is_err(), "no call of six slots fits the share");
    for dimension in BOTH {
        assert!(others.admit(dimension, 1, slo).await.unwrap().is_admitted(), "{dimension}");
        // A question may name another line than the client's own.
        assert!(client.admit(dimension, 1, slo).share("common").await.unwrap().is_admitted(), "{dimension}");
    }
    assert!(others.admit(RPM, 1, slo).share("search").await.unwrap().shed().is_some());
    assert!(
        others.admit(SLOTS, 6, slo).share("search").await.is_err(),
        "no call of six slots fits the share"
    );
    assert!(others.admit(RPM, 1, slo).share("Not A Name").await.is_err());
}

/// A process that has not met the bucket, and one that only asks, while the share is removed.
#[tokio::test(start_paused = true)]
async fn admission_finds_the_row_of_a_share_of_slots_and_leaves_it_when_the_share_goes() {
    let slo = Some(Duration::from_secs(5));
    let world = shared(Kind::Rows).await;
    let asks = world.client();
    let admitted = asks.admit(SLOTS, 5, slo).share("search").await.unwrap();
    assert!(admitted.is_admitted(), "more than the common line can ever have: {admitted:?}");
    let whole = Limit::concurrent(Amount::from_tokens(10), Cost::ONE).unwrap();
    world.client().ops().apply_split(&dimension(SLOTS), &whole.into()).await.unwrap();
    sleep(Duration::from_secs(11)).await;
    let admitted = asks.admit(SLOTS, 10, slo).share("search").await.unwrap();
    assert!(admitted.is_admitted(), "all are common now: {admitted:?}");
}

#[tokio::test(start_paused = true)]
async fn in_shadow_mode_each_dimension_counts_what_its_share_and_its_lenders_have() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = shared(kind).await;
        let client = world.client_with(|settings| settings.share(name("search")).mode(Mode::Shadow));
        let full = take(&client, BOTH).await;
        assert_eq!((full.basis(), lines_of(&full)), (Basis::Table, [Some("search"); 2]));
        let enforcing = search(&world);
        let mut held = Vec::new();
        // Four of its own, and all that others lend: two of three, and one of two.
        while held.len() < 7 {
            held.push(take(&enforcing, SLOTS).await);
            sleep(Duration::from_millis(500)).await;
        }
        refusal(&enforcing, SLOTS).await;
        let half = take(&client, BOTH).await;
        assert_eq!((half.basis(), lines_of(&half)), (Basis::Shadow, [None, Some("search")]), "{kind:?}");
        assert_eq!(levels(&world).await, ["30", "20", "48"]);
        drain_tokens(&enforcing, 48).await;
        let borrowed = take(&client, BOTH).await;
        assert_eq!(lines_of(&borrowed), [None, Some("common")]);
        let before = free(&world).await;
        for grant in [half, borrowed] {
            grant.release().await.unwrap();
        }
        assert_eq!(free(&world).await, before, "what was let through holds nothing, and gives nothing back");
        full.release().await.unwrap();
        for grant in held {
            grant.release().await.unwrap();
        }
        settle().await;
        assert_eq!(free(&world).await, ["3", "2", "5"], "{kind:?}");
    }
}

/// In transactions (`SLUICE_LEASES=all`), a lender that had too little would fail all that is asked for.
#[tokio::test(start_paused = true)]
async fn transactions_take_from_the_own_line_and_borrow_nothing() {
    let world = super::shared().await;
    let all = world.client_with(|settings| settings.leases(Leases::All).share(name("search")));
    assert_eq!(drain(&all, &RPM.into()).await, 50);
    assert_eq!(levels(&world).await, ["30", "20", "0"]);
    assert_eq!(drain(&all, &of("batch")).await, 20);
    assert_eq!(levels(&world).await, ["30", "0", "0"], "a request names its own share");
    // Beside them, another product borrows what they leave.
    assert_eq!(drain(&world.client(), &of("batch")).await, 22);
}
