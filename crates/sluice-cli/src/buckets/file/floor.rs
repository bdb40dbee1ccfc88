//! `adopt_at_least`: the least limit that a bucket adopts from its vendor.

use sluice_core::{Amount, Limit, LimitType, Rate};

use super::declared::Declared;
use super::place::{Faulty, Field, Place};

/// Returns the floor of a bucket that adopts lower limits: requests or tokens a minute; slots, for
/// concurrency. A tenth of the limit if the file states none.
pub(super) fn floor(
    place: &Place<'_>,
    declared: &Declared,
    limit: Result<Limit, Faulty>,
) -> Result<Option<Amount>, Faulty> {
    let adopts = declared.adopt_lower_limit.get().map(|written| written.is_some_and(|adopts| adopts.value));
    match (declared.adopt_at_least.get()?, adopts?) {
        (None, false) => Ok(None),
        (None, true) => Ok(Some(limit?.default_floor())),
        (Some(written), true) => stated(place, declared, limit, written).map(Some),
        (Some(written), false) => Err(place.fault(written, "it needs adopt_lower_limit = true")),
    }
}

/// The floor as the file states it: in each window, a second if the file states a refill rate, or in slots.
fn stated(
    place: &Place<'_>,
    declared: &Declared,
    limit: Result<Limit, Faulty>,
    written: &Field<Amount>,
) -> Result<Amount, Faulty> {
    let at_least = written.value;
    if declared.limit_type.value() == Some(&LimitType::Concurrent) {
        if !at_least.is_whole() {
            return Err(place.fault(written, "it must be a whole number of slots"));
        }
        return match declared.capacity.value() {
            Some(capacity) if at_least > *capacity => {
                Err(place.fault(written, format_args!("it is above the capacity {capacity}")))
            }
            _ => Ok(at_least),
        };
    }
    let limit = limit?;
    let rate = match declared.window.value() {
        Some(window) => Rate::per(at_least, *window),
        None => at_least.to_string().parse().ok(),
    };
    match rate.filter(|rate| *rate <= limit.refill_rate()) {
        Some(rate) => Ok(rate.per_minute()),
        None => {
            let rate = limit.refill_rate();
            Err(place.fault(written, format_args!("it is above the limit of the bucket, {rate} a second")))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use sluice_core::OnLowerLimit;

    use crate::buckets::BucketsFile;

    fn parsed(limit: &str) -> Result<String, String> {
        let text = format!("[[bucket]]\ndimension = \"a#b\"\n{limit}\n");
        let file = BucketsFile::parse("limits.toml", &text).map_err(|error| error.to_string())?;
        match file.on_lower_limit(&file.limits[0].0) {
            OnLowerLimit::Adopt { at_least } => Ok(at_least.to_string()),
            OnLowerLimit::Report => Ok("none".to_owned()),
        }
    }

    const MINUTE: &str = "type = \"requests\"\ncapacity = 500\nwindow = \"1m\"";
    const DAY: &str = "type = \"requests\"\ncapacity = 14_400\nwindow = \"24h\"";
    const RATE: &str = "type = \"requests\"\ncapacity = 20\nrefill_rate = 2.5";
    const SLOTS: &str = "type = \"concurrent\"\ncapacity = 5";

    #[test]
    fn a_floor_is_stated_in_the_units_of_the_limit_and_kept_a_minute() {
        let adopts =
            |limit: &str, at_least: &str| parsed(&format!("{limit}\nadopt_lower_limit = true\n{at_least}"));
        for (limit, default, stated, kept) in [
            (MINUTE, "50", "adopt_at_least = 100", "100"),
            (DAY, "1", "adopt_at_least = 7_200", "5"),
            (RATE, "15", "adopt_at_least = 0.5", "30"),
            (SLOTS, "1", "adopt_at_least = 2", "2"),
        ] {
            assert_eq!(adopts(limit, "").unwrap(), default, "{limit}");
            assert_eq!(adopts(limit, stated).unwrap(), kept, "{limit}");
            assert_eq!(parsed(limit).unwrap(), "none");
        }
    }

    #[test]
    fn a_floor_that_means_nothing_is_a_fault() {
        for (limit, rest, says) in [
            (MINUTE, "adopt_at_least = 100", "needs adopt_lower_limit = true"),
            (MINUTE, "adopt_lower_limit = true\nadopt_at_least = 501", "above the limit"),
            (RATE, "adopt_lower_limit = true\nadopt_at_least = 2.6", "above the limit"),
            (SLOTS, "adopt_lower_limit = true\nadopt_at_least = 6", "above the capacity 5"),
            (SLOTS, "adopt_lower_limit = true\nadopt_at_least = 1.5", "a whole number of slots"),
            (MINUTE, "adopt_lower_limit = true\nadopt_at_least = 0", "above 0"),
            (MINUTE, "adopt_lower_limit = true\nadopt_at_least = \"9\"", "above 0"),
        ] {
            let error = parsed(&format!("{limit}\n{rest}")).unwrap_err();
            assert!(error.contains("adopt_at_least = ") && error.contains(says), "{rest}\n-> {error}");
        }
    }
}
