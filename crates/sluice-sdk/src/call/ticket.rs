//! Tickets: a start that one process books, that a message carries, and that any process redeems.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Dimension, RateReceipt, Ticket, TicketRow};
use sluice_table::{Attributes, LONGEST_SETTING, Written};
use tokio::time::Instant;

use crate::api::error::AcquireError;
use crate::api::refusal::{RetryIn, RetryReason};
use crate::api::request::Ask;
use crate::grant::Grant;
use crate::grant::outcome::Outcome;
use crate::lane::answer_by::AnswerBy;
use crate::lane::attempt;
use crate::lane::inner::Inner;
use crate::lane::parallel::finished;
use crate::lane::part::{Hold, Part, Parts};
use crate::lane::release::{Use, spawn_give_back};
use crate::lane::terms::{LeaseTerm, Terms};

pub(crate) mod redeem;

/// Takes what is asked for, or books it up to `within` ahead. A start that is not now becomes a ticket.
pub(crate) async fn book(inner: &Arc<Inner>, asks: Vec<Ask>, within: Duration) -> Result<Outcome, AcquireError> {
    let lease = LeaseTerm { at_least: inner.config.lease_ttl, until: None };
    // The caller receives its start and leaves: it does not stay in the queue.
    let terms = Terms { until: Some(Instant::now() + within.min(LONGEST_SETTING)), stays: false, lease };
    let mut by = AnswerBy::new(inner);
    let taken = attempt::book(inner, &asks, terms, &mut by).await?;
    Ok(match Outcome::of(inner, taken, terms.lease.length()) {
        Outcome::Granted(grant) if grant.start_at() > inner.now() => {
            Outcome::RetryIn(carry(inner, grant, &mut by).await)
        }
        outcome => outcome,
    })
}

/// Moves the grant's tokens to the row of a ticket. If the row cannot be written, the tokens are given back,
/// and the refusal contains no ticket. If the row is not written in time, the tokens refill.
async fn carry(inner: &Arc<Inner>, grant: Grant, by: &mut AnswerBy<'_>) -> RetryIn {
    let start = grant.start_at();
    let parts = grant.into_parts();
    let latest: Option<Dimension> =
        parts.iter().max_by_key(|part| part.start_at).map(|part| part.entry.dimension.clone());
    let for_task = Arc::clone(inner);
    // On its own task: if it were cut off half way, nobody would know whether the row has the tokens.
    let ticket = by.wait(tokio::spawn(async move { put(&for_task, parts).await })).await;
    // If the runtime shuts down, there is no ticket: the tokens refill.
    let ticket = ticket.ok().and_then(|ticket| finished(ticket).ok().flatten());
    let dimension = latest.unwrap_or_else(|| unreachable!("no grant is empty"));
    // If the clock was set back since the write, the ticket's start is earlier than the grant's. The ticket
    // lapses by its own start.
    let start = ticket.as_ref().map_or(start, Ticket::start_at);
    RetryIn::new(start.since(inner.now()), dimension, RetryReason::Exhausted).with_ticket(ticket)
}

async fn put(inner: &Arc<Inner>, parts: Parts) -> Option<Ticket> {
    let receipts = parts.iter().map(|part| receipt(part)).collect::<Option<Vec<_>>>();
    let row = receipts.and_then(|receipts| TicketRow::book(inner.config.lease_ids.next_ticket(), receipts));
    if let Some(row) = row
        && is_put(inner, &row).await
    {
        let ticket = row.ticket();
        tracing::debug!(event = "ticket.booked", key = ticket.key(), start_at = %ticket.start_at());
        return Some(ticket);
    }
    // If the row is there all the same, after a lost reply, nobody has its ticket.
    spawn_give_back(inner, parts, Use::Unused);
    None
}

/// The receipt of a part that a ticket can carry. A lease would end before its ticket is redeemed.
fn receipt(part: &Part) -> Option<&RateReceipt> {
    match &part.hold {
        Hold::Tokens { receipt, lease: None, .. } => Some(receipt),
        _ => None,
    }
}

async fn is_put(inner: &Inner, row: &TicketRow) -> bool {
    match inner.store.put(&row.put()).await {
        Ok(Written::Applied(_)) => true,
        // This ticket's own row, after a lost reply; otherwise an id that was drawn twice.
        Ok(Written::ConditionFailed(seen)) => {
            seen.is_some_and(|seen| TicketRow::read(&Attributes(&seen)).is_ok_and(|seen| seen == *row))
        }
        Err(error) => {
            tracing::warn!(event = "ticket.not_booked", %error);
            false
        }
    }
}
