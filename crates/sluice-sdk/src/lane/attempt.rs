//! One attempt at what a caller asks for: each part in its bucket's lane, or all in one for a transaction.

use std::pin::{Pin, pin};
use std::sync::Arc;

use sluice_core::Cost;
use sluice_table::StoreError;

use crate::api::error::AcquireError;
use crate::api::no_ticket::NoTicket;
use crate::api::request::{Ask, Payer};
use crate::lane::entry::Entry;
use crate::lane::fallback::charge;
use crate::lane::inner::Inner;
use crate::lane::one_bucket::{in_time, take_one};
use crate::lane::setback::{Setback, Taken};
use crate::lane::terms::Terms;
use crate::lane::unclaimed::LaneAnswer;
use crate::lane::wants::{Want, wants_waiting};
use crate::lane::{shadow, slot_lines};
use crate::telemetry;

/// An attempt, boxed. Its future is nested more deeply than the compiler accepts in a caller's own future,
/// and is larger than what a grant from stock should move in memory.
pub(crate) type Submitted<'a> = Pin<Box<dyn Future<Output = LaneAnswer> + Send + 'a>>;

/// As [`submit`], for one dimension whose bucket is known. This is the usual case: it needs no list and
/// parses no name.
pub(crate) fn submit_one(
    inner: &Arc<Inner>,
    entry: Arc<Entry>,
    cost: Option<Cost>,
    terms: Terms,
) -> Submitted<'_> {
    Box::pin(async move {
        let asked = Arc::clone(&entry);
        if inner.config.mode.is_shadow() {
            return Ok(Taken::Granted(Box::pin(shadow::take(inner, &[ask(&entry, cost)], terms)).await));
        }
        let answer = in_time(inner, terms, pin!(take_one(inner, entry, cost, terms))).await;
        finish(inner, || vec![ask(&asked, cost)], terms, answer)
    })
}

fn ask(entry: &Entry, cost: Option<Cost>) -> Ask {
    Ask { dimension: entry.dimension.clone(), cost, share: Payer::Named(entry.share.clone()) }
}

/// Takes what is asked for, or returns why not.
pub(crate) fn submit<'a>(inner: &'a Arc<Inner>, asks: &'a [Ask], terms: Terms) -> Submitted<'a> {
    Box::pin(async move {
        if inner.config.mode.is_shadow() {
            return Ok(Taken::Granted(Box::pin(shadow::take(inner, asks, terms)).await));
        }
        let taking = async {
            let answer = take_asked(inner, asks, terms).await;
            match &answer {
                Err(error) if slot_lines::is_share_gone(inner, error).await => {
                    take_asked(inner, asks, terms).await
                }
                _ => answer,
            }
        };
        let answer = in_time(inner, terms, pin!(taking)).await;
        finish(inner, || asks.to_vec(), terms, answer)
    })
}

async fn take_asked(inner: &Arc<Inner>, asks: &[Ask], terms: Terms) -> LaneAnswer {
    match wants_waiting(inner, asks, terms).await {
        Ok(wants) => slot_lines::take(inner, &wants, terms).await,
        Err(setback) => setback.answer(),
    }
}

/// As [`submit`], for a ticket, and for dimensions that were looked up before. A grant that this process
/// makes during an outage cannot become a ticket, so it books nothing ahead.
pub(crate) fn book<'a>(
    inner: &'a Arc<Inner>,
    asks: &'a [Ask],
    wants: Result<Vec<Want>, AcquireError>,
    terms: Terms,
) -> Submitted<'a> {
    Box::pin(async move {
        let answer = match wants {
            Ok(wants) => match slot_lines::take(inner, &wants, terms).await {
                Err(error) if slot_lines::is_share_gone(inner, &error).await => {
                    take_asked(inner, asks, terms).await
                }
                answer => answer,
            },
            Err(error) => Err(error),
        };
        let is_out = matches!(&answer, Err(AcquireError::Store(error)) if error.is_unavailable());
        match finish(inner, || asks.to_vec(), Terms { until: None, ..terms }, answer) {
            Ok(Taken::Refused(retry)) if is_out => {
                Ok(Taken::Refused(retry.with_ticket(Err(NoTicket::Outage))))
            }
            answer => answer,
        }
    })
}

/// Returns the answer to a caller of [`book`] whose time is over.
pub(crate) fn book_not_in_time(
    inner: &Arc<Inner>,
    asks: &[Ask],
    terms: Terms,
    error: StoreError,
) -> LaneAnswer {
    let answer = finish(inner, || asks.to_vec(), Terms { until: None, ..terms }, Err(error.into()))?;
    Ok(match answer {
        Taken::Refused(retry) => Taken::Refused(retry.with_ticket(Err(NoTicket::Contended))),
        granted => granted,
    })
}

/// Returns the answer for the caller. An outage may be answered locally.
fn finish(
    inner: &Arc<Inner>,
    asks: impl FnOnce() -> Vec<Ask>,
    terms: Terms,
    answer: LaneAnswer,
) -> LaneAnswer {
    let answer = match answer {
        Err(AcquireError::Store(error)) if error.is_unavailable() => {
            match inner.fallback.take(inner, &asks(), terms.patience()) {
                Some(outcome) => {
                    charge::begin(inner);
                    telemetry::unavailable("local");
                    note_local_answer(inner, &error);
                    Ok(outcome)
                }
                None => {
                    telemetry::unavailable("error");
                    Err(AcquireError::Store(error))
                }
            }
        }
        Ok(Taken::Refused(mut retry)) => {
            if let Some(asked) = slot_lines::asked(inner, &retry.dimension) {
                retry.dimension = asked;
            }
            Ok(Taken::Refused(retry))
        }
        Err(error @ AcquireError::Store(StoreError::Contended { .. })) => {
            Setback::of(error, &asks()[0].dimension).answer()
        }
        Err(error) => Err(slot_lines::as_asked(inner, error)),
        granted @ Ok(Taken::Granted(_)) => granted,
    };
    match &answer {
        Ok(Taken::Granted(unclaimed)) => tracing::debug!(
            event = "acquire.granted",
            dimensions = %unclaimed.names(),
            booked_ms = unclaimed.booked_wait().as_millis(),
        ),
        Ok(Taken::Refused(retry)) => tracing::debug!(
            event = "acquire.retry_in",
            dimension = %retry.dimension,
            reason = retry.reason.as_str(),
            wait_ms = retry.wait.as_millis(),
        ),
        Err(_) => {}
    }
    answer
}

/// A warning once an outage: callers have their answers at once, and may ask very often.
fn note_local_answer(inner: &Inner, error: &StoreError) {
    let (table, answered) = (inner.store.table(), "locally");
    if inner.fallback.logged.is_first(&inner.store) {
        tracing::warn!(
            event = "acquire.unavailable", table, %error, answered,
            "DynamoDB does not answer: SLUICE_ON_UNAVAILABLE answers this call, and further ones until it does"
        );
    } else {
        tracing::debug!(
            event = "acquire.unavailable", table, %error, answered,
            "DynamoDB does not answer: SLUICE_ON_UNAVAILABLE answered this call"
        );
    }
}
