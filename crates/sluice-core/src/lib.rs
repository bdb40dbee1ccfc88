//! The pure part of Sluice: what a bucket holds, what a caller may take, what a sweep gives back, and how all
//! of this is stored in DynamoDB. This crate does no I/O, reads no clock, draws no random number and knows no
//! AWS type: `now` is an argument, and a plan is a value ([`Write`]) that `sluice-table` commits. The safety
//! of a plan is in its condition, never in the order in which code runs: see `docs/semantics.md`.
//!
//! ```
//! use core::time::Duration;
//! use sluice_core::{Amount, Bucket, Cost, Dimension, Limit, LimitType, Plan, RatePlanner, Rate, Take, Timestamp};
//!
//! let capacity = Amount::from_tokens(100);
//! let rate = Rate::per(capacity, Duration::from_secs(60)).unwrap();
//! let limit = Limit::rate(LimitType::Requests, capacity, rate, Cost::ONE)?;
//! let now = Timestamp::from_secs(1_709_550_002);
//! let bucket = Bucket::full(Dimension::new("openai#rpm")?, limit, now);
//!
//! let take = Take { cost: Cost::ONE, now, patience: Duration::ZERO };
//! assert!(matches!(RatePlanner::new(&bucket).plan(take), Plan::Write(_)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(not(test), no_std)]
#![warn(clippy::float_arithmetic)]

extern crate alloc;

mod admission;
mod amount;
mod bucket;
mod clock_offset;
mod decimal;
mod dimension;
mod directory;
mod factor;
mod heal;
mod inline;
mod lease;
mod limit;
mod line;
mod load;
mod plan;
mod prefetch;
mod rate;
mod reason;
mod reclaim;
mod recount;
pub mod schema;
mod share;
mod statement;
mod sweep_log;
mod ticket;
mod timestamp;
mod vendor_limit;

pub use admission::{AdmissionDecision, Pressure, ShedReason, Standing, admit, retry_after};
pub use amount::{Amount, Cost, CostError};
pub use bucket::Bucket;
pub use bucket::lender::Lender;
pub use bucket::slot_lines::SlotLine;
pub use bucket::slot_shares::SlotShare;
pub use clock_offset::{ClockOffset, OffsetEstimate};
pub use decimal::DecimalError;
pub use dimension::{Dimension, DimensionError};
pub use directory::Directory;
pub use factor::{Factor, FactorError};
pub use heal::{HEAL_EVERY, HealMark, HealProgress, LONGEST_HEAL_SPACING, heal_progress, mark, unmark};
pub use inline::{InlineLease, InlineLeases, MOST_INLINE_LEASES};
pub use lease::{Lease, LeaseId, inline_key};
pub use limit::any_window::AnyWindow;
pub use limit::split::{DeclaredShare, InvalidSplit, MOST_SHARES, ShareLimit, Split};
pub use limit::warning::LimitWarning;
pub use limit::{InvalidLimit, Limit, LimitType};
pub use load::{
    CallerUse, LEAKED_AFTER, Load, MOST_CALLERS, MOST_NOTED, Measured, NOTE_EVERY, NOTE_USE_EVERY,
    OTHER_CALLERS, PreviousLoad, Sample, USE_PERIOD, Use, UseByCaller, clear_refusals, note, note_again,
    note_expired_holders, note_use, note_use_again, period_of_use, replace_expired_holders,
};
pub use plan::batch::{BatchPlan, RateBatch, Starts};
pub use plan::change::Change;
pub use plan::claim::Claim;
pub use plan::cool_down::{cool_down, end_cool_down};
pub use plan::inline::{
    InlineAnswer, InlinePlan, InlinePlanner, InlineReclaim, InlineRelease, InlineTake, MOST_CHANGES,
    ReleaseAnswer, Serves, renew_inline,
};
pub use plan::nearness::Nearness;
pub use plan::observe::{Observation, Remaining, note_limit, on_lower_limit, state_floor};
pub use plan::order::{WAIT_MARK, catch_up, draw, drawn, is_mark_old, mark_waiting};
pub use plan::rate::{Form, Planned, RatePlanner};
pub use plan::receipt::RateReceipt;
pub use plan::settle::{Debt, Settle, Settling};
pub use plan::slot_rows::{SlotRows, SlotStep};
pub use plan::slots::{NO_SLOT_WAIT, SlotPlanner, behind_those_that_wait, give_back, renew};
pub use plan::{FutureAnchor, NEVER, Plan, Reason, Refusal, Take};
pub use prefetch::{Demand, Lot, USE_BY};
pub use rate::Rate;
pub use reason::{CancellationCause, CancellationReason};
pub use reclaim::{Chunk, ChunkStep, MAX_LEASES_PER_TRANSACTION};
pub use recount::{Census, Correction, Drift, ReadAt, Returned};
pub use schema::{AttributeFault, Exact, Field, Row, RowError};
pub use share::{Borrowing, COMMON, ShareName, ShareNameError};
pub use statement::{AttributeNames, Delete, Operand, Put, Statement, Update, Write};
pub use sweep_log::{SweepLog, SweepRecord, SweepRecordError};
pub use ticket::booked::Booked;
pub use ticket::row::{Judgement, TicketRow};
pub use ticket::{Ticket, TicketError, TicketId};
pub use timestamp::{CLOCK_ERROR, CORRECTED_CLOCK_ERROR, Timestamp};
pub use vendor_limit::{OnLowerLimit, VendorLimit};
