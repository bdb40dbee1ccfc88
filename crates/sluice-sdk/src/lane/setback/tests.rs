use super::*;
use crate::api::refusal::RetryReason;

const PATIENT: QueuePatience =
    QueuePatience { stays: Duration::from_secs(30), answers_locally: false, moves_on: false };
const LOCAL: QueuePatience = QueuePatience { answers_locally: true, ..PATIENT };
const AT_ONCE: QueuePatience = QueuePatience { stays: Duration::ZERO, ..PATIENT };

fn dimension() -> Dimension {
    Dimension::new("a#b").unwrap()
}

fn of(error: StoreError) -> Setback {
    Setback::of(error.into(), &dimension())
}

fn refused(reason: RetryReason, secs: u64) -> Setback {
    Setback::Refused(RetryIn::new(Duration::from_secs(secs), dimension(), reason))
}

fn throttled() -> StoreError {
    StoreError::Contended { operation: "GetItem", message: "ThrottlingException".into() }
}

fn out(maybe_applied: bool) -> StoreError {
    StoreError::Unavailable { operation: "UpdateItem", message: "no reply".into(), maybe_applied }
}

fn denied() -> StoreError {
    StoreError::AccessDenied { operation: "UpdateItem", table: "t".into(), message: "no".into() }
}

/// For each setback: which callers stay (that wait, that are answered locally, that do not wait).
#[test]
fn what_delays_a_line_never_empties_it_and_what_time_does_not_mend_is_told_at_once() {
    let stays = |setback: &Setback| [PATIENT, LOCAL, AT_ONCE].map(|patience| setback.is_waited_out(patience));
    for (setback, expected) in [
        (Setback::overtaken(&dimension()), [true, true, false]),
        (of(throttled()), [true, true, false]),
        (of(out(false)), [true, false, false]),
        (of(out(true)), [true, false, false]),
        (of(denied()), [false; 3]),
        (of(StoreError::NoTable { table: "t".into(), place: "here".into() }), [false; 3]),
        (
            Setback::of(
                AcquireError::UnknownDimension { dimension: dimension(), table: "t".into() },
                &dimension(),
            ),
            [false; 3],
        ),
        (refused(RetryReason::NoFreeSlot, 600), [true, true, false]),
        (refused(RetryReason::CoolingDown, 30), [true, true, false]),
        (refused(RetryReason::CoolingDown, 31), [false; 3]),
        (refused(RetryReason::Exhausted, 31), [false; 3]),
    ] {
        assert_eq!(stays(&setback), expected, "{setback:?}");
    }
}

#[test]
fn a_caller_hears_contention_as_a_refusal_and_an_outage_as_an_error() {
    for setback in [of(throttled()), Setback::overtaken(&dimension())] {
        assert_eq!(setback.refusal().unwrap().reason(), RetryReason::Contended);
    }
    assert!(matches!(of(out(false)).refusal(), Err(AcquireError::Store(StoreError::Unavailable { .. }))));
    assert!(matches!(of(denied()).refusal(), Err(AcquireError::Store(StoreError::AccessDenied { .. }))));
}

#[test]
fn a_write_that_may_have_been_applied_is_not_forgotten_with_the_next_failure() {
    let maybe_applied = |setback: Setback| match setback {
        Setback::Out(StoreError::Unavailable { maybe_applied, .. }) => maybe_applied,
        other => panic!("{other:?}"),
    };
    assert!(maybe_applied(of(out(false)).following(Some(&of(out(true))))));
    assert!(!maybe_applied(of(out(false)).following(None)));
    assert!(!maybe_applied(of(out(true)).unsent()), "nothing was sent for it");
}
