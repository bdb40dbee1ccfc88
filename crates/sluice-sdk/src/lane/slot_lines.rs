//! Shares of slots: a caller takes from the row of its share, and borrows from the rows of others while that
//! has none free.
//!
//! Each row is a bucket with leases, sweeps and an order of those that wait. So a caller that borrows holds a
//! slot of the lender's row, and gives it back there. It takes none that somebody waits for, and leaves what
//! the lender keeps for its own callers.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Amount, Borrowing, Bucket, Dimension, ShareName, SlotRows, SlotShare, Timestamp};
use sluice_ops::SlotsMoved;
use sluice_table::{Backoff, random_wait_around};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::api::error::AcquireError;
use crate::api::refusal::{RetryIn, RetryReason};
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::parallel::in_parallel_here;
use crate::lane::reading::{known, known_since, refresh, refresh_all};
use crate::lane::setback::Taken;
use crate::lane::slot_gives::SlotGives;
use crate::lane::terms::Terms;
use crate::lane::unclaimed::{LaneAnswer, UnclaimedGrant};
use crate::lane::wants::Want;
use crate::lane::{own_line, slot_pauses};
use crate::telemetry;

/// How long a reading of the bucket's row tells which shares there are. A share that goes is used no longer
/// than this, so that its slots come free.
const SHARES_KNOWN_FOR: Duration = Duration::from_secs(10);

/// How old a reading of another share's row may be that a caller borrows by. A smaller value borrows sooner,
/// and reads more: at most one row of each other share in this time, for all callers of the process. For
/// callers that wait it is no more than their longest pause.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How long such a reading may take. Without it, the line is not asked.
const LONGEST_LOOK: Duration = Duration::from_millis(250);

/// When a caller that waits in its own line looks at the others for the first time, and the bounds of the
/// longest pause after that. That pause grows with the other rows and with the processes that wait in the
/// line: one caller in each process makes at most 250 reads a second together, until the pause is a second. A
/// shorter pause leaves a slot idle for less time, and reads more.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
const FOR_EACH_READ: Duration = Duration::from_millis(4);

/// How long a caller that was refused may take to give slots, with a second look.
const LONGEST_GIVE: Duration = Duration::from_millis(500);

/// The line that a caller of this entry belongs to: the bucket's own row, and the share (`None`: the common
/// line).
type Line = (Arc<Entry>, Option<ShareName>);

/// The line of a concurrency bucket with shares; `None` for any other bucket.
fn line_of(inner: &Inner, entry: &Arc<Entry>) -> Option<Line> {
    if let Some((bucket, share)) = entry.share_of() {
        return Some((inner.entry_of(bucket, None), Some(share.clone())));
    }
    let is_common = entry.reading().is_some_and(|reading| reading.bucket.has_slot_shares());
    is_common.then(|| (Arc::clone(entry), None))
}

fn share_of(inner: &Inner, row: &Dimension) -> Option<(Dimension, ShareName)> {
    row.whole_and_share()?;
    inner.cache.get(row.as_str(), None)?.share_of().cloned()
}

/// The name that callers gave, for the name of a row that refused them.
pub(super) fn asked(inner: &Inner, row: &Dimension) -> Option<Dimension> {
    share_of(inner, row).map(|(bucket, _)| bucket)
}

/// The error with the name that callers gave.
pub(super) fn as_asked(inner: &Inner, error: AcquireError) -> AcquireError {
    let AcquireError::NeverSatisfiable { dimension, cost, capacity, share } = error else { return error };
    match share_of(inner, &dimension) {
        Some((bucket, of)) => {
            AcquireError::NeverSatisfiable { dimension: bucket, cost, capacity, share: Some(of.to_string()) }
        }
        None => AcquireError::NeverSatisfiable { dimension, cost, capacity, share },
    }
}

/// The entry of the whole bucket: that of its own row, for the row of one of its shares.
pub(crate) fn whole(inner: &Inner, entry: &Arc<Entry>) -> Arc<Entry> {
    line_of(inner, entry).map_or_else(|| Arc::clone(entry), |(common, _)| common)
}

/// The other rows of the bucket, if it is a concurrency bucket with shares.
pub(crate) async fn other_rows(inner: &Inner, entry: &Arc<Entry>) -> Result<Vec<Arc<Entry>>, AcquireError> {
    if !known(inner, entry).await?.bucket.limit().is_concurrent() {
        return Ok(Vec::new());
    }
    let common = match line_of(inner, entry) {
        Some((common, _)) => common,
        // A caller of a share may have met the bucket as its share alone.
        None => inner.entry_of(&entry.dimension, None),
    };
    let bucket = known(inner, &common).await?.bucket;
    let shares = bucket.slot_shares().iter().map(|share| inner.row_of(&bucket, share));
    let all = std::iter::once(Arc::clone(&common)).chain(shares);
    Ok(all.filter(|row| row.dimension != entry.dimension).collect())
}

/// Whether the caller got this error because its share is being removed: the row of the share is gone, or has
/// shrunk to one call. The caller then asks again, and takes from the common line.
pub(super) async fn is_share_gone(inner: &Inner, error: &AcquireError) -> bool {
    let (AcquireError::UnknownDimension { dimension, .. } | AcquireError::NeverSatisfiable { dimension, .. }) =
        error
    else {
        return false;
    };
    let Some(row) = dimension.whole_and_share().and_then(|_| inner.cache.get(dimension.as_str(), None))
    else {
        return false;
    };
    let Some((common, Some(share))) = line_of(inner, &row) else { return false };
    refresh(inner, &common).await.is_ok_and(|reading| reading.bucket.slot_share(share.as_str()).is_none())
}

/// Takes what is wanted, of which slots may be borrowed.
pub(super) async fn take(inner: &Arc<Inner>, wants: &[Want], terms: Terms) -> LaneAnswer {
    if !wants.iter().any(|want| want.concurrent && line_of(inner, &want.entry).is_some()) {
        return own_line::take(inner, wants, terms).await;
    }
    // Boxed: every attempt moves this future in memory, and few buckets have shares of slots.
    Box::pin(take_or_borrow(inner, wants, terms)).await
}

async fn take_or_borrow(inner: &Arc<Inner>, asked: &[Want], terms: Terms) -> LaneAnswer {
    let mut wants = at_open_lines(inner, asked).await;
    let Some(until) = terms.stays_until() else {
        let answer = own_line::take(inner, &wants, terms).await;
        let answer = refused_while_short(inner, &wants, answer).await;
        let Some(at) = lacking(inner, &wants, &answer) else { return answer };
        if let Some(lent) = borrow(inner, &wants, at, terms, LOOK_EVERY).await {
            return Ok(Taken::Granted(lent));
        }
        let Some((common, _)) = line_of(inner, &wants[at].entry) else { return answer };
        if !gave_slots(inner, &common, LOOK_EVERY).await {
            return answer;
        }
        let answer = own_line::take(inner, &wants, terms).await;
        return refused_while_short(inner, &wants, answer).await;
    };
    // The wait in its own line ends at the caller's deadline.
    loop {
        let answer = tokio::select! {
            biased;
            answer = own_line::take(inner, &wants, terms) => answer,
            lent = borrow_when_lent(inner, &wants, terms) => return Ok(Taken::Granted(lent)),
            open = until_closed(inner, &wants) => { wants = open; continue }
        };
        let was_error = answer.is_err();
        let answer = refused_while_short(inner, &wants, answer).await;
        if !was_error || answer.is_err() {
            return answer;
        }
        // A line that is too small for the call now will have room for it.
        tokio::select! {
            biased;
            lent = borrow_when_lent(inner, &wants, terms) => return Ok(Taken::Granted(lent)),
            () = sleep_until(until.min(Instant::now() + LONGEST_PAUSE.1)) => {}
        }
        if Instant::now() >= until {
            return answer;
        }
        wants = at_open_lines(inner, asked).await;
    }
}

/// The answer, but a refusal for a call that does not fit into its line because the shares are being changed,
/// if a line will have room for it. (Whose call it is is not known: that of a share without a row is in the
/// common line.)
async fn refused_while_short(inner: &Inner, wants: &[Want], answer: LaneAnswer) -> LaneAnswer {
    let Err(error @ AcquireError::NeverSatisfiable { dimension, cost, .. }) = &answer else { return answer };
    let will_fit = |want: &Want| {
        let (common, _) = line_of(inner, &want.entry)?;
        let named = common.reading()?.bucket;
        named.changes_to()?;
        let split = named.split();
        let shares = split.shares().iter().map(|share| share.limit.capacity());
        Some(shares.chain([split.common().capacity()]).any(|line| cost.amount() <= line))
    };
    let is_this = |want: &&Want| want.concurrent && want.entry.dimension == *dimension;
    if !wants.iter().filter(is_this).any(|want| will_fit(want) == Some(true))
        || is_share_gone(inner, error).await
    {
        return answer;
    }
    let wait = Backoff::POLL.cap();
    Ok(Taken::Refused(RetryIn::new(wait, dimension.clone(), RetryReason::NoFreeSlot)))
}

/// Waits until a line closes that the caller waits in. Returns the wants with the lines that are open.
async fn until_closed(inner: &Arc<Inner>, wants: &[Want]) -> Vec<Want> {
    loop {
        sleep(SHARES_KNOWN_FOR / 4).await;
        let open = at_open_lines(inner, wants).await;
        if open.iter().zip(wants).any(|(open, before)| !Arc::ptr_eq(&open.entry, &before.entry)) {
            return open;
        }
    }
}

/// The wants with the lines that their callers may use now: the common line for those of a share that goes.
async fn at_open_lines(inner: &Arc<Inner>, wants: &[Want]) -> Vec<Want> {
    let mut wants = wants.to_vec();
    for want in wants.iter_mut().filter(|want| want.concurrent) {
        want.entry = open_line(inner, Arc::clone(&want.entry)).await;
    }
    wants
}

/// The entry, or that of the common line if the entry is of a share of slots that goes.
pub(crate) async fn open_line(inner: &Inner, entry: Arc<Entry>) -> Arc<Entry> {
    let Some((common, share)) = line_of(inner, &entry) else { return entry };
    // Without an answer, what was known of the shares is as good as any.
    let _ = timeout(LONGEST_LOOK, known_since(inner, &common, SHARES_KNOWN_FOR)).await;
    let is_open = |bucket: &Bucket, share: &ShareName| bucket.slot_share(share.as_str()).is_some();
    let Some(reading) = common.reading() else { return entry };
    if share.is_some_and(|share| !is_open(&reading.bucket, &share)) { common } else { entry }
}

/// The want whose line has no slot free, if that is why the caller was refused.
fn lacking(inner: &Inner, wants: &[Want], answer: &LaneAnswer) -> Option<usize> {
    let Ok(Taken::Refused(retry)) = answer else { return None };
    let lacks =
        |want: &Want| want.entry.dimension == retry.dimension && line_of(inner, &want.entry).is_some();
    (retry.reason == RetryReason::NoFreeSlot).then(|| wants.iter().position(lacks))?
}

/// Looks at the other lines again and again, for a caller that waits in its own.
async fn borrow_when_lent(inner: &Arc<Inner>, wants: &[Want], terms: Terms) -> UnclaimedGrant {
    let mut pause = FIRST_LOOK;
    loop {
        sleep(random_wait_around(pause)).await;
        let full = |want: &Want| {
            let free = want.entry.reading().map(|reading| reading.bucket.tokens());
            want.concurrent
                && free.is_some_and(|free| free < want.cost.amount())
                && line_of(inner, &want.entry).is_some()
        };
        let at = wants.iter().position(full);
        let longest = at.map_or(LONGEST_PAUSE.1, |at| longest_pause(inner, &wants[at].entry));
        pause = (pause * 2).min(longest);
        let Some(at) = at else { continue };
        let young = longest.min(LOOK_EVERY);
        if let Some(lent) = borrow(inner, wants, at, terms, young).await {
            return lent;
        }
        if let Some((common, _)) = line_of(inner, &wants[at].entry) {
            gave_slots(inner, &common, young).await;
        }
    }
}

/// The longest pause between two looks at the other rows, of a caller that waits in this line.
fn longest_pause(inner: &Inner, entry: &Arc<Entry>) -> Duration {
    let rows = line_of(inner, entry).and_then(|(common, _)| common.reading());
    let rows = rows.and_then(|reading| u32::try_from(reading.bucket.slot_shares().len()).ok());
    let reads = entry.load.crowd().zip(rows).map(|(processes, rows)| processes.saturating_mul(rows));
    // Without the right to note itself, a process does not know how many wait.
    reads.map_or(LONGEST_PAUSE.1, |reads| {
        FOR_EACH_READ.saturating_mul(reads).clamp(LONGEST_PAUSE.0, LONGEST_PAUSE.1)
    })
}

/// Takes the slots of the want at `at` from another line, now or not at all, and all other wants from their
/// own. Its reading of that line is `young`: no older than this.
async fn borrow(
    inner: &Arc<Inner>,
    wants: &[Want],
    at: usize,
    terms: Terms,
    young: Duration,
) -> Option<UnclaimedGrant> {
    let want = &wants[at];
    let (common, share) = line_of(inner, &want.entry)?;
    let names = common.reading()?.bucket;
    let looks = names.slot_lenders(share.as_ref()).into_iter().map(|(lender, leaves)| {
        let entry = lender.map_or_else(|| Arc::clone(&common), |share| inner.row_of(&names, share));
        let (lender, share) = (lender.map(|share| &share.name), &share);
        Box::pin(async move {
            if !slot_pauses::is_asked(&want.entry.extensions, lender, inner.now()) {
                return None;
            }
            let reading = timeout(LONGEST_LOOK, known_since(inner, &entry, young)).await.ok()?.ok()?;
            let room =
                room(&reading.bucket, leaves, inner.now()).filter(|room| *room >= want.cost.amount())?;
            let borrows = Some(Borrowing { by: share.clone(), leaves });
            Some((room, lender, Want { entry, borrows, ..want.clone() }))
        })
    });
    let mut lenders: Vec<_> = in_parallel_here(looks.collect()).await.into_iter().flatten().collect();
    lenders.sort_by_key(|(room, ..)| std::cmp::Reverse(*room));
    let at_once = Terms { until: None, stays: false, ..terms };
    for (_, lender, borrowed) in lenders {
        let from: Vec<Want> =
            wants.iter().enumerate().map(|(n, own)| if n == at { &borrowed } else { own }).cloned().collect();
        match own_line::take(inner, &from, at_once).await {
            Ok(Taken::Granted(lent)) => {
                slot_pauses::has_lent(&want.entry.extensions, lender);
                telemetry::borrowed(common.label(), share.as_ref(), lender, want.cost.amount());
                return Some(lent);
            }
            _ => slot_pauses::had_no_slot(&want.entry.extensions, lender, inner.now()),
        }
    }
    None
}

/// While the shares change, a caller that finds no slot gives what calls have given back to the lines that
/// lack some, as sweeps do. It uses readings no older than those for borrowing. Returns true if slots were
/// given or the change ended, and the bucket's row was read again.
async fn gave_slots(inner: &Arc<Inner>, common: &Arc<Entry>, young: Duration) -> bool {
    let Some(names) = common.reading().map(|reading| reading.bucket) else { return false };
    let gives = common.extensions.of::<SlotGives>();
    let (Some(_), Some(mut turn)) = (names.changes_to(), gives.turn()) else { return false };
    let has_row = |share: &&SlotShare| !share.is_closed || share.is_going();
    let shares = names.slot_shares().iter().filter(has_row).map(|share| inner.row_of(&names, share));
    let entries: Vec<_> = std::iter::once(Arc::clone(common)).chain(shares).collect();
    if rows_of(inner, &entries, young).await.is_none_or(|rows| rows.resumed().is_none()) {
        return false;
    }
    let gives = async {
        // Others see the same. Only who reads it again just before can be faster.
        let rows = rows_of(inner, &entries, Duration::ZERO).await?;
        let given = sluice_ops::give_slots(&inner.store, &rows).await;
        if matches!(given, Ok(SlotsMoved::Some)) {
            refresh_all(inner, &entries).await.ok()?;
        }
        Some(given)
    };
    let given = timeout(LONGEST_GIVE, gives).await.ok().flatten();
    if let Some(Ok(SlotsMoved::Some)) = given {
        tracing::info!(event = "shares.moved", dimension = %common.dimension);
        turn.succeeded();
        return true;
    }
    if let Some(Err(error)) = given {
        tracing::debug!(event = "shares.not_moved", dimension = %common.dimension, %error);
    }
    turn.failed();
    false
}

/// The rows of a bucket with shares of slots, its own first, by readings that are no older than `young`.
/// `None` if its own cannot be read.
async fn rows_of(inner: &Arc<Inner>, entries: &[Arc<Entry>], young: Duration) -> Option<SlotRows> {
    let looks = entries.iter().map(|entry| {
        Box::pin(async move {
            let reading = timeout(LONGEST_LOOK, known_since(inner, entry, young)).await.ok()?.ok()?;
            Some(Bucket::clone(&reading.bucket))
        })
    });
    let mut rows = in_parallel_here(looks.collect()).await.into_iter();
    Some(SlotRows { common: rows.next().flatten()?, shares: rows.collect() })
}

/// What a line has for borrowers: nothing while its own callers wait, or while it cools down.
fn room(bucket: &Bucket, leaves: Amount, now: Timestamp) -> Option<Amount> {
    let is_blocked = bucket.blocked_until().is_some_and(|until| until > now);
    (!is_blocked && !bucket.is_waited_for(now)).then(|| bucket.tokens().minus(leaves))
}
