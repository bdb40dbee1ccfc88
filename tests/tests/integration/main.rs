//! The promises of Sluice, held against a real DynamoDB engine.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::missing_panics_doc)]
// Small numbers of tests, and closures that only sleep.
#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss, clippy::unit_arg)]

// What holds for both kinds of lease is held against both, from one source.
macro_rules! for_either_kind {
    ($($suite:ident),*) => {
        #[allow(clippy::duplicate_mod)]
        #[path = "either"]
        mod rows {
            pub(crate) const KIND: crate::kind::Kind = crate::kind::Kind::Rows;
            $(mod $suite;)*
        }
        #[allow(clippy::duplicate_mod)]
        #[path = "either"]
        mod inline {
            pub(crate) const KIND: crate::kind::Kind = crate::kind::Kind::Inline;
            $(mod $suite;)*
        }
    };
}

for_either_kind!(
    acquire,
    contention,
    interleavings,
    lanes,
    lost_replies,
    recount,
    slots,
    sweep,
    together,
    waiting
);

mod acquire;
mod admission;
mod bookings;
mod breaker;
mod clocks;
mod closing;
mod contention;
mod cost;
mod crowd;
mod debts;
mod endpoint;
mod engines;
mod estimates;
mod events;
mod fair_waits;
mod healing;
mod hostile_replies;
mod infra;
mod inline_leases;
mod inline_sweep;
mod inline_take_over;
mod interleavings;
mod kind;
mod lanes;
mod limits;
mod load;
mod long_lines;
mod lost_replies;
mod memory;
mod metrics;
mod misuse;
mod near_limit;
mod other_clients;
mod outage;
mod overload;
mod pauses;
mod prefetch;
mod protocol;
mod reconciler;
mod recount;
mod recount_races;
mod refusals;
mod refusals_together;
mod released_later;
mod replies;
mod rounding;
mod served_faults;
mod settle;
mod settled_together;
mod shadow;
mod shares;
mod shut_down;
mod slow_reads;
mod stages;
mod streams;
mod survey;
mod sweep;
mod tickets;
mod together;
mod tracker;
mod undo;
mod unsettled;
mod unshared;
mod use_by_caller;
mod vendors;
mod waited_grants;
mod world;
mod wrong_costs;
