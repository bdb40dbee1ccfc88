//! The label `dimension`: a bucket's name, for as many buckets as a recorder should have to keep.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use ::metrics::SharedString;
use parking_lot::Mutex;
use sluice_core::Dimension;

/// How many buckets of a client have their names in metrics; all others are `other`. Each name is a time
/// series of every metric: names made from input must not fill the collectors.
pub(crate) const MOST_NAMED: usize = 100;

/// The label of what has no bucket name of its own.
pub(crate) const OTHER: &str = "other";

/// The buckets with a name in metrics. A bucket that was forgotten and comes back keeps its name.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamedBuckets(Arc<Mutex<HashSet<Dimension>>>);

impl NamedBuckets {
    fn has(&self, dimension: &Dimension) -> bool {
        let mut named = self.0.lock();
        named.contains(dimension) || (named.len() < MOST_NAMED && named.insert(dimension.clone()))
    }
}

/// The label of one bucket, once it is chosen.
#[derive(Debug)]
pub(crate) struct BucketLabel {
    named: NamedBuckets,
    text: OnceLock<SharedString>,
}

impl BucketLabel {
    pub(crate) const fn new(named: NamedBuckets) -> Self {
        Self { named, text: OnceLock::new() }
    }

    /// The label of the bucket. The name of a bucket that does not exist (`exists`) uses up no place.
    pub(crate) fn of(&self, dimension: &Dimension, exists: impl FnOnce() -> bool) -> SharedString {
        if let Some(text) = self.text.get() {
            return text.clone();
        }
        if !exists() {
            return OTHER.into();
        }
        let choose = || match self.named.has(dimension) {
            true => SharedString::from_shared(dimension.as_str().into()),
            false => OTHER.into(),
        };
        self.text.get_or_init(choose).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_buckets_than_a_recorder_should_bear_have_names() {
        let named = NamedBuckets::default();
        let label = |n: usize, exists: bool| {
            let label = BucketLabel::new(named.clone());
            let text = label.of(&Dimension::new(&format!("vendor{n}#rpm")).unwrap(), || exists);
            text.into_owned()
        };
        assert_eq!(label(0, false), "other", "a name that is no bucket's takes no place");
        for n in 0..MOST_NAMED {
            assert_eq!(label(n, true), format!("vendor{n}#rpm"));
        }
        assert_eq!(label(MOST_NAMED, true), "other");
        assert_eq!(
            label(7, true),
            "vendor7#rpm",
            "one that was forgotten and comes back takes no second place"
        );
    }
}
