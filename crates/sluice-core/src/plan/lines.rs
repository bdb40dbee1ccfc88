//! Writes that change several lines of a bucket with shares.
//!
//! | write | what it does to a line | its condition |
//! |---|---|---|
//! | lower | T = T - d, or T = C - d at a new anchor if the line is full | A as read, T at most C - x, or above it |
//! | charge | the same | the same, and T at least d - C - x: a line owes its capacity at most |
//! | rewrite | T and A as calculated, with the new limits | `version` as read |
//!
//! What lowers a bucket (a vendor's reply, a penalty) comes while callers take, so it is relative and asks
//! only what one line asks. What changes the lines (shares that are declared or removed, limits, a refill) is
//! rare: it is calculated from one reading, and any write since makes it fail. See `docs/adr/0009-shares.md`.

mod lowered;
mod rewrite;
mod wording;

pub(super) use lowered::{charge_lines, lower_lines, observe_lines};
pub(super) use rewrite::{At, Rewrite, effect, whole_line};
