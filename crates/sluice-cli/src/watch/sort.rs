//! Order and filter of the buckets.

use std::cmp::Ordering;

use clap::ValueEnum;

use crate::view::BucketView;

/// What comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Sort {
    /// By name.
    Name,
    /// The lowest level, as a part of the capacity.
    Level,
    /// The most use a second.
    Use,
    /// The most holders.
    Holders,
    /// The longest wait, or cool-down.
    Wait,
}

impl Sort {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Level => "level",
            Self::Use => "use",
            Self::Holders => "holders",
            Self::Wait => "wait",
        }
    }

    pub(super) const fn next(self) -> Self {
        match self {
            Self::Name => Self::Level,
            Self::Level => Self::Use,
            Self::Use => Self::Holders,
            Self::Holders => Self::Wait,
            Self::Wait => Self::Name,
        }
    }

    fn compare(self, a: &BucketView, b: &BucketView, now: f64) -> Ordering {
        let most = |of: fn(&BucketView) -> f64| of(b).total_cmp(&of(a));
        let order = match self {
            Self::Name => Ordering::Equal,
            Self::Level => (a.level / a.capacity).total_cmp(&(b.level / b.capacity)),
            Self::Use => most(|bucket| bucket.used_per_sec.unwrap_or(0.0)),
            Self::Holders => b.leases.cmp(&a.leases),
            Self::Wait => wait(b, now).total_cmp(&wait(a, now)),
        };
        order.then_with(|| a.name.cmp(&b.name))
    }
}

/// How long a call that comes now waits: for the line of the bucket, or for the end of a cool-down.
pub(super) fn wait(bucket: &BucketView, now: f64) -> f64 {
    let cooling = bucket.cooling_until.map_or(0.0, |until| (until - now).max(0.0));
    bucket.wait_secs.max(cooling)
}

/// The buckets whose name contains `filter`, in any case of letters.
pub(super) fn shown<'a>(
    buckets: &'a [BucketView],
    filter: &str,
    sort: Sort,
    now: f64,
) -> Vec<&'a BucketView> {
    let filter = filter.to_lowercase();
    let mut shown: Vec<_> =
        buckets.iter().filter(|bucket| bucket.name.to_lowercase().contains(&filter)).collect();
    shown.sort_by(|a, b| sort.compare(a, b, now));
    shown
}
