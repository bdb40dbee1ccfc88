//! Which of the buckets that a call asked for caused its refusal.

use sluice_core::Timestamp;
use sluice_vendors::{Headers, Quota, refused_quota};

use crate::api::error::AcquireError;
use crate::lane::inner::Inner;
use crate::lane::reading::known;
use crate::vendor::rate_limited::lowering::{has_some_left, reported};
use crate::vendor::rate_limited::{RefusedAsk, Reply};

/// The buckets of `asked` that the refusal is blamed on: those of the quota that it names, without those of
/// which the reply says that at least half is left. All of them, if none remains.
pub(super) async fn guilty<'a, H: Headers>(
    inner: &Inner,
    asked: &[&'a RefusedAsk],
    reply: &Reply<'_, H>,
    now: Timestamp,
) -> Result<Vec<&'a RefusedAsk>, AcquireError> {
    let named = refused_quota(reply.body);
    let mut guilty = Vec::with_capacity(asked.len());
    for asked in asked {
        let limit = known(inner, &asked.entry).await?.bucket.whole_limit();
        let quota = Quota::of(&asked.entry.dimension, limit.limit_type());
        let is_another = named.is_some_and(|named| !named.includes(quota));
        let has_left = has_some_left(&limit, &reported(&asked.entry, &limit, reply.headers, now));
        if asked.is_concurrent || !(is_another || has_left) {
            guilty.push(*asked);
        }
    }
    Ok(if guilty.is_empty() { asked.to_vec() } else { guilty })
}
