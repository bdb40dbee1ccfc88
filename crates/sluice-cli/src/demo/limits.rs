//! What the vendor of the demo allows, and what the buckets are given of it.

use sluice_sdk::Client;
use sluice_sdk::core::{Amount, Cost, Dimension, Limit, LimitType, Rate};

use crate::failure::Failure;

pub(crate) const TABLE: &str = "ontopix-vendor-buckets-demo";
pub(crate) const REQUESTS: &str = "vendor#requests";
pub(crate) const TOKENS: &str = "vendor#tokens";
pub(crate) const CONCURRENT: &str = "vendor#concurrent";

/// The vendor counts calls and tokens in any window of this length.
pub(crate) const WINDOW_SECS: u32 = 5;
/// Calls that it takes in a window.
pub(crate) const REQUESTS_PER_WINDOW: u32 = 300;
/// Tokens that it takes in a window.
pub(crate) const TOKENS_PER_WINDOW: u32 = 36_000;
/// Calls that it takes at once.
pub(crate) const AT_ONCE: u32 = 12;
/// Fewest and most tokens of a call.
pub(crate) const TOKENS_PER_CALL: (u32, u32) = (50, 150);
/// Shortest and longest time of a call, in milliseconds.
pub(crate) const CALL_MILLIS: (u64, u64) = (30, 90);

/// A sliding window of length W in which a vendor takes N calls never sees more than C + R * W of a bucket, and up to R * j more
/// where calls take between nothing and j to arrive. So the bucket gets C = 2 and R = (300 - 2 - 3) / 5: the 3 calls that are
/// left are 51 ms for j.
const REQUEST_BURST: &str = "2";
const REQUEST_RATE: &str = "59";
const TOKEN_BURST: &str = "3000";
const TOKEN_RATE: &str = "6500";

/// Applies the limits.
pub(crate) async fn apply(client: &Client) -> Result<(), Failure> {
    let rate = |kind, burst: &str, rate: &str| -> Result<Limit, Failure> {
        Ok(Limit::rate(kind, burst.parse()?, rate.parse::<Rate>()?, Cost::ONE)?)
    };
    let at_once = Amount::from_tokens(i32::try_from(AT_ONCE)?);
    let limits = [
        (REQUESTS, rate(LimitType::Requests, REQUEST_BURST, REQUEST_RATE)?),
        (TOKENS, rate(LimitType::Tokens, TOKEN_BURST, TOKEN_RATE)?),
        (CONCURRENT, Limit::concurrent(at_once, Cost::ONE)?),
    ];
    for (name, limit) in limits {
        let dimension = Dimension::new(name)?;
        client.apply_limit(&dimension, &limit).await?;
    }
    Ok(())
}
