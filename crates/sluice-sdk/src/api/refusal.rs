//! What a caller receives instead of a grant.

use std::time::Duration;

use sluice_core::{Dimension, Reason, Refusal, Ticket};
use sluice_table::Backoff;

use crate::api::no_ticket::NoTicket;

/// A refusal: how long to wait, for which dimension, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryIn {
    pub(crate) wait: Duration,
    pub(crate) dimension: Dimension,
    pub(crate) reason: RetryReason,
    ticket: TicketAnswer,
}

/// What the refusal says of a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TicketAnswer {
    NotAskedFor,
    Good(Box<Ticket>),
    None(NoTicket),
}

/// Why a caller has to come back later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RetryReason {
    /// A rate bucket has fewer tokens than the call takes; the wait is exact, or up to two seconds longer in a
    /// bucket with shares. Also of slots for 0.75 s after an outage of DynamoDB, with a share policy.
    Exhausted,
    /// Every slot of a concurrency bucket is held. The wait is what the waiters of this process and this
    /// caller take at the rate at which slots came free, as sweeps measured it: 50 ms to 30 s, or until an
    /// inline lease ends if that is sooner. It is a guess of 1 s if the process has not read the load row,
    /// for self-healing or for admission.
    NoFreeSlot,
    /// The vendor asked for a cool-down.
    CoolingDown,
    /// Other writers were faster in every try. This says nothing about the quota.
    Contended,
}

impl From<Reason> for RetryReason {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::NoFreeSlot => Self::NoFreeSlot,
            Reason::CoolingDown => Self::CoolingDown,
            _ => Self::Exhausted,
        }
    }
}

impl RetryReason {
    pub(crate) const ALL: [Self; 4] = [Self::Exhausted, Self::NoFreeSlot, Self::CoolingDown, Self::Contended];

    /// Whether the end of the wait ends the refusal for certain, and nothing else does.
    pub(crate) const fn is_over_in_time(self) -> bool {
        matches!(self, Self::Exhausted | Self::CoolingDown)
    }

    /// The name of the reason in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::NoFreeSlot => "no_free_slot",
            Self::CoolingDown => "cooling_down",
            Self::Contended => "contended",
        }
    }
}

impl RetryIn {
    pub(crate) const fn new(wait: Duration, dimension: Dimension, reason: RetryReason) -> Self {
        Self { wait, dimension, reason, ticket: TicketAnswer::NotAskedFor }
    }

    pub(crate) fn with_ticket(mut self, ticket: Result<Ticket, NoTicket>) -> Self {
        self.ticket = match ticket {
            Ok(ticket) => TicketAnswer::Good(Box::new(ticket)),
            Err(why) => TicketAnswer::None(why),
        };
        self
    }

    /// How long to wait from now.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        self.wait
    }

    /// The dimension that causes the longest wait.
    #[must_use]
    pub const fn dimension(&self) -> &Dimension {
        &self.dimension
    }

    /// Why the caller has to wait.
    #[must_use]
    pub const fn reason(&self) -> RetryReason {
        self.reason
    }

    /// The value for SQS's `DelaySeconds`: one second more than the wait, at most 900 (15 minutes).
    #[must_use]
    pub fn delay_seconds(&self) -> u32 {
        delay_seconds(self.wait)
    }

    /// The ticket of a booked start. The caller keeps the ticket and redeems it after the wait
    /// ([`Client::redeem`](crate::Client::redeem)). A refusal has a ticket for a request with
    /// [`ticket_within`](crate::Request::ticket_within), and for a ticket that was redeemed too early. A
    /// ticket that is never redeemed wastes its tokens, which refill. Without a ticket,
    /// [`no_ticket`](Self::no_ticket) says why.
    #[must_use]
    pub fn ticket(&self) -> Option<&Ticket> {
        match &self.ticket {
            TicketAnswer::Good(ticket) => Some(ticket),
            _ => None,
        }
    }

    /// Why there is no ticket. `None` if there is one, or if none was asked for.
    #[must_use]
    pub const fn no_ticket(&self) -> Option<NoTicket> {
        match &self.ticket {
            TicketAnswer::None(why) => Some(*why),
            _ => None,
        }
    }
}

impl std::fmt::Display for RetryIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { wait, dimension, reason, ticket } = self;
        write!(f, "{dimension}: {}; try again in ", reason.as_str().replace('_', " "))?;
        match reason.is_over_in_time() {
            true => write!(f, "{:.3} s", wait.as_secs_f64())?,
            // A guess is worth a second, or a tenth of one.
            false if *wait < Duration::from_secs(1) => write!(f, "about {:.1} s", tenths(*wait))?,
            false => write!(f, "about {:.0} s", wait.as_secs_f64().ceil())?,
        }
        match ticket {
            TicketAnswer::None(why) => write!(f, "; no ticket: {why}"),
            _ => Ok(()),
        }
    }
}

/// Seconds, rounded up to a tenth.
fn tenths(wait: Duration) -> f64 {
    (wait.as_secs_f64() * 10.0).ceil() / 10.0
}

/// One second more than `wait`, so that the message does not come early; at most what SQS accepts, 15 minutes
/// (<https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html>).
pub(crate) fn delay_seconds(wait: Duration) -> u32 {
    const LONGEST_SECS: u64 = 900;
    u32::try_from(wait.as_secs().saturating_add(1).min(LONGEST_SECS)).unwrap_or(u32::MAX)
}

pub(crate) fn refused(dimension: &Dimension, refusal: Refusal) -> RetryIn {
    RetryIn::new(refusal.wait, dimension.clone(), refusal.reason.into())
}

/// A refusal: other writers were faster in every try.
pub(crate) fn contended(dimension: &Dimension) -> RetryIn {
    RetryIn::new(Backoff::DEFAULT.cap(), dimension.clone(), RetryReason::Contended)
}

/// The refusal that stands for several: the one with the longest wait.
pub(crate) fn longest(refusals: impl IntoIterator<Item = RetryIn>) -> Option<RetryIn> {
    refusals.into_iter().max_by_key(|retry| retry.wait)
}
