//! Taking and giving back: the only code that grants.
//!
//! A caller stands in a queue before a bucket, and one write serves all callers in the queue ([`queue`]).
//! There are three kinds: [`tokens`] for rate buckets, [`rows`] for lease rows, [`inline`] for inline leases.
//! Each file is both ends of the queue: `take` enters it, and its batch is what the leader serves, called
//! back by [`round`].
//!
//! [`attempt`] chooses the kind; [`shadow`] lets every call through. [`reading`] reads buckets, [`setback`]
//! decides who stays, [`poll`] how often the queue looks again, [`turns`] whose turn it is among all
//! processes that wait for slots, [`last_start`] which process books the last starts, [`lending`] which line
//! lends, [`look_first`] when a read comes before a write, [`unclaimed`] is a grant on its way. [`release`]
//! and [`settle`] give back.

pub(crate) mod answer_by;
pub(crate) mod attempt;
pub(crate) mod background;
pub(crate) mod cache;
pub(crate) mod chunks;
pub(crate) mod contended;
pub(crate) mod entry;
pub(crate) mod expired_holder;
pub(crate) mod fallback;
mod full_guess;
pub(crate) mod inline;
pub(crate) mod inner;
pub(crate) mod last_start;
mod lending;
pub(crate) mod local_slots;
pub(crate) mod look_first;
pub(crate) mod no_grant;
pub(crate) mod noted_use;
pub(crate) mod once_an_outage;
pub(crate) mod one_bucket;
mod own_line;
pub(crate) mod parallel;
pub(crate) mod part;
pub(crate) mod per_bucket;
pub(crate) mod poll;
pub(crate) mod prefetch;
pub(crate) mod queue;
pub(crate) mod reading;
pub(crate) mod release;
pub(crate) mod round;
pub(crate) mod rows;
pub(crate) mod setback;
pub(crate) mod settle;
pub(crate) mod shadow;
mod slot_gives;
pub(crate) mod slot_lines;
mod slot_pauses;
pub(crate) mod slot_wait;
pub(crate) mod sync;
pub(crate) mod task;
pub(crate) mod terms;
pub(crate) mod tokens;
pub(crate) mod turns;
pub(crate) mod unclaimed;
pub(crate) mod unsettled;
pub(crate) mod wants;
