//! Takes what is wanted, each part from its own line: in one transaction, or bucket by bucket.

use std::sync::Arc;

use crate::api::refusal::{RetryIn, RetryReason};
use crate::config::Leases;
use crate::lane::contended::Contended;
use crate::lane::inner::Inner;
use crate::lane::setback::Taken;
use crate::lane::terms::Terms;
use crate::lane::unclaimed::LaneAnswer;
use crate::lane::wants::Want;
use crate::lane::{per_bucket, rows};

pub(super) async fn take(inner: &Arc<Inner>, wants: &[Want], terms: Terms) -> LaneAnswer {
    let in_one = match inner.config.leases {
        Leases::All => true,
        Leases::Inline => false,
        _ => wants.iter().any(|want| want.concurrent),
    };
    if let ([want], Leases::Concurrent) = (wants, inner.config.leases)
        && want.concurrent
        && want.entry.limit().is_some_and(|limit| limit.fits_inline())
    {
        return take_slot(inner, wants, terms).await;
    }
    if in_one { rows::take(inner, wants, terms).await } else { per_bucket::take(inner, wants, terms).await }
}

/// Takes a slot with a lease row, unless others take slots of the bucket or wait for them: then with an
/// inline lease. Two transactions on one row collide, and plain updates do not.
async fn take_slot(inner: &Arc<Inner>, wants: &[Want], terms: Terms) -> LaneAnswer {
    let entry = &wants[0].entry;
    let terms = Terms { came: entry.extensions.of::<Contended>().place(), ..terms };
    let is_crowded = entry.reading().is_some_and(|reading| reading.bucket.is_waited_for(inner.now()))
        || entry.extensions.of::<Contended>().is_now()
        || entry.inline.get().is_some_and(|lane| !lane.is_idle());
    if !is_crowded {
        match rows::take(inner, wants, Terms { moves_on: true, ..terms }).await {
            Ok(Taken::Refused(retry)) if moves_on(&retry, terms) => {}
            answer => return answer,
        }
    }
    per_bucket::take(inner, wants, terms).await
}

/// Whether a caller that a lane of lease rows refused asks again with an inline lease.
fn moves_on(retry: &RetryIn, terms: Terms) -> bool {
    retry.reason == RetryReason::Contended || terms.stays_until().is_some() && !terms.patience().is_zero()
}
