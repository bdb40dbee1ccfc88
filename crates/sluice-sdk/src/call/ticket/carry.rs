//! From a booked grant to a ticket: writes the row, and gives back what the ticket does not hold.

use std::sync::Arc;

use sluice_core::{Cost, Dimension, RateReceipt, ShareName, Ticket, TicketRow, Timestamp};
use sluice_table::{Attributes, Written};

use crate::api::no_ticket::NoTicket;
use crate::api::refusal::{RetryIn, RetryReason};
use crate::call::ticket::LEAST_LIFETIME;
use crate::grant::UnusedGrant;
use crate::lane::inner::Inner;
use crate::lane::parallel::finished;
use crate::lane::part::{Hold, Part, Parts};
use crate::lane::release::give_back_unused;
use crate::lane::task::boxed;
use crate::lane::wants::Want;

/// Moves what was booked to the row of a ticket, and lists the rest there. If there is no ticket, the tokens
/// are given back, and the refusal says why.
pub(super) async fn carry(inner: &Arc<Inner>, mut held: UnusedGrant, rest: Vec<Want>) -> RetryIn {
    let now = inner.now();
    let grant = held.take().unwrap_or_else(|| unreachable!("the caller holds what it booked"));
    let start = grant.start_at();
    let parts = grant.into_parts();
    let latest = parts.iter().max_by_key(|part| part.start_at).map(|part| part.entry.dimension.clone());
    let latest = latest.unwrap_or_else(|| unreachable!("a grant with a start to come is not empty"));
    let of_rest = rest.iter().find_map(|want| want.entry.payer().cloned());
    let rest = rest.into_iter().map(|want| (want.entry.asked().clone(), want.cost)).collect();
    let (for_task, dimension) = (Arc::clone(inner), latest.clone());
    // On its own task: if it were cut off half way, nobody would know whether the row has the tokens.
    let ticket =
        tokio::spawn(boxed(async move { put(&for_task, parts, (rest, of_rest), &dimension, now).await }))
            .await;
    // If the runtime shuts down, there is no ticket: the tokens refill.
    let ticket = finished(ticket).unwrap_or(Err(NoTicket::NotWritten));
    // If the clock was set back since the write, the ticket's start is earlier than the grant's. The ticket
    // lapses by its own start.
    let start = ticket.as_ref().map_or(start, Ticket::start_at);
    RetryIn::new(start.since(inner.now()), latest, RetryReason::Exhausted).with_ticket(ticket)
}

async fn put(
    inner: &Arc<Inner>,
    parts: Parts,
    (mut rest, of_rest): (Vec<(Dimension, Cost)>, Option<ShareName>),
    latest: &Dimension,
    now: Timestamp,
) -> Result<Ticket, NoTicket> {
    let short = too_short(&parts);
    let share = parts.iter().find_map(|part| part.payer().share.clone()).or(of_rest);
    let is_kept = |part: &Part| {
        part.start_at > now && receipt(part).is_some() && !short.contains(&part.entry.dimension)
    };
    let (kept, early): (Parts, Parts) = parts.into_iter().partition(is_kept);
    rest.extend(early.iter().map(|part| (part.entry.dimension.clone(), part.cost)));
    let row = TicketRow::book(inner.config.lease_ids.next_ticket(), kept.iter().filter_map(receipt));
    let Some(row) = row.filter(|_| !short.contains(latest)) else {
        give_back_unused(inner, kept.into_iter().chain(early).collect()).await;
        return Err(NoTicket::TooShort);
    };
    let row = row.with_rest(rest).of_share(share);
    let (is_put, ()) = tokio::join!(is_put(inner, &row), give_back_unused(inner, early));
    if is_put {
        let ticket = row.ticket();
        tracing::debug!(event = "ticket.booked", key = ticket.key(), start_at = %ticket.start_at());
        return Ok(ticket);
    }
    // If the row is there all the same, after a lost reply, nobody has its ticket.
    give_back_unused(inner, kept).await;
    Err(NoTicket::NotWritten)
}

/// The dimensions whose tokens would overflow before the latest start or soon after it. They are part of the
/// rest. [`split`](super::split) finds most of them before they are booked, as far as its readings are right.
fn too_short(parts: &Parts) -> Vec<Dimension> {
    TicketRow::too_short(parts.iter().filter_map(receipt), LEAST_LIFETIME)
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
