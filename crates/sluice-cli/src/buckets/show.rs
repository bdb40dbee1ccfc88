//! `sluice buckets list` and `show`: buckets as they are in the table.

use std::collections::HashMap;

use serde::Serialize;
use sluice_ops::BucketRow;
use sluice_sdk::Client;
use sluice_sdk::core::{Amount, Bucket, COMMON, Dimension, SlotLine, Timestamp};

use super::used_by::UsedBy;
use super::{LimitLine, unknown};
use crate::duration::exact_wait;
use crate::failure::Failure;
use crate::output::{self, Align, Decimal, Unreadable, short};

pub(super) async fn list(client: &Client, json: bool) -> Result<(), Failure> {
    let (mut lines, mut cool_downs, mut faults) = (Vec::new(), Vec::new(), Vec::new());
    let rows = client.ops().buckets().await?;
    // Read after the replies, which contain the table's time.
    let now = client.now();
    for BucketRow { key, bucket, .. } in rows {
        match bucket {
            Ok(bucket) => {
                cool_downs.push(cool_down(&bucket, now));
                lines.push(BucketLine::new(&bucket, now));
            }
            Err(fault) => faults.push(Unreadable { key, error: fault.to_string() }),
        }
    }
    if json {
        return output::json(&output::with_unreadable(&lines, &faults)?);
    }
    if lines.is_empty() && faults.is_empty() {
        println!("table {} has no buckets; declare buckets with `sluice buckets apply FILE`", client.table());
    } else {
        let row = |(line, cool_down): (BucketLine, &'static str)| {
            let LimitLine { limit_type, capacity, refill_rate, cost_per_call, has_default_cost } = line.limit;
            let cost = if has_default_cost { cost_per_call.to_string() } else { "-".into() };
            let capacity = capacity.to_string();
            [
                line.dimension,
                limit_type.into(),
                short(&line.level),
                capacity,
                short(&refill_rate),
                cost,
                cool_down.into(),
            ]
        };
        use Align::{Left, Right};
        let columns = [
            ("DIMENSION", Left),
            ("TYPE", Left),
            ("LEVEL", Right),
            ("CAPACITY", Right),
            ("REFILL/S", Right),
            ("COST", Right),
            // A remark, of a bucket that grants nothing whatever its level.
            ("", Left),
        ];
        output::table(columns, lines.into_iter().zip(cool_downs).map(row).collect());
    }
    output::print_unreadable(&faults);
    Ok(())
}

/// For how long, `show` says.
fn cool_down(bucket: &Bucket, now: Timestamp) -> &'static str {
    if bucket.blocked_until().is_some_and(|until| until > now) { "cooling down" } else { "" }
}

pub(super) async fn show(client: &Client, name: &str, json: bool) -> Result<(), Failure> {
    let dimension = Dimension::new(name)?;
    let bucket = client.ops().bucket(&dimension).await?.ok_or_else(|| unknown(client, &dimension))?;
    let now = client.now();
    let load = client.ops().load(&dimension).await?;
    let used_by = UsedBy::of(&load, &bucket.whole_limit(), now);
    let mut line = BucketLine { used_by: Some(used_by), ..BucketLine::new(&bucket, now) };
    if bucket.has_slot_shares() {
        let (shares, free) = slot_shares(client, &bucket).await?;
        (line.limit, line.level) = (LimitLine::new(&bucket.limit_at_vendor()), Decimal::of(free));
        line.shares = shares;
    }
    if json {
        return output::json(&line);
    }
    println!("{name}");
    println!("  limit     {}", line.limit.describe());
    println!("  level     {} of {}", short(&line.level), line.limit.capacity);
    let widest = line.shares.iter().map(|share| share.share.len()).max().unwrap_or(0).max(9);
    line.shares.iter().for_each(|share| println!("  {}", share.describe(widest)));
    // With shares, each has a next start of its own.
    let next = bucket
        .reaches(bucket.limit().cost_per_call().amount())
        .filter(|at| *at > now && !bucket.has_shares());
    if let Some(there) = next {
        println!("  next start in {}", exact_wait(there.since(now).as_secs_f64()));
    }
    if let Some(until) = bucket.blocked_until().filter(|until| *until > now) {
        println!("  cool-down ends {}", output::relative(until, now));
    }
    if let Some(limit) = bucket.vendor_limit() {
        println!("  vendor    reported a limit of {} {}", limit.limit, output::relative(limit.at, now));
    }
    if let Some(at_least) = &line.adopt_at_least {
        println!("  adopts    a lower limit that the vendor reports, down to {}", line.limit.floor(at_least));
    }
    if let Some(slots) = bucket.noted_drift() {
        let what = if slots < Amount::ZERO { "too many" } else { "lost" };
        println!("  drift     slots {what}: {}; corrected if the next sweep finds it too", slots.abs());
    }
    line.used_by.iter().for_each(|used_by| used_by.print(now));
    println!("  version   {}", line.version);
    Ok(())
}

#[derive(Debug, Serialize)]
struct BucketLine {
    dimension: String,
    #[serde(flatten)]
    limit: LimitLine,
    level: Decimal,
    tokens: Decimal,
    last_refill_at: Decimal,
    version: i64,
    /// Each share, and the part that no share has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shares: Vec<ShareLevel>,
    blocked_until: Option<Decimal>,
    drift: Option<Decimal>,
    vendor_limit: Option<Decimal>,
    adopt_lower_limit: bool,
    /// A minute, or at once.
    adopt_at_least: Option<Decimal>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    used_by: Option<UsedBy>,
}

impl BucketLine {
    fn new(bucket: &Bucket, now: Timestamp) -> Self {
        Self {
            dimension: bucket.dimension().to_string(),
            limit: LimitLine::new(&bucket.whole_limit()),
            // Free slots as stored, even if there are more than the capacity: the reader should see that.
            level: Decimal::of(if bucket.limit().is_concurrent() {
                bucket.tokens()
            } else {
                bucket.whole_level(now)
            }),
            tokens: Decimal::of(bucket.tokens()),
            last_refill_at: Decimal::of(bucket.anchor()),
            version: bucket.version(),
            shares: ShareLevel::all(bucket, now),
            blocked_until: bucket.blocked_until().map(Decimal::of),
            drift: bucket.noted_drift().map(Decimal::of),
            vendor_limit: bucket.vendor_limit().map(|limit| Decimal::of(limit.limit)),
            adopt_lower_limit: bucket.adopts_limit(),
            adopt_at_least: bucket.adopts_limit().then(|| Decimal::of(bucket.adopt_at_least())),
            used_by: None,
        }
    }
}

/// The lines of a concurrency bucket with shares, each a row, the common line last; and the free slots
/// together.
async fn slot_shares(client: &Client, bucket: &Bucket) -> Result<(Vec<ShareLevel>, Amount), Failure> {
    let mut rows = HashMap::new();
    for share in bucket.slot_shares() {
        rows.extend(client.ops().bucket(&share.row).await?.map(|row| (share.row.clone(), row)));
    }
    // Only who borrowed is in the leases. A role that may not scan, or whose scan fails, sees the rest.
    let leases = client.ops().leases().await.ok();
    let readable = leases.iter().flatten().filter_map(|row| row.lease.as_ref().ok());
    let lines = SlotLine::all(bucket, |of| rows.get(of), readable);
    let borrowing = |amount: Amount| leases.is_some().then(|| Decimal::of(amount));
    // A line that has fewer slots than are held gives nothing until they come back.
    let free_of = |line: &SlotLine| line.free.unwrap_or_default().max(Amount::ZERO);
    let free = lines.iter().fold(Amount::ZERO, |sum, line| sum.plus(free_of(line)));
    let level = |line: &SlotLine| ShareLevel {
        share: line.name().to_owned(),
        level: Decimal::of(line.free.unwrap_or_default()),
        capacity: Decimal::of(line.capacity),
        refill_rate: Decimal::of(bucket.limit().refill_rate()),
        lends_above: Decimal::of(line.lends_above),
        lent: borrowing(line.lent),
        borrowed: borrowing(line.borrowed),
        background: line.is_background,
        closed: line.is_closed,
        has_too_many: line.capacity > line.guaranteed,
        changes_to: (line.guaranteed != line.capacity).then(|| Decimal::of(line.guaranteed)),
    };
    Ok((lines.iter().map(level).collect(), free))
}

/// A share as it is now.
#[derive(Debug, Serialize)]
struct ShareLevel {
    share: String,
    level: Decimal,
    capacity: Decimal,
    refill_rate: Decimal,
    /// What others leave when they borrow.
    lends_above: Decimal,
    /// Of slots: those that callers of others hold now. Of a rate: what callers of others took so far. `None`
    /// if the leases, which say it of slots, cannot be read.
    lent: Option<Decimal>,
    /// Of slots: those of others that its callers hold now. Of a rate: what its callers took of others so
    /// far. `None` as for `lent`.
    borrowed: Option<Decimal>,
    background: bool,
    /// Whether it has no slots yet, or goes: nobody takes slots of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    closed: bool,
    /// Whether its row has more slots than it is to have: the change was interrupted.
    #[serde(skip)]
    has_too_many: bool,
    /// The capacity that it will have, while the shares change.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes_to: Option<Decimal>,
}

impl ShareLevel {
    /// All lines of a bucket with shares, the common line last; none of a bucket without.
    fn all(bucket: &Bucket, now: Timestamp) -> Vec<Self> {
        let mut lines: Vec<Self> = match bucket.has_shares() {
            true => bucket.every_line().iter().map(|line| Self::new(line, now)).collect(),
            false => Vec::new(),
        };
        let common = lines.len().min(1);
        lines.rotate_left(common);
        lines
    }

    fn new(line: &Bucket, now: Timestamp) -> Self {
        Self {
            share: line.share().map_or_else(|| COMMON.to_owned(), ToString::to_string),
            level: Decimal::of(line.level(now)),
            capacity: Decimal::of(line.limit().capacity()),
            refill_rate: Decimal::of(line.limit().refill_rate()),
            lends_above: Decimal::of(line.lends_above()),
            lent: Some(Decimal::of(line.lent())),
            borrowed: Some(Decimal::of(line.borrowed())),
            background: line.is_background(),
            closed: false,
            has_too_many: false,
            changes_to: None,
        }
    }

    fn describe(&self, width: usize) -> String {
        let Self { share, level, capacity, refill_rate, lends_above, lent, borrowed, background, .. } = self;
        let background = if *background { ", background" } else { "" };
        let changing = match self.changes_to.as_deref() {
            None => String::new(),
            Some("0") => "; removed".to_owned(),
            Some(then) if self.has_too_many => {
                format!("; is to have {}: apply the file again", short(then))
            }
            Some(then) => format!("; becomes {} as slots come back", short(then)),
        };
        // Slots come back by release.
        let is_of_slots = **refill_rate == *"0";
        let rate =
            if is_of_slots { " free".to_owned() } else { format!(", {} a second", short(refill_rate)) };
        let so_far = if is_of_slots { "" } else { " so far" };
        let some = |what: &str, amount: &Option<Decimal>| match amount.as_deref() {
            None | Some("0") => String::new(),
            Some(amount) => format!(", {what} {}{so_far}", short(amount)),
        };
        let (lent, borrowed) = (some("lent", lent), some("borrowed", borrowed));
        // While it shrinks, calls may still hold more slots than the line has.
        let (level, beyond) = match level.strip_prefix('-').filter(|_| is_of_slots) {
            Some(beyond) => ("0".to_owned(), format!(", {} held beyond that", short(beyond))),
            None => (short(level), String::new()),
        };
        let capacity = short(capacity);
        // Nobody takes slots of it.
        let keeps = if self.closed { String::new() } else { format!(", keeps {}", short(lends_above)) };
        format!(
            "{share:<width$} {level} of {capacity}{rate}{beyond}{lent}{borrowed}{keeps}{background}{changing}"
        )
    }
}

#[cfg(test)]
mod tests {
    use sluice_sdk::core::{Cost, DeclaredShare, Limit, ShareName, Split};
    use sluice_testkit::{EmbeddedDynamo, Fault, Operation};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_shares_of_slots_are_shown_if_the_scan_for_who_borrowed_fails() {
        let dynamo = EmbeddedDynamo::with_table("table").await.unwrap();
        let (client, name) = (dynamo.client("table"), Dimension::new("elevenlabs#concurrent").unwrap());
        let limit = Limit::concurrent(Amount::from_tokens(4), Cost::ONE).unwrap();
        client.ops().apply_limit(&name, &limit).await.unwrap();
        let search = DeclaredShare {
            name: ShareName::new("search").unwrap(),
            part: "0.5".parse().unwrap(),
            floor: None,
            background: false,
        };
        client.ops().apply_split(&name, &Split::new(limit, &[search]).unwrap()).await.unwrap();
        let bucket = client.ops().bucket(&name).await.unwrap().unwrap();
        let lent = async || {
            let (shares, free) = slot_shares(&client, &bucket).await.unwrap();
            assert_eq!(free, Amount::from_tokens(4));
            shares.into_iter().map(|share| share.lent).collect::<Vec<_>>()
        };
        assert_eq!(lent().await, [Some(Decimal::of(0)), Some(Decimal::of(0))]);
        dynamo
            .faults()
            .always(Operation::Scan, Fault::service("ValidationException", 400, serde_json::json!({})));
        assert_eq!(lent().await, [None, None]);
    }
}
