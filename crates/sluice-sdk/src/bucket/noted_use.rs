//! What this process used of a bucket since it last noted it in the bucket's load row.

use std::sync::atomic::{AtomicBool, AtomicI64};

/// What was used and is not noted yet. All is relaxed: a grant from stock should cost next to nothing.
#[derive(Debug, Default)]
pub(crate) struct NotedUse {
    pub(crate) micros: AtomicI64,
    /// Whether the task of the next round was begun for this bucket.
    pub(crate) is_due: AtomicBool,
    /// When it was begun, in microseconds since 1970.
    pub(crate) since: AtomicI64,
    /// The period in which this process last counted itself; zero for none.
    pub(crate) counted_in: AtomicI64,
}
