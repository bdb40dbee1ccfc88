use super::*;

/// The benchmark's `memory` measures the whole: 20 MB for 10,000 buckets.
#[test]
fn a_bucket_that_is_only_met_takes_little() {
    let entry = Cache::default().entry(&Dimension::new("openai#rpm").unwrap());
    let made = [
        entry.observing.get().is_some(),
        entry.rate_limited.get().is_some(),
        entry.tokens.get().is_some(),
        entry.inline.get().is_some(),
        entry.releases.get().is_some(),
        entry.settles.get().is_some(),
        entry.admission.get().is_some(),
        entry.wanted.get().is_some(),
    ];
    assert!(!made.contains(&true), "{made:?}");
    let bytes = size_of::<Entry>();
    assert!(bytes <= 512, "{bytes} bytes each: is what was added needed by every bucket, or `Seldom`?");
}

/// Admission's first question makes what it sees; a reply must not, or every bucket would be watched.
#[test]
fn a_reply_makes_nothing_for_admission_to_see() {
    let entry = Cache::default().entry(&Dimension::new("elevenlabs#concurrent").unwrap());
    let now = Timestamp::from_secs(1_709_550_000);
    let limit = Limit::concurrent(sluice_core::Amount::from_tokens(4), Cost::ONE).unwrap();
    let bucket = Arc::new(Bucket::full(entry.dimension.clone(), limit, now));
    entry.saw(Arc::clone(&bucket), now);
    entry.wrote(bucket, now);
    assert!(entry.admission.get().is_none());
}
