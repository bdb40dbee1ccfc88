//! Findings about the shares of a bucket: which it has, and what keeps their callers from their parts.

use std::time::Duration;

use sluice_ops::Survey;
use sluice_sdk::core::{Amount, Bucket, SlotLine, Timestamp};

use super::finding::{Check, Finding};
use crate::output::short;

/// A burst of less than this much of the rate, split into shares, leaves a few per cent of the limit unused.
const LEAST_BURST: Duration = Duration::from_millis(500);

/// A bucket without shares has none.
pub(super) fn examine(bucket: &Bucket, survey: &Survey, now: Timestamp) -> Vec<Finding> {
    let slot_lines = survey.slot_lines(bucket);
    let whole = bucket.limit_at_vendor().capacity();
    let (parts, findings) = match slot_lines.is_empty() {
        false => (
            slot_lines.iter().map(|line| Part::of_slots(line, whole)).collect(),
            of_slots(bucket, &slot_lines, survey),
        ),
        true if bucket.has_shares() => {
            let mut lines = bucket.every_line();
            // The shares first.
            lines.rotate_left(1);
            (
                lines.iter().map(|line| Part::of(line, whole, now)).collect(),
                of_burst(bucket).into_iter().collect(),
            )
        }
        true => return Vec::new(),
    };
    [told(bucket, parts)].into_iter().chain(findings).collect()
}

/// What a line has of the bucket.
struct Part {
    /// `None` is the common line.
    share: Option<String>,
    percent: String,
    /// What is left of its tokens, or held of its slots.
    level: String,
    is_background: bool,
    lent: Amount,
    borrowed: Amount,
    /// Of when the two are: "so far" or "now".
    during: &'static str,
    /// Whether it was removed, and its row is still there.
    is_going: bool,
}

impl Part {
    fn of(line: &Bucket, whole: Amount, now: Timestamp) -> Self {
        let [left, capacity] =
            [line.level(now), line.limit().capacity()].map(|amount| short(&amount.to_string()));
        Self {
            share: line.share().map(ToString::to_string),
            percent: percent(line.limit().capacity(), whole),
            level: format!("{left} of {capacity} left"),
            is_background: line.is_background(),
            lent: line.lent(),
            borrowed: line.borrowed(),
            during: "so far",
            is_going: false,
        }
    }

    fn of_slots(line: &SlotLine, whole: Amount) -> Self {
        let [held, guaranteed] = [line.held(), line.guaranteed].map(|slots| short(&slots.to_string()));
        let is_going = line.is_going();
        Self {
            share: line.share.as_ref().map(ToString::to_string),
            percent: percent(line.guaranteed, whole),
            level: if is_going { format!("{held} held") } else { format!("{held} of {guaranteed} held") },
            is_background: line.is_background,
            lent: line.lent,
            borrowed: line.borrowed,
            during: "now",
            is_going,
        }
    }

    fn describe(&self) -> String {
        let some = |what: &str, amount: Amount| {
            let amount = short(&amount.to_string());
            (amount != "0").then(|| format!("{what} {amount}"))
        };
        let background = self.is_background.then(|| "background".to_owned());
        let loans: Vec<_> =
            some("lent", self.lent).into_iter().chain(some("borrowed", self.borrowed)).collect();
        let loans = (!loans.is_empty()).then(|| format!("{} {}", loans.join(" and "), self.during));
        let more =
            std::iter::once(self.level.clone()).chain(background).chain(loans).collect::<Vec<_>>().join(", ");
        let name = self.share.as_deref().unwrap_or("common line");
        if self.is_going {
            format!("{name}, removed ({more})")
        } else {
            format!("{name} {} % ({more})", self.percent)
        }
    }
}

/// With a decimal if it has one.
fn percent(part: Amount, whole: Amount) -> String {
    let tenths = i128::from(part.micros()) * 1_000 / i128::from(whole.micros().max(1));
    short(&format!("{}.{}", tenths / 10, tenths % 10))
}

fn told(bucket: &Bucket, parts: Vec<Part>) -> Finding {
    let (shares, common): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(|part| part.share.is_some());
    let count = match shares.iter().filter(|share| !share.is_going).count() {
        0 => "no shares".to_owned(),
        1 => "1 share".to_owned(),
        count => format!("{count} shares"),
    };
    let each = shares.iter().map(Part::describe).collect::<Vec<_>>().join(", ");
    let rest = common.first().map(|common| format!("; {}", common.describe())).unwrap_or_default();
    let colon = if each.is_empty() { "" } else { ": " };
    Finding::fine(Check::Shares, bucket.dimension(), format!("{count}{colon}{each}{rest}"))
}

fn of_slots(bucket: &Bucket, lines: &[SlotLine], survey: &Survey) -> Vec<Finding> {
    const GOES_ON: &str = "wait: slots that come back go to the shares when a caller finds no slot, and with each sweep; to \
                           move them now, run `sluice buckets apply FILE` again";
    const IS_LEFT: &str =
        "run `sluice buckets apply FILE` again: callers and sweeps cannot go on with this change";
    let is_changing = bucket.changes_to().is_some();
    // A row may be in the part that was not read.
    let is_left = survey.is_whole && survey.slot_rows(bucket).needs_operator()
        || is_changing && lines.iter().any(|line| !line.is_going() && line.capacity > line.guaranteed);
    let todo = if is_left { IS_LEFT } else { GOES_ON };
    let note = |what: String, todo: &str| Some(Finding::note(Check::Shares, bucket.dimension(), what, todo));
    let finding = |line: &SlotLine| match line {
        line if line.is_going() && line.held() > Amount::ZERO => note(
            format!(
                "the share {} was removed, and {} of its slots are still held: its callers take from the common line",
                line.name(),
                slots(line.held())
            ),
            if is_left {
                IS_LEFT
            } else {
                "when those calls have ended, run `sluice buckets apply FILE` again: it removes the row of the share"
            },
        ),
        line if line.is_going() => note(
            format!(
                "the share {} was removed, and its row still has slots that nobody uses: {}",
                line.name(),
                slots(line.capacity)
            ),
            "run `sluice buckets apply FILE` again: it removes the row, and gives the slots to others",
        ),
        SlotLine { is_closed: true, .. } => note(
            format!("the share {} has no slot yet: its callers take from the common line", line.name()),
            todo,
        ),
        SlotLine { free: None, .. } if survey.is_whole => Some(Finding::problem(
            Check::Shares,
            bucket.dimension(),
            format!("nobody takes slots of the share {}: its row is missing or cannot be read", line.name()),
            "if another finding says why its row cannot be read, do what that says; then run `sluice buckets apply FILE` again",
        )),
        line if is_changing && line.capacity > line.guaranteed => note(
            format!(
                "{} slots and is to have {}: the change was interrupted",
                has(line),
                slots(line.guaranteed)
            ),
            todo,
        ),
        line if is_changing && line.capacity < line.guaranteed => {
            note(format!("{} of its {} slots so far", has(line), slots(line.guaranteed)), todo)
        }
        _ => None,
    };
    let mut found: Vec<Finding> = lines.iter().filter_map(finding).collect();
    if is_left && found.is_empty() {
        found.extend(note("the change of its shares was interrupted".to_owned(), IS_LEFT));
    }
    found
}

fn has(line: &SlotLine) -> String {
    let name = line
        .share
        .as_ref()
        .map_or_else(|| "the common line".to_owned(), |share| format!("the share {share}"));
    format!("{name} has {}", slots(line.capacity))
}

fn slots(slots: Amount) -> String {
    short(&slots.to_string())
}

fn of_burst(bucket: &Bucket) -> Option<Finding> {
    let limit = bucket.whole_limit();
    let (burst, rate) = (limit.capacity(), limit.refill_rate());
    rate.time_for(burst).filter(|fills_in| *fills_in < LEAST_BURST)?;
    // Half a second's part of a minute, rounded up.
    let least = Amount::from_micros(rate.per_minute().micros().saturating_add(119) / 120);
    let what = format!(
        "the burst of {burst} is less than half a second of the rate, {} a second, and each share has only its part of \
         it: a few per cent of the limit can stay unused",
        short(&rate.to_string())
    );
    let todo = format!(
        "if the vendor takes such a burst, state capacity = {} or more in the file of buckets, and apply it",
        short(&least.to_string())
    );
    Some(Finding::note(Check::Shares, bucket.dimension(), what, todo))
}
