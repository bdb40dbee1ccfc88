//! The limit of a vendor that counts in windows of time (`counts = "sliding"` or `"fixed"`): the refill rate
//! follows from what the vendor allows, instead of arithmetic by the user.

use std::cmp::Ordering;
use std::time::Duration;

use sluice_core::{Amount, AnyWindow, CORRECTED_CLOCK_ERROR, Cost, Limit, LimitType, Rate};

use super::declared::{CountedIn, Declared};
use super::place::{Faulty, Field, Place};

/// The time from a call's start to its arrival if the file states none. `docs/buckets.md` names its parts:
/// most of them are tens of milliseconds. Larger is safer, and leaves a lower refill rate.
pub(crate) const ARRIVAL_JITTER: Duration = Duration::from_millis(500);

pub(super) fn limit(
    place: &Place<'_>,
    declared: &Declared,
    counts: &Field<CountedIn>,
    limit_type: LimitType,
    cost: Result<Cost, Faulty>,
) -> Result<Limit, Faulty> {
    let reason = "it needs limit = what the vendor allows in each window (capacity is the burst of calls)";
    let limit = declared.limit.get().and_then(|limit| limit.ok_or_else(|| place.fault(counts, reason)));
    let count = count(place, declared, limit);
    let cost = match (limit, cost) {
        (Ok(limit), Ok(cost)) => leaves_some(place, limit, count.as_ref().ok(), cost).map(|()| cost),
        (_, cost) => cost,
    };
    let capacity = stated(place, declared, limit_type, limit.ok());
    let _: Option<&Field<Rate>> = declared.refill_rate.get()?;
    let (limit, count, cost) = (limit?, count?, cost?);
    let burst = capacity?.map_or_else(|| count.burst(cost), |written| written.value);
    Limit::in_any_window(limit_type, &count, burst, cost).map_err(|error| place.fault(limit, error))
}

fn count(
    place: &Place<'_>,
    declared: &Declared,
    limit: Result<&Field<Amount>, Faulty>,
) -> Result<AnyWindow, Faulty> {
    let window = declared.window_of_limit(place)?.value;
    let arrival_jitter = declared.arrival_jitter.get()?.map_or(ARRIVAL_JITTER, |written| written.value);
    Ok(AnyWindow { amount: limit?.value, window, arrival_jitter, clock_error: CORRECTED_CLOCK_ERROR })
}

/// The burst as the file states it; `None` for the one that follows from the limit.
fn stated<'a>(
    place: &Place<'_>,
    declared: &'a Declared,
    limit_type: LimitType,
    limit: Option<&Field<Amount>>,
) -> Result<Option<&'a Field<Amount>>, Faulty> {
    match (declared.capacity.get()?, limit.map(|limit| limit.value)) {
        (Some(written), Some(limit)) if written.value >= limit => Err(place.fault(
            written,
            format_args!(
                "it must be below the limit {limit}: a burst of all that the vendor allows leaves nothing to flow back"
            ),
        )),
        (None, _) if limit_type == LimitType::Tokens => {
            let reason = "beside counts it needs capacity = the tokens of the largest call";
            Err(declared.limit_type.get()?.map_or(Faulty, |written| place.fault(written, reason)))
        }
        (written, _) => Ok(written),
    }
}

/// Fails for a limit of one call or less. One call in each window is possible, but only for calls that all
/// cost the same, which a bucket does not enforce: so the user decides.
fn leaves_some(
    place: &Place<'_>,
    limit: &Field<Amount>,
    count: Option<&AnyWindow>,
    cost: Cost,
) -> Result<(), Faulty> {
    let single = || Rate::per(limit.value, count?.starts_within());
    let reason = match limit.value.cmp(&cost.amount()) {
        Ordering::Greater => return Ok(()),
        Ordering::Less => {
            format!("it is below the cost of one call, which is {cost}: state a lower cost_per_call")
        }
        Ordering::Equal => {
            let Some(rate) = single() else { return Err(Faulty) };
            format!(
                "it allows one call in each window, so nothing flows back beside that call; if every call costs {cost}, \
                 state capacity = {cost} and refill_rate = {rate} in place of limit, window, counts and \
                 arrival_jitter"
            )
        }
    };
    Err(place.fault(limit, reason))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use sluice_core::Limit;

    use crate::buckets::BucketsFile;

    fn parsed(lines: &str) -> Result<Limit, String> {
        let text = format!("[[bucket]]\ndimension = \"a#b\"\n{lines}\n");
        let file = BucketsFile::parse("limits.toml", &text).map_err(|error| error.to_string())?;
        Ok(*file.limits[0].1.whole())
    }

    fn shown(lines: &str) -> (String, String) {
        let limit = parsed(lines).unwrap();
        (limit.capacity().to_string(), limit.refill_rate().to_string())
    }

    fn of(capacity: &str, rate: &str) -> (String, String) {
        (capacity.to_owned(), rate.to_owned())
    }

    const SIX_HUNDRED: &str = "type = \"requests\"\nlimit = 600\nwindow = \"10s\"";

    /// The figures of `docs/buckets.md`.
    #[test]
    fn the_refill_rate_follows_from_what_the_vendor_allows() {
        for counts in ["sliding", "fixed"] {
            let with = |rest: &str| shown(&format!("{SIX_HUNDRED}\ncounts = \"{counts}\"\n{rest}"));
            assert_eq!(with("arrival_jitter = \"170ms\"\ncapacity = 2"), of("2", "57.666345226615"));
            assert_eq!(with("capacity = 2"), of("2", "55.887850467289"), "500 ms by default");
            assert_eq!(with(""), of("3", "55.794392523364"), "the burst by default");
            assert_eq!(with("cost_per_call = 7"), of("7", "55.420560747663"));
        }
        let tokens =
            "type = \"tokens\"\nlimit = 30_000\nwindow = \"1m\"\ncounts = \"fixed\"\ncapacity = 8_000";
        assert_eq!(shown(tokens), of("8000", "362.438220757825"));
    }

    #[test]
    fn a_vendor_that_refills_continuously_keeps_its_own_numbers() {
        let minute = "type = \"requests\"\nwindow = \"1m\"\n";
        let plain = shown(&format!("{minute}capacity = 500"));
        assert_eq!(plain, of("500", "8.333333333333"));
        for same in ["capacity = 500\ncounts = \"bucket\"", "limit = 500", "limit = 500\ncounts = \"bucket\""]
        {
            assert_eq!(shown(&format!("{minute}{same}")), plain, "{same}");
        }
        assert_eq!(shown(&format!("{minute}limit = 500\ncapacity = 2")), of("2", "8.333333333333"));
        assert_eq!(shown(&format!("{minute}limit = 500\ncapacity = 900")), of("900", "8.333333333333"));
    }

    const FAULTS: [(&str, &str, &str); 20] = [
        (
            "capacity = 2\nwindow = \"1m\"\ncounts = \"rolling\"",
            "6: counts = \"rolling\"",
            "\"sliding\" or \"fixed\"",
        ),
        (
            "capacity = 2\nwindow = \"1m\"\ncounts = \"sliding\"",
            "6: counts = \"sliding\"",
            "limit = what the vendor allows",
        ),
        (
            "capacity = 2\nwindow = \"1m\"\narrival_jitter = \"1s\"",
            "6: arrival_jitter = \"1s\"",
            "counts = \"sliding\"",
        ),
        (
            "limit = 2\nwindow = \"1m\"\ncounts = \"bucket\"\narrival_jitter = \"1s\"",
            "7: arrival_jitter = \"1s\"",
            "counts = \"sliding\"",
        ),
        ("limit = 600\ncounts = \"sliding\"", "4: limit = 600", "window = \"1m\""),
        ("limit = 600", "4: limit = 600", "window = \"1m\""),
        ("limit = 600\nrefill_rate = 5", "5: refill_rate = 5", "leave it out"),
        ("limit = 600\nrefill_rate = 5\ncounts = \"fixed\"", "5: refill_rate = 5", "leave it out"),
        ("limit = 600\nwindow = \"0s\"\ncounts = \"fixed\"", "5: window = \"0s\"", "above 0"),
        ("limit = 600\nwindow = \"1M\"\ncounts = \"fixed\"", "5: window = \"1M\"", "\"1m\" (a minute)"),
        ("limit = 600\nwindow = \"soon\"", "5: window = \"soon\"", "above 0"),
        ("limit = -1\nwindow = \"1m\"", "4: limit = -1", "above 0"),
        ("limit = -1\nwindow = \"1m\"\ncounts = \"fixed\"", "4: limit = -1", "above 0"),
        (
            "limit = 9\nwindow = \"1s\"\ncounts = \"fixed\"\narrival_jitter = \"soon\"",
            "7: arrival_jitter = \"soon\"",
            "a time",
        ),
        (
            "limit = 9\nwindow = \"1s\"\ncounts = \"fixed\"\ncapacity = 9",
            "7: capacity = 9",
            "below the limit 9",
        ),
        ("limit = 9\nwindow = \"1s\"\ncounts = \"fixed\"\ncapacity = 0.5", "7: capacity = 0.5", "one call"),
        (
            "limit = 9\nwindow = \"1s\"\ncounts = \"fixed\"\ncapacity = 5\ncost_per_call = 6",
            "8: cost_per_call = 6",
            "the capacity 5",
        ),
        (
            "limit = 9\nwindow = \"1s\"\ncounts = \"fixed\"\ncost_per_call = 10",
            "4: limit = 9",
            "the cost of one call",
        ),
        (
            "limit = 1\nwindow = \"10s\"\ncounts = \"sliding\"\narrival_jitter = \"0s\"",
            "4: limit = 1",
            "capacity = 1 and refill_rate = 0.098039215686",
        ),
        ("limit = 0.5\nwindow = \"1m\"", "4: limit = 0.5", "one call"),
    ];

    #[test]
    fn a_combination_that_says_nothing_is_refused_with_its_line() {
        for (lines, place, says) in FAULTS {
            let error = parsed(&format!("type = \"requests\"\n{lines}")).unwrap_err();
            let place = format!("limits.toml:{place}");
            let is_told = error.lines().any(|line| line.starts_with(&place) && line.contains(says));
            assert!(is_told, "{lines}\n-> {error}");
        }
        let tokens = parsed("type = \"tokens\"\nlimit = 9\nwindow = \"1s\"\ncounts = \"fixed\"").unwrap_err();
        assert!(
            tokens.starts_with("limits.toml:3: type = \"tokens\"") && tokens.contains("the largest call"),
            "{tokens}"
        );
        for field in ["limit = 5", "counts = \"bucket\"", "arrival_jitter = \"1s\""] {
            let error = parsed(&format!("type = \"concurrent\"\ncapacity = 5\n{field}")).unwrap_err();
            assert!(error.starts_with("limits.toml:5: ") && error.contains("concurrent limit"), "{error}");
        }
    }
}
