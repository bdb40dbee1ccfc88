//! A caller of a product: it takes of its share, waits, books, redeems, settles, and goes away in the middle.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use sluice_core::Amount;
use sluice_sdk::{
    Basis, Grant, LimitError, Outcome, Redeemed, Request, RetryIn, RetryReason, Settled, Ticket,
};
use tokio::time::{sleep, timeout};

use super::{PATIENCE, SHARES, UNKNOWN, names};
use crate::account::{Teller, Told};
use crate::callers::Need;
use crate::ledger::{COMMON, Refused, name_of_line};
use crate::liveness::{Public, Stopwatch};
use crate::process::Process;
use crate::record::Grip;
use crate::row::Micros;
use crate::universe::Universe;

/// The longest that a call lasts, in milliseconds.
const WORK: u64 = 1_000;

/// A ticket on its way.
#[derive(Clone, Debug)]
pub(super) struct Carried {
    ticket: Ticket,
    parts: Parts,
    share: Option<&'static str>,
    asked_at: Micros,
}

/// What a call takes of each bucket.
type Parts = Vec<(String, i32)>;

pub(super) struct Caller {
    pub(super) universe: Arc<Universe>,
    pub(super) process: Process,
    /// The share of calls that name none.
    pub(super) default: Option<&'static str>,
    pub(super) rng: Rng,
    pub(super) queue: Arc<Mutex<VecDeque<Carried>>>,
    /// It leaves nothing behind, and owes nothing.
    pub(super) is_orderly: bool,
}

impl Caller {
    pub(super) async fn live(mut self) {
        while !self.universe.is_over() && self.process.is_alive() {
            let share = self.share();
            let [one, other] = names();
            let (mut parts, cost) =
                (vec![(one, self.rng.i32(1..=2)), (other, self.rng.i32(1..=2))], self.rng.bool());
            self.rng.shuffle(&mut parts);
            if self.is_orderly || self.rng.u32(0..6) > 0 {
                parts.truncate(1);
            }
            if cost {
                parts.iter_mut().for_each(|(_, cost)| *cost = 1);
            }
            match self.rng.u32(0..12) {
                _ if self.is_orderly => self.slot(&parts, share).await,
                0..=4 => self.acquire(&parts, share, None).await,
                5..=7 => self.slot(&parts, share).await,
                8 => {
                    let within = Duration::from_millis(self.rng.u64(200..=4_000));
                    self.acquire(&parts, share, Some(within)).await;
                }
                9 | 10 => self.redeem().await,
                _ => self.lowers(&parts[0].0).await,
            }
            if !self.is_orderly {
                sleep(Duration::from_millis(self.rng.u64(0..400))).await;
            }
        }
    }

    /// A share that the bucket has or had, one that it never had, that of the process, or none.
    fn share(&mut self) -> Option<&'static str> {
        match self.rng.u32(0..8) {
            0 => Some(UNKNOWN),
            1 => Some(COMMON),
            2 => None,
            _ => self.rng.choice(SHARES),
        }
    }

    fn request(parts: &Parts, share: Option<&'static str>) -> Request<'static> {
        let names: Vec<String> = parts.iter().map(|(name, _)| name.clone()).collect();
        let request = Request::from(names);
        let request = parts.iter().fold(request, |request, (name, cost)| request.cost(name.clone(), *cost));
        share.map_or(request.clone(), |share| request.share(share))
    }

    fn watch(&self, call: Public) -> Stopwatch {
        Stopwatch::of(&self.universe, &self.process, call)
    }

    async fn acquire(&mut self, parts: &Parts, share: Option<&'static str>, ticket_within: Option<Duration>) {
        let asked_at = self.universe.time();
        let request = Self::request(parts, share);
        let request = ticket_within.map_or(request.clone(), |within| request.ticket_within(within));
        let public = if ticket_within.is_some() { Public::Book(parts.len()) } else { Public::Acquire };
        let client = self.process.client.clone();
        let asked = self.watch(public).on(client.acquire(request));
        let asked = match self.rng.u32(0..12) {
            0 => timeout(Duration::from_millis(self.rng.u64(0..60)), asked).await.ok(),
            _ => Some(asked.await),
        };
        match asked {
            Some(Ok(Outcome::Granted(grant))) if grant.basis() == Basis::Table => {
                let paid: Vec<_> =
                    parts.iter().map(|(name, _)| grant.paid_from(name).map(str::to_owned)).collect();
                let grip = self.grip(asked_at, grant.start_at().micros(), false);
                let id = self.granted(parts, share, &paid, grip);
                self.hold(parts, &paid, &id, grant).await;
            }
            Some(Ok(Outcome::RetryIn(retry))) => {
                self.is_refused_for_a_reason(parts, share, asked_at, &retry);
                if let Some(ticket) = retry.ticket().filter(|_| self.rng.u32(0..4) > 0) {
                    let carried = Carried { ticket: ticket.clone(), parts: parts.clone(), share, asked_at };
                    self.queue.lock().unwrap().push_back(carried);
                }
                sleep(retry.wait().min(Duration::from_secs(2)).mul_f64(self.rng.f64())).await;
            }
            _ => {}
        }
    }

    /// Waits in line, through whatever becomes of the share.
    async fn slot(&mut self, parts: &Parts, share: Option<&'static str>) {
        let asked_at = self.universe.time();
        let patience = Duration::from_millis(self.rng.u64(PATIENCE));
        let slot = self.process.client.slot(Self::request(parts, share)).max_wait(patience);
        let work = Duration::from_millis(if self.is_orderly { 0 } else { self.rng.u64(0..WORK) });
        let leaves = !self.is_orderly && self.rng.u32(0..4) == 0;
        let leaves_after = leaves.then(|| Duration::from_millis(self.rng.u64(0..4_000)));
        let used = self.rng.u32(0..3);
        let run = slot.run(async |slot| {
            if slot.basis() != Basis::Table {
                return Ok(());
            }
            let paid: Vec<_> =
                parts.iter().map(|(name, _)| slot.paid_from(name).map(str::to_owned)).collect();
            let id = self.granted(parts, share, &paid, self.grip(asked_at, slot.start_at().micros(), true));
            sleep(work).await;
            if !self.is_orderly && used == 0 {
                let (bucket, cost) = (&parts[0].0, Micros::from(parts[0].1) * 1_000_000);
                if slot.used(bucket, amount(cost / 2)).is_ok() {
                    self.begins_to_settle(&id, bucket, paid[0].as_deref(), (cost, cost / 2));
                }
            }
            Ok::<_, LimitError>(())
        });
        let run = self.watch(Public::Slot(patience, work)).on(run);
        let outcome = match leaves_after {
            Some(after) => timeout(after, run).await.ok(),
            None => Some(run.await),
        };
        match outcome {
            Some(Ok(())) => {}
            // An exact wait that is too long: it books nothing.
            Some(Err(LimitError::Refused(retry))) => {
                sleep(retry.wait().min(Duration::from_secs(1)).mul_f64(self.rng.f64())).await;
            }
            _ => {
                let now = self.universe.time();
                self.universe.record(|record| {
                    record.left_share(&self.process.name, parts, share.or(self.default), asked_at, now)
                });
            }
        }
    }

    async fn hold(&mut self, parts: &Parts, paid: &[Option<String>], id: &str, mut grant: Grant) {
        sleep(Duration::from_millis(self.rng.u64(0..WORK))).await;
        let (bucket, cost) = (&parts[0].0, Micros::from(parts[0].1) * 1_000_000);
        match self.rng.u32(0..8) {
            0 => return drop(grant),
            1..=3 => {
                let used = if self.rng.bool() { cost / 2 } else { cost + cost / 2 };
                let surplus = self.begins_to_settle(id, bucket, paid[0].as_deref(), (cost, used));
                let settled = self.watch(Public::Settle).on(grant.settle(bucket, amount(used))).await;
                if let Ok(Settled::Returned(back)) = settled {
                    let rest = surplus - Micros::from(back.micros());
                    self.account(bucket, paid[0].as_deref(), |account| account.found_no_room(rest));
                }
            }
            4 => {
                let header = |name: &str, value: String| (format!("x-ratelimit-{name}-requests"), value);
                let left = self.rng.u32(0..6).to_string();
                let headers = vec![header("remaining", left), header("reset", "1s".to_owned())];
                let observed = self.process.client.observe(bucket, &headers, Some(&grant));
                let _ = self.watch(Public::Observe).on(observed).await;
            }
            _ => {}
        }
        let _ = self.watch(Public::Release).on(grant.release()).await;
    }

    async fn redeem(&mut self) {
        let Some(carried) = self.queue.lock().unwrap().pop_front() else { return };
        let Carried { ticket, parts, share, asked_at } = &carried;
        let now = self.universe.time() + Micros::from(self.process.clock_error());
        let wait = (Micros::from(ticket.start_at().micros()) - now).clamp(0, 6_000_000);
        sleep(Duration::from_micros(wait.try_into().unwrap()) + Duration::from_millis(self.rng.u64(0..300)))
            .await;
        match self.watch(Public::Redeem(parts.len())).on(self.process.client.redeem(ticket)).await {
            Ok(Redeemed::Granted(grant)) => {
                self.universe.count("a ticket of a share is redeemed");
                let paid: Vec<_> =
                    parts.iter().map(|(name, _)| grant.paid_from(name).map(str::to_owned)).collect();
                let grip = Grip { redeemed: true, ..self.grip(*asked_at, grant.start_at().micros(), false) };
                let id = self.granted(parts, *share, &paid, grip);
                self.hold(parts, &paid, &id, grant).await;
            }
            Ok(Redeemed::RetryIn(retry)) if retry.ticket().is_some() => {
                self.queue.lock().unwrap().push_back(carried)
            }
            _ => {}
        }
    }

    /// A penalty, or a pause.
    async fn lowers(&mut self, bucket: &str) {
        if self.rng.bool() {
            let _ = self.process.client.penalize(bucket, [0.8, 0.5, 0.0][self.rng.usize(0..3)]).await;
        } else {
            let pause = Duration::from_millis(self.rng.u64(20..=1_000));
            let _ = self.watch(Public::CoolDown).on(self.process.client.cool_down(bucket, pause)).await;
        }
    }

    const fn grip(&self, asked_at: Micros, start_at: i64, booked: bool) -> Grip {
        Grip { asked_at, start_at, lease_ends: 0, booked, redeemed: false, transacted: true }
    }

    fn account<T>(
        &self,
        bucket: &str,
        paid: Option<&str>,
        with: impl FnOnce(&mut crate::account::Account) -> T,
    ) -> T {
        let line = name_of_line(bucket, paid.unwrap_or(COMMON));
        self.universe.ledger(|ledger| with(ledger.account(&self.process.name, &line)))
    }

    /// What a call did not use may go back.
    fn begins_to_settle(
        &self,
        id: &str,
        bucket: &str,
        paid: Option<&str>,
        (cost, used): (Micros, Micros),
    ) -> Micros {
        let (now, surplus) = (self.universe.time(), (cost - used).max(0));
        self.universe.record(|record| record.settled(id, bucket, used.min(cost), now));
        self.account(bucket, paid, |account| account.settles(surplus));
        surplus
    }

    /// Books a grant: each part on the line that it says.
    fn granted(
        &self,
        parts: &Parts,
        share: Option<&'static str>,
        paid: &[Option<String>],
        grip: Grip,
    ) -> String {
        let (now, error) = (self.universe.time(), self.universe.error_of(&self.process));
        let mut taken_at = grip.asked_at;
        for ((bucket, cost), line) in parts.iter().zip(paid) {
            let Some(line) = line else {
                self.universe
                    .violated(format!("{bucket}: a grant of {} does not say its line", self.process.name));
                continue;
            };
            let cost = Micros::from(*cost) * 1_000_000;
            let told = Told { at: grip.start_at.into(), cost, now, by: Teller::Grant };
            let is_told = parts.len() == 1 && !grip.redeemed;
            let judged = self.account(bucket, Some(line), |account| {
                account.kept += cost;
                account.balance(&self.process.name, bucket)?;
                Ok(if is_told {
                    Some(account.told_start(&name_of_line(bucket, line), told, error)?.written_at)
                } else {
                    None
                })
            });
            match judged {
                Ok(at) => taken_at = at.map_or(taken_at, |at: Micros| at.min(taken_at)),
                Err(violation) => self.universe.violated(violation),
            }
            if let Some(share) = share.filter(|share| *share != line && SHARES.contains(share) && is_told) {
                self.leaves_the_floor(bucket, (share, line), told);
            }
        }
        let need = Need { parts: parts.clone(), concurrent: false };
        self.universe.record(|record| {
            let id = record.granted(&self.process.name, &need, now, grip, taken_at);
            let paid = parts.iter().zip(paid).map(|((name, _), line)| (name.as_str(), line.as_deref()));
            record.paid(&id, share.or(self.default), paid);
            id
        })
    }

    /// A background share leaves a call more than others do when it borrows. (Of a share that is new, the
    /// first call of a process may pay from the common line as others do: its reply shows the share.)
    fn leaves_the_floor(&self, bucket: &str, (share, line): (&str, &str), told: Told) {
        let judged = self.universe.ledger(|ledger| {
            let changed_at = ledger.lines_changed_at(bucket);
            let of_share = ledger.account(&self.process.name, &name_of_line(bucket, share));
            if !of_share.bookings.iter().any(|booking| booking.planned >= changed_at) {
                return None;
            }
            let lines = ledger.lines(bucket)?;
            let (borrower, lender) = (lines.get(share)?, lines.get(line)?);
            let floor = lender.floor(borrower.background);
            let is_background = borrower.background;
            let account = ledger.account(&self.process.name, &name_of_line(bucket, line));
            let written = account.bookings.iter().filter(|booking| booking.planned <= told.at);
            let left = written.map(|booking| booking.after.line(booking.planned)).max()?;
            Some((is_background, left, floor))
        });
        if let Some((true, left, floor)) = judged {
            self.universe.count("judged: a loan to background work");
            if left < floor - 2 && !self.universe.ledger(|ledger| ledger.changed_of_late(bucket, told.now)) {
                self.universe.violated(format!(
                    "{bucket}: {share} borrowed {line} down to {left}, of the {floor} that stay"
                ));
            }
        }
    }

    /// A share whose own line has enough is not refused.
    fn is_refused_for_a_reason(&self, parts: &Parts, share: Option<&str>, asked_at: Micros, retry: &RetryIn) {
        let ([(bucket, cost)], RetryReason::Exhausted, None) =
            (parts.as_slice(), retry.reason(), retry.ticket())
        else {
            return;
        };
        let (now, error) = (self.universe.time(), self.universe.error_of(&self.process));
        let Some(share) = share else { return };
        let off = Micros::from(self.process.client.now().micros()) - now;
        let refused = Refused {
            process: &self.process.name,
            cost: Micros::from(*cost) * 1_000_000,
            asked_at,
            now,
            error,
            off,
        };
        self.universe.check(self.universe.ledger(|ledger| {
            if ledger.changed_of_late(bucket, now) {
                return Ok(());
            }
            let own = if ledger.lines(bucket).is_some_and(|lines| lines.contains_key(share)) {
                share
            } else {
                COMMON
            };
            ledger.refused(&name_of_line(bucket, own), refused)
        }));
    }
}

fn amount(micros: Micros) -> Amount {
    Amount::from_micros(i64::try_from(micros).unwrap())
}
