//! Who is shed, and when they come back.

use std::time::Duration;

use proptest::prelude::*;
use sluice_core::{AdmissionDecision, Amount, Cost, Pressure, ShedReason, Timestamp, admit, retry_after};

const NOW: Timestamp = Timestamp::from_secs(1_709_550_000);

fn pressure() -> Pressure {
    Pressure {
        pending: Amount::from_tokens(99),
        request: Cost::ONE,
        rate: Some("2".parse().unwrap()),
        slo: Some(Duration::from_secs(60)),
        last_completion: Some(NOW.before(Duration::from_secs(1))),
        queue_nonempty_since: Some(NOW.before(Duration::from_secs(300))),
        staleness: Duration::from_secs(60),
        now: NOW,
    }
}

#[test]
fn the_wait_is_what_is_pending_and_the_request_by_the_rate() {
    assert_eq!(admit(&pressure()), AdmissionDecision::Admit { wait: Some(Duration::from_secs(50)) });
    let over = Pressure { slo: Some(Duration::from_secs(49)), ..pressure() };
    assert_eq!(
        admit(&over),
        AdmissionDecision::Shed { wait: Duration::from_secs(50), reason: ShedReason::OverSlo }
    );
    let exact = Pressure { slo: Some(Duration::from_secs(50)), ..pressure() };
    assert!(matches!(admit(&exact), AdmissionDecision::Admit { .. }));
    assert_eq!(
        admit(&Pressure { rate: None, ..over }),
        AdmissionDecision::Admit { wait: None },
        "nothing is known"
    );
}

#[test]
fn the_vendor_is_down_when_nothing_departed_since_work_became_pending() {
    let quiet = Pressure { last_completion: Some(NOW.before(Duration::from_secs(60))), ..pressure() };
    assert!(matches!(admit(&quiet), AdmissionDecision::Shed { reason: ShedReason::UpstreamDown, .. }));
    let never = Pressure { last_completion: None, ..quiet };
    assert!(matches!(admit(&never), AdmissionDecision::Shed { reason: ShedReason::UpstreamDown, .. }));
    let empty = Pressure { pending: Amount::ZERO, ..quiet };
    assert!(matches!(admit(&empty), AdmissionDecision::Admit { .. }), "nobody waits for it");
}

/// A known system counted from the last completion alone: after an idle hour its first callers were told that
/// the vendor is down.
#[test]
fn the_first_work_after_an_idle_hour_does_not_look_like_an_outage() {
    let first = Pressure {
        pending: Amount::from_tokens(1),
        last_completion: Some(NOW.before(Duration::from_secs(3_600))),
        queue_nonempty_since: Some(NOW.before(Duration::from_secs(1))),
        ..pressure()
    };
    assert!(matches!(admit(&first), AdmissionDecision::Admit { .. }));
    assert!(matches!(
        admit(&Pressure { queue_nonempty_since: None, ..first }),
        AdmissionDecision::Admit { .. }
    ));
}

#[test]
fn the_shed_do_not_come_back_together() {
    let (wait, slo) = (Duration::from_secs(100), Duration::from_secs(60));
    let all: std::collections::BTreeSet<_> =
        (0..1_000).map(|random| retry_after(wait, slo, random)).collect();
    assert_eq!(all.first(), Some(&Duration::from_secs(40)), "when the wait is what they can use");
    assert_eq!(all.last(), Some(&Duration::from_secs(52)));
    assert!(all.len() > 300);
    assert_eq!(retry_after(slo, slo, 0), Duration::from_secs(1));
}

proptest! {
    #[test]
    fn who_names_no_slo_is_never_shed(
        pending in 0_i64..i64::MAX, rate in prop::option::of(0_u32..1_000), quiet in 0_u64..1_000_000, since in 0_u64..1_000_000,
    ) {
        let rate = rate.map(|rate| rate.to_string().parse().unwrap());
        let pressure = Pressure {
            pending: Amount::from_micros(pending),
            rate,
            slo: None,
            last_completion: Some(NOW.before(Duration::from_secs(quiet))),
            queue_nonempty_since: Some(NOW.before(Duration::from_secs(since))),
            ..pressure()
        };
        let admitted = matches!(admit(&pressure), AdmissionDecision::Admit { .. });
        prop_assert!(admitted);
    }

    /// More work, a slower vendor or a shorter patience never turns a refusal into an admission.
    #[test]
    fn more_pressure_sheds_no_fewer(
        pending in 0_i32..10_000, more in 0_i32..10_000, rate in 1_u32..1_000, slower in 0_u32..1_000, slo in 0_u64..10_000, less in 0_u64..10_000,
    ) {
        let of = |pending: i32, rate: u32, slo: u64| admit(&Pressure {
            pending: Amount::from_tokens(pending),
            rate: Some(rate.to_string().parse().unwrap()),
            slo: Some(Duration::from_secs(slo)),
            ..pressure()
        });
        if matches!(of(pending, rate, slo), AdmissionDecision::Shed { .. }) {
            let harder = of(pending + more, rate.saturating_sub(slower).max(1), slo.saturating_sub(less));
            let shed = matches!(harder, AdmissionDecision::Shed { .. });
            prop_assert!(shed);
        }
    }

    #[test]
    fn no_number_panics(pending: i64, cost in 1_i64..i64::MAX, slo: u64, wait: u64, random: u32, at: i64) {
        let pressure = Pressure {
            pending: Amount::from_micros(pending),
            request: Cost::new(Amount::from_micros(cost)).unwrap(),
            slo: Some(Duration::from_micros(slo)),
            last_completion: Some(Timestamp::from_micros(at)),
            queue_nonempty_since: Some(Timestamp::from_micros(at)),
            ..pressure()
        };
        let _ = (admit(&pressure), retry_after(Duration::from_micros(wait), Duration::from_micros(slo), random));
    }
}
