//! A turn of this process to scan the table: its mark, the pages that the budget allows, and the progress
//! after each.

use std::time::Duration;

use sluice_core::schema::HEAL_KEY;
use sluice_core::{CLOCK_ERROR, HEAL_EVERY, HealMark, Timestamp, heal_progress, mark, unmark};
use tokio::time::Instant;

use super::budget::HealBudget;
use crate::client::Inner;
use crate::metrics;
use crate::store::{Attributes, IfAmbiguous, Item, StoreError, Written};
use crate::sweep::{HealedPage, heal_page};

/// All processes that want slots wait for the same instant. They try within so many milliseconds after it,
/// and most of them find that another has begun its turn.
const APART_MS: u64 = 1_000;

/// A turn that is nearly due is not asked for more often than this.
const MOMENT: Duration = Duration::from_millis(100);

/// A turn asks for no page after that long. Another process whose clock is ahead by twice the clock error may
/// begin the next one then.
const LAST_PAGE: Duration = HEAL_EVERY.saturating_sub(CLOCK_ERROR.saturating_mul(2));

/// This process's turn, by its mark.
#[derive(Debug)]
pub(super) struct Turn {
    /// Of this turn alone: another process may have marked the table in the same microsecond.
    id: String,
    at: Timestamp,
    began: Instant,
    budget: HealBudget,
    /// The key of the row after which it goes on.
    position: Option<String>,
    /// What its pages have cost.
    spent: u64,
}

/// What a turn gave back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Healed {
    pub(super) leases: usize,
    pub(super) read_units: u64,
    /// Whether it came to the end of the table.
    pub(super) is_at_end: bool,
}

impl Turn {
    /// Marks the table, unless another process has of late. The row is read before, which costs less than a
    /// mark in vain: of the processes that want slots, all but one find another's. A mark that is sent again
    /// after a lost reply finds itself.
    pub(super) async fn take(inner: &Inner) -> Result<Option<Self>, StoreError> {
        inner.healing.table.tried(inner.now(), HEAL_EVERY);
        let row = inner.store.read(HEAL_KEY).await?.unwrap_or_default();
        let (now, began) = (inner.time().await?, Instant::now());
        if read(&row).may_be_made_at(now) > now {
            return Ok(leave_to_other(inner, &row, now));
        }
        let id = uuid::Uuid::now_v7().hyphenated().to_string();
        let row = match inner.store.update(&mark(&id, now), IfAmbiguous::SendAgain).await? {
            Written::Applied(row) => row,
            Written::ConditionFailed(row) => {
                let row = row.unwrap_or_default();
                if !read(&row).is_of(&id, now) {
                    return Ok(leave_to_other(inner, &row, now));
                }
                row
            }
        };
        let position = read(&row).position().map(str::to_owned);
        Ok(Some(Self { id, at: now, began, budget: inner.config.heal_budget, position, spent: 0 }))
    }

    /// Reads pages, and gives back what has ended in them, until the budget of the turn is spent, its time is
    /// over or the table ends. A page that DynamoDB throttles in every try ends the turn; what was read
    /// before stays done.
    pub(super) async fn run(&mut self, inner: &Inner) -> Result<Healed, StoreError> {
        let mut healed = Healed::default();
        loop {
            let page = match heal_page(inner, self.position.as_deref()).await {
                Ok(page) => page,
                Err(StoreError::Contended { .. }) => return Ok(healed),
                Err(error) => return Err(error),
            };
            let HealedPage { restored, read_units, next, is_done } = page;
            healed.leases += restored;
            self.spent += read_units;
            healed.read_units = self.spent;
            healed.is_at_end = is_done && next.is_none();
            let next = if is_done { next } else { self.position.clone() };
            if !self.go_on_from(inner, next).await? || healed.is_at_end || !is_done || self.is_over(inner) {
                return Ok(healed);
            }
        }
    }

    fn is_over(&self, inner: &Inner) -> bool {
        // By either clock: one of them may stand still while the process is frozen.
        let time = self.began.elapsed().max(inner.now().since(self.at));
        self.spent >= self.budget.allowance() || time >= LAST_PAGE
    }

    /// Tells all processes where the next turn goes on, and when it may begin. False if another process has
    /// begun its turn since. A turn that reads a small table as a whole writes nothing.
    async fn go_on_from(&mut self, inner: &Inner, next: Option<String>) -> Result<bool, StoreError> {
        let spacing = self.budget.spacing(self.spent).max(HEAL_EVERY);
        let is_small = next.is_none() && self.position.is_none() && spacing == HEAL_EVERY;
        self.position = next;
        inner.healing.table.tried(self.at, spacing);
        if is_small {
            return Ok(true);
        }
        let progress = heal_progress(&self.id, self.at, spacing, self.position.as_deref());
        let written = inner.store.update(&progress, IfAmbiguous::SendAgain).await?;
        Ok(matches!(written, Written::Applied(_)))
    }

    /// Leaves it to others, who would otherwise find a fresh mark and wait for a scan that is not made. If
    /// this fails, they wait once.
    pub(super) async fn give_back(self, inner: &Inner) {
        if let Err(error) = inner.store.update(&unmark(&self.id, self.at), IfAmbiguous::SendAgain).await {
            tracing::debug!(event = "heal.turn_kept", %error);
        }
    }
}

fn read(row: &Item) -> HealMark {
    HealMark::read(&Attributes(row))
}

/// Tries again right after the other's time is over, and not a whole time after this try.
fn leave_to_other(inner: &Inner, row: &Item, now: Timestamp) -> Option<Turn> {
    metrics::healed("left");
    let left = read(row).may_be_made_at(now).since(now);
    let apart = Duration::from_millis(fastrand::u64(0..APART_MS));
    inner.healing.table.tried(now, left.max(MOMENT) + apart);
    None
}
