//! What a seed draws in addition to limits, callers and weather. Each kind has a random stream of its own, so
//! that a seed without a kind is the run that it was before there was that kind.

use std::time::Duration;

use fastrand::Rng;

use crate::scenario::Weather;

/// Rows on a page of a scan, where the table has many pages.
const ROWS_ON_A_PAGE: std::ops::RangeInclusive<u32> = 4..=25;

/// What a healthy request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Latency {
    /// 0.5 to 30 ms.
    Usual,
    /// 0.5 to 2 ms.
    Near,
    /// The same for each, to the microsecond.
    Steady(Duration),
    /// 80 to 150 ms.
    CrossRegion,
    /// 0.5 ms to 3 s, half of them below 40 ms.
    Ragged,
}

/// The kinds of disturbance of one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conditions {
    pub(crate) latency: Latency,
    /// Some seconds in which replies take 1 to 3 s: longer than an attempt may.
    pub(crate) brown_outs: bool,
    /// Throttling that lasts for seconds, of the table or of one row.
    pub(crate) throttling: bool,
    /// Single processes stand still for seconds to a minute, while others go on.
    pub(crate) freezes: bool,
    /// Machines whose clock is wrong by up to a day.
    pub(crate) wrong_clocks: bool,
    /// Clocks that someone sets in the middle of the run, by seconds to hours.
    pub(crate) set_clocks: bool,
    /// Machines that stand still, clocks and all, and are resumed later.
    pub(crate) snapshots: bool,
    /// Replies whose body stalls, trickles, or breaks off.
    pub(crate) broken_bodies: bool,
    /// Rows on a page of a scan, where the table has many rows of others.
    pub(crate) page: Option<u32>,
    /// Buckets that are removed and made anew while they are in use.
    pub(crate) rebirths: bool,
    /// Valid but wrong numbers that someone writes into rows.
    pub(crate) wrong_numbers: bool,
    /// Buckets with shares, and callers of each.
    pub(crate) shares: bool,
    /// Slots with shares, and callers of each.
    pub(crate) slot_shares: bool,
}

impl Conditions {
    /// Of a seed in this weather. Those named in `SLUICE_SIM_WITHOUT`, with commas between them, are left
    /// out: of a run that fails, it tells which of them matter.
    pub(crate) fn of(seed: u64, weather: Weather) -> Self {
        let without = std::env::var("SLUICE_SIM_WITHOUT").unwrap_or_default();
        let is_out = |kind: &str| without.split(',').any(|name| name == kind || name == "all");
        let one_in = |kind: &str, many: u32| !is_out(kind) && stream(seed, kind).u32(0..many) == 0;
        let conditions = Self {
            latency: if is_out("latency") {
                Latency::Usual
            } else {
                Latency::drawn(&mut stream(seed, "latency"))
            },
            brown_outs: one_in("brown-outs", 6),
            throttling: one_in("throttling", 5),
            freezes: one_in("freezes", 5),
            wrong_clocks: one_in("wrong-clocks", 5),
            set_clocks: one_in("set-clocks", 7),
            snapshots: one_in("snapshots", 7),
            broken_bodies: one_in("broken-bodies", 5),
            rebirths: one_in("rebirths", 3),
            wrong_numbers: one_in("wrong-numbers", 3),
            // Of all runs half, since those with lulls have none.
            shares: !is_out("shares") && stream(seed, "shares").u32(0..100) < 57,
            slot_shares: !is_out("slot-shares") && stream(seed, "slot-shares").u32(0..100) < 57,
            page: one_in("pages", 6).then(|| stream(seed, "page").u32(ROWS_ON_A_PAGE)),
        };
        // Half of the calm seeds stay so: what the ledger says of those must be exact.
        if weather == Weather::Calm && stream(seed, "calm").bool() { conditions.calm() } else { conditions }
    }

    /// The same without what keeps requests from being answered, or processes from asking.
    pub(crate) const fn calm(self) -> Self {
        let latency =
            if matches!(self.latency, Latency::Ragged) { Latency::CrossRegion } else { self.latency };
        let calm = Self {
            latency,
            brown_outs: false,
            throttling: false,
            freezes: false,
            broken_bodies: false,
            ..self
        };
        Self { set_clocks: false, snapshots: false, ..calm }
    }

    /// Whether clocks err by more than their processes may.
    pub(crate) const fn have_wrong_clocks(self) -> bool {
        self.wrong_clocks || self.set_clocks || self.snapshots
    }

    /// Whether single processes stand still.
    pub(crate) const fn stand_still(self) -> bool {
        self.freezes || self.snapshots
    }

    /// Whether every request is answered in time, by all that stands here.
    pub(crate) fn are_calm(self) -> bool {
        self == self.calm()
    }

    /// Those of [`KINDS`] that a run has.
    pub(crate) fn kinds(self) -> impl Iterator<Item = &'static str> {
        let latency = match self.latency {
            Latency::Usual => KINDS[0],
            Latency::Near => KINDS[1],
            Latency::Steady(_) => KINDS[2],
            Latency::CrossRegion => KINDS[3],
            Latency::Ragged => KINDS[4],
        };
        [latency].into_iter().chain(self.page.map(|_| KINDS[5]))
    }

    /// How much longer so many requests, one after the other, take than at the usual latency.
    pub(crate) fn slack(self, requests: u32) -> Duration {
        self.latency.longest().saturating_sub(Latency::Usual.longest()) * requests
    }

    /// The longest that so many requests take, one after the other, that are answered in time.
    pub(crate) fn longest(self, requests: u32) -> Duration {
        self.latency.longest() * requests
    }

    /// Requests that a scan of the table takes, one after the other.
    pub(crate) fn pages(self) -> u32 {
        self.page.map_or(1, |rows| (FOREIGN_ROWS + 60) / rows + 1)
    }
}

/// Latencies, and the length of tables, as they are counted.
pub(crate) const KINDS: [&str; 6] = [
    "latency: usual",
    "latency: near",
    "latency: steady",
    "latency: across Regions",
    "latency: ragged",
    "many pages",
];

/// Rows of others in a table of many pages.
pub(crate) const FOREIGN_ROWS: u32 = 120;

impl Latency {
    fn drawn(rng: &mut Rng) -> Self {
        match rng.u32(0..8) {
            0 => Self::Near,
            1 => Self::Steady(Duration::from_millis(rng.u64(2..=60))),
            2 => Self::CrossRegion,
            3 => Self::Ragged,
            _ => Self::Usual,
        }
    }

    /// What a request takes that takes `usual` at the usual latency.
    pub(crate) fn takes(self, usual: Duration) -> Duration {
        let part = (usual.as_secs_f64() - 0.0005) / 0.0295;
        let between = |least: f64, most: f64| Duration::from_secs_f64(least + (most - least) * part);
        match self {
            Self::Usual => usual,
            Self::Near => between(0.0005, 0.002),
            Self::Steady(takes) => takes,
            Self::CrossRegion => between(0.080, 0.150),
            Self::Ragged => Duration::from_secs_f64(0.0005 * 6_000_f64.powf(part.clamp(0.0, 1.0))),
        }
    }

    /// The longest that a request takes and is answered in time.
    fn longest(self) -> Duration {
        match self {
            Self::Usual => Duration::from_millis(30),
            Self::Near => Duration::from_millis(2),
            Self::Steady(takes) => takes,
            Self::CrossRegion => Duration::from_millis(150),
            Self::Ragged => Duration::from_secs(1),
        }
    }
}

/// The random stream of a kind.
pub(crate) fn stream(seed: u64, kind: &str) -> Rng {
    // FNV-1a: the same on every machine and in every version.
    let hash = kind.bytes().fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    });
    Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ hash)
}
