//! What operators and the reconciler do with a table: declare limits, list, survey, sweep, recount, and heal.
//! Knows no client and grants nothing. [`Ops`] is the entry. A process that also acquires learns through an
//! [`Observer`] what changed.

mod chunk;
mod leases;
mod limits;
mod observer;
mod ops;
mod released;
mod survey;
mod sweep;
mod telemetry;

pub use chunk::{Tally, send_chunk};
pub use leases::LeaseRow;
pub use limits::{Applied, BucketError, BucketFault, BucketRow, LimitsError};
pub use observer::Observer;
pub use ops::Ops;
pub use released::Released;
pub use survey::{LoadRow, Survey};
pub use sweep::{
    HealPage, HealedPage, MOST_UNITS, NextPage, REPORT_TARGET, ROWS_PER_PAGE, Restored, SlotsMoved,
    SweepError, SweepOptions, SweepReport, give_slots,
};
