//! What each caller used of a bucket.

use serde::Serialize;
use sluice_sdk::core::{Amount, Limit, Load, Timestamp};

use crate::output::{self, Decimal, short};

/// The callers of a bucket, those that used most first.
#[derive(Debug, Serialize)]
pub(super) struct UsedBy {
    used_by: Vec<Caller>,
    /// Since when; absent if nobody noted a use.
    used_since: Option<Decimal>,
    #[serde(skip)]
    since: Timestamp,
    #[serde(skip)]
    unit: &'static str,
}

#[derive(Debug, Serialize)]
struct Caller {
    caller: String,
    /// Tokens; slots times seconds, of a concurrency bucket.
    used: Decimal,
    /// Of what all callers used, in percent.
    percent: i64,
}

impl UsedBy {
    pub(super) fn of(load: &Load, limit: &Limit, now: Timestamp) -> Self {
        let uses = load.use_by_caller(now);
        let all = uses.callers.iter().fold(Amount::ZERO, |sum, one| sum.plus(one.used));
        let percent = |used: Amount| i128::from(used.micros()) * 100 / i128::from(all.micros().max(1));
        let caller = |one: &sluice_sdk::core::CallerUse| Caller {
            caller: one.caller.clone(),
            used: Decimal::of(one.used),
            percent: i64::try_from(percent(one.used)).unwrap_or_default(),
        };
        let used_by: Vec<Caller> = uses.callers.iter().map(caller).collect();
        let used_since = (!used_by.is_empty()).then(|| Decimal::of(uses.since));
        let unit = if limit.is_concurrent() { "slots x seconds" } else { limit.limit_type().as_str() };
        Self { used_by, used_since, since: uses.since, unit }
    }

    pub(super) fn print(&self, now: Timestamp) {
        if self.used_by.is_empty() {
            return;
        }
        let since = output::relative(self.since, now);
        // A process notes its use once a minute.
        println!(
            "  used by   (since {since}, {}; many processes that ran for less than a minute are missing)",
            self.unit
        );
        for Caller { caller, used, percent } in &self.used_by {
            println!("            {percent:>3} %  {:>12}  {caller}", short(used));
        }
    }
}
