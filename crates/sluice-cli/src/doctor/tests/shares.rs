//! Shares of buckets, and what keeps their callers from their parts.

use sluice_sdk::core::{DeclaredShare, ShareName, Split};

use super::*;

fn share(name: &str, part: &str, background: bool) -> DeclaredShare {
    DeclaredShare {
        name: ShareName::new(name).unwrap(),
        part: part.parse().unwrap(),
        floor: None,
        background,
    }
}

async fn split(dynamo: &EmbeddedDynamo, name: &str, shares: &[DeclaredShare]) {
    let (name, client) = (Dimension::new(name).unwrap(), dynamo.client(TABLE));
    let limit = client.ops().bucket(&name).await.unwrap().unwrap().whole_limit();
    client.ops().apply_split(&name, &Split::new(limit, shares).unwrap()).await.unwrap();
}

/// What the doctor says of a bucket's shares if nothing is wrong with them.
fn told(findings: &[Finding], name: &str) -> Vec<String> {
    let of_shares = findings.iter().filter(|one| one.check == Check::Shares && one.weight == Weight::Fine);
    of_shares.filter(|one| one.of == name).map(|one| one.what.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn each_bucket_with_shares_is_told_with_their_parts() {
    let dynamo = healthy().await;
    assert!(!findings(&dynamo).await.iter().any(|one| one.check == Check::Shares));
    split(&dynamo, RATE, &[share("search", "0.5", false), share("checkout/batch", "0.055", true)]).await;
    split(&dynamo, SLOTS, &[share("search", "0.5", false)]).await;
    let findings = findings(&dynamo).await;
    assert_eq!(
        told(&findings, RATE),
        ["2 shares: checkout/batch 5.5 % (5.5 of 5.5 left, background), search 50 % (50 of 50 left); \
             common line 44.5 % (44.5 of 44.5 left)"]
    );
    assert_eq!(
        told(&findings, SLOTS),
        ["1 share: search 50 % (0 of 2 held); common line 50 % (0 of 2 held)"]
    );
    assert_eq!(finding_of(&findings, Check::Shares), None, "nothing is wrong");
}

#[tokio::test(start_paused = true)]
async fn what_shares_lent_and_borrowed_is_told() {
    let dynamo = healthy().await;
    for bucket in [RATE, SLOTS] {
        split(&dynamo, bucket, &[share("search", "0.5", true)]).await;
    }
    let client = dynamo.client(TABLE);
    let mut held = Vec::new();
    for bucket in [RATE, SLOTS] {
        let half = client.ops().bucket(&Dimension::new(bucket).unwrap()).await.unwrap().unwrap();
        let half = half.seen_from(None).limit().capacity().micros() / 1_000_000;
        for _ in 0..=half {
            held.extend(client.acquire(sluice_sdk::Request::from(bucket)).await.unwrap().granted());
        }
    }
    let findings = findings(&dynamo).await;
    let [rate, slots] = [RATE, SLOTS].map(|bucket| told(&findings, bucket).remove(0));
    assert_eq!(
        rate,
        "1 share: search 50 % (49 of 50 left, background, lent 1 so far); common line 50 % (0 of 50 left, \
         borrowed 1 so far)"
    );
    assert_eq!(
        slots,
        "1 share: search 50 % (1 of 2 held, background, lent 1 now); common line 50 % (2 of 2 held, borrowed 1 \
         now)"
    );
    for grant in held {
        grant.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_share_of_slots_whose_row_is_missing_is_told() {
    let dynamo = healthy().await;
    split(&dynamo, SLOTS, &[share("search", "0.5", false)]).await;
    let key = AttributeValue::S(format!("{SLOTS}@search"));
    dynamo.dynamodb().delete_item().table_name(TABLE).key(KEY, key).send().await.unwrap();
    let findings = findings(&dynamo).await;
    assert_finding(
        &findings,
        Check::Shares,
        Weight::Problem,
        &[SLOTS, "the share search", "its row is missing"],
    );
}

/// What the notes about shares say.
fn notes(findings: &[Finding]) -> Vec<&str> {
    let of_shares = findings.iter().filter(|one| one.check == Check::Shares && one.weight == Weight::Note);
    of_shares.map(|one| one.what.as_str()).collect()
}

/// As `buckets apply` leaves it if a holder keeps a slot of a share that is removed.
#[tokio::test(start_paused = true)]
async fn a_share_that_goes_is_told_until_its_slots_are_back() {
    let dynamo = healthy().await;
    split(&dynamo, SLOTS, &[share("search", "0.5", false)]).await;
    let client = dynamo.client(TABLE);
    let grant =
        client.acquire(sluice_sdk::Request::from(SLOTS).share("search")).await.unwrap().granted().unwrap();
    let (name, limit) =
        (Dimension::new(SLOTS).unwrap(), Limit::concurrent(Amount::from_tokens(4), Cost::ONE).unwrap());
    client.ops().apply_split(&name, &Split::from(limit)).await.unwrap_err();
    let found = findings(&dynamo).await;
    let notes = notes(&found).join("\n");
    assert!(notes.contains("the share search was removed, and 1 of its slots are still held"), "{notes}");
    assert!(notes.contains("the common line has 3 of its 4 slots so far"), "{notes}");
    let whole = told(&found, SLOTS).remove(0);
    assert_eq!(whole, "no shares: search, removed (1 held); common line 100 % (0 of 4 held)");
    grant.release().await.unwrap();
    let found = findings(&dynamo).await;
    let told = self::notes(&found).join("\n");
    assert!(
        told.contains("the share search was removed, and its row still has slots that nobody uses: 1"),
        "{told}"
    );
    client.ops().apply_split(&name, &Split::from(limit)).await.unwrap();
    assert_eq!(finding_of(&findings(&dynamo).await, Check::Shares), None);
}

/// As `buckets apply` leaves it if it is ended before each line is as small as it is to be.
#[tokio::test(start_paused = true)]
async fn a_change_that_sweeps_do_not_go_on_with_is_told() {
    let dynamo = healthy().await;
    split(&dynamo, SLOTS, &[share("search", "0.5", false)]).await;
    let key = AttributeValue::S(SLOTS.to_owned());
    let states = dynamo.dynamodb().update_item().table_name(TABLE).key(KEY, key);
    let states = states.update_expression("SET changes_to = :three");
    states.expression_attribute_values(":three", AttributeValue::N("3".to_owned())).send().await.unwrap();
    let found = findings(&dynamo).await;
    let of_shares = found.iter().filter(|one| one.check == Check::Shares && one.weight == Weight::Note);
    let told: Vec<(&str, &str)> =
        of_shares.map(|one| (one.what.as_str(), one.todo.as_deref().unwrap())).collect();
    let [(what, todo)] = told[..] else { panic!("{told:?}") };
    assert_eq!(what, "the common line has 2 slots and is to have 1: the change was interrupted");
    assert!(todo.contains("apply FILE` again: callers and sweeps cannot go on with this change"), "{todo}");
}

/// As `buckets apply` leaves it if calls hold the slots that shares are to have.
#[tokio::test(start_paused = true)]
async fn shares_that_wait_for_slots_are_told() {
    let dynamo = healthy().await;
    let client = dynamo.client(TABLE);
    let name = Dimension::new(SLOTS).unwrap();
    let limit = Limit::concurrent(Amount::from_tokens(10), Cost::ONE).unwrap();
    client.ops().apply_limit(&name, &limit).await.unwrap();
    // The next sweep knows the bucket.
    client.ops().sweep(sluice_ops::SweepOptions::default()).await.unwrap();
    let mut held = Vec::new();
    while let Some(grant) = client.acquire(SLOTS).await.unwrap().granted() {
        held.push(grant);
    }
    let to = Split::new(limit, &[share("batch", "0.2", false), share("search", "0.5", false)]).unwrap();
    client.ops().apply_split(&name, &to).await.unwrap_err();
    let found = findings(&dynamo).await;
    let told = notes(&found).join("\n");
    assert!(
        ["batch", "search"].iter().all(|of| told.contains(&format!("the share {of} has no slot yet"))),
        "{told}"
    );
    for grant in held.drain(..3) {
        grant.release().await.unwrap();
    }
    client.ops().sweep(sluice_ops::SweepOptions::default()).await.unwrap();
    let found = findings(&dynamo).await;
    let told = notes(&found).join("\n");
    assert!(
        told.contains("the share search has 1 of its 5 slots so far") && !told.contains("batch"),
        "{told}"
    );
    let fine = found.iter().find(|one| one.check == Check::Shares && one.weight == Weight::Fine).unwrap();
    assert!(fine.what.contains("search 50 % (0 of 5 held)"), "{}", fine.what);
    for grant in held {
        grant.release().await.unwrap();
    }
    client.ops().sweep(sluice_ops::SweepOptions::default()).await.unwrap();
    assert_eq!(findings(&dynamo).await.iter().filter(|one| one.check == Check::Shares).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_burst_that_is_too_small_to_split_is_told() {
    let dynamo = healthy().await;
    let with_burst = async |burst| {
        let (capacity, rate) =
            (Amount::from_tokens(burst), Rate::per(Amount::from_tokens(100), WATCHED / 2).unwrap());
        let limit = Limit::rate(LimitType::Requests, capacity, rate, Cost::ONE).unwrap();
        dynamo.client(TABLE).ops().apply_limit(&Dimension::new(RATE).unwrap(), &limit).await.unwrap();
        let whole = findings(&dynamo).await;
        assert_eq!(finding_of(&whole, Check::Shares), None, "without shares, {burst}");
        split(&dynamo, RATE, &[share("search", "0.5", false)]).await;
        findings(&dynamo).await
    };
    let small = with_burst(49).await;
    assert_finding(&small, Check::Shares, Weight::Note, &[RATE, "the burst of 49", "100 a second"]);
    let todo = small.iter().find(|one| one.check == Check::Shares && one.weight == Weight::Note);
    assert!(
        todo.and_then(|one| one.todo.as_ref()).is_some_and(|todo| todo.contains("capacity = 50 or more"))
    );
    assert_eq!(finding_of(&with_burst(50).await, Check::Shares), None);
}
