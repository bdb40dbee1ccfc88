//! Tickets hold the bound of a booking that nobody carries, whenever they are redeemed.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use sluice_core::{
    Amount, Bucket, Claim, FutureAnchor, Judgement, Limit, LimitType, Lot, Plan, Rate, RatePlanner,
    RateReceipt, Starts, Take, TicketId, TicketRow, Timestamp,
};

use super::item::Item;
use super::{Caller, Granted, Step, check_windows, cost, start, steps, tight_limits};

/// What happens beside a take.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// A booking is left to its caller, who waits for it.
    Wait,
    /// It becomes a ticket.
    Carry,
    /// A ticket is redeemed.
    Redeem(usize),
    /// A booking, or a ticket that was redeemed, is given back: its call is not made.
    GiveBack(usize),
    /// Tokens are taken ahead.
    Prefetch,
    /// And used.
    UseLot(usize),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        2 => Just(Deed::Wait),
        6 => Just(Deed::Carry),
        6 => (0_usize..200).prop_map(Deed::Redeem),
        3 => (0_usize..200).prop_map(Deed::GiveBack),
        1 => Just(Deed::Prefetch),
        2 => (0_usize..200).prop_map(Deed::UseLot),
    ];
    prop::collection::vec(deed, 120)
}

struct World {
    item: Item,
    callers: Vec<Caller>,
    now: i64,
    /// Calls that are not made yet.
    waiting: Vec<Granted>,
    tickets: Vec<TicketRow>,
    lots: Vec<Lot>,
    made: Vec<Granted>,
    redeemed_late: usize,
}

impl World {
    fn new(limit: Limit) -> Self {
        let (now, dimension) = start();
        let bucket = Bucket::full(dimension, limit, now);
        let callers = (0..4).map(|_| Caller { reading: bucket.clone() }).collect();
        Self {
            item: Item::of(&bucket),
            callers,
            now: now.micros(),
            waiting: Vec::new(),
            tickets: Vec::new(),
            lots: Vec::new(),
            made: Vec::new(),
            redeemed_late: 0,
        }
    }

    fn local(&self, error: i64) -> Timestamp {
        Timestamp::from_micros(self.now + error)
    }

    fn step(&mut self, step: &Step, deed: Deed) {
        self.now += step.gap.min(300_000);
        match deed {
            Deed::Redeem(which) if !self.tickets.is_empty() => {
                self.redeem(which % self.tickets.len(), step.error)
            }
            Deed::GiveBack(which) if !self.waiting.is_empty() => {
                let left = self.waiting.swap_remove(which % self.waiting.len());
                if let Some(update) = left.receipt.give_back(self.local(step.error)) {
                    self.item.apply(&update);
                }
            }
            Deed::Prefetch => self.prefetch(step),
            Deed::UseLot(which) if !self.lots.is_empty() => {
                let (lot, local) = (which % self.lots.len(), self.local(step.error));
                let receipt = self.lots[lot].take(Some(cost(step.cost)), local);
                self.made.extend(receipt.map(|receipt| Granted {
                    start: self.now,
                    cost: step.cost,
                    receipt,
                }));
            }
            _ => {}
        }
        let take = Take {
            cost: cost(step.cost),
            now: Timestamp::from_micros(self.now),
            patience: Duration::from_millis(step.patience_ms),
        };
        let Some(granted) = self.callers[step.caller].acquire(&mut self.item, take, step.error) else {
            return;
        };
        if matches!(deed, Deed::Carry | Deed::Redeem(_)) && granted.start > self.now {
            // One that could not be used at its start is given back, as the client does.
            match TicketRow::book(TicketId::new("a".into()).unwrap(), [&granted.receipt]) {
                Some(row) => self.tickets.push(row),
                None => self.item_returns(&granted.receipt, step.error),
            }
        } else {
            self.waiting.push(granted);
        }
    }

    fn item_returns(&mut self, receipt: &RateReceipt, error: i64) {
        if let Some(update) = receipt.give_back(self.local(error)) {
            self.item.apply(&update);
        }
    }

    fn redeem(&mut self, which: usize, error: i64) {
        let bucket = Arc::new(self.item.bucket());
        match self.tickets[which].judge(&[bucket], self.local(error)) {
            Judgement::Good(receipts) => {
                let row = self.tickets.swap_remove(which);
                self.redeemed_late += usize::from(row.ticket().start_at().micros() + 10_000 < self.now);
                let micros = row.parts()[0].cost().amount().micros();
                // It starts now; like any other, its call may be called off later.
                let receipt = receipts.into_iter().next().unwrap();
                self.waiting.push(Granted { start: self.now, cost: micros, receipt });
            }
            Judgement::Wait { .. } => {}
            Judgement::Lapsed => drop(self.tickets.swap_remove(which)),
        }
    }

    fn prefetch(&mut self, step: &Step) {
        let (now, reading) = (Timestamp::from_micros(self.now), self.item.bucket());
        let claim = Claim { cost: cost(step.cost), patience: Duration::ZERO };
        let batch = RatePlanner::new(&reading).plan_batch(
            &[claim],
            now,
            Starts::InReply,
            Amount::from_micros(step.cost.saturating_mul(3)),
        );
        let (Some(planned), Plan::Write(upto)) = (batch.write, &batch.answers[0]) else { return };
        assert!(self.item.apply(&planned.update), "from a fresh reading");
        let after = Arc::new(self.item.bucket());
        let receipt = RateReceipt::in_batch(Arc::clone(&after), batch.total.minus(*upto), claim.cost);
        self.made.push(Granted { start: self.now, cost: step.cost, receipt });
        if batch.prefetched > Amount::ZERO {
            self.lots.push(Lot::new(after, batch.prefetched, now));
        }
    }

    /// Some of the tickets that are left are redeemed at their very start, and the others never.
    fn end(mut self) -> Vec<(i64, i64)> {
        self.tickets.sort_by_key(|row| row.ticket().start_at());
        while !self.tickets.is_empty() {
            let row = self.tickets.remove(0);
            if row.parts()[0].cost().amount().micros() % 3 != 0 {
                self.now = self.now.max(row.ticket().start_at().micros());
                self.tickets.insert(0, row);
                let left = self.tickets.len();
                self.redeem(0, 0);
                assert!(self.tickets.len() < left, "at its start it is good, or has lapsed");
            }
        }
        self.made.append(&mut self.waiting);
        self.made.iter().map(|grant| (grant.start, grant.cost)).collect()
    }
}

/// Calls of a hundredth of a bucket and more: many fit, so that what is redeemed late is not all that there
/// is.
fn roomy_limits() -> impl Strategy<Value = Limit> {
    (10_000_000_i64..30_000_000, 1_000_u64..20_000).prop_map(|(capacity, window_ms)| {
        let capacity = Amount::from_micros(capacity);
        let rate = Rate::per(capacity, Duration::from_millis(window_ms)).unwrap();
        Limit::rate(LimitType::Tokens, capacity, rate, cost(100_000)).unwrap()
    })
}

fn run(limit: Limit, steps: &[Step], deeds: &[Deed]) -> Vec<(i64, i64)> {
    let mut world = World::new(limit);
    for (step, deed) in steps.iter().zip(deeds) {
        world.step(step, *deed);
    }
    world.end()
}

proptest! {
    #![proptest_config(crate::cases::cases(1_000))]

    #[test]
    fn tickets_redeemed_on_time_late_and_never_hold_the_bound(
        limit in prop_oneof![tight_limits(), roomy_limits()], steps in steps(0, 20_000), deeds in deeds(),
    ) {
        check_windows(&limit, &mut run(limit, &steps, &deeds), 0)?;
    }

    #[test]
    fn tickets_of_clocks_off_by_e_add_twice_e_once(
        limit in prop_oneof![tight_limits(), roomy_limits()], steps in steps(500_000, 20_000), deeds in deeds(),
    ) {
        check_windows(&limit, &mut run(limit, &steps, &deeds), 500_000)?;
    }

    /// Alone with callers who keep to their starts, a ticket is good from its start to its end, to a hair.
    #[test]
    fn a_ticket_is_good_from_its_start_until_its_use_by(
        limit in roomy_limits(), behind in prop::collection::vec(1..3_000_000_i64, 0..12), late in 0..1_000_i64,
    ) {
        let mut world = World::new(limit);
        let take = |micros, patience| Take { cost: cost(micros), now: Timestamp::from_micros(world.now), patience };
        let all = take(limit.capacity().micros(), Duration::ZERO);
        let mine = take(1_000_000, Duration::from_secs(3_600));
        world.callers[0].acquire(&mut world.item, all, 0).unwrap();
        let booked = world.callers[0].acquire(&mut world.item, mine, 0).unwrap();
        let row = TicketRow::book(TicketId::new("a".into()).unwrap(), [&booked.receipt]).unwrap();
        let ticket = row.ticket();
        prop_assert_eq!(ticket.start_at().micros(), booked.start);
        for micros in behind {
            world.callers[1].acquire(&mut world.item, Take { cost: cost(micros), ..mine }, 0).unwrap();
        }
        let judge = |at: i64| row.judge(&[Arc::new(world.item.bucket())], Timestamp::from_micros(at));
        let early = matches!(judge(booked.start - 1), Judgement::Wait { cooling_down: false, wait, .. } if wait == Duration::from_micros(1));
        prop_assert!(early);
        // Two millionths of a token are lost to rounding, and the last instant with them.
        let span = ticket.use_by().micros() - booked.start - 10;
        let at = booked.start + span / 1_000 * late;
        prop_assert!(matches!(judge(at), Judgement::Good(_)), "{} of {}", at - booked.start, span);
        prop_assert_eq!(judge(ticket.use_by().micros() + 1), Judgement::Lapsed);
    }
}

/// The properties would hold of tickets that are never good.
#[test]
fn tickets_are_redeemed_late_in_those_runs() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (steps, deeds) = (steps(0, 20_000), deeds());
    let mut late = 0;
    for _ in 0..50 {
        let limit = roomy_limits().new_tree(&mut runner).unwrap().current();
        let (steps, deeds) =
            (steps.new_tree(&mut runner).unwrap().current(), deeds.new_tree(&mut runner).unwrap().current());
        let mut world = World::new(limit);
        steps.iter().zip(&deeds).for_each(|(step, deed)| world.step(step, *deed));
        late += world.redeemed_late;
    }
    assert!(late > 50, "{late}");
}

/// What an earlier take gives back lifts the line under a ticket that is late: both, used to the full, would
/// pass the capacity.
#[test]
fn what_came_back_meanwhile_is_not_used_on_top_of_a_late_ticket() {
    let capacity = Amount::from_tokens(20);
    let rate = Rate::per(capacity, Duration::from_secs(20)).unwrap();
    let limit = Limit::rate(LimitType::Tokens, capacity, rate, cost(1_000_000)).unwrap();
    let mut world = World::new(limit);
    let take = |world: &mut World, tokens: i64| {
        let now = Timestamp::from_micros(world.now);
        let take = Take { cost: cost(tokens * 1_000_000), now, patience: Duration::from_secs(60) };
        world.callers[0].acquire(&mut world.item, take, 0).unwrap()
    };
    take(&mut world, 16);
    let earlier = take(&mut world, 4);
    let booked = take(&mut world, 5);
    assert_eq!(booked.start, world.now + 5_000_000);
    let row = TicketRow::book(TicketId::new("a".into()).unwrap(), [&booked.receipt]).unwrap();
    world.now = booked.start + 1_000_000;
    world.item_returns(&earlier.receipt, 0);
    assert_eq!(world.item.bucket().level(world.local(0)), Amount::from_tokens(5), "it came back");
    let judge = |world: &World| row.judge(&[Arc::new(world.item.bucket())], world.local(0));
    assert!(matches!(judge(&world), Judgement::Good(_)));
    // The vendor is full from here on, with five for the ticket and fifteen for others.
    world.now = booked.start + 12_000_000;
    take(&mut world, 15);
    assert_eq!(judge(&world), Judgement::Lapsed);
}

/// The line says nothing of a ticket's place in it any more.
#[test]
fn a_bucket_that_was_made_anew_or_has_other_limits_lets_tickets_lapse() {
    let capacity = Amount::from_tokens(10);
    let rate = |secs| Rate::per(capacity, Duration::from_secs(secs)).unwrap();
    let limit = |secs| Limit::rate(LimitType::Tokens, capacity, rate(secs), cost(1_000_000)).unwrap();
    let mut world = World::new(limit(10));
    let now = Timestamp::from_micros(world.now);
    let take = |micros| Take { cost: cost(micros), now, patience: Duration::from_secs(60) };
    world.callers[0].acquire(&mut world.item, take(10_000_000), 0).unwrap();
    let booked = world.callers[0].acquire(&mut world.item, take(1_000_000), 0).unwrap();
    let row = TicketRow::book(TicketId::new("a".into()).unwrap(), [&booked.receipt]).unwrap();
    let (_, dimension) = start();
    let at = row.ticket().start_at().after(Duration::from_secs(1));
    let anew = |secs| Arc::new(Bucket::full(dimension.clone(), limit(secs), at));
    assert!(matches!(row.judge(&[Arc::new(world.item.bucket())], at), Judgement::Good(_)));
    assert_eq!(row.judge(&[anew(10)], at), Judgement::Lapsed, "made anew, full");
    let mut other = Item::of(&anew(20));
    let mut caller = Caller { reading: other.bucket() };
    caller.acquire(&mut other, Take { now: at, ..take(10_000_000) }, 0).unwrap();
    assert_eq!(row.judge(&[Arc::new(other.bucket())], at), Judgement::Lapsed, "other limits");
    assert_eq!(row.judge(&[], at), Judgement::Lapsed, "no reading of it");
}

/// It pays out all of its capacity then; what was booked before would come on top. Before such an anchor the
/// line of a ticket would have risen above everything.
#[test]
fn a_bucket_that_a_wrong_clock_found_full_lets_tickets_lapse_before_the_repair_and_after_it() {
    let mut world = World::new(super::settles::limit(10));
    let now = Timestamp::from_micros(world.now);
    let take = |tokens: i64| Take { cost: cost(tokens * 1_000_000), now, patience: Duration::from_secs(60) };
    while world.item.bucket().tokens() > Amount::ZERO {
        world.callers[0].acquire(&mut world.item, take(1), 0).unwrap();
    }
    let booked = world.callers[0].acquire(&mut world.item, take(10), 0).unwrap();
    let row = TicketRow::book(TicketId::new("a".into()).unwrap(), [&booked.receipt]).unwrap();
    let at = row.ticket().start_at().after(Duration::from_millis(10));
    let judge = |item: &Item| row.judge(&[Arc::new(item.bucket())], at);
    assert!(matches!(judge(&world.item), Judgement::Good(_)));
    world.callers[1]
        .acquire(&mut world.item, Take { patience: Duration::ZERO, ..take(1) }, 3_600_000_000)
        .unwrap();
    assert_eq!(judge(&world.item), Judgement::Lapsed);
    let bucket = world.item.bucket();
    let repair = RatePlanner::new(&bucket).on_future_anchor(FutureAnchor::Repair).repair(at).unwrap();
    assert!(world.item.apply(&repair.update));
    assert_eq!(judge(&world.item), Judgement::Lapsed);
}

/// Else the line would stand higher than who took the lot knows.
#[test]
fn a_redeemed_ticket_is_not_given_back_under_a_lot_taken_since_its_booking() {
    let capacity = Amount::from_tokens(20);
    let rate = Rate::per(capacity, Duration::from_secs(20)).unwrap();
    let limit = Limit::rate(LimitType::Tokens, capacity, rate, cost(1_000_000)).unwrap();
    for lot_is_taken in [false, true] {
        let mut world = World::new(limit);
        let now = Timestamp::from_micros(world.now);
        let take =
            |tokens: i64| Take { cost: cost(tokens * 1_000_000), now, patience: Duration::from_secs(60) };
        world.callers[0].acquire(&mut world.item, take(20), 0).unwrap();
        let booked = world.callers[0].acquire(&mut world.item, take(1), 0).unwrap();
        world.tickets.extend(TicketRow::book(TicketId::new("a".into()).unwrap(), [&booked.receipt]));
        world.now = booked.start + 15_000_000;
        if lot_is_taken {
            world.prefetch(&Step { gap: 0, caller: 0, cost: 1_000_000, error: 0, patience_ms: 0 });
            assert_eq!(world.lots.len(), 1);
        }
        world.redeem(0, 0);
        let redeemed = world.waiting.pop().unwrap();
        let back = redeemed.receipt.give_back(world.local(0)).unwrap();
        assert_eq!(world.item.apply(&back), !lot_is_taken);
    }
}
