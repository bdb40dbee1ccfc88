//! One mistaken or hostile reply costs the fleet at most the longest cool-down, and an operator can undo it.

use std::time::Duration;

use sluice_sdk::Request;

use crate::world::{World, take};

/// `SLUICE_LONGEST_COOL_DOWN`.
const CAP: Duration = Duration::from_secs(15 * 60);
const MINUTE: &str = "acme#rpm";
const DAY: &str = "acme#rpd";
const SLOTS: &str = "acme#concurrent";

type Headers = &'static [(&'static str, &'static str)];

/// Status, headers and body of replies that no fleet should believe whole.
const HOSTILE: &[(u16, Headers, &str)] = &[
    // A wait of a day, of a month, of a year, as seconds, a date and words.
    (429, &[("retry-after", "86400")], ""),
    (429, &[("retry-after", "2678400")], ""),
    (429, &[("retry-after", "Fri, 01 Jan 2100 00:00:00 GMT")], ""),
    (429, &[("retry-after-ms", "99999999999")], ""),
    (429, &[], r#"{"error": {"message": "Please try again in 720h0m0s.", "code": "rate_limit_exceeded"}}"#),
    (503, &[("retry-after", "604800")], ""),
    (529, &[("retry-after", "604800")], r#"{"error": {"type": "overloaded_error"}}"#),
    // The account is used up, or so it says.
    (429, &[("retry-after", "2592000")], r#"{"error": {"code": "insufficient_quota"}}"#),
    // A limit of one, and nothing left: of a minute, of a day, and of a window that is not named.
    (200, &[("ratelimit-policy", "\"a\";q=1;w=60"), ("ratelimit", "\"a\";r=0;t=60")], ""),
    (200, &[("ratelimit-policy", "\"a\";q=1;w=86400"), ("ratelimit", "\"a\";r=0;t=86400")], ""),
    (429, &[("ratelimit-policy", "\"a\";q=9600;w=86400"), ("ratelimit", "\"a\";r=0;t=86400")], ""),
    (200, &[("x-ratelimit-limit-requests", "1"), ("x-ratelimit-remaining-requests", "0")], ""),
    (429, &[("x-ratelimit-limit-requests", "1"), ("x-ratelimit-remaining-requests", "0")], ""),
    (
        429,
        &[
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "24h0m0s"),
            ("retry-after", "7"),
        ],
        "",
    ),
    // Twice the same header, and headers that contradict each other.
    (429, &[("retry-after", "1"), ("retry-after", "86400")], ""),
    (200, &[("x-ratelimit-remaining-requests", "600"), ("x-ratelimit-remaining-requests", "0")], ""),
    (429, &[("retry-after", "86400"), ("x-ratelimit-remaining-requests", "600")], ""),
    (
        200,
        &[("x-ratelimit-limit", "0"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "9999999999")],
        "",
    ),
    // Nothing that can be read.
    (429, &[("retry-after", "-5"), ("x-ratelimit-remaining-requests", "many")], "not JSON at all"),
];

async fn world() -> World {
    let world = World::with_slots(SLOTS, 5).await;
    world.rate(MINUTE, 600, 60).await;
    world.rate(DAY, 9_600, 86_400).await;
    world
}

fn reply(status: u16, headers: Headers, body: &'static str) -> http::Response<&'static [u8]> {
    let reply = http::Response::builder().status(status);
    let reply = headers.iter().fold(reply, |reply, (name, value)| reply.header(*name, *value));
    reply.body(body.as_bytes()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_hostile_reply_costs_the_fleet_at_most_the_cap_and_is_undone_whole() {
    for (status, headers, body) in HOSTILE {
        let world = world().await;
        let client = world.client();
        let mut grant = take(&client, Request::from([MINUTE, DAY, SLOTS])).await;
        grant.reply(&reply(*status, headers, body), ()).await.unwrap();
        grant.release().await.unwrap();
        let now = world.dynamo.clock().now();
        let case = format!("{status} {headers:?} {body}");
        for name in [MINUTE, DAY, SLOTS] {
            let bucket = world.bucket(name).await;
            let blocked = bucket.blocked_until().map_or(Duration::ZERO, |until| until.since(now));
            assert!(blocked <= CAP, "{case}: {name} is blocked for {blocked:?}");
            let limit = bucket.limit();
            let missing = limit.capacity().minus(bucket.level(now));
            let refilled = limit.refill_rate().time_for(missing).unwrap_or(Duration::ZERO);
            // The call itself, which takes 9 s of a day's refill.
            assert!(
                refilled <= CAP + Duration::from_secs(10),
                "{case}: {name} misses {missing}, {refilled:?}"
            );
        }
        // As `sluice cool-down NAME --end --refill` does.
        let operator = world.client();
        for name in [MINUTE, DAY] {
            operator.end_cool_down(name).await.unwrap();
            operator.refill(name, None).await.unwrap();
        }
        let again = operator.acquire(Request::from([MINUTE, DAY, SLOTS])).await.unwrap();
        assert!(again.granted().is_some(), "{case}: an operator undoes it");
    }
}
