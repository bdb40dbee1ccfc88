//! What was lent and what was borrowed, as rows and metrics count it.

use sluice_core::{Amount, Bucket};

use super::{RPM, apply, levels, of, shared, split};
use crate::metrics::{Listening, counted};
use crate::world::{World, requests, take};

/// For each line (common, batch, search), what it lent and what it borrowed, in whole tokens.
fn loans(bucket: &Bucket) -> Vec<(i64, i64)> {
    let tokens = |amount: Amount| amount.micros() / 1_000_000;
    bucket.every_line().iter().map(|line| (tokens(line.lent()), tokens(line.borrowed()))).collect()
}

#[tokio::test(start_paused = true)]
async fn rows_and_processes_count_what_is_lent_and_borrowed() {
    let world = shared().await;
    let listening = Listening::begin();
    let client = world.client();
    take(&client, of("search").cost(RPM, 50)).await.release().await.unwrap();
    for cost in [9, 7, 3] {
        take(&client, of("search").cost(RPM, cost)).await.release().await.unwrap();
    }
    let recorded = listening.recorded();
    let borrowed = |lender| {
        let labels = [("dimension", RPM), ("share", "search"), ("lender", lender)];
        counted(&recorded, "sluice.share.borrowed", &labels)
    };
    let [common, batch] = ["common", "batch"].map(|lender| i64::try_from(borrowed(lender)).unwrap());
    assert_eq!((common + batch, borrowed("search")), (19, 0));
    let used = |share| counted(&recorded, "sluice.share.used", &[("dimension", RPM), ("share", share)]);
    assert_eq!(["search", "common", "batch"].map(used), [69, 0, 0], "of its own line, and of others");
    assert_eq!(loans(&world.bucket(RPM).await), [(common, 0), (batch, 0), (0, 19)]);
    // All that callers without a share have is gone, too.
    let left = levels(&world).await[0].parse::<u32>().unwrap();
    take(&client, of("common").cost(RPM, left)).await.release().await.unwrap();
    take(&client, RPM).await.release().await.unwrap();
    assert_eq!(loans(&world.bucket(RPM).await), [(common, 1), (batch + 1, 0), (0, 19)]);
}

/// What changes of shares leave of a line keeps its counts.
#[tokio::test(start_paused = true)]
async fn a_change_of_shares_keeps_what_a_line_lent_and_borrowed() {
    let world = shared().await;
    let client = world.client();
    take(&client, of("search").cost(RPM, 50)).await.release().await.unwrap();
    take(&client, of("search").cost(RPM, 9)).await.release().await.unwrap();
    let [before, after] = [("0.2", "0.5"), ("0.1", "0.6")]
        .map(|(batch, search)| split(requests(100, 1_000_000_000), &[("batch", batch), ("search", search)]));
    apply(&world, &before).await;
    let loaned = loans(&world.bucket(RPM).await);
    assert_eq!(loaned, [(9, 0), (0, 0), (0, 9)]);
    apply(&world, &after).await;
    assert_eq!(loans(&world.bucket(RPM).await), loaned);
}

/// Condition of the count: the borrower's line is there. The lender's did not change, so nothing else in the
/// write fails; and the path of a line that is gone makes a request invalid.
#[tokio::test(start_paused = true)]
async fn a_share_that_was_removed_since_the_reading_borrows_nothing() {
    let world = World::new().await;
    let limit = requests(100, 1_000_000_000);
    apply(&world, &split(limit, &[("search", "0.5"), ("batch", "0.4")])).await;
    let client = world.client();
    take(&client, of("search").cost(RPM, 50)).await.release().await.unwrap();
    assert_eq!(levels(&world).await, ["10", "40", "0"]);
    apply(&world, &split(limit, &[("batch", "0.4")])).await;
    let grant = take(&client, of("search").cost(RPM, 5)).await;
    assert_eq!(grant.paid_from(RPM), Some("common"));
    assert_eq!(levels(&world).await, ["5", "40"]);
    assert_eq!(loans(&world.bucket(RPM).await), [(0, 0), (0, 0)]);
}
