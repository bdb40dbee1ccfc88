//! Tickets: a start that is booked by one process, carried in a message, and redeemed by any.

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
use crate::lane::attempt;
use crate::lane::inner::Inner;
use crate::lane::parallel::finished;
use crate::lane::part::{Hold, Part, Parts};
use crate::lane::release::give_back_unused;
use crate::lane::terms::{LeaseTerm, Terms};

pub(crate) mod redeem;

/// Takes what is asked for, or books it up to `within` ahead: a start that is not now becomes a ticket.
pub(crate) async fn book(inner: &Arc<Inner>, asks: Vec<Ask>, within: Duration) -> Result<Outcome, AcquireError> {
    let lease = LeaseTerm { at_least: inner.config.lease_ttl, until: None };
    // It is told its start and goes: it does not stay in line.
    let terms = Terms { until: Some(Instant::now() + within.min(LONGEST_SETTING)), stays: false, lease };
    let taken = attempt::book(inner, &asks, terms).await?;
    Ok(match Outcome::of(inner, taken, terms.lease.length()) {
        Outcome::Granted(grant) if grant.start_at() > inner.now() => Outcome::RetryIn(carry(inner, grant).await),
        outcome => outcome,
    })
}

/// The tokens belong to the ticket's row from now on; where there is none, they are given back, and the refusal is told.
async fn carry(inner: &Arc<Inner>, grant: Grant) -> RetryIn {
    let start = grant.start_at();
    let parts = grant.into_parts();
    let latest: Option<Dimension> =
        parts.iter().max_by_key(|part| part.start_at).map(|part| part.entry.dimension.clone());
    let for_task = Arc::clone(inner);
    // On its own task: cut off in the middle, nobody would know whether the row has the tokens.
    let ticket = tokio::spawn(async move { put(&for_task, parts).await }).await;
    // Shut down with its runtime, it has no ticket: its tokens refill.
    let ticket = finished(ticket).ok().flatten();
    let dimension = latest.unwrap_or_else(|| unreachable!("no grant is empty"));
    // A clock that was set back since the write tells a ticket's start sooner than the grant's, and the ticket lapses by its own.
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
    // Should the row be there all the same, after a lost reply: nobody has its ticket.
    give_back_unused(inner, parts).await;
    None
}

/// A lease would end before its ticket is redeemed.
fn receipt(part: &Part) -> Option<&RateReceipt> {
    match &part.hold {
        Hold::Tokens { receipt, lease: None, .. } => Some(receipt),
        _ => None,
    }
}

async fn is_put(inner: &Inner, row: &TicketRow) -> bool {
    match inner.store.put(&row.put()).await {
        Ok(Written::Applied(_)) => true,
        // Its own, after a lost reply; else an id that was drawn twice.
        Ok(Written::ConditionFailed(seen)) => {
            seen.is_some_and(|seen| TicketRow::read(&Attributes(&seen)).is_ok_and(|seen| seen == *row))
        }
        Err(error) => {
            tracing::warn!(event = "ticket.not_booked", %error);
            false
        }
    }
}
