//! Processes that plan from old readings, beside other clients and operators.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use sluice_core::schema::{CAPACITY, CAPPED};
use sluice_core::{
    Amount, Bucket, CLOCK_ERROR, InlineAnswer, InlinePlanner, InlineRelease, InlineTake, LeaseId,
    ReleaseAnswer, Serves, Timestamp,
};

use super::table::Item;
use super::{NOW, amount, cost, drift, id, item};

const CAPACITY_AT_FIRST: i32 = 6;
const PROCESSES: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    /// Reads the row.
    Read {
        process: usize,
    },
    /// Plans from the last reading and sends it: new takes of these costs, and releases of what it holds.
    Send {
        process: usize,
        takes: Vec<i32>,
        releases: usize,
        is_reply_lost: bool,
    },
    /// Renews what it holds.
    Renew {
        process: usize,
    },
    /// A process forgets what it holds.
    Crash {
        process: usize,
    },
    /// A sweep, from an old reading.
    Sweep {
        process: usize,
    },
    /// A change of the capacity, as `Change` does it.
    Resize {
        to: i32,
    },
    /// Another client gives back a slot too often.
    Mint,
    Pass {
        secs: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let process = 0..PROCESSES;
    prop_oneof![
        4 => process.clone().prop_map(|process| Step::Read { process }),
        8 => (process.clone(), prop::collection::vec(1..=2, 0..4), 0_usize..3, prop::bool::weighted(0.2)).prop_map(
            |(process, takes, releases, is_reply_lost)| Step::Send { process, takes, releases, is_reply_lost }
        ),
        1 => process.clone().prop_map(|process| Step::Renew { process }),
        1 => process.clone().prop_map(|process| Step::Crash { process }),
        2 => process.prop_map(|process| Step::Sweep { process }),
        1 => (1..=9).prop_map(|to| Step::Resize { to }),
        1 => Just(Step::Mint),
        2 => (1_u64..40).prop_map(|secs| Step::Pass { secs }),
    ]
}

#[derive(Clone, Debug, Default)]
struct Process {
    reading: Option<Bucket>,
    held: Vec<LeaseId>,
    /// Takes and releases whose reply was lost, sent again as they are.
    unanswered: Option<(Vec<InlineTake>, Vec<LeaseId>)>,
}

struct World {
    item: Item,
    now: Timestamp,
    processes: Vec<Process>,
    drawn: u32,
    minted: Amount,
    /// Leases that anyone removed, each of them once.
    gone: BTreeSet<LeaseId>,
}

impl World {
    fn new() -> Self {
        let processes = vec![Process::default(); PROCESSES];
        let (item, minted, gone) = (item(CAPACITY_AT_FIRST), Amount::ZERO, BTreeSet::new());
        Self { item, now: NOW, processes, drawn: 0, minted, gone }
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Read { process } => self.processes[*process].reading = Some(self.item.bucket()),
            Step::Send { process, takes, releases, is_reply_lost } => {
                self.send(*process, takes, *releases, *is_reply_lost);
            }
            Step::Renew { process } => {
                let (now, held) = (self.now, self.processes[*process].held.clone());
                for id in held {
                    let renewal = sluice_core::renew_inline(super::name().to_string(), &id, now.after(LEASE));
                    let is_there = self.item.bucket().inline().is_some_and(|leases| leases.contains(&id));
                    assert_eq!(
                        self.item.apply(&renewal),
                        is_there,
                        "a lease that is there can be renewed, and no other"
                    );
                }
            }
            Step::Crash { process } => self.processes[*process] = Process::default(),
            Step::Sweep { process } => {
                let Some(bucket) = self.processes[*process].reading.clone() else { return };
                let Some(reclaim) = InlinePlanner::new(&bucket).reclaim(self.now.before(CLOCK_ERROR)) else {
                    return;
                };
                if self.item.apply(&reclaim.update) {
                    reclaim.leases.into_iter().for_each(|id| self.is_gone(id));
                }
            }
            Step::Resize { to } => {
                let by = amount(*to).minus(self.item.number(CAPACITY));
                self.item.set_number(CAPACITY, to);
                self.item.add_tokens(by);
            }
            Step::Mint => {
                let bucket = self.item.bucket();
                if bucket.tokens() < bucket.limit().capacity() {
                    self.item.add_tokens(amount(1));
                    self.minted = self.minted.plus(amount(1));
                }
            }
            Step::Pass { secs } => self.now = self.now.after(Duration::from_secs(*secs)),
        }
    }

    fn send(&mut self, at: usize, costs: &[i32], releases: usize, is_reply_lost: bool) {
        let process = &mut self.processes[at];
        let (takes, releases) = process.unanswered.clone().unwrap_or_else(|| {
            let ends = self.now.after(LEASE);
            let take = |slots: &i32| {
                self.drawn += 1;
                InlineTake {
                    id: id(self.drawn),
                    cost: cost(*slots),
                    ends,
                    serves: Serves::default(),
                    borrows: None,
                }
            };
            (costs.iter().map(take).collect(), process.held.iter().take(releases).cloned().collect())
        });
        let bucket = process.reading.clone().unwrap_or_else(|| self.item.bucket());
        let took =
            |id: &LeaseId| bucket.inline().and_then(|all| all.get(id)).map_or(cost(1), |lease| lease.cost);
        let asked: Vec<_> =
            releases.iter().map(|id| InlineRelease { id: id.clone(), cost: took(id) }).collect();
        let plan = InlinePlanner::new(&bucket).plan(&takes, &asked, self.now);
        let before = self.item.bucket();
        let is_applied = match &plan.update {
            None => true,
            Some(update) => self.item.apply(update),
        };
        if is_applied && is_reply_lost {
            // The same request, sent again by whoever heard no answer.
            assert!(plan.update.iter().all(|update| !self.item.apply(update)));
        }
        if is_applied && bucket == before && plan.update.is_some() {
            assert_eq!(self.item.bucket(), plan.after(&before));
        }
        if is_applied && plan.update.is_some() {
            self.check_grants(&before, &plan.takes, &takes);
            // A try whose lease has come to its end meanwhile is granted anew.
            let granted =
                takes.iter().zip(&plan.takes).filter(|(_, answer)| **answer == InlineAnswer::Granted);
            granted.for_each(|(take, _)| {
                self.gone.remove(&take.id);
            });
            plan.taken_over.iter().for_each(|id| self.is_gone(id.clone()));
            let back =
                |answer: &ReleaseAnswer| matches!(answer, ReleaseAnswer::GivenBack | ReleaseAnswer::Capped);
            let released = releases.iter().zip(&plan.releases).filter(|(_, answer)| back(answer));
            released.for_each(|(id, _)| self.is_gone(id.clone()));
        }
        let process = &mut self.processes[at];
        process.reading = Some(self.item.bucket());
        if is_reply_lost || !is_applied {
            // Both are sent again, with the same ids.
            process.unanswered = Some((takes, releases));
            return;
        }
        process.unanswered = None;
        process.held.retain(|id| !releases.contains(id));
        let is_held = |answer: &InlineAnswer| matches!(answer, InlineAnswer::Granted | InlineAnswer::Held);
        process
            .held
            .extend(takes.into_iter().zip(&plan.takes).filter(|(_, a)| is_held(a)).map(|(take, _)| take.id));
    }

    /// What is granted was free: no more is held than the capacity, unless slots were minted or a resize left
    /// it so.
    fn check_grants(&self, before: &Bucket, answers: &[InlineAnswer], takes: &[InlineTake]) {
        let after = self.item.bucket();
        let leases = after.inline().unwrap();
        for (take, answer) in takes.iter().zip(answers) {
            let is_new = before.inline().is_none_or(|leases| !leases.contains(&take.id));
            assert_eq!(
                *answer == InlineAnswer::Granted,
                is_new && leases.contains(&take.id),
                "{take:?} {answer:?}"
            );
        }
        if answers.contains(&InlineAnswer::Granted) {
            assert!(after.tokens() >= Amount::ZERO);
            assert!(leases.held() <= after.limit().capacity().plus(self.minted), "{after:?}");
        }
    }

    fn is_gone(&mut self, id: LeaseId) {
        assert!(self.gone.insert(id.clone()), "{id:?} was given back twice");
    }

    fn capped(&self) -> Amount {
        self.item.0.get(CAPPED).map_or(Amount::ZERO, |_| self.item.number(CAPPED))
    }
}

const LEASE: Duration = Duration::from_secs(30);

proptest! {
    #![proptest_config(crate::cases::cases(4_000))]

    #[test]
    fn no_slot_is_made_or_lost_whatever_happens_between_reading_and_write(
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let mut world = World::new();
        for step in &steps {
            world.run(step);
            // What another client minted is made good by leases that end without room for their slots.
            prop_assert_eq!(drift(&world.item), world.capped().minus(world.minted));
            prop_assert!(world.capped() <= world.minted);
        }
        // When every holder is gone and a sweep has run, all slots are free.
        world.run(&Step::Pass { secs: 1_000 });
        while let Some(reclaim) = InlinePlanner::new(&world.item.bucket()).reclaim(world.now.before(CLOCK_ERROR)) {
            prop_assert!(world.item.apply(&reclaim.update));
        }
        let bucket = world.item.bucket();
        prop_assert!(bucket.inline().is_none_or(sluice_core::InlineLeases::is_empty));
        prop_assert_eq!(bucket.tokens(), bucket.limit().capacity().plus(world.minted).minus(world.capped()));
    }
}
