//! Tests of pictures, made from invented surveys.

use std::time::Duration;

use sluice_ops::Survey;
use sluice_sdk::StoreError;
use sluice_sdk::core::Timestamp;

use super::picture::RowKind;
use super::sample::{Row, lease, lease_that_borrowed, survey, swept};
use super::share::ShareView;
use super::*;

const TPM: &str = "openai#tpm";
const SLOTS: &str = "elevenlabs#concurrent";

/// A minute's limit of 6,000 tokens.
fn tpm() -> Row {
    Row::rate(TPM, 6_000_000_000, 100)
}

fn slots() -> Row {
    Row::slots(SLOTS, 3)
}

fn read(survey: Survey) -> SurveyReading {
    SurveyReading { at: survey.at, survey: Ok(survey), every: Duration::from_secs(1) }
}

fn failed(at_secs: u32) -> SurveyReading {
    let error = StoreError::Contended { operation: "Scan", message: "throttled".into() };
    SurveyReading { at: Timestamp::from_secs(at_secs), survey: Err(error), every: Duration::from_secs(1) }
}

/// The view after these surveys.
fn view(surveys: impl IntoIterator<Item = Survey>) -> View {
    let mut view = View::new("table");
    surveys.into_iter().for_each(|survey| view.take_in(read(survey)));
    view
}

fn bucket<'a>(view: &'a View, name: &str) -> &'a BucketView {
    view.picture.as_ref().unwrap().buckets.iter().find(|bucket| bucket.name == name).unwrap()
}

#[test]
fn a_level_below_zero_is_a_wait() {
    let view = view([survey(10, &[tpm().tokens(-1_500_000_000)], vec![], &[])]);
    let bucket = bucket(&view, TPM);
    assert_eq!((bucket.level, bucket.wait_secs, bucket.used_per_sec), (-500.0, 5.01, None));
}

/// A caller that asks for the usual cost waits for it, although there is no queue.
#[test]
fn a_level_below_the_cost_of_a_call_is_a_wait() {
    let level_of = |tokens| tpm().number("cost_per_call", "1000").tokens(tokens).anchor(10_000_000);
    let waits = |tokens| bucket(&view([survey(10, &[level_of(tokens)], vec![], &[])]), TPM).wait_secs;
    assert_eq!([546_000_000, 1_000_000_000, -500_000_000].map(waits), [4.54, 0.0, 15.0]);
    let full = slots().tokens(0);
    assert_eq!(bucket(&view([survey(10, &[full], vec![], &[])]), SLOTS).wait_secs, 0.0, "nobody can tell");
}

#[test]
fn use_is_told_from_the_second_survey_on() {
    let first = tpm().tokens(1_000_000_000);
    let last = first.clone().tokens(400_000_000).number("version", "9");
    let view = view([survey(10, &[first], vec![], &[]), survey(12, &[last], vec![], &[])]);
    let bucket = bucket(&view, TPM);
    assert_eq!(
        (bucket.used_per_sec, bucket.used_is_least, bucket.writes_per_sec),
        (Some(300.0), false, Some(4.5))
    );
    let used: Vec<_> = view
        .series(TPM)
        .unwrap()
        .points()
        .map(|point| (point.at, point.used.map(|used| used.per_sec)))
        .collect();
    assert_eq!(used, [(10.0, None), (12.0, Some(300.0))]);
}

/// Each line by itself, and the bucket as a whole.
#[test]
fn shares_are_told_with_what_is_used_lent_and_borrowed_of_them() {
    let row = |tokens, of_search, loans, version| {
        let row = tpm().tokens(tokens).share_with_loans("search", (500_000_000, of_search), 5, loans);
        row.number("version", version)
    };
    let first = row(1_000_000_000, 500_000_000, (12, 8), "0");
    let last = row(400_000_000, 300_000_000, (72, 18), "9");
    let view = view([survey(10, &[first], vec![], &[]), survey(12, &[last], vec![], &[])]);
    let bucket = bucket(&view, TPM);
    assert_eq!((bucket.capacity, bucket.used_per_sec), (6_500.0, Some(400.0)));
    let shares: Vec<_> =
        bucket.shares.iter().map(|share| (share.name.as_str(), share.used_per_sec)).collect();
    assert_eq!(shares, [("search", Some(100.0)), ("common", Some(300.0))]);
    assert_eq!(bucket.shares[0].lends_above, 125.0);
    let search = &bucket.shares[0];
    assert_eq!((search.lent_per_sec, search.borrowed_per_sec), (Some(30.0), Some(5.0)), "in two seconds");
}

/// Shares of slots are rows of their own; their bucket tells of all of them.
#[test]
fn shares_of_slots_are_told_with_what_is_lent_and_borrowed() {
    let rows = [
        Row::slots(SLOTS, 3).tokens(1_000_000).slot_share("search", 5).slot_share("batch", 2),
        Row::slots(&format!("{SLOTS}@batch"), 1).tokens(0),
        Row::slots(&format!("{SLOTS}@search"), 5).tokens(3_000_000),
    ];
    let leases = vec![
        lease(SLOTS, "a", "worker-1", 0, 60),
        lease_that_borrowed("search", SLOTS, "b", 0, 60),
        lease(&format!("{SLOTS}@search"), "c", "worker-2", 0, 60),
        lease_that_borrowed("batch", &format!("{SLOTS}@search"), "d", 0, 60),
        lease(&format!("{SLOTS}@batch"), "e", "worker-3", 0, 60),
        // Of another bucket.
        lease_that_borrowed("batch", "acme#concurrent", "f", 0, 60),
    ];
    let view = view([survey(10, &rows, leases, &[])]);
    let bucket = bucket(&view, SLOTS);
    let told = |share: &ShareView| {
        let slots = share.slots.unwrap();
        (share.name.clone(), share.capacity, share.level, slots.held, slots.lent, slots.borrowed)
    };
    let told: Vec<_> = bucket.shares.iter().map(told).collect();
    let of = |name: &str, (has, free, held): (f64, f64, f64), (lent, borrowed): (f64, f64)| {
        (name.to_owned(), has, free, held, lent, borrowed)
    };
    // The row of `batch` has not grown to its two yet.
    let batch = of("batch", (1.0, 0.0, 1.0), (0.0, 1.0));
    let then: Vec<_> = bucket.shares.iter().map(|share| share.slots.unwrap().changes_to).collect();
    assert_eq!(then, [Some(2.0), None, None]);
    assert_eq!(
        told,
        [batch, of("search", (5.0, 3.0, 2.0), (1.0, 1.0)), of("common", (3.0, 1.0, 2.0), (1.0, 0.0))]
    );
    let by: Vec<_> = bucket.holders.iter().map(|holder| holder.borrowed_by.as_deref()).collect();
    assert_eq!(by, [None, Some("search")]);
}

#[test]
fn holders_are_told_with_those_that_ended_in_front() {
    let leases = || vec![lease(SLOTS, "b", "worker-2", 90, 150), lease(SLOTS, "a", "worker-1", 20, 80)];
    let full = slots().tokens(1_000_000);
    let view = view([survey(100, &[full], leases(), &[])]);
    let bucket = bucket(&view, SLOTS);
    let who: Vec<_> = bucket.holders.iter().map(|holder| (holder.caller.as_deref(), holder.ended)).collect();
    assert_eq!(who, [(Some("worker-1"), true), (Some("worker-2"), false)]);
    assert_eq!((bucket.leases, bucket.held, bucket.ended, bucket.level), (2, 2.0, 1, 1.0));
    assert_eq!((bucket.holders[1].created_at, bucket.holders[1].ends), (Some(90.0), 150.0));
}

/// The holder's clock may be two seconds behind.
#[test]
fn a_lease_has_ended_by_every_clock_and_is_overdue_after_two_sweeps() {
    let count = |at| {
        let view = view([survey(at, &[slots()], vec![lease(SLOTS, "a", "w", 0, 60)], &[])]);
        let bucket = bucket(&view, SLOTS);
        (bucket.ended, bucket.overdue)
    };
    assert_eq!((count(62), count(63)), ((0, 0), (1, 0)));
    assert_eq!((count(60 + 660), count(60 + 661)), ((1, 0), (1, 1)));
}

#[test]
fn what_a_sweep_measured_stands_beside_its_bucket() {
    let load = |refused| {
        let load =
            Row::load(SLOTS).number("pending", "2").number("measured_at", "90").number("sequence", "3");
        load.number("drain_rate", "0.25").number("refused", refused)
    };
    let at = |at, refused| survey(at, &[slots()], vec![], &[load(refused)]);
    let view = view([at(100, "10"), at(110, "30")]);
    let bucket = bucket(&view, SLOTS);
    let load = bucket.load.as_ref().unwrap();
    assert_eq!((load.pending, load.drain_rate, load.measured_at), (2.0, Some(0.25), Some(90.0)));
    assert_eq!((load.refused, bucket.refused_per_sec), (30, Some(2.0)));
}

/// A process reports what it refused in eight seconds at once; a picture is made every second.
#[test]
fn refusals_are_shown_between_two_reports_of_them() {
    let surveys = (100..=130).map(|at| {
        let reported = if at < 104 { 0 } else { i64::from((at - 96) / 8) * 16 };
        survey(at, &[slots()], vec![], &[Row::load(SLOTS).number("refused", &reported.to_string())])
    });
    let mut view = View::new("table");
    for survey in surveys {
        let at = survey.at;
        view.take_in(read(survey));
        let refused = bucket(&view, SLOTS).refused_per_sec;
        if at >= Timestamp::from_secs(104) {
            assert!(refused.is_some_and(|refused| (0.5..=4.0).contains(&refused)), "{at}: {refused:?}");
        }
    }
    assert!(
        bucket(&view, SLOTS).refused_per_sec.is_some_and(|refused| (1.0..3.0).contains(&refused)),
        "2 a second"
    );
}

#[test]
fn cool_down_drift_and_a_lower_limit_are_told() {
    let rate = tpm()
        .number("blocked_until", "160")
        .number("vendor_limit", "3000")
        .number("vendor_limit_window", "60");
    let drifting = slots().number("drift", "-1").number("drift_seen_at", "90").number("counted", "0");
    let over = rate.clone().number("blocked_until", "100");
    let view = view([survey(100, &[rate, drifting], vec![], &[])]);
    let (tpm, slots) = (bucket(&view, TPM), bucket(&view, SLOTS));
    assert_eq!(tpm.cooling_until, Some(160.0));
    let reported = tpm.vendor_limit.as_ref().unwrap();
    assert_eq!((reported.limit, reported.window_secs, reported.is_lower), (3_000.0, 60.0, true));
    assert_eq!(slots.drift, Some(-1.0));
    let view = self::view([survey(100, &[over], vec![], &[])]);
    assert_eq!(bucket(&view, TPM).cooling_until, None, "it has ended");
}

#[test]
fn rows_that_cannot_be_read_are_told_and_hide_no_other() {
    let broken = Row::rate("broken#rpm", 1_000_000, 0);
    let load = Row::load(SLOTS).number("drain_rate", "many");
    let view =
        view([survey(10, &[broken, slots()], vec![lease("gone#concurrent", "a", "w", 0, 60)], &[load])]);
    let picture = view.picture.as_ref().unwrap();
    let faults: Vec<_> = picture.faults.iter().map(|fault| (fault.key.as_str(), fault.row)).collect();
    assert_eq!(faults, [("broken#rpm", RowKind::Bucket), (SLOTS, RowKind::Load)]);
    assert_eq!((picture.buckets.len(), picture.stray_leases), (1, 1));
}

#[test]
fn a_sweep_by_a_clock_that_is_far_ahead_is_not_the_last() {
    let mut survey = survey(10_000, &[slots()], vec![], &[]);
    survey.sweeps = swept(&[96_400, 9_100, 9_400]);
    let picture = view([survey]).picture.unwrap();
    assert_eq!(picture.sweeps.iter().map(|sweep| sweep.at).collect::<Vec<_>>(), [9_400.0, 9_100.0]);
}

#[test]
fn a_table_that_goes_away_is_told_with_its_last_picture_until_it_is_back() {
    let mut view = view([survey(10, &[tpm()], vec![], &[])]);
    view.take_in(failed(11));
    view.take_in(failed(13));
    let trouble = view.trouble.as_ref().unwrap();
    assert_eq!((trouble.since, trouble.surveys), (11.0, 2));
    assert!(trouble.error.contains("throttled"), "{trouble:?}");
    assert_eq!(view.picture.as_ref().unwrap().at, 10.0);
    view.take_in(read(survey(20, &[tpm()], vec![], &[])));
    assert_eq!((view.trouble, view.picture.unwrap().at), (None, 20.0));
}

#[test]
fn a_series_keeps_an_hour_and_forgets_a_bucket_that_is_gone() {
    let mut view = view((0..4_000).map(|at| survey(at, &[tpm()], vec![], &[])));
    let series = view.series(TPM).unwrap();
    assert_eq!((series.points().len(), series.points().next().unwrap().at), (3_600, 400.0));
    view.take_in(read(survey(4_000, &[slots()], vec![], &[])));
    assert!(view.series(TPM).is_none() && view.series(SLOTS).is_some());
}

/// A gap of ten seconds, in which thirty tokens a second were taken.
#[test]
fn what_was_taken_between_two_surveys_is_spread_over_the_time_between_them() {
    let at = |at, taken: i64| {
        survey(at, &[tpm().tokens(5_000_000_000 - taken * 1_000_000).writes(taken)], vec![], &[])
    };
    let view = view([at(10, 0), at(11, 90), at(21, 390), at(22, 390)]);
    let used = view.series(TPM).unwrap().used(22.0, 16.0, 8);
    let some = |values: &[f64]| values.iter().copied().map(Some).collect::<Vec<_>>();
    assert_eq!(used[0..2], [None, None]);
    assert_eq!(used[2..], some(&[60.0, 30.0, 30.0, 30.0, 30.0, 15.0]));
}

#[test]
fn a_picture_is_json_with_what_it_cost() {
    let view = view([survey(10, &[tpm()], vec![], &[])]);
    let json = serde_json::to_value(&view).unwrap();
    assert_eq!((&json["table"], &json["trouble"]), (&"table".into(), &serde_json::Value::Null));
    assert_eq!(json["picture"]["buckets"][0]["dimension"], TPM);
    assert_eq!(json["picture"]["cost"]["read_units_per_sec"], 0.5);
}

/// The load row of a rate bucket has what its callers used. Nobody notes its refusals there.
#[test]
fn a_rate_bucket_has_no_load_and_no_count_of_refusals() {
    let noted = Row::load(TPM).number("callers_version", "1");
    let told = |name: &str, row: Row| {
        let loads = [noted.clone(), Row::load(SLOTS).number("refused", "0")];
        let rows = [row];
        let view = view([survey(10, &rows, vec![], &loads), survey(12, &rows, vec![], &loads)]);
        let bucket = bucket(&view, name);
        (bucket.load.is_some(), bucket.refused_per_sec)
    };
    assert_eq!(told(TPM, tpm()), (false, None));
    assert_eq!(told(SLOTS, slots()), (true, Some(0.0)));
}
