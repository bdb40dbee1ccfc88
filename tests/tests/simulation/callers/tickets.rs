//! Starts that travel: booked by one process, redeemed by any, in time, late, twice or never.

use std::time::Duration;

use sluice_sdk::{NoTicket, Redeemed, RetryIn, Ticket};
use tokio::time::sleep;

use super::{Caller, Dying, Need};
use crate::account::{Teller, Told};
use crate::liveness::Public;
use crate::record::Grip;
use crate::row::Micros;

/// A message in a queue that all processes read.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    need: Need,
    /// As text.
    ticket: String,
    asked_at: Micros,
}

impl Caller {
    /// Acquires, and takes a ticket where it would have to wait.
    pub(super) async fn ticket(&mut self, need: &Need) {
        let within = Duration::from_millis(self.rng.u64(100..=5_000));
        // What a ticket holds is used by whoever redeems it, if anyone does.
        self.excuse(need);
        self.acquire_as(need, need.request().ticket_within(within), Public::Book(need.parts.len())).await;
    }

    /// Puts a ticket into the queue, where there is one: once, twice, or not at all.
    pub(super) fn carries(&mut self, need: &Need, asked_at: Micros, retry: &RetryIn) {
        let Some(ticket) = retry.ticket() else { return };
        self.universe.act("a ticket travels", &format!("{}: {ticket}", self.process.name));
        let (now, error) = (self.universe.time(), self.universe.error_of(&self.process));
        if let [(bucket, cost)] = need.parts.as_slice() {
            let (at, cost) = (Micros::from(ticket.start_at().micros()), Micros::from(*cost) * 1_000_000);
            let start = Told { at, cost, now, by: Teller::Ticket };
            let told = self
                .universe
                .ledger(|ledger| ledger.account(&self.process.name, bucket).told_start(bucket, start, error));
            self.universe.check(told.map(drop));
        }
        let message = Message { need: need.clone(), ticket: ticket.to_string(), asked_at };
        for _ in 0..[0, 1, 1, 1, 2][self.rng.usize(0..5)] {
            self.universe.queue.lock().unwrap().push_back(message.clone());
        }
    }

    /// Takes a message out of the queue and redeems its ticket: mostly at its start, some earlier, some too
    /// late.
    pub(super) async fn redeem(&mut self) {
        let Some(message) = self.universe.queue.lock().unwrap().pop_front() else { return };
        let ticket: Ticket = message.ticket.parse().unwrap();
        let client = self.process.client.clone();
        let wait = Duration::from_micros(u64::try_from(self.until(&ticket)).unwrap_or(0));
        match self.rng.u32(0..6) {
            0 => sleep(wait.mul_f64(self.rng.f64())).await,
            1 => sleep(wait + Duration::from_millis(self.rng.u64(0..6_000))).await,
            _ => sleep(wait).await,
        }
        if self.rng.u32(0..5) == 0 {
            // Its visibility timed out while it was worked on: another worker has it too.
            self.universe.queue.lock().unwrap().push_back(message.clone());
        }
        // A caller that stands still after its write learns of it late.
        let began = self.universe.time();
        let redeem = self.watch(Public::Redeem(message.need.parts.len())).on(client.redeem(&ticket));
        let Some(redeemed) = Dying::new(redeem, self.dies_at()).await else {
            self.excuse(&message.need);
            return self.universe.act("dropped at an await", &format!("{}: redeem", self.process.name));
        };
        if !matches!(redeemed, Ok(Redeemed::Granted(_))) {
            // The rest may have been taken for nothing, and what flowed back by itself is not given back.
            self.excuse(&message.need);
        }
        match redeemed {
            Ok(Redeemed::Granted(grant)) => {
                self.universe.check(self.universe.ledger(|ledger| ledger.took_up(&ticket.key())));
                if ticket.dimensions().len() < message.need.parts.len() {
                    self.universe.count("a ticket with a rest is redeemed");
                }
                self.universe.check(self.is_in_time(&ticket, began));
                let (asked_at, start_at) = (message.asked_at, grant.start_at().micros());
                let grip = Grip {
                    asked_at,
                    start_at,
                    lease_ends: 0,
                    booked: true,
                    redeemed: true,
                    transacted: false,
                };
                self.hold(&message.need, grip, grant).await;
            }
            Ok(Redeemed::RetryIn(retry)) if retry.no_ticket() == Some(NoTicket::RestTooLate) => {
                self.universe.act("the rest of a ticket comes too late", &format!("{ticket}: {retry}"));
            }
            Ok(Redeemed::RetryIn(_)) => self.universe.queue.lock().unwrap().push_back(message),
            Ok(_) => self.universe.act("a ticket is no good any more", &format!("{ticket}")),
            Err(error) => self.universe.act("call failed", &format!("{}: {error}", self.process.name)),
        }
    }

    fn now(&self) -> Micros {
        Micros::from(self.process.client.now().micros())
    }

    /// By the time of this process; never for long.
    fn until(&self, ticket: &Ticket) -> Micros {
        (Micros::from(ticket.start_at().micros()) - self.now()).clamp(0, 10_000_000)
    }

    /// Nobody is granted a ticket after it has lapsed, by clocks that are wrong by so much. A clock that went
    /// forward meanwhile may say that it is later than it was.
    fn is_in_time(&self, ticket: &Ticket, began: Micros) -> Result<(), String> {
        let error = self.universe.error_of(&self.process);
        let late = self.universe.time() - error - Micros::from(ticket.use_by().micros());
        // The reply to its write may have taken as long.
        if late > 2_000_000 && !self.process.ice.was_frozen_since(began) {
            return Err(format!("{ticket} was redeemed {late} us too late"));
        }
        Ok(())
    }
}
