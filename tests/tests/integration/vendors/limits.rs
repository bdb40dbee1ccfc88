//! Limits that a vendor reports: they are noted, and adopted where the bucket says so.

use super::*;

async fn adopts(world: &World, name: &str) {
    let request = world.dynamodb().update_item().table_name(world.table()).key(KEY, text(name));
    let request = request.update_expression("SET adopts_limit = :adopts_limit");
    request.expression_attribute_values(":adopts_limit", number("1")).send().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lower_limit_is_noted_once_and_the_bucket_keeps_its_own() {
    let world = World::with_rate(RPM, 100, 60).await;
    let client = world.client();
    let grant = take(&client, RPM).await;
    let sixty = Amount::from_tokens(60);
    let said = client.observe(RPM, &SIXTY, Some(&grant)).await.unwrap();
    assert_eq!((said.level, said.limit), (lowered(40), ObservedLimit::Lower(sixty)));
    assert_eq!(world.row(RPM).await.unwrap().get(VENDOR_LIMIT), Some(&number("60")));
    world.dynamo.meter().reset();
    for client in [client, world.client()] {
        let said = client.observe(RPM, &SIXTY, Some(&grant)).await.unwrap();
        assert_eq!((said.level, said.limit), (ObservedLevel::Agrees, ObservedLimit::Lower(sixty)));
    }
    assert_eq!(world.dynamo.meter().reset().write_units, 0, "nor by another process");
    assert_eq!(world.bucket(RPM).await.limit().capacity().to_string(), "100");
}

/// The call held tokens of a rate bucket, and its reply says what that limit is.
#[tokio::test(start_paused = true)]
async fn a_limit_of_requests_is_not_adopted_as_slots_by_a_bucket_that_took_their_place() {
    for knows in [false, true] {
        let world = World::with_rate(RPM, 100, 60).await;
        let client = world.client();
        let grant = take(&client, RPM).await;
        world.client().ops().remove_bucket(&dimension(RPM)).await.unwrap();
        world.slots(RPM, 100).await;
        adopts(&world, RPM).await;
        if knows {
            world.pass(Duration::from_secs(2));
            let _learns = client.acquire(RPM).await.unwrap();
        }
        let said = client.observe(RPM, &SIXTY, Some(&grant)).await.unwrap();
        let limit = *world.bucket(RPM).await.limit();
        assert_eq!(limit.capacity().to_string(), "100", "knows: {knows}, {said:?}, {limit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lower_limit_is_adopted_where_the_bucket_says_so() {
    let world = World::with_rate(RPM, 100, 60).await;
    adopts(&world, RPM).await;
    let client = world.client();
    let grant = take(&client, RPM).await;
    let sixty = Amount::from_tokens(60);
    let said = client.observe(RPM, &SIXTY, Some(&grant)).await.unwrap();
    assert_eq!((said.level, said.limit), (lowered(40), ObservedLimit::Adopted(sixty)));
    let bucket = world.bucket(RPM).await;
    assert_eq!((bucket.limit().capacity(), bucket.limit().refill_rate().to_string()), (sixty, "1".into()));
    world.dynamo.meter().reset();
    let again = client.observe(RPM, &SIXTY, None).await.unwrap();
    assert_eq!(again.limit, ObservedLimit::NotLower);
    assert_eq!(world.dynamo.meter().reset().requests, 0);
}

/// One mistaken reply must not stop every process, nor may many.
#[tokio::test(start_paused = true)]
async fn a_limit_of_one_is_adopted_down_to_the_floor_however_many_replies_say_it() {
    let one = [("x-ratelimit-limit-requests", "1"), ("x-ratelimit-reset-requests", "60s")];
    let fifty = Amount::from_tokens(50);
    for at_least in [None, Some(fifty)] {
        let world = World::with_rate(RPM, 500, 60).await;
        match at_least {
            // As an earlier version left the row.
            None => adopts(&world, RPM).await,
            Some(at_least) => {
                let then = OnLowerLimit::Adopt { at_least };
                assert!(world.client().ops().on_lower_limit(&dimension(RPM), then).await.unwrap());
            }
        }
        let (client, other) = (world.client(), world.client());
        for _ in 0..5 {
            client.observe(RPM, &one, None).await.unwrap();
            other.observe(RPM, &one, None).await.unwrap();
        }
        let bucket = world.bucket(RPM).await;
        assert_eq!(bucket.limit().refill_rate().per_minute(), fifty, "{at_least:?}");
        assert_eq!(bucket.vendor_limit().map(|noted| noted.limit), Some(Amount::from_tokens(1)));
        world.dynamo.meter().reset();
        assert_eq!(
            client.observe(RPM, &one, None).await.unwrap().limit,
            ObservedLimit::Lower(Amount::from_tokens(1))
        );
        assert_eq!(world.dynamo.meter().reset().requests, 0, "a reply that repeats it costs nothing");

        let restored = client.ops().apply_limit(&dimension(RPM), &requests(500, 60)).await.unwrap();
        assert!(matches!(restored, Applied::Changed { .. }), "{restored:?}");
        assert_eq!(world.bucket(RPM).await.limit(), &requests(500, 60));
        client.observe(RPM, &one, None).await.unwrap();
        assert_eq!(
            world.bucket(RPM).await.limit().refill_rate().per_minute(),
            fifty,
            "and no lower the next time"
        );
    }
}

/// The burst is one call, and a tenth of it would be none.
#[tokio::test(start_paused = true)]
async fn a_much_lower_limit_is_noticed_for_a_bucket_with_a_burst_of_one_call() {
    let world = World::new().await;
    let rate = requests(500, 60).refill_rate();
    let limit = Limit::rate(LimitType::Requests, Amount::from_tokens(1), rate, Cost::ONE).unwrap();
    world.client().ops().apply_limit(&dimension(RPM), &limit).await.unwrap();
    let client = world.client();
    let sixty = Amount::from_tokens(60);
    assert_eq!(client.observe(RPM, &SIXTY, None).await.unwrap().limit, ObservedLimit::Lower(sixty));
    adopts(&world, RPM).await;
    assert_eq!(world.client().observe(RPM, &SIXTY, None).await.unwrap().limit, ObservedLimit::Adopted(sixty));
    let limit = *world.bucket(RPM).await.limit();
    assert_eq!((limit.capacity(), limit.refill_rate().per_minute()), (Amount::from_tokens(1), sixty));
}

#[tokio::test(start_paused = true)]
async fn a_lower_concurrency_is_noted_and_adopted_where_the_bucket_says_so() {
    let world = World::with_slots(SLOTS, 5).await;
    let client = world.client();
    let held = take(&client, SLOTS).await;
    let headers = [("current-concurrent-requests", "1"), ("maximum-concurrent-requests", "3")];
    let three = Amount::from_tokens(3);
    let said = client.observe(SLOTS, &headers, Some(&held)).await.unwrap();
    assert_eq!((said.level, said.limit), (ObservedLevel::NotSaid, ObservedLimit::Lower(three)));
    assert_eq!(world.free(SLOTS).await, "4");
    adopts(&world, SLOTS).await;
    let other = world.client();
    let said = other.observe(SLOTS, &headers, None).await.unwrap();
    assert_eq!(said.limit, ObservedLimit::Adopted(three));
    assert_eq!(world.free(SLOTS).await, "2");
    held.release().await.unwrap();
    assert_eq!((world.free(SLOTS).await, world.bucket(SLOTS).await.limit().capacity()), ("3".into(), three));
}

/// Of a day's quota nothing follows for a minute's bucket.
#[tokio::test(start_paused = true)]
async fn the_quota_of_another_window_changes_nothing() {
    let world = World::with_rate("groq#rpm", 30, 60).await;
    let client = world.client();
    let grant = take(&client, "groq#rpm").await;
    let day = [("x-ratelimit-limit-requests", "14400"), ("x-ratelimit-remaining-requests", "5")];
    let said = client.observe("groq#rpm", &day, Some(&grant)).await.unwrap();
    assert_eq!(said.level, ObservedLevel::NotSaid);
    assert_eq!(world.level("groq#rpm").await, "29");
}

#[tokio::test(start_paused = true)]
async fn what_a_bucket_does_about_a_lower_limit_is_said_in_its_row() {
    let world = World::with_rate(RPM, 100, 60).await;
    assert!(!world.bucket(RPM).await.adopts_limit());
    adopts(&world, RPM).await;
    assert!(world.bucket(RPM).await.adopts_limit());
    let ops = world.client();
    let adopt = |tokens| OnLowerLimit::Adopt { at_least: Amount::from_tokens(tokens) };
    for (then, changes) in [
        (adopt(20), true),
        (adopt(20), false),
        (adopt(30), true),
        (OnLowerLimit::Report, true),
        (adopt(30), true),
    ] {
        assert_eq!(ops.ops().on_lower_limit(&dimension(RPM), then).await.unwrap(), changes, "{then:?}");
        assert!(world.bucket(RPM).await.is_set_to(then));
    }
    let update = sluice_core::on_lower_limit(&dimension(RPM), OnLowerLimit::Report);
    assert!(crate::inline_leases::apply(&world, &update).await);
    assert!(!world.bucket(RPM).await.adopts_limit());
    assert_eq!(world.row(RPM).await.unwrap().get(ADOPT_AT_LEAST), None);
}
