//! Tickets: a start that one process books, that a message carries, and that any process redeems.
//!
//! A ticket books the dimensions that refuse. The others are its rest, which is taken when the ticket is
//! redeemed. If tokens of a slack bucket were taken ahead of the start, they would overflow soon, and the
//! ticket would lapse with them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use sluice_table::LONGEST_SETTING;
use tokio::time::{Instant, timeout};

use crate::api::error::AcquireError;
use crate::api::no_ticket::NoTicket;
use crate::api::refusal::{RetryIn, RetryReason, contended};
use crate::api::request::Ask;
use crate::call::ticket::carry::carry;
use crate::call::ticket::split::{Split, is_bookable, may_book, split};
use crate::config::Leases;
use crate::grant::UnusedGrant;
use crate::grant::outcome::Outcome;
use crate::lane::answer_by::AnswerBy;
use crate::lane::attempt;
use crate::lane::inner::Inner;
use crate::lane::per_bucket::RETURN_WAIT;
use crate::lane::terms::Terms;
use crate::lane::wants::{Want, wants};

mod carry;
pub(crate) mod redeem;
mod split;

/// A ticket is good for at least this time, or there is none. A shorter one lapses on its way: a queue
/// delivers its message up to a second after the start. A larger value refuses more tickets of buckets that
/// fill up soon, a smaller one makes tickets that nobody can redeem.
const LEAST_LIFETIME: Duration = Duration::from_secs(1);

/// The most attempts at a booking. The first may rest on a reading that is out of date. Its answer shows the
/// row, so a second is enough unless the buckets change meanwhile.
const MOST_ROUNDS: u32 = 3;

/// No round but the first begins later than this.
const BOOKING_TIME: Duration = Duration::from_secs(1);

/// Takes what is asked for, or books what refuses, up to `within` ahead. A start that is not now becomes a
/// ticket.
pub(crate) async fn book(
    inner: &Arc<Inner>,
    asks: Vec<Ask>,
    within: Duration,
) -> Result<Outcome, AcquireError> {
    let lease = inner.config.lease_ttl;
    // The caller receives its start and leaves: it does not stay in the queue.
    let terms = Terms {
        until: Some(Instant::now() + within.min(LONGEST_SETTING)),
        stays: false,
        lease,
        ends: None,
        moves_on: false,
        came: 0,
        lets_others: asks.len() == 1,
        is_running: false,
    };
    if inner.config.leases == Leases::All {
        let taken = attempt::submit(inner, &asks, at_once(terms)).await?;
        return Ok(match Outcome::of(inner, taken, lease, inner.config.renew_leases) {
            Outcome::RetryIn(retry) => Outcome::RetryIn(retry.with_ticket(Err(NoTicket::LeaseRows))),
            granted => granted,
        });
    }
    let answer = AnswerBy::new(inner).wait(pin!(in_rounds(inner, &asks, terms))).await;
    match answer {
        Ok(answer) => answer,
        Err(error) => {
            let taken = attempt::book_not_in_time(inner, &asks, terms, error)?;
            Ok(Outcome::of(inner, taken, lease, inner.config.renew_leases))
        }
    }
}

async fn in_rounds(inner: &Arc<Inner>, asks: &[Ask], terms: Terms) -> Result<Outcome, AcquireError> {
    let (began, mut refusal) = (Instant::now(), None);
    for round in 0..MOST_ROUNDS {
        if round > 0 && began.elapsed() > BOOKING_TIME {
            break;
        }
        match attempt_booking(inner, asks, terms).await? {
            Round::Answered(outcome) => return Ok(outcome),
            Round::Changed(retry) => refusal = Some(retry),
        }
    }
    let refusal = refusal.unwrap_or_else(|| contended(&asks[0].dimension));
    Ok(Outcome::RetryIn(refusal.with_ticket(Err(NoTicket::Contended))))
}

/// The outcome of one attempt at a booking.
enum Round {
    Answered(Outcome),
    /// A bucket refused that was not known to, or booked tokens that are there now. The readings are new.
    Changed(RetryIn),
}

/// Takes what refuses, as far ahead as `terms` allow. If the start is now, takes the rest too. Whatever is
/// held and not handed out is given back, also if this future is dropped.
async fn attempt_booking(inner: &Arc<Inner>, asks: &[Ask], terms: Terms) -> Result<Round, AcquireError> {
    let wants = match wants(inner, asks).await {
        Ok(wants) => wants,
        Err(error) => {
            let taken = attempt::book(inner, asks, Err(error), at_once(terms)).await?;
            return Ok(match Outcome::of(inner, taken, terms.lease, inner.config.renew_leases) {
                Outcome::RetryIn(retry) => refused(inner, &[], retry, terms),
                granted => Round::Answered(granted),
            });
        }
    };
    let Split { batch, rest } = split(wants, inner.now());
    // What is taken together with slots, or with others that cannot be booked, is taken now or not at all.
    let batch_terms = if batch.iter().all(is_bookable) { terms } else { at_once(terms) };
    let mut held = UnusedGrant::default();
    match take(inner, &batch, batch_terms).await? {
        Outcome::Granted(grant) => held.join(grant),
        Outcome::RetryIn(retry) => return Ok(refused(inner, &batch, retry, batch_terms)),
    }
    if held.start_at().unwrap_or_default() > inner.now() {
        return Ok(Round::Answered(Outcome::RetryIn(carry(inner, held, rest).await)));
    }
    if !rest.is_empty() {
        match take(inner, &rest, at_once(terms)).await? {
            Outcome::Granted(grant) => held.join(grant),
            Outcome::RetryIn(retry) => {
                // The return goes on if it takes longer.
                let _ = timeout(RETURN_WAIT, held.cancel()).await;
                return Ok(refused(inner, &rest, retry, at_once(terms)));
            }
        }
    }
    let grant = held.take().unwrap_or_else(|| unreachable!("a batch is not empty"));
    Ok(Round::Answered(Outcome::Granted(grant)))
}

async fn take(inner: &Arc<Inner>, wants: &[Want], terms: Terms) -> Result<Outcome, AcquireError> {
    let asks: Vec<Ask> = wants.iter().map(Want::ask).collect();
    let taken = attempt::book(inner, &asks, Ok(wants.to_vec()), terms).await?;
    Ok(Outcome::of(inner, taken, terms.lease, inner.config.renew_leases))
}

/// Returns the refusal with the reason why there is no ticket, unless another attempt may book.
fn refused(inner: &Inner, wants: &[Want], retry: RetryIn, terms: Terms) -> Round {
    let may_book = terms.until.is_none() && wants.iter().any(|want| may_book(want, inner.now()));
    let is_too_short = |want: &Want| want.entry.dimension == retry.dimension && !is_bookable(want);
    let why = match retry.reason {
        _ if retry.no_ticket().is_some() => return Round::Answered(Outcome::RetryIn(retry)),
        RetryReason::CoolingDown => NoTicket::CoolingDown,
        RetryReason::Contended => NoTicket::Contended,
        RetryReason::NoFreeSlot if !may_book => NoTicket::NoFreeSlot,
        RetryReason::Exhausted if terms.until.is_some() => NoTicket::TooFarAhead,
        RetryReason::Exhausted if !may_book && wants.iter().any(is_too_short) => NoTicket::TooShort,
        RetryReason::NoFreeSlot | RetryReason::Exhausted => return Round::Changed(retry),
    };
    Round::Answered(Outcome::RetryIn(retry.with_ticket(Err(why))))
}

fn at_once(terms: Terms) -> Terms {
    Terms { until: None, ..terms }
}
