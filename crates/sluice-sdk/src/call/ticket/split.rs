//! Which dimensions a ticket books, as far as the readings say, and which it leaves to the redeemer.

use std::sync::Arc;

use sluice_core::{Bucket, Cost, Timestamp};

use crate::call::ticket::LEAST_LIFETIME;
use crate::lane::wants::Want;

/// What is taken or booked first, and the rest.
pub(super) struct Split {
    pub(super) batch: Vec<Want>,
    pub(super) rest: Vec<Want>,
}

/// When the tokens of a bucket that refuses are there, and when they would overflow.
#[derive(Clone, Copy)]
struct Span {
    start: Timestamp,
    use_by: Timestamp,
}

/// Separates the dimensions that are booked from the rest:
///
/// - A cost that is known to exceed the capacity comes first: it is an error, whatever the others say.
/// - A cool-down that ends after the latest start comes first: it refuses, and nothing is booked.
/// - If no bucket that can be booked is known to refuse, all are taken together.
/// - Otherwise those are booked, without those whose tokens would overflow before the latest start or soon
///   after it.
pub(super) fn split(wants: Vec<Want>, now: Timestamp) -> Split {
    if wants.len() == 1 {
        return Split { batch: wants, rest: Vec::new() };
    }
    if let Some(split) = only(&wants, exceeds_capacity) {
        return split;
    }
    let spans = wants.iter().map(|want| if is_blocked(want, now) { None } else { span(want, now) });
    let spans: Vec<Option<Span>> = spans.collect();
    let latest = spans.iter().flatten().map(|span| span.start).max();
    let is_late = |want: &Want| is_blocked(want, now) && ready(want, now) > latest.unwrap_or(now);
    if let Some(split) = only(&wants, is_late) {
        return split;
    }
    let Some(latest) = latest else { return Split { batch: wants, rest: Vec::new() } };
    let is_usable = |span: Span| span.start == latest || span.use_by >= latest.after(LEAST_LIFETIME);
    let (batch, rest): (Vec<_>, Vec<_>) =
        wants.into_iter().zip(spans).partition(|(_, span)| span.is_some_and(is_usable));
    let wants = |pairs: Vec<(Want, Option<Span>)>| pairs.into_iter().map(|(want, _)| want).collect();
    Split { batch: wants(batch), rest: wants(rest) }
}

/// Whether the bucket of `want` is known to have fewer tokens than it takes, and can be booked.
pub(super) fn may_book(want: &Want, now: Timestamp) -> bool {
    span(want, now).is_some()
}

/// Whether a ticket can hold `want`: tokens that stay below the brim for long enough, and no slots. Others
/// are not booked: the booking would have to be given back, and callers that book behind it would prevent
/// that.
pub(super) fn is_bookable(want: &Want) -> bool {
    !want.concurrent && bucket(want).is_none_or(|bucket| is_good_for_long(&bucket, want.cost))
}

fn is_good_for_long(bucket: &Bucket, cost: Cost) -> bool {
    let limit = bucket.limit();
    let good_for = limit.refill_rate().time_for(limit.capacity().minus(cost.amount()));
    good_for.is_none_or(|time| time >= LEAST_LIFETIME)
}

/// The wants that `is_first` chooses, before all others; `None` if there are none.
fn only(wants: &[Want], is_first: impl Fn(&Want) -> bool) -> Option<Split> {
    let (batch, rest): (Vec<_>, Vec<_>) = wants.iter().cloned().partition(is_first);
    (!batch.is_empty()).then_some(Split { batch, rest })
}

fn bucket(want: &Want) -> Option<Arc<Bucket>> {
    want.entry.reading().map(|reading| reading.bucket)
}

fn exceeds_capacity(want: &Want) -> bool {
    bucket(want).is_some_and(|bucket| want.cost.amount() > bucket.limit().capacity())
}

fn is_blocked(want: &Want, now: Timestamp) -> bool {
    bucket(want).and_then(|bucket| bucket.blocked_until()).is_some_and(|until| until > now)
}

/// When a bucket in a cool-down grants again, if nobody else takes from it.
fn ready(want: &Want, now: Timestamp) -> Timestamp {
    let until = bucket(want).and_then(|bucket| bucket.blocked_until()).unwrap_or(now);
    span(want, now).map_or(until, |span| span.start.max(until))
}

/// `None` if the bucket has enough tokens as far as is known, or cannot be booked.
fn span(want: &Want, now: Timestamp) -> Option<Span> {
    let bucket = bucket(want).filter(|_| is_bookable(want))?;
    let start = bucket.reaches(want.cost.amount()).filter(|start| *start > now)?;
    // After the take, the line is lower by the cost, and so is the level at which the ticket lapses.
    let use_by = bucket.reaches(bucket.limit().capacity()).unwrap_or(start);
    Some(Span { start, use_by })
}
