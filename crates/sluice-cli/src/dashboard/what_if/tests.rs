//! Tests of the answers for buckets whose use is known.

use std::time::Duration;

use super::*;
use crate::view::sample::{Row, lease, survey};
use crate::view::{Holder, SurveyReading};

fn bucket(kind: &'static str, limit: f64) -> BucketView {
    BucketView {
        name: "vendor#metric".into(),
        kind,
        capacity: limit,
        refill_rate: if kind == "concurrent" { 0.0 } else { limit },
        cost_per_call: 1.0,
        level: limit,
        wait_secs: 0.0,
        used_per_sec: None,
        used_is_least: false,
        most_per_sec: None,
        since_before_secs: 0.0,
        writes_per_sec: None,
        holders: Vec::new(),
        leases: 0,
        held: 0.0,
        ended: 0,
        overdue: 0,
        load: None,
        refused_per_sec: None,
        cooling_until: None,
        drift: None,
        vendor_limit: None,
        adopts_limit: false,
        shares: Vec::new(),
        version: 1,
    }
}

fn held(kind: &'static str, limit: f64, holders: &[(Option<&str>, f64)]) -> BucketView {
    let holder = |(caller, cost): &(Option<&str>, f64)| Holder {
        id: "1".into(),
        caller: caller.map(str::to_owned),
        borrowed_by: None,
        cost: *cost,
        created_at: None,
        ends: 0.0,
        ended: false,
        overdue: false,
        inline: caller.is_none(),
    };
    let held = holders.iter().map(|(_, cost)| cost).sum();
    BucketView {
        holders: holders.iter().map(holder).collect(),
        leases: holders.len(),
        held,
        ..bucket(kind, limit)
    }
}

fn ask(bucket: &BucketView, in_use: f64, who: &str, factor: f64) -> BucketForecast {
    forecast(
        bucket,
        &Use { mean: Some(in_use), most: Some(in_use), secs: WINDOW_SECS, unseen: None },
        &Question { who: who.into(), factor },
    )
}

#[test]
fn twice_the_calls_are_twice_the_slots() {
    let forecast = ask(&bucket("concurrent", 10.0), 4.0, "", 2.0);
    assert_eq!((forecast.outcome, forecast.least, forecast.most), (Outcome::Fits, Some(8.0), Some(8.0)));
    assert_eq!(forecast.verdict, "fits, 80 % used");
    assert_eq!(forecast.formula, "slots in use: 4 x 2 = 8, of 10");
    assert_eq!(forecast.notes, [""; 0]);
}

#[test]
fn above_the_limit_the_line_grows_by_what_is_over() {
    let forecast = ask(&bucket("concurrent", 10.0), 6.0, "", 2.0);
    assert_eq!(forecast.outcome, Outcome::Over);
    assert_eq!(forecast.verdict, "over by 2 slots: after each minute of it, calls wait about 12s longer");
    let rate = BucketView { level: 30.0, ..bucket("requests", 8.0) };
    let forecast = ask(&rate, 5.0, "", 2.0);
    assert_eq!(forecast.verdict, "over by 2 a second: after each minute of it, calls wait about 15s longer");
    assert_eq!(forecast.formula, "used a second: 5 x 2 = 10, of 8 refilled");
    let much = ask(&rate, 5.0, "", 1_000.0).verdict;
    assert!(much.ends_with("after each minute of it, calls wait about 10h 24m longer"), "{much}");
    assert_eq!(forecast.notes, ["The 30 that are left are used up first."]);
}

#[test]
fn one_callers_part_is_what_their_leases_hold() {
    let shared = held("concurrent", 10.0, &[(Some("summary"), 1.0), (Some("search"), 3.0)]);
    let forecast = ask(&shared, 4.0, "search", 2.0);
    assert_eq!((forecast.outcome, forecast.most), (Outcome::Fits, Some(7.0)));
    assert_eq!(forecast.formula, "slots in use: 1 + 3 x 2 = 7, of 10");
    assert_eq!(ask(&shared, 4.0, "nobody here", 9.0).formula, "slots in use: 4 + 0 x 9 = 4, of 10");
    assert_eq!(ask(&shared, 4.0, "search", 0.0).most, Some(1.0));
}

#[test]
fn what_nobody_wrote_down_is_not_made_up() {
    let forecast = ask(&bucket("requests", 8.0), 5.0, "search", 2.0);
    assert_eq!((forecast.outcome, forecast.least, forecast.most), (Outcome::Unknown, Some(5.0), Some(10.0)));
    assert_eq!(forecast.verdict, "not known: 63 % to 125 % used");
    assert!(forecast.notes[0].contains("SLUICE_LEASES=all"), "{:?}", forecast.notes);
    let forecast = ask(&bucket("requests", 8.0), 2.0, "search", 2.0);
    assert_eq!((forecast.outcome, forecast.verdict.as_str()), (Outcome::Fits, "fits, at most 50 % used"));
    let inline = held("concurrent", 10.0, &[(None, 2.0), (Some("search"), 2.0)]);
    let forecast = ask(&inline, 4.0, "search", 3.0);
    assert_eq!((forecast.least, forecast.most), (Some(8.0), Some(12.0)));
    assert!(forecast.notes[0].contains("do not name their caller"), "{:?}", forecast.notes);
    let forecast = ask(&inline, 4.0, "search", 0.5);
    assert_eq!((forecast.least, forecast.most), (Some(2.0), Some(3.0)), "fewer calls: the ends change sides");
    assert_eq!(
        forecast.formula,
        "slots in use: from 0 + 4 x 0.5 = 2 to 2 + 2 x 0.5 = 3, of 10".replace("0 + 4", "4")
    );
}

#[test]
fn leases_that_a_picture_does_not_name_are_nobodys() {
    let cut = BucketView { leases: 500, held: 10.0, ..held("concurrent", 10.0, &[(Some("search"), 5.0)]) };
    let forecast = ask(&cut, 10.0, "search", 2.0);
    assert_eq!((forecast.least, forecast.most), (Some(15.0), Some(20.0)));
    assert!(forecast.verdict.starts_with("over by at least 5 slots"), "{}", forecast.verdict);
}

#[test]
fn a_bucket_at_its_limit_may_be_wanted_for_more() {
    let forecast = ask(&bucket("requests", 8.0), 8.0, "", 1.0);
    assert_eq!(forecast.outcome, Outcome::Tight);
    assert!(forecast.notes.iter().any(|note| note.contains("may want more")), "{:?}", forecast.notes);
    let booked = BucketView { wait_secs: 3.0, ..bucket("requests", 8.0) };
    assert!(ask(&booked, 1.0, "", 1.0).notes[0].contains("may want more"));
}

#[test]
fn nothing_is_said_of_what_was_not_seen() {
    let unseen = Use { mean: None, most: None, secs: 0.0, unseen: None };
    let forecast = forecast(&bucket("requests", 8.0), &unseen, &Question::default());
    assert_eq!((forecast.outcome, forecast.now, forecast.most), (Outcome::Unknown, None, None));
    let short = Use { mean: Some(1.0), most: Some(1.0), secs: 12.0, unseen: None };
    let forecast = super::forecast(&bucket("requests", 8.0), &short, &Question::default());
    assert_eq!(forecast.notes, ["Measured over 12s only."]);
}

const RPM: &str = "openai#rpm";

/// A limit of 500 a minute. 490 are taken at the end of ten unseen minutes, and none before or after.
fn over_a_hole(taken: i64) -> View {
    let full = Row::rate(RPM, 500_000_000, 1).number("refill_rate", "8.333333");
    let last = full.clone().tokens((500 - taken) * 1_000_000).anchor(1_609_000_000).writes(9);
    let mut view = View::new("table");
    let early = (1_000..=1_010).map(|at| (at, full.clone()));
    for (at, row) in early.chain((1_610..1_620).map(|at| (at, last.clone()))) {
        let survey = survey(at, &[row], vec![], &[]);
        view.take_in(SurveyReading { at: survey.at, survey: Ok(survey), every: Duration::from_secs(1) });
    }
    view
}

#[test]
fn a_reading_over_a_hole_counts_by_its_time_and_is_a_least() {
    let view = over_a_hole(490);
    let minute = view.series(RPM).unwrap().total(1_619.0, 60.0).unwrap();
    // 51 of the last 60 seconds at 490 in 600 s, and nine seconds at none.
    assert!((minute.per_sec - 490.0 / 600.0 * 51.0 / 60.0).abs() < 1e-6, "{minute:?}");
    assert!(minute.is_least && minute.secs == 60.0, "{minute:?}");
    let answer = WhatIf::new(&view, &Question::default());
    let [forecast] = &answer.buckets[..] else { panic!("{answer:?}") };
    // 291 of 300 seconds at 0.817, times two.
    assert_eq!(
        (forecast.outcome, forecast.verdict.as_str()),
        (Outcome::Unknown, "fits by what is known, at least 19 % used")
    );
    assert_eq!(forecast.formula, "used a second: at least 0.79 x 2 = 1.58, of 8.33 refilled");
    assert!(forecast.notes[0].contains("up to 8.86 a second"), "{:?}", forecast.notes);
    assert!(forecast.most > Some(16.0), "as much may have flowed back as is refilled: {forecast:?}");
}

/// One call a minute from a full bucket: almost nothing can have flowed back within the second of a reading.
#[test]
fn a_full_bucket_that_is_looked_at_fits_all_the_same() {
    let mut view = View::new("table");
    for at in 0..300_u32 {
        let (calls, anchor) = (i64::from(at / 60), i64::from(at / 60 * 60) * 1_000_000);
        let tokens = if calls == 0 { 500_000_000 } else { 499_000_000 };
        let row = Row::rate(RPM, 500_000_000, 8).tokens(tokens).anchor(anchor).writes(calls);
        let survey = survey(1_000 + at, &[row.anchor(anchor + 1_000_000_000)], vec![], &[]);
        view.take_in(SurveyReading { at: survey.at, survey: Ok(survey), every: Duration::from_secs(1) });
    }
    let answer = WhatIf::new(&view, &Question::default());
    assert_eq!(answer.buckets[0].outcome, Outcome::Fits, "{answer:?}");
}

/// Five slots, free until the second before the last reading, and all held since.
#[test]
fn nothing_fits_without_a_free_slot() {
    let slots = |free: i64| Row::slots("vendor#concurrent", 5).tokens(free * 1_000_000);
    let mut view = View::new("table");
    let mut ask = |at: u32, free: i64| {
        let survey = survey(at, &[slots(free)], vec![], &[]);
        view.take_in(SurveyReading { at: survey.at, survey: Ok(survey), every: Duration::from_secs(1) });
        WhatIf::new(&view, &Question { who: String::new(), factor: 1.0 }).buckets.remove(0)
    };
    assert_eq!(ask(1_000, 5).verdict, "not known yet", "nobody knows the level before the first reading");
    let free = ask(1_001, 5);
    assert_eq!((free.outcome, free.verdict.as_str()), (Outcome::Fits, "fits, 0 % used"));
    assert_eq!(free.notes, ["Measured over 1s only."]);
    let held = ask(1_002, 0);
    assert_eq!(
        (held.outcome, held.verdict.as_str()),
        (Outcome::Tight, "fits on average, 50 % used: no slot is free now")
    );
    assert_eq!(held.notes, ["Measured over 2s only."]);
}

/// Five slots, all free until nobody looked any more, and all held when somebody looks again.
#[test]
fn the_time_in_which_nobody_looked_counts_for_nothing() {
    let mut view = View::new("table");
    let mut ask = |at: u32, free: i64| {
        let slots = Row::slots("vendor#concurrent", 5).tokens(free * 1_000_000);
        let survey = survey(at, &[slots], vec![], &[]);
        view.take_in(SurveyReading { at: survey.at, survey: Ok(survey), every: Duration::from_secs(1) });
        WhatIf::new(&view, &Question { who: String::new(), factor: 1.0 }).buckets.remove(0)
    };
    (1_000..=1_010).for_each(|at| drop(ask(at, 5)));
    let back = ask(1_200, 0);
    assert_eq!((back.now, back.outcome), (Some(0.0), Outcome::Tight), "ten seconds with all slots free");
    assert_eq!(
        back.notes,
        ["Nobody looked from 3m 10s ago to now: that time is not counted.", "Measured over 10s only."]
    );
    // A reading that is late covers the time all the same.
    let late = ask(1_203, 0);
    assert_eq!(late.notes[1], "Measured over 13s only.");
    assert!(late.now.is_some_and(|used| (used - 5.0 * 3.0 / 13.0).abs() < 1e-6), "{late:?}");
}

#[test]
fn a_question_is_of_all_or_of_one_whom_a_lease_may_name() {
    let slots = Row::slots("vendor#concurrent", 500);
    let view = |leases: u32| {
        let leases = (0..leases).map(|n| lease("vendor#concurrent", &n.to_string(), "search", 0, 60));
        let survey = survey(10, std::slice::from_ref(&slots), leases.collect(), &[]);
        let mut view = View::new("table");
        assert!(Question { who: "nobody".into(), factor: 2.0 }.is_of_somebody(&view), "nothing was read yet");
        view.take_in(SurveyReading { at: survey.at, survey: Ok(survey), every: Duration::from_secs(1) });
        view
    };
    let asked = |who: &str, leases| Question { who: who.into(), factor: 2.0 }.is_of_somebody(&view(leases));
    assert!(asked("", 1) && asked("search", 1) && !asked("nobody", 1) && !asked("nobody", 0));
    assert!(asked("nobody", 201), "a picture names 200 holders: it may be the other");
}

#[test]
fn a_factor_is_a_number_of_some_sense() {
    for (factor, makes_sense) in
        [(0.0, true), (2.5, true), (-1.0, false), (f64::NAN, false), (f64::INFINITY, false)]
    {
        assert_eq!(Question { who: String::new(), factor }.makes_sense(), makes_sense, "{factor}");
    }
}
