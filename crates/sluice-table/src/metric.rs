//! The one table of all metrics. The metrics are described from it, and `docs/metrics.md` prints it.

use ::metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, SharedString, with_recorder,
};

/// A metric: its name, kind, unit, labels, source and description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    name: &'static str,
    kind: MetricKind,
    unit: Unit,
    labels: &'static [&'static str],
    source: MetricSource,
    description: &'static str,
}

/// How the values of a metric combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricKind {
    /// A sum that only grows.
    Counter,
    /// The value at a moment.
    Gauge,
    /// A distribution.
    Histogram,
}

/// Who reports a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricSource {
    /// Each process that links the SDK, about itself.
    Process,
    /// `sluice metrics`, about the whole table.
    Table,
    /// Both.
    Both,
}

/// What a value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Count,
    Seconds,
    Tokens,
    TokensPerSecond,
    CapacityUnits,
    Ratio,
}

impl Unit {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Seconds => "seconds",
            Self::Tokens => "tokens or slots",
            Self::TokensPerSecond => "slots a second",
            Self::CapacityUnits => "capacity units",
            Self::Ratio => "0 to 1",
        }
    }

    const fn facade(self) -> Option<::metrics::Unit> {
        match self {
            Self::Count | Self::Tokens | Self::CapacityUnits => Some(::metrics::Unit::Count),
            Self::Seconds => Some(::metrics::Unit::Seconds),
            Self::TokensPerSecond => Some(::metrics::Unit::CountPerSecond),
            Self::Ratio => None,
        }
    }
}

impl Metric {
    /// The metric's name, such as `sluice.grants`. Exporters may spell it differently (`sluice_grants`).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// How the metric's values combine.
    #[must_use]
    pub const fn kind(&self) -> MetricKind {
        self.kind
    }

    /// The unit of the values, as a word for people.
    #[must_use]
    pub const fn unit(&self) -> &'static str {
        self.unit.as_str()
    }

    /// The labels of each value, in order.
    #[must_use]
    pub const fn labels(&self) -> &'static [&'static str] {
        self.labels
    }

    /// Who reports the metric.
    #[must_use]
    pub const fn source(&self) -> MetricSource {
        self.source
    }

    /// The metric's description.
    #[must_use]
    pub const fn description(&self) -> &'static str {
        self.description
    }

    /// The counter with these label values, from the installed recorder.
    pub fn counter<const N: usize>(&self, values: [SharedString; N]) -> Counter {
        counter(&self.key(values))
    }

    /// The gauge with these label values, from the installed recorder.
    pub fn gauge<const N: usize>(&self, values: [SharedString; N]) -> Gauge {
        let key = self.key(values);
        with_recorder(|recorder| recorder.register_gauge(&key, &METADATA))
    }

    /// The histogram with these label values, from the installed recorder.
    pub fn histogram<const N: usize>(&self, values: [SharedString; N]) -> Histogram {
        histogram(&self.key(values))
    }

    /// The key of the metric with these label values. Code that counts often keeps the key.
    pub fn key<const N: usize>(&self, values: [SharedString; N]) -> Key {
        debug_assert_eq!(self.labels.len(), N, "{}", self.name);
        let labels: Vec<Label> =
            self.labels.iter().zip(values).map(|(name, value)| Label::new(*name, value)).collect();
        Key::from_parts(self.name, labels)
    }
}

/// The counter of a key, from the installed recorder.
pub fn counter(key: &Key) -> Counter {
    with_recorder(|recorder| recorder.register_counter(key, &METADATA))
}

/// The histogram of a key, from the installed recorder.
pub fn histogram(key: &Key) -> Histogram {
    with_recorder(|recorder| recorder.register_histogram(key, &METADATA))
}

static METADATA: Metadata<'static> = Metadata::new("sluice", Level::INFO, Some(module_path!()));

/// Describes each metric to the recorder. Every new client calls this function. A program that installs its
/// recorder later calls it after that.
pub fn describe_metrics() {
    for metric in METRICS {
        let (name, unit) = (KeyName::from_const_str(metric.name), metric.unit.facade());
        let description = SharedString::const_str(metric.description);
        with_recorder(|recorder| match metric.kind {
            MetricKind::Counter => recorder.describe_counter(name, unit, description),
            MetricKind::Gauge => recorder.describe_gauge(name, unit, description),
            MetricKind::Histogram => recorder.describe_histogram(name, unit, description),
        });
    }
}

macro_rules! metrics {
    ($($ident:ident: $source:ident $kind:ident $name:literal $unit:ident [$($label:literal),*] $description:literal;)*) => {
        $(#[doc = $description]
        pub static $ident: Metric = Metric {
            name: $name,
            kind: MetricKind::$kind,
            unit: Unit::$unit,
            labels: &[$($label),*],
            source: MetricSource::$source,
            description: $description,
        };)*

        /// Every metric that Sluice reports, in the order of `docs/metrics.md`.
        pub static METRICS: &[&Metric] = &[$(&$ident),*];
    };
}

metrics! {
    ACQUIRE_DURATION: Process Histogram "sluice.acquire.duration" Seconds ["dimension", "outcome"]
        "From the call of acquire to its answer";
    GRANTS: Process Counter "sluice.grants" Count ["dimension", "source"]
        "Calls that may be made";
    REFUSALS: Process Counter "sluice.refusals" Count ["dimension", "reason"]
        "Callers that were told to come back later";
    WAIT: Process Histogram "sluice.wait" Seconds ["dimension"]
        "From asking for a slot to the start of its closure";
    SLOT_TIMEOUTS: Process Counter "sluice.slot.timeouts" Count ["dimension"]
        "Slots that their timeout ended, whether or not the closure had begun";
    RELEASES: Process Counter "sluice.releases" Count ["dimension", "outcome"]
        "Parts of grants that were given back";
    RENEWALS: Process Counter "sluice.lease.renewals" Count ["dimension", "outcome"]
        "Renewals of leases";
    EXPIRED_BUT_ALIVE: Process Counter "sluice.lease.expired_but_alive" Count ["dimension"]
        "Expired holders: holders that were alive when they found their lease ended and given back";
    SETTLES: Process Counter "sluice.settles" Count ["dimension", "outcome"]
        "Calls that were charged what they used";
    TOKENS_UNSETTLED: Process Counter "sluice.tokens.unsettled" Tokens ["dimension"]
        "Tokens that calls kept because nobody stated what they used";
    ESTIMATES_CUT: Process Counter "sluice.estimates.cut" Count []
        "Replies that were longer than the estimate sent as max_tokens, whose calls are made again";
    COOL_DOWNS: Process Counter "sluice.cool_downs" Count ["dimension"]
        "Cool-downs that this process set or learned of";
    UNAVAILABLE: Process Counter "sluice.unavailable" Count ["outcome"]
        "Acquires while DynamoDB was out";
    LIMIT_NEAR: Process Counter "sluice.limit.near" Count ["dimension"]
        "Times that the part of a limit was used at which the process warns";
    SHARE_USED: Process Counter "sluice.share.used" Tokens ["dimension", "share"]
        "Tokens that calls of a share took, of its own line or of others";
    SHARE_BORROWED: Process Counter "sluice.share.borrowed" Tokens ["dimension", "share", "lender"]
        "Tokens or slots that calls took from another share's line";
    SHADOW_REFUSALS: Process Counter "sluice.shadow.refusals" Count ["dimension", "reason"]
        "Calls that shadow mode let through and that would have been refused";
    SHADOW_WAIT: Process Histogram "sluice.shadow.wait" Seconds ["dimension"]
        "Waits of slots that shadow mode let through at once";
    SHADOW_ERRORS: Process Counter "sluice.shadow.errors" Count ["reason"]
        "Errors of the limiter that shadow mode kept from callers";
    DYNAMODB_OUT: Process Gauge "sluice.dynamodb.out" Count []
        "Connections of this process that send nothing but probes, because DynamoDB does not answer";
    VENDOR_REFUSALS: Process Counter "sluice.vendor.refusals" Count ["dimension", "reason"]
        "Calls that the vendor refused although they were granted";
    VENDOR_LOWERED: Process Counter "sluice.vendor.lowered" Count ["dimension"]
        "Times that a bucket was lowered to what its vendor said";
    VENDOR_LIMIT_LOWER: Process Counter "sluice.vendor.limit_lower" Count ["dimension"]
        "Times that a vendor's limit was found below its bucket's";
    VENDOR_UNKNOWN: Process Counter "sluice.vendor.unknown_headers" Count ["dimension"]
        "Replies of a vendor that report limits in headers that are not known";
    VENDOR_UNREADABLE: Process Counter "sluice.vendor.unreadable_headers" Count ["dimension"]
        "Headers of a vendor that could not be read";
    ADMISSION: Process Counter "sluice.admission" Count ["dimension", "decision", "mode"]
        "Decisions of admission control";
    HEALS: Process Counter "sluice.heals" Count ["outcome"]
        "Turns of this process to scan the table for ended leases";
    REQUEST_DURATION: Process Histogram "sluice.request.duration" Seconds ["operation", "outcome"]
        "From sending a request to DynamoDB to its reply";
    CONFLICTS: Process Counter "sluice.conflicts" Count ["operation", "reason"]
        "Writes that changed nothing, because other writers interfered or the row was not as planned";
    CAPACITY_UNITS: Process Counter "sluice.capacity_units" CapacityUnits ["operation", "kind"]
        "Read and write units that DynamoDB's replies state";
    RETRIES: Process Counter "sluice.request.retries" Count ["operation"]
        "Requests that were sent again, or planned again after throttling";
    BUCKET_LEVEL: Both Gauge "sluice.bucket.level" Tokens ["dimension"]
        "What a bucket holds: tokens, or free slots; below zero if calls are booked";
    BUCKET_CAPACITY: Both Gauge "sluice.bucket.capacity" Tokens ["dimension"]
        "The most that a bucket holds";
    LOAD_PENDING: Both Gauge "sluice.load.pending" Tokens ["dimension"]
        "Slots in use at the last sweep";
    LOAD_DRAIN_RATE: Both Gauge "sluice.load.drain_rate" TokensPerSecond ["dimension"]
        "Slots that calls leave in a second, as the sweeps measure it while there is work";
    CLOCK_OFFSET: Process Gauge "sluice.clock.offset" Seconds []
        "DynamoDB's clock less this process's: a lower bound of the distance from zero";
    TRACKER_RESERVATIONS: Process Gauge "sluice.tracker.reservations" Count []
        "Grants that the process's trackers hold";
    TRACKER_CAPACITY: Process Gauge "sluice.tracker.capacity" Count []
        "The most grants that the process's trackers may hold";
    TRACKER_STALE_RATIO: Process Gauge "sluice.tracker.stale_ratio" Ratio []
        "The share of entries in the trackers' heaps of ages whose grants were taken";
    TRACKER_RELEASES: Process Counter "sluice.tracker.releases" Count ["outcome"]
        "Stale grants that a tracker released";
    SWEEP_DURATION: Process Histogram "sluice.sweep.duration" Seconds ["outcome"]
        "How long a sweep took";
    SWEEP_RESTORED: Process Counter "sluice.sweep.restored" Count ["dimension"]
        "Leases that a sweep or a healing scan of this process gave back";
    BUCKET_LEASES: Table Gauge "sluice.bucket.leases" Count ["dimension"]
        "Leases that hold slots of a bucket, including ended ones";
    BUCKET_OVERDUE: Table Gauge "sluice.bucket.leases_overdue" Count ["dimension"]
        "Leases of a bucket that ended over two sweeps ago and still hold their slots";
    BUCKET_COOL_DOWN: Table Gauge "sluice.bucket.cool_down" Seconds ["dimension"]
        "Time from now for which a bucket grants nothing";
    BUCKET_DRIFT: Table Gauge "sluice.bucket.drift" Tokens ["dimension"]
        "Slots that the last sweep found lost; minted slots are below zero";
    SHARE_LEVEL: Table Gauge "sluice.share.level" Tokens ["dimension", "share"]
        "What the line of a share holds; below zero if calls are booked";
    SHARE_CAPACITY: Table Gauge "sluice.share.capacity" Tokens ["dimension", "share"]
        "The most that the line of a share holds";
    SHARE_LENT: Table Counter "sluice.share.lent" Tokens ["dimension", "share"]
        "Tokens that callers of others took from the line of a share";
    SHARE_TOKENS_BORROWED: Table Counter "sluice.share.tokens_borrowed" Tokens ["dimension", "share"]
        "Tokens that callers of a share took from the lines of others";
    SHARE_SLOTS_LENT: Table Gauge "sluice.share.slots_lent" Tokens ["dimension", "share"]
        "Slots of a share that callers of others hold now";
    SHARE_SLOTS_BORROWED: Table Gauge "sluice.share.slots_borrowed" Tokens ["dimension", "share"]
        "Slots of others that callers of a share hold now";
    LOAD_LEAKED: Table Gauge "sluice.load.leaked" Tokens ["dimension"]
        "Slots in use although nothing was granted or given back for 15 minutes";
    LOAD_REFUSED: Table Counter "sluice.load.refused" Count ["dimension"]
        "Refusals and shed requests that callers reported in the load row";
    LOAD_OUTLIVED: Table Counter "sluice.load.outlived" Count ["dimension"]
        "Expired holders of the fleet: found alive after their lease had ended";
    LOAD_AGE: Table Gauge "sluice.load.age" Seconds ["dimension"]
        "Age of the load: time since the last sweep's measurement";
    SWEEP_AGE: Table Gauge "sluice.sweep.age" Seconds []
        "Time since the last sweep that came to its end";
    TABLE_UNREADABLE: Table Gauge "sluice.table.unreadable" Count []
        "Rows that cannot be read";
    SCRAPE_DURATION: Table Gauge "sluice.scrape.duration" Seconds []
        "How long the scan took that all table metrics are from";
    SCRAPE_WHOLE: Table Gauge "sluice.scrape.whole" Count []
        "1 if the scan read the whole table; 0 if the table is too large: then all table metrics describe a part";
    SCRAPE_ROWS: Table Gauge "sluice.scrape.rows" Count []
        "Rows that the scan read";
    SCRAPE_UNITS: Table Gauge "sluice.scrape.capacity_units" CapacityUnits []
        "Read units that the scan cost, if DynamoDB states them";
}
