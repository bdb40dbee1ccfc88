//! A turn of this process to scan the table: its mark, pages within the budget, progress after each page.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::schema::HEAL_KEY;
use sluice_core::{CLOCK_ERROR, HEAL_EVERY, HealMark, HealProgress, Timestamp, heal_progress, mark, unmark};
use sluice_ops::{HealPage, HealedPage, NextPage, ROWS_PER_PAGE};
use sluice_table::{Attributes, Item, Resend, StoreError, Written};
use tokio::time::Instant;

use crate::client_ops::ops;
use crate::config::heal_budget::HealBudget;
use crate::heal::healing;
use crate::lane::fallback::hold;
use crate::lane::inner::Inner;
use crate::telemetry;

/// All processes that want slots wait for the same instant. Each tries within this many milliseconds after
/// that instant, and most of them find that another process has begun its turn.
const APART_MS: u64 = 1_000;

/// A turn that is nearly due is not tried again sooner than this.
const MOMENT: Duration = Duration::from_millis(100);

/// A turn requests no page after this time. A process whose clock is ahead by twice the clock error may begin
/// the next turn then.
const LAST_PAGE: Duration = HEAL_EVERY.saturating_sub(CLOCK_ERROR.saturating_mul(2));

/// The factor by which the number of rows of a page changes: fewer after a page that failed or took too long,
/// more after one that was done. So a part is done even of a page that cannot be read, is too much for one
/// turn, or always comes late: in the end, one row.
const SMALLER: u32 = 4;

/// A turn of this process, identified by its mark.
#[derive(Debug)]
pub(super) struct ScanTurn {
    /// The id of this turn alone: another process may have marked the table in the same microsecond.
    id: String,
    at: Timestamp,
    began: Instant,
    budget: HealBudget,
    /// Read units spent so far: on the turn's pages, and on the buckets that were read for them.
    spent: u64,
    /// Where the turn continues, and when the next turn may begin, as the mark's row states them.
    progress: HealProgress,
}

/// What a turn gave back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Healed {
    pub(super) leases: usize,
    pub(super) read_units: u64,
    /// Whether the turn reached the end of the table.
    pub(super) is_at_end: bool,
}

impl ScanTurn {
    /// Marks the table, unless another process has marked it recently. The row is read first, which costs
    /// less than a mark that fails: all but one find another's mark. A mark that is sent again finds itself.
    pub(super) async fn take(inner: &Inner) -> Result<Option<Self>, StoreError> {
        let row = inner.store.read(HEAL_KEY).await?.unwrap_or_default();
        let (now, began) = (inner.time().await?, Instant::now());
        if hold::holds(&inner.store, inner.config.on_unavailable) {
            // The reading has ended an outage: the next try is a whole turn later.
            return Ok(None);
        }
        if read(&row).may_be_made_at(now) > now {
            return Ok(leave_to_other(inner, &row, now));
        }
        let id = uuid::Uuid::now_v7().hyphenated().to_string();
        let budget = inner.config.heal_budget;
        let spacing = budget.spacing_with_page(0);
        let row = match inner.store.update(&mark(&id, now, spacing), Resend::Always).await? {
            Written::Applied(row) => row,
            Written::ConditionFailed(row) => {
                let row = row.unwrap_or_default();
                if !read(&row).is_of(&id, now) {
                    return Ok(leave_to_other(inner, &row, now));
                }
                row
            }
        };
        let mark = read(&row);
        let rows = mark.rows().unwrap_or(ROWS_PER_PAGE).clamp(1, ROWS_PER_PAGE);
        let progress = HealProgress { spacing, position: mark.position().map(str::to_owned), rows };
        Ok(Some(Self { id, at: now, began, budget, spent: 0, progress }))
    }

    /// Reads pages, and gives back the leases in them that have ended, until the budget of the turn is spent,
    /// its time is over or the table ends. A page that fails or takes too long ends the turn; the next turn
    /// begins at that page with fewer rows. Pages that were done before stay done.
    pub(super) async fn run(&mut self, inner: &Arc<Inner>) -> Result<Healed, StoreError> {
        let mut healed = Healed::default();
        loop {
            let HealedPage { restored, read_units, next, error } = self.page().heal(&ops(inner)).await;
            if let Some(error @ StoreError::AccessDenied { .. }) = error {
                return Err(error);
            }
            self.spent += read_units;
            healed.leases += restored;
            healed.read_units = self.spent;
            healed.is_at_end = next == NextPage::Start && error.is_none();
            let goes_on = matches!(next, NextPage::After(_)) && error.is_none() && !self.is_over(inner);
            let is_own = self.go_on(inner, next, goes_on).await?;
            match error {
                // A page that was throttled in every try cost nothing.
                None | Some(StoreError::Contended { .. }) if !(is_own && goes_on) => return Ok(healed),
                Some(error) => return Err(error),
                None => {}
            }
        }
    }

    fn page(&self) -> HealPage<'_> {
        HealPage {
            from: self.progress.position.as_deref(),
            rows: self.progress.rows,
            units: self.budget.most().saturating_sub(self.spent),
            time: HEAL_EVERY.saturating_sub(self.began.elapsed()),
        }
    }

    fn is_over(&self, inner: &Inner) -> bool {
        // By whichever clock shows more: one of them may stand still while the process is frozen.
        let time = self.began.elapsed().max(inner.now().since(self.at));
        self.spent >= self.budget.allowance() || time >= LAST_PAGE
    }

    /// Writes where the next turn continues and when it may begin; if this turn `goes_on`, also pays for its
    /// next page. False if another turn has begun. A turn that reads a small table whole writes nothing.
    async fn go_on(&mut self, inner: &Inner, next: NextPage, goes_on: bool) -> Result<bool, StoreError> {
        let HealProgress { position, rows, .. } = self.progress.clone();
        let (position, rows) = match next {
            NextPage::Again => (position, (rows / SMALLER).max(1)),
            NextPage::Start => (None, (rows * SMALLER).min(ROWS_PER_PAGE)),
            NextPage::After(key) => (Some(key), (rows * SMALLER).min(ROWS_PER_PAGE)),
        };
        let spent = self.spent;
        let spacing = if goes_on { self.budget.spacing_with_page(spent) } else { self.budget.spacing(spent) };
        let progress = HealProgress { spacing, position, rows };
        healing(inner).table.tried(self.at, spacing);
        if progress == self.progress {
            return Ok(true);
        }
        self.progress = progress;
        let update = heal_progress(&self.id, self.at, &self.progress);
        let written = inner.store.update(&update, Resend::Always).await?;
        Ok(matches!(written, Written::Applied(_)))
    }

    /// Gives the turn up to other processes, which would otherwise find a recent mark and wait for a scan
    /// that nobody makes. If this write fails, they wait once.
    pub(super) async fn give_back(self, inner: &Inner) {
        // The units that the turn has spent stay paid for.
        let spacing = if self.spent == 0 { Duration::ZERO } else { self.budget.spacing(self.spent) };
        let unmark = unmark(&self.id, self.at, spacing);
        if let Err(error) = inner.store.update(&unmark, Resend::Always).await {
            tracing::debug!(event = "heal.turn_kept", %error);
        }
    }
}

fn read(row: &Item) -> HealMark {
    HealMark::read(&Attributes(row))
}

/// Leaves the turn to another process. The next try is due right after that turn's time.
fn leave_to_other(inner: &Inner, row: &Item, now: Timestamp) -> Option<ScanTurn> {
    telemetry::healed("left");
    let left = read(row).may_be_made_at(now).since(now);
    let apart = Duration::from_millis(fastrand::u64(0..APART_MS));
    healing(inner).table.tried(now, left.max(MOMENT) + apart);
    None
}
