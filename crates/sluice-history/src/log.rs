//! What the checker keeps of a bucket's events.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::event::Kind;

/// A time that never comes.
pub(crate) const NEVER: i64 = i64::MAX;

/// The errors of the times of a history, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Errors {
    /// The error of starts and ends of leases, which clients plan.
    pub(crate) clock: i64,
    /// The error of all other times.
    pub(crate) stamp: i64,
    /// How long a request of a caller may take: see `Header::request_micros`.
    pub(crate) request: i64,
}

impl Errors {
    /// The error of a comparison between a planned time and a stamped one.
    pub(crate) const fn both(self) -> i64 {
        self.clock.saturating_add(self.stamp)
    }
}

/// One bucket's events.
#[derive(Debug, Default)]
pub(crate) struct BucketLog {
    pub(crate) limits: Vec<LimitEntry>,
    pub(crate) grants: Vec<Entry>,
    pub(crate) left: Vec<Left>,
    pub(crate) returns: Vec<Return>,
    /// How the limits are split, one for each of `limits`; empty if the bucket never has a share.
    pub(crate) splits: Vec<SplitEntry>,
    /// Callers that waited and were granted nothing.
    pub(crate) waited: Vec<Waited>,
    /// When no guarantee holds.
    pub(crate) pauses: Vec<(i64, i64)>,
    /// The line of the first grant.
    pub(crate) first_line: u64,
    pub(crate) first_file: Option<Arc<str>>,
}

/// A limit as the log stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitEntry {
    pub(crate) kind: Kind,
    pub(crate) capacity: i64,
    pub(crate) rate: i64,
    pub(crate) from: i64,
    pub(crate) by: i64,
}

/// The shares of a limit, in force from its change on.
#[derive(Clone, Debug)]
pub(crate) struct SplitEntry {
    pub(crate) from: i64,
    pub(crate) by: i64,
    /// What each line has, by name; the common line is one of them.
    pub(crate) lines: BTreeMap<Arc<str>, LineLimit>,
}

/// What one line of a bucket has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineLimit {
    pub(crate) capacity: i64,
    pub(crate) rate: i64,
    /// What borrowers leave free of slots, if that is known.
    pub(crate) floor: Option<i64>,
}

/// A caller that was willing to wait, and got nothing.
#[derive(Clone, Debug)]
pub(crate) struct Waited {
    pub(crate) share: Option<Arc<str>>,
    pub(crate) from: i64,
    pub(crate) to: i64,
    /// Whether it asked for several buckets at once.
    pub(crate) several: bool,
}

/// The place of a grant's part: bucket and number.
pub(crate) type Place = (usize, usize);

/// The part of a grant in the bucket.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: Arc<str>,
    pub(crate) process: u32,
    pub(crate) cost: i64,
    /// The part of the cost that was used.
    pub(crate) used: i64,
    pub(crate) asked_at: i64,
    pub(crate) granted_at: i64,
    pub(crate) judged_from: i64,
    pub(crate) start_at: i64,
    pub(crate) ends_at: i64,
    /// When the release was sent; [`NEVER`] if none was.
    pub(crate) released_at: i64,
    pub(crate) unused: bool,
    pub(crate) died: bool,
    pub(crate) booked: bool,
    /// The share that the caller named, and the line that its tokens are of.
    pub(crate) share: Option<Arc<str>>,
    pub(crate) paid_from: Option<Arc<str>>,
    /// Whether the id has parts in other buckets.
    pub(crate) several: bool,
    /// The previously recorded part of the same id.
    pub(crate) before: Option<Place>,
}

/// Tokens that were returned: sent at `from`, and applied by `by`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Return {
    pub(crate) amount: i64,
    pub(crate) from: i64,
    pub(crate) by: i64,
}

/// A process whose callers may have left a booked start to other callers of the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    pub(crate) process: u32,
    pub(crate) at: i64,
    /// One start for a request of one bucket; for requests over several buckets, the number is unknown.
    pub(crate) starts: Starts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Starts {
    One,
    Any,
}

impl BucketLog {
    pub(crate) fn kind(&self) -> Option<Kind> {
        self.limits.first().map(|limit| limit.kind)
    }
}
