//! Takes tokens from several lines at once: a penalty, a vendor's reply, what was granted without the table.

use alloc::vec::Vec;

use super::wording::{OF_LINE, Wording};
use crate::amount::Amount;
use crate::bucket::Bucket;
use crate::bucket::lines::{LineRead, Lines};
use crate::plan::settle::Debt;
use crate::share::ShareName;
use crate::statement::Update;
use crate::timestamp::Timestamp;

/// How a line is to be lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    /// Whatever others took since the reading.
    Whatever,
    /// Unless others took since the reading.
    Nothing,
    /// As long as the line keeps to the cap on debts.
    WithinCap,
}

/// What a write takes of a line.
type Part<'a> = (Option<&'a ShareName>, &'a LineRead, Amount);

/// The parts of `amount` that lower each line with a level above zero: in proportion to the levels, which are
/// at least `amount` together. Lines without a level stay.
fn parts_of(lines: &Lines, amount: Amount, now: Timestamp) -> Vec<Part<'_>> {
    let level = |line: &LineRead| line.level(now).max(Amount::ZERO);
    let sum = lines.iter().map(|(_, line)| level(line)).fold(Amount::ZERO, Amount::plus);
    if sum == Amount::ZERO {
        // Nothing is there: the common line owes it.
        return alloc::vec![(None, &lines.common, amount)];
    }
    let part = |(name, line)| (name, line, level(line).scaled(amount, sum));
    let mut parts: Vec<_> = lines.iter().map(part).filter(|(.., part)| *part > Amount::ZERO).collect();
    // What was lost by rounding down.
    let rest = parts.iter().fold(amount, |rest, (.., part)| rest.minus(*part));
    if let Some((.., part)) = parts.iter_mut().max_by_key(|(.., part)| *part) {
        *part = part.plus(rest);
    }
    parts
}

/// What a line may still be lowered by, if none is lowered below minus its capacity.
fn room(line: &LineRead, now: Timestamp) -> Amount {
    line.level(now).plus(line.limit.capacity()).max(Amount::ZERO)
}

/// As [`RatePlanner::charge_whole`](crate::RatePlanner::charge_whole), of a bucket with shares.
///
/// Interleavings that the condition stops, beyond those of [`lower_lines`]: others took from a line since the
/// reading, and this write would lower the line below minus its capacity. Several processes charge in the
/// same moment, and all may have planned from one reading.
pub(in crate::plan) fn charge_lines(
    bucket: &Bucket,
    lines: &Lines,
    amount: Amount,
    debt: Debt,
    now: Timestamp,
) -> Option<(Amount, Update)> {
    let sum = |of: fn(&LineRead, Timestamp) -> Amount| {
        lines.iter().map(|(_, line)| of(line, now)).fold(Amount::ZERO, Amount::plus)
    };
    let rooms = sum(room);
    let within = amount.min(rooms);
    let mut parts: Vec<Part<'_>> =
        lines.iter().map(|(name, line)| (name, line, room(line, now).scaled(within, rooms))).collect();
    // What was lost by rounding down goes where there is room.
    let mut rest = parts.iter().fold(within, |rest, (.., part)| rest.minus(*part));
    for (_, line, part) in &mut parts {
        let more = rest.min(room(line, now).minus(*part));
        (*part, rest) = (part.plus(more), rest.minus(more));
    }
    let mut since = Since::WithinCap;
    if debt == Debt::Uncapped {
        since = Since::Whatever;
        let (beyond, capacities) = (amount.minus(within), sum(|line, _| line.limit.capacity()));
        for (_, line, part) in &mut parts {
            *part = part.plus(line.limit.capacity().scaled(beyond, capacities));
        }
    }
    parts.retain(|(.., part)| *part > Amount::ZERO);
    let taken = parts.iter().map(|(.., part)| *part).fold(Amount::ZERO, Amount::plus);
    (taken > Amount::ZERO).then(|| (taken, lowering(parts, since, now).update(bucket)))
}

/// The write that takes `amount` from the lines of `bucket`, from each in proportion to its level.
///
/// Interleavings that the condition stops:
/// - A line filled up, or its anchor moved, since the reading, and the refill that it has in reserve would
///   swallow what is taken. (As for the one line of a bucket without shares.)
/// - The share was removed: there is no anchor to compare.
pub(in crate::plan) fn lower_lines(bucket: &Bucket, lines: &Lines, amount: Amount, now: Timestamp) -> Update {
    lowering(parts_of(lines, amount, now), Since::Whatever, now).update(bucket)
}

/// As [`lower_lines`], with what a vendor's reply leaves in the row.
///
/// Interleavings that the condition stops in addition: others took since the reading; another reply lowered
/// the bucket in the meantime, and this one would lower it for the same calls again.
pub(in crate::plan) fn observe_lines(
    bucket: &Bucket,
    lines: &Lines,
    excess: Amount,
    version: i64,
    now: Timestamp,
) -> Update {
    use crate::schema::{OBSERVED, OBSERVED_VERSION};
    let mut wording = lowering(parts_of(lines, excess, now), Since::Nothing, now);
    wording.attribute(OBSERVED);
    wording.attribute(OBSERVED_VERSION);
    wording.number(":0", 0);
    wording.number(":excess", excess);
    wording.number(":observed_version", version);
    wording.number(":read_observed", bucket.observed());
    wording
        .set(&["#observed = if_not_exists(#observed, :0) + :excess, #observed_version = :observed_version"]);
    wording.asks(&["(attribute_not_exists(#observed) OR #observed = :read_observed)"]);
    wording.update(bucket)
}

fn lowering(parts: Vec<Part<'_>>, since: Since, now: Timestamp) -> Wording {
    let mut wording = Wording::default();
    for (share, line, part) in parts {
        let (at, path) = wording.line(share);
        let (tokens, anchor) = wording.tokens_and_anchor(share, &path);
        let [part_of, moved, low, high] = OF_LINE[at];
        let brim = line.brim(now);
        wording.number(low, &line.anchor);
        wording.asks(&[&anchor, " = ", low]);
        wording.number(high, brim);
        if line.tokens.get() > brim {
            wording.number(part_of, line.limit.capacity().minus(part));
            wording.number(moved, line.line().effect(now));
            wording.set(&[&tokens, " = ", part_of, ", ", &anchor, " = ", moved]);
            wording.asks(&[&tokens, " > ", high]);
            continue;
        }
        wording.number(part_of, part);
        wording.set(&[&tokens, " = ", &tokens, " - ", part_of]);
        wording.asks(&[&tokens, " <= ", high]);
        match since {
            Since::Whatever => continue,
            Since::Nothing => wording.number(moved, &line.tokens),
            Since::WithinCap => wording.number(moved, line.tokens.get().minus(room(line, now).minus(part))),
        };
        wording.asks(&[&tokens, " >= ", moved]);
    }
    wording
}
