//! The DynamoDB table: its key, its attributes, and how a row is read.
//!
//! One table per environment, on demand, with partition key [`KEY`] (string) and no sort key. The key
//! distinguishes the rows: buckets (`openai#rpm`), leases (`lease#openai#rpm#{id}`), tickets
//! (`ticket#openai#{id}`), and what sweeps store (`load#...`). Clients in other languages may share it.

use alloc::string::String;

mod row;

pub use row::{AttributeFault, Exact, Field, Row, RowError};
pub(crate) use row::{amount, count, number, optional, rate, text, timestamp};

/// The environments, each with its own table.
pub const ENVIRONMENTS: [&str; 3] = ["sandbox", "pre", "prod"];

/// The table of an environment.
#[must_use]
pub fn table_name(environment: &str) -> String {
    alloc::format!("ontopix-vendor-buckets-{environment}")
}

/// The partition key of every row.
pub const KEY: &str = "vendor_dimension";
/// Keys of lease rows start with this.
pub const LEASE_PREFIX: &str = "lease#";
/// Keys of load rows start with this.
pub const LOAD_PREFIX: &str = "load#";
/// Keys of ticket rows start with this.
pub const TICKET_PREFIX: &str = "ticket#";

/// Bucket: the most tokens that the bucket can hold.
pub const CAPACITY: &str = "capacity";
/// Bucket: tokens at [`LAST_REFILL_AT`]; free slots, for concurrency.
pub const TOKENS: &str = "tokens";
/// Bucket: tokens that flow back a second; 0 for concurrency.
pub const REFILL_RATE: &str = "refill_rate";
/// Bucket: the anchor, the instant at which [`TOKENS`] was exact.
pub const LAST_REFILL_AT: &str = "last_refill_at";
/// Bucket: the cost of a call that names no cost.
pub const COST_PER_CALL: &str = "cost_per_call";
/// Bucket: `requests`, `tokens` or `concurrent`.
pub const LIMIT_TYPE: &str = "limit_type";
/// Bucket: number of writes, for clients that lock optimistically.
pub const VERSION: &str = "version";
/// Bucket, optional: the least [`PROTOCOL_VERSION`] of a client or a sweep that may use the bucket; 1 without
/// it. Operators raise it (`sluice buckets apply --protocol`). It stands in the bucket's row, which everyone
/// reads who uses the bucket: nobody needs a request to learn of it.
pub const PROTOCOL: &str = "protocol";
/// The protocol that this version speaks: what rows mean. It rises with a change that an older client or
/// sweep would damage; `docs/reconciler.md` has the versions, and the exception of shares of slots.
pub const PROTOCOL_VERSION: i64 = 1;
/// Bucket, optional: nothing is granted before this instant.
pub const BLOCKED_UNTIL: &str = "blocked_until";
/// Bucket, optional: monotone count of the slots granted.
pub const ADMITTED: &str = "admitted";
/// Concurrency bucket, optional: the part of [`ADMITTED`] whose lease is inline.
pub const ADMITTED_INLINE: &str = "admitted_inline";
/// Concurrency bucket, optional: the inline leases, from id to [`INLINE_COST`], [`INLINE_ENDS`] and
/// [`INLINE_BORROWED_BY`].
pub const LEASES: &str = "leases";
/// Concurrency bucket, optional: about how many of the numbers that waiting callers drew ([`DRAWN`]) have
/// been served.
pub const SERVED: &str = "served";
/// Concurrency bucket, optional: until then, callers that wait for slots draw a number before they take any.
pub const WAITED_UNTIL: &str = "waited_until";
/// Inline lease: the cost. The name is one letter, because DynamoDB charges by the size of the row.
pub const INLINE_COST: &str = "c";
/// Inline lease: when it ends, in whole seconds, rounded up.
pub const INLINE_ENDS: &str = "t";
/// Inline lease, optional: as [`BORROWED_BY`].
pub const INLINE_BORROWED_BY: &str = "b";
/// Rate bucket, optional: number of writes that took tokens ahead of demand (lots). A return of tokens that
/// were taken before the last lot would lift the line into what that lot holds.
pub const LOTS: &str = "lots";
/// Rate bucket, optional: when an anchor in the future was last moved back.
pub const REPAIRED_AT: &str = "repaired_at";
/// Rate bucket, optional: monotone count of the tokens given back unused.
pub const RETURNED: &str = "returned";
/// Bucket with shares, optional: monotone count of the tokens that its common line lent to shares.
pub const LENT: &str = "lent";
/// Bucket with shares, optional: monotone count of the tokens that callers of its common line borrowed.
pub const BORROWED: &str = "borrowed";
/// Rate bucket, optional: monotone sum by which replies of the vendor lowered the bucket.
pub const OBSERVED: &str = "observed";
/// Rate bucket, optional: [`VERSION`] after the grant whose reply lowered the bucket last. A reply to an
/// older grant changes nothing.
pub const OBSERVED_VERSION: &str = "observed_version";
/// Bucket, optional: the lowest limit below the bucket's that the vendor reported recently.
pub const VENDOR_LIMIT: &str = "vendor_limit";
/// Bucket, optional: the window of [`VENDOR_LIMIT`], in seconds; 0 for concurrency.
pub const VENDOR_LIMIT_WINDOW: &str = "vendor_limit_window";
/// Bucket, optional: when the vendor reported [`VENDOR_LIMIT`].
pub const VENDOR_LIMIT_AT: &str = "vendor_limit_at";
/// Bucket, optional: 1 if a lower limit that the vendor reports becomes the limit of the bucket.
pub const ADOPTS_LIMIT: &str = "adopts_limit";
/// Bucket, optional: the least limit that the bucket adopts: requests or tokens a minute; calls at once, for
/// concurrency. A tenth of the bucket's limit without it.
pub const ADOPT_AT_LEAST: &str = "adopt_at_least";
/// Bucket, optional: the shares, a map from each name to its line. The names in a line are one letter,
/// because DynamoDB charges by the size of the row. A share of a concurrency bucket has a row of its own
/// ([`of_share`](crate::Dimension::of_share)), and its entry here has [`LINE_CAPACITY`], [`LINE_FLOOR`],
/// [`LINE_BACKGROUND`] and [`LINE_CLOSED`].
pub const SHARES: &str = "shares";
/// Concurrency bucket, optional: the slots that all its lines will have together, while its shares change.
/// [`SHARES`] has what each share will have.
pub const CHANGES_TO: &str = "changes_to";
/// Concurrency bucket, beside [`CHANGES_TO`]: what a call of the default cost will take.
pub const COST_CHANGES_TO: &str = "cost_changes_to";
/// Line: as [`TOKENS`].
pub const LINE_TOKENS: &str = "t";
/// Line: as [`LAST_REFILL_AT`].
pub const LINE_ANCHOR: &str = "a";
/// Line: as [`CAPACITY`].
pub const LINE_CAPACITY: &str = "c";
/// Line: as [`REFILL_RATE`].
pub const LINE_RATE: &str = "r";
/// Line, optional: what a borrower of another share leaves. A quarter of the capacity without it.
pub const LINE_FLOOR: &str = "f";
/// Line, optional: 1 if the share is for background work.
pub const LINE_BACKGROUND: &str = "b";
/// Share of slots, optional: 1 while it has no row yet, or goes ([`LINE_CAPACITY`] is 0 then). Callers take
/// from the common line meanwhile.
pub const LINE_CLOSED: &str = "x";
/// Line, optional: as [`LOTS`].
pub const LINE_LOTS: &str = "l";
/// Line, optional: as [`RETURNED`].
pub const LINE_RETURNED: &str = "u";
/// Line, optional: as [`LENT`].
pub const LINE_LENT: &str = "n";
/// Line, optional: as [`BORROWED`].
pub const LINE_BORROWED: &str = "o";
/// Line, optional: as [`REPAIRED_AT`].
pub const LINE_REPAIRED_AT: &str = "p";
/// Concurrency bucket, optional: number of writes by clients that count [`ADMITTED`]. While it rises as fast
/// as [`VERSION`], all writers count.
pub const COUNTED: &str = "counted";
/// Concurrency bucket, optional: monotone cost of leases that were deleted without room for their slots.
pub const CAPPED: &str = "capped";
/// Concurrency bucket, optional: slots that the last sweep found lost (below zero: minted), for the next
/// sweep to confirm.
pub const DRIFT: &str = "drift";
/// Concurrency bucket, optional: when the sweep found [`DRIFT`].
pub const DRIFT_SEEN_AT: &str = "drift_seen_at";

/// All attributes that [`Bucket::read`](crate::Bucket::read) reads, for scans that read whole buckets.
pub const OF_BUCKET: [&str; 33] = [
    PROTOCOL,
    CAPACITY,
    TOKENS,
    REFILL_RATE,
    LAST_REFILL_AT,
    COST_PER_CALL,
    LIMIT_TYPE,
    VERSION,
    BLOCKED_UNTIL,
    ADMITTED,
    ADMITTED_INLINE,
    LEASES,
    LOTS,
    REPAIRED_AT,
    RETURNED,
    LENT,
    BORROWED,
    OBSERVED,
    OBSERVED_VERSION,
    VENDOR_LIMIT,
    VENDOR_LIMIT_WINDOW,
    VENDOR_LIMIT_AT,
    ADOPTS_LIMIT,
    ADOPT_AT_LEAST,
    SHARES,
    CHANGES_TO,
    COST_CHANGES_TO,
    COUNTED,
    CAPPED,
    DRIFT,
    DRIFT_SEEN_AT,
    SERVED,
    WAITED_UNTIL,
];

/// The key of the directory. No load row has this key: a dimension has at least two parts.
pub const DIRECTORY_KEY: &str = "load#directory";
/// Directory: the names of the concurrency buckets, separated by spaces.
pub const BUCKETS: &str = "buckets";

/// The key of the row that stores the last sweeps. No load row has this key either.
pub const SWEEPS_KEY: &str = "load#sweeps";
/// The last sweeps: one line each, the latest first.
pub const SWEEPS: &str = "sweeps";

/// The key of the table's mark: who scans for ended leases. No load row has this key either.
pub const HEAL_KEY: &str = "load#heal";
/// Mark: when the last healing turn began.
pub const HEALED_AT: &str = "healed_at";
/// Mark, optional: the id of the last turn: two turns may begin in the same microsecond.
pub const HEALED_BY: &str = "healed_by";
/// Mark, optional: no turn begins before this instant, because the last turn is not paid for yet.
pub const HEAL_AFTER: &str = "heal_after";
/// Mark, optional: the key after which the next turn continues; the start of the table without it.
pub const HEAL_POSITION: &str = "heal_position";
/// Mark, optional: the most rows of the next page, fewer after a page that failed or took too long.
pub const HEAL_ROWS: &str = "heal_rows";

/// Load: cost of the leases that were live at the last measurement.
pub const PENDING: &str = "pending";
/// Load: slots that were not free at the last measurement.
pub const TAKEN: &str = "taken";
/// Load: the bucket's writes so far by clients that do not count [`ADMITTED`].
pub const UNCOUNTED: &str = "uncounted";
/// Load: [`OUTLIVED`] at the last measurement.
pub const OUTLIVED_SEEN: &str = "outlived_seen";
/// Load, optional: [`REFUSED`] at the last measurement.
pub const REFUSED_SEEN: &str = "refused_seen";
/// Load: what departs a second while work is pending, averaged; 0 while unknown.
pub const DRAIN_RATE: &str = "drain_rate";
/// Load: when the load was last measured.
pub const MEASURED_AT: &str = "measured_at";
/// Load: number of measurements.
pub const SEQUENCE: &str = "sequence";
/// Load: since when work has been pending; 0 while no work is pending.
pub const PENDING_SINCE: &str = "pending_since";
/// Load: the last measurement that found departures; 0 before the first.
pub const DEPARTED_AT: &str = "departed_at";
/// Load: since when slots have been taken without any grant or departure; 0 while there are some.
pub const STILL_SINCE: &str = "still_since";
/// Load, optional: monotone count of the refusals that callers reported.
pub const REFUSED: &str = "refused";
/// Load, optional: the period of eight seconds that [`CROWD`] counts, numbered from the epoch.
pub const CROWD_PERIOD: &str = "crowd_period";
/// Load, optional: number of processes that were refused slots, or waited for them, in that period.
pub const CROWD: &str = "crowd";
/// Load, optional: [`CROWD`] of the period before.
pub const CROWD_BEFORE: &str = "crowd_before";
/// Load, optional: monotone count of the numbers that callers drew to wait for slots in the order of coming.
pub const DRAWN: &str = "drawn";
/// Load of any bucket, optional: what each caller used. A map from its name to [`USED_NOW`] and
/// [`USED_BEFORE`].
pub const CALLERS: &str = "callers";
/// Load, optional: the period of five minutes that [`USED_NOW`] counts, numbered from the epoch.
pub const CALLERS_PERIOD: &str = "callers_period";
/// Load, optional: number of writes of [`CALLERS`].
pub const CALLERS_VERSION: &str = "callers_version";
/// Load of any bucket, optional: number of processes that noted a use in [`CALLERS_PERIOD`].
pub const PROCESSES: &str = "processes";
/// Load of any bucket, optional: [`PROCESSES`] of the period before.
pub const PROCESSES_BEFORE: &str = "processes_before";
/// Caller: what it used in [`CALLERS_PERIOD`]: tokens, or slots times seconds. The name is one letter,
/// because DynamoDB charges by the size of the row.
pub const USED_NOW: &str = "u";
/// Caller: [`USED_NOW`] of the period before.
pub const USED_BEFORE: &str = "b";
/// Load, optional: monotone count of expired holders: found alive after their lease had ended.
pub const OUTLIVED: &str = "outlived";

/// Lease: the bucket whose slots or tokens the lease holds.
pub const DIMENSION: &str = "dimension";
/// Lease: the cost, which is what the lease holds.
pub const COST: &str = "cost";
/// Lease: when it was granted.
pub const CREATED_AT: &str = "created_at";
/// Lease: when it ends, in whole seconds, rounded up.
pub const TTL: &str = "ttl";
/// Lease: the holder.
pub const CALLER: &str = "caller";
/// Lease, optional: the share whose caller borrowed the slots, or `common`. Only in a lease on the row of
/// another share.
pub const BORROWED_BY: &str = "borrowed_by";
/// Lease: when DynamoDB may delete the row, [`PURGE_AFTER_SECS`] after its end. The table's TTL is on this,
/// never on [`TTL`]: DynamoDB would delete the only trace of a held slot before a sweep saw it.
pub const PURGE_AT: &str = "purge_at";
/// Time from a lease's end to its deletion by DynamoDB: 7 days, in which any sweep may find it.
pub const PURGE_AFTER_SECS: u64 = 7 * 24 * 60 * 60;

/// Ticket: what the ticket books. A map from each dimension to its [`COST`], and to [`TOKENS`],
/// [`LAST_REFILL_AT`], [`RETURNED`], [`LOTS`], [`CAPACITY`] and [`REFILL_RATE`] of its bucket, as the booking
/// left them for later callers.
pub const BOOKED: &str = "booked";
/// Ticket, optional: the share that its caller named. In [`BOOKED`], optional: the share whose line is
/// booked.
pub const SHARE: &str = "share";
/// Ticket, optional: what the redeemer takes in addition, because it was not booked. A map from each
/// dimension to its [`COST`].
pub const REST: &str = "rest";
/// Ticket: the redeemer, as a unique text. A ticket without this attribute has not been redeemed.
pub const REDEEMED_BY: &str = "redeemed_by";
