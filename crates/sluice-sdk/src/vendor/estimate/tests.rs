use super::*;

fn with(set: impl FnOnce(&mut EstimatorConfig)) -> TokenEstimator {
    let mut config = EstimatorConfig::default();
    set(&mut config);
    TokenEstimator::new(&config)
}

fn observe(estimator: &TokenEstimator, calls: u64, used: u64) {
    (0..calls).for_each(|_| estimator.observe("k", used));
}

#[test]
fn until_enough_is_known_the_ceiling_is_reserved_and_never_more() {
    let estimator = TokenEstimator::default();
    assert_eq!((estimator.estimate("k"), estimator.estimate_or("k", 4_096)), (None, 4_096));
    observe(&estimator, 19, 9_000);
    assert_eq!((estimator.estimate("k"), estimator.estimate_or("k", 4_096)), (None, 4_096));
    observe(&estimator, 1, 9_000);
    let estimate = estimator.estimate("k").unwrap();
    assert!((9_000..=9_140).contains(&estimate), "{estimate}");
    assert_eq!(estimator.estimate_or("k", 4_096), 4_096);
    assert_eq!(estimator.estimate_or("k", 1_000_000), estimate);
    assert_eq!(estimator.estimate("another"), None);
}

#[test]
fn an_estimate_can_always_be_asked_for() {
    let estimator = TokenEstimator::default();
    observe(&estimator, 100, 0);
    assert_eq!(estimator.estimate("k"), Some(1));
    observe(&estimator, 10_000, u64::MAX);
    assert_eq!(estimator.estimate("k"), Some((1 << 24) - 1));
}

#[test]
fn one_call_in_a_hundred_does_not_move_the_p95_and_one_in_ten_does() {
    for (every, expected) in [(100, 300..=304), (10, 4_000..=4_062)] {
        let estimator = TokenEstimator::default();
        for call in 0..2_000 {
            estimator.observe("k", if call % every == 0 { 4_000 } else { 300 });
        }
        let estimate = estimator.estimate("k").unwrap();
        assert!(expected.contains(&estimate), "one in {every}: {estimate}");
    }
}

/// As the setting's documentation says: 15 calls up, 880 calls down.
#[test]
fn a_change_shows_within_the_calls_that_are_stated() {
    let estimator = TokenEstimator::default();
    observe(&estimator, 5_000, 300);
    observe(&estimator, 14, 2_000);
    assert!(estimator.estimate("k").unwrap() < 310, "no single call decides");
    observe(&estimator, 1, 2_000);
    assert!(estimator.estimate("k").unwrap() >= 2_000);
    observe(&estimator, 5_000, 2_000);
    observe(&estimator, 850, 300);
    assert!(estimator.estimate("k").unwrap() >= 2_000, "what was usual a while ago still counts");
    observe(&estimator, 30, 300);
    assert!(estimator.estimate("k").unwrap() < 310);
}

#[test]
fn the_kind_that_was_not_used_for_longest_makes_room() {
    let estimator = with(|config| config.max_keys = 3);
    for key in ["a", "b", "c"] {
        (0..20).for_each(|_| estimator.observe(key, 100));
    }
    assert!(estimator.estimate("a").is_some());
    estimator.observe("d", 100);
    assert_eq!(estimator.key_count(), 3);
    let known = ["a", "b", "c"].map(|key| estimator.estimate(key).is_some());
    assert_eq!(known, [true, false, true]);
}

#[test]
fn any_number_of_kinds_and_calls_keeps_the_size() {
    let estimator = with(|config| config.max_keys = 16);
    let mut random = fastrand::Rng::with_seed(7);
    for call in 0..100_000_u64 {
        estimator.observe(format!("kind {}", call % 1_000), random.u64(..));
    }
    assert_eq!(estimator.key_count(), 16);
    assert!(estimator.kinds().by_key.capacity() <= 64);
}

#[test]
fn settings_out_of_range_are_held_to_it() {
    let estimator = with(|config| {
        config.quantile = f64::NAN;
        config.half_life_calls = 0;
        config.max_keys = 0;
    });
    assert!((estimator.quantile - 0.95).abs() < f64::EPSILON && estimator.half_life_calls == 10);
    observe(&estimator, 100, 50);
    assert_eq!(estimator.estimate("k"), Some(50));
    let all = with(|config| config.quantile = 2.0);
    observe(&all, 1_000, 50);
    assert_eq!(all.estimate("k"), Some(50));
}

#[test]
fn callers_share_it() {
    let estimator = TokenEstimator::default();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| observe(&estimator, 1_000, 70));
        }
    });
    assert_eq!(estimator.estimate("k"), Some(70));
}

#[test]
fn a_cut_reply_is_asked_for_again_with_the_ceiling_and_no_more() {
    let estimator = TokenEstimator::default();
    observe(&estimator, 100, 300);
    let mut cap = estimator.cap("k", 4_096);
    assert!((300..=304).contains(&cap.max_tokens()));
    assert!(cap.raise());
    assert_eq!(cap.max_tokens(), 4_096);
    assert!(!cap.raise(), "the ceiling is the program's own");
}

#[test]
fn without_an_estimate_the_cap_is_the_ceiling_and_an_estimate_above_it_is_not_sent() {
    let estimator = TokenEstimator::default();
    assert_eq!(estimator.cap("k", 4_096).max_tokens(), 4_096);
    assert_eq!(estimator.cap("k", 0).max_tokens(), 1, "no vendor takes a max_tokens of zero");
    observe(&estimator, 100, 9_000);
    assert_eq!(estimator.cap("k", 4_096).max_tokens(), 4_096);
}

/// If the cut replies were recorded as they are, each estimate would be at most the one before.
#[test]
fn caps_do_not_lower_the_estimate_that_they_come_from() {
    let estimator = TokenEstimator::default();
    let length = |call: u64| if call.is_multiple_of(15) { 1_000 } else { 300 };
    (0..600).for_each(|call| estimator.observe("k", length(call)));
    for call in 0..3_000 {
        let mut cap = estimator.cap("k", 4_096);
        while length(call) > cap.max_tokens() && cap.raise() {}
        let kept = length(call).min(cap.max_tokens());
        cap.observe(kept);
    }
    assert!(estimator.estimate("k").unwrap() >= 1_000, "{:?}", estimator.estimate("k"));
}
