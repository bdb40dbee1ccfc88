//! Answers "what if this product doubles its calls", from the use of the last minutes.
//!
//! A rate bucket that grants `u` a second grants `u x factor`, of `R` that are refilled. For a concurrency
//! bucket, by Little's law, slots in use = calls a second x time of a call: twice the calls need twice the
//! slots, of `C`. Above the limit the queue grows: by `(x / limit - 1)` seconds of waiting in each second.
//!
//! Leases tell who called. If some name no caller, or if a rate bucket has none, the answer is between two
//! bounds: none of that part is the product's, or all of it. The same is true if a bucket filled up while
//! nobody looked: what was used may have been refilled without a trace. Nothing is decided from this answer,
//! so it is computed with floats.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::duration::{exact, exact_wait};
use crate::view::{BucketView, Series, View};

#[derive(Debug, Deserialize)]
#[serde(default)]
pub(super) struct Question {
    /// A caller's name; empty for all callers.
    who: String,
    factor: f64,
}

impl Default for Question {
    fn default() -> Self {
        Self { who: String::new(), factor: 2.0 }
    }
}

impl Question {
    pub(super) fn makes_sense(&self) -> bool {
        (0.0..=1_000.0).contains(&self.factor)
    }

    /// Whether the question is about all callers, or about a caller that a lease may name: a picture names
    /// only the first leases of a bucket.
    pub(super) fn is_of_somebody(&self, view: &View) -> bool {
        let Some(picture) = &view.picture else { return true };
        let may_hold = |bucket: &BucketView| {
            let is_named =
                bucket.holders.iter().any(|holder| holder.caller.as_deref() == Some(self.who.as_str()));
            is_named || bucket.leases > bucket.holders.len()
        };
        self.who.is_empty() || picture.buckets.iter().any(may_hold)
    }
}

#[derive(Debug, Serialize)]
pub(super) struct WhatIf {
    /// The callers that leases name.
    callers: Vec<String>,
    buckets: Vec<BucketForecast>,
}

#[derive(Debug, PartialEq, Serialize)]
struct BucketForecast {
    #[serde(rename = "dimension")]
    name: String,
    outcome: Outcome,
    verdict: String,
    formula: String,
    notes: Vec<String>,
    /// The limit: tokens a second, or slots.
    limit: f64,
    /// Use now, at least: tokens a second, or slots.
    now: Option<f64>,
    /// Use now, at most: higher if the bucket filled up while nobody looked.
    now_most: Option<f64>,
    /// Use with the factor, at least.
    least: Option<f64>,
    /// Use with the factor, at most.
    most: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Fits,
    /// The use fits on average, but with so little left that calls wait at peaks.
    Tight,
    Over,
    Unknown,
}

/// The use of this time counts as usual.
const WINDOW_SECS: f64 = 300.0;
/// From this share of a limit on, calls wait at peaks, and demand may be higher than use.
const TIGHT: f64 = 0.9;

impl WhatIf {
    pub(super) fn new(view: &View, question: &Question) -> Self {
        let Some(picture) = &view.picture else { return Self { callers: Vec::new(), buckets: Vec::new() } };
        let holders = picture.buckets.iter().flat_map(|bucket| &bucket.holders);
        let callers: BTreeSet<String> = holders.filter_map(|holder| holder.caller.clone()).collect();
        let forecast =
            |bucket| forecast(bucket, &Use::seen(bucket, view.series(&bucket.name), picture.at), question);
        Self {
            callers: callers.into_iter().collect(),
            buckets: picture.buckets.iter().map(forecast).collect(),
        }
    }
}

#[derive(Debug)]
struct Use {
    /// Tokens a second, or slots, at least; `None` if it is not known yet.
    mean: Option<f64>,
    /// The same, at most.
    most: Option<f64>,
    /// The number of seconds that the use covers.
    secs: f64,
    /// When nobody looked, which is not covered: from how long ago to how long ago.
    unseen: Option<(f64, f64)>,
}

impl Use {
    fn seen(bucket: &BucketView, series: Option<&Series>, at: f64) -> Self {
        if bucket.is_concurrent() {
            let seen = series.and_then(|series| series.level(at, WINDOW_SECS));
            let mean = seen.map(|(free, _)| (bucket.capacity - free).max(0.0));
            let unseen = series.and_then(|series| series.unseen(at, WINDOW_SECS));
            let unseen = unseen.map(|(from, to)| (at - from, at - to));
            return Self { mean, most: mean, secs: seen.map_or(0.0, |(_, secs)| secs), unseen };
        }
        let total = series.and_then(|series| series.total(at, WINDOW_SECS));
        let (mean, most) = (total.map(|total| total.per_sec), total.map(|total| total.most_per_sec));
        Self { mean, most, secs: total.map_or(0.0, |total| total.secs), unseen: None }
    }

    /// Whether the use may be higher than known, by more than a displayed figure shows.
    fn is_least(&self) -> bool {
        self.most.map(number) != self.mean.map(number)
    }
}

/// The share of the use that belongs to the caller, at least and at most.
fn part(bucket: &BucketView, who: &str) -> (f64, f64) {
    if who.is_empty() {
        return (1.0, 1.0);
    }
    if bucket.held <= 0.0 {
        return if bucket.is_concurrent() { (0.0, 0.0) } else { (0.0, 1.0) };
    }
    let cost = |is: &dyn Fn(Option<&str>) -> bool| -> f64 {
        bucket
            .holders
            .iter()
            .filter(|holder| is(holder.caller.as_deref()))
            .fold(0.0, |sum, holder| sum + holder.cost)
    };
    let (theirs, others) =
        (cost(&|name| name == Some(who)), cost(&|name| name.is_some_and(|name| name != who)));
    (theirs / bucket.held, (1.0 - others / bucket.held).max(theirs / bucket.held))
}

fn forecast(bucket: &BucketView, seen: &Use, question: &Question) -> BucketForecast {
    let limit = if bucket.is_concurrent() { bucket.capacity } else { bucket.refill_rate };
    let (Some(now), Some(now_most)) = (seen.mean, seen.most) else { return not_known(bucket, limit) };
    let (few, many) = part(bucket, &question.who);
    let then = |part: f64, now: f64| now * (1.0 - part) + now * part * question.factor;
    let ends = |now: f64| (then(few, now).min(then(many, now)), then(few, now).max(then(many, now)));
    let known = ends(now);
    let (least, most) = (known.0, ends(now_most).1);
    let outcome = match outcome(least, most, limit) {
        Outcome::Fits if has_no_free_slot(bucket) => Outcome::Tight,
        outcome => outcome,
    };
    let verdict = if outcome == Outcome::Unknown && known.1 <= limit {
        // The known use fits, but more may have been used than is known.
        format!("fits by what is known, at least {} used", percent(least, limit))
    } else {
        verdict(bucket, outcome, least, most, limit)
    };
    BucketForecast {
        name: bucket.name.clone(),
        outcome,
        verdict,
        formula: formula(bucket, seen, (few, many), known, question.factor),
        notes: notes(bucket, seen, limit, outcome, few < many),
        limit,
        now: Some(now),
        now_most: Some(now_most),
        least: Some(least),
        most: Some(most),
    }
}

/// Whether a caller that came now would wait for a slot, whatever the use of the last minutes was.
fn has_no_free_slot(bucket: &BucketView) -> bool {
    bucket.is_concurrent() && bucket.level < bucket.cost_per_call
}

fn not_known(bucket: &BucketView, limit: f64) -> BucketForecast {
    BucketForecast {
        name: bucket.name.clone(),
        outcome: Outcome::Unknown,
        verdict: "not known yet".to_owned(),
        formula: "two readings are needed".to_owned(),
        notes: Vec::new(),
        limit,
        now: None,
        now_most: None,
        least: None,
        most: None,
    }
}

fn outcome(least: f64, most: f64, limit: f64) -> Outcome {
    if least > limit {
        Outcome::Over
    } else if most > limit {
        Outcome::Unknown
    } else if most >= limit * TIGHT {
        Outcome::Tight
    } else {
        Outcome::Fits
    }
}

fn verdict(bucket: &BucketView, outcome: Outcome, least: f64, most: f64, limit: f64) -> String {
    let at_least = if least < most { "at least " } else { "" };
    let at_most = if least < most { "at most " } else { "" };
    let unit = if bucket.is_concurrent() { "slots" } else { "a second" };
    match outcome {
        Outcome::Tight if has_no_free_slot(bucket) => {
            format!("fits on average, {at_most}{} used: no slot is free now", percent(most, limit))
        }
        Outcome::Fits | Outcome::Tight => format!("fits, {at_most}{} used", percent(most, limit)),
        Outcome::Unknown => format!("not known: {} to {} used", percent(least, limit), percent(most, limit)),
        Outcome::Over => {
            let (by, longer) = (number(least - limit), exact_wait((least / limit - 1.0) * 60.0));
            format!(
                "over by {at_least}{by} {unit}: after each minute of it, calls wait about {longer} longer"
            )
        }
    }
}

fn formula(
    bucket: &BucketView,
    seen: &Use,
    (few, many): (f64, f64),
    (least, most): (f64, f64),
    factor: f64,
) -> String {
    let now = seen.mean.unwrap_or_default();
    let at_least = if seen.is_least() { "at least " } else { "" };
    let one = |part: f64, sum: f64| {
        let (others, theirs) = (now * (1.0 - part), now * part);
        match () {
            () if part >= 1.0 => format!("{} x {} = {}", number(theirs), number(factor), number(sum)),
            () => format!("{} + {} x {} = {}", number(others), number(theirs), number(factor), number(sum)),
        }
    };
    let sums = if few < many {
        let (first, last) = if factor >= 1.0 { (few, many) } else { (many, few) };
        format!("from {} to {}", one(first, least), one(last, most))
    } else {
        one(few, least)
    };
    match bucket.is_concurrent() {
        true => format!("slots in use: {sums}, of {}", number(bucket.capacity)),
        false => format!("used a second: {at_least}{sums}, of {} refilled", number(bucket.refill_rate)),
    }
}

fn notes(bucket: &BucketView, seen: &Use, limit: f64, outcome: Outcome, in_part: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(most) = seen.most.filter(|_| seen.is_least()) {
        notes.push(format!(
            "The bucket was full between readings, and use of a full bucket refills unseen: up to {} a second may have been used.",
            number(most)
        ));
    }
    if in_part && bucket.leases == 0 {
        notes.push(
            "The callers are not known: leases name the callers of a rate bucket only if SLUICE_LEASES=all is set."
                .to_owned(),
        );
    } else if in_part {
        notes.push("Some leases do not name their caller.".to_owned());
    }
    if outcome == Outcome::Over && !bucket.is_concurrent() && bucket.level > 0.0 {
        notes.push(format!("The {} that are left are used up first.", number(bucket.level)));
    }
    if outcome == Outcome::Tight && !has_no_free_slot(bucket) {
        notes.push("This is an average: peaks wait.".to_owned());
    }
    if seen.mean >= Some(limit * TIGHT) || bucket.wait_secs > 0.0 {
        notes.push(
            "The bucket is at its limit already: callers may want more than they get, and that is not counted."
                .to_owned(),
        );
    }
    if let Some((from, to)) = seen.unseen {
        let to = if to < 1.0 { "now".to_owned() } else { format!("{} ago", exact(to)) };
        notes.push(format!("Nobody looked from {} ago to {to}: that time is not counted.", exact(from)));
    }
    if seen.secs < WINDOW_SECS / 2.0 {
        notes.push(format!("Measured over {}s only.", number(seen.secs.round())));
    }
    notes
}

#[allow(clippy::cast_possible_truncation)]
fn percent(value: f64, limit: f64) -> String {
    if limit <= 0.0 { "all".to_owned() } else { format!("{} %", number((value / limit * 100.0).round())) }
}

/// Three significant digits, without trailing zeros.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 || size == 0.0 => 2,
        _ => 3,
    };
    // Adding 0.0 removes the sign of a negative zero.
    let text = format!("{:.digits$}", value + 0.0);
    if digits == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

#[cfg(test)]
mod tests;
