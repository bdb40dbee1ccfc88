//! Why a refusal has no ticket.

use std::fmt;

/// Why a request for a ticket was refused without one ([`RetryIn::no_ticket`](crate::RetryIn::no_ticket)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoTicket {
    /// No start was booked as close as [`ticket_within`](crate::Request::ticket_within) asks for.
    TooFarAhead,
    /// A concurrency bucket refused, and a slot cannot be booked: only a release ends its wait.
    NoFreeSlot,
    /// The vendor asked for a cool-down, in which nothing is booked.
    CoolingDown,
    /// The ticket would be good for less than a second: the call costs nearly all of the bucket's capacity,
    /// or the bucket fills up within a second.
    TooShort,
    /// Every grant of this client has a lease row (`SLUICE_LEASES=all`), which would end before the start.
    LeaseRows,
    /// DynamoDB is out, and this process answers by itself (`SLUICE_ON_UNAVAILABLE`).
    Outage,
    /// Other writers were faster in every try.
    Contended,
    /// The row of the ticket could not be written. What was booked is given back.
    NotWritten,
    /// On redeeming: what was not booked is not there before the ticket's end.
    RestTooLate,
    /// On redeeming: the claim could not be taken back after a cool-down, so that the ticket is spent.
    ClaimLost,
}

impl NoTicket {
    /// The name of the reason in logs and output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TooFarAhead => "too_far_ahead",
            Self::NoFreeSlot => "no_free_slot",
            Self::CoolingDown => "cooling_down",
            Self::TooShort => "too_short",
            Self::LeaseRows => "lease_rows",
            Self::Outage => "outage",
            Self::Contended => "contended",
            Self::NotWritten => "not_written",
            Self::RestTooLate => "rest_too_late",
            Self::ClaimLost => "claim_lost",
        }
    }
}

impl fmt::Display for NoTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooFarAhead => "no start was booked as close as asked for",
            Self::NoFreeSlot => "a slot cannot be booked",
            Self::CoolingDown => "nothing is booked during a cool-down",
            Self::TooShort => "the call costs nearly the whole capacity, or the bucket fills within a second, so its start cannot be kept",
            Self::LeaseRows => "every grant has a lease row, which would end before the start",
            Self::Outage => "DynamoDB is out",
            Self::Contended => "other writers were faster in every try",
            Self::NotWritten => "the row of the ticket could not be written",
            Self::RestTooLate => "what was not booked is not there before the end of the ticket",
            Self::ClaimLost => "the ticket is spent, because its claim could not be taken back",
        })
    }
}
