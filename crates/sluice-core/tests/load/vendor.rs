//! A vendor behind a bucket of slots, and the queue before it, in steps of a tenth of a second.

use std::time::Duration;

use sluice_core::{Amount, Rate, Sample, Timestamp};

const STEP: Duration = Duration::from_millis(100);

#[derive(Clone, Debug)]
pub(crate) struct Vendor {
    pub(crate) now: Timestamp,
    pub(crate) capacity: i32,
    /// Callers that hold a slot at once, at most: the capacity, or fewer.
    pub(crate) workers: usize,
    /// How long a call takes that begins now.
    pub(crate) takes: Duration,
    /// Ends of the calls under way, with the caller.
    under_way: Vec<(Timestamp, u64)>,
    waiting: Vec<u64>,
    arrived: u64,
    pub(crate) admitted: i32,
    finished: Vec<u64>,
}

impl Vendor {
    pub(crate) fn new(capacity: i32, takes: Duration) -> Self {
        let now = Timestamp::from_secs(1_709_550_000);
        let workers = usize::try_from(capacity).unwrap();
        let (under_way, waiting, finished) = (vec![], vec![], vec![]);
        Self { now, capacity, workers, takes, under_way, waiting, arrived: 0, admitted: 0, finished }
    }

    /// With so many callers that hold a slot at once.
    pub(crate) fn with_workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    pub(crate) fn arrive(&mut self) -> u64 {
        self.arrived += 1;
        self.waiting.push(self.arrived);
        self.arrived
    }

    /// Nobody is in line any more.
    pub(crate) fn waiting_leave(&mut self) {
        self.waiting.clear();
    }

    /// Runs for `span`, with `queue` callers always in line.
    pub(crate) fn run(&mut self, span: Duration, queue: usize) {
        let until = self.now.after(span);
        while self.now < until {
            while self.waiting.len() < queue {
                self.arrive();
            }
            self.step();
        }
    }

    fn step(&mut self) {
        self.now = self.now.after(STEP);
        let now = self.now;
        self.finished.extend(self.under_way.iter().filter(|(end, _)| *end <= now).map(|(_, caller)| *caller));
        self.under_way.retain(|(end, _)| *end > now);
        while self.under_way.len() < self.workers && !self.waiting.is_empty() {
            let caller = self.waiting.remove(0);
            // Calls do not end all at once: from four fifths to six fifths of the time, by turns.
            let share = 80 + u32::try_from(caller * 7 % 41).unwrap();
            self.under_way.push((now.after(self.takes * share / 100), caller));
            self.admitted += 1;
        }
    }

    pub(crate) fn live(&self) -> Amount {
        Amount::from_tokens(i32::try_from(self.under_way.len()).unwrap())
    }

    /// Under way and in line.
    pub(crate) fn pending(&self) -> Amount {
        Amount::from_tokens(i32::try_from(self.under_way.len() + self.waiting.len()).unwrap())
    }

    /// How long a caller that arrives now takes until it is done: run ahead and seen.
    pub(crate) fn real_wait(&self) -> Duration {
        let mut ahead = self.clone();
        let caller = ahead.arrive();
        while !ahead.finished.contains(&caller) {
            ahead.step();
        }
        ahead.now.since(self.now)
    }

    pub(crate) fn sample(&self) -> Sample {
        let live = self.live();
        let floor = Rate::per(Amount::from_tokens(self.capacity), Duration::from_secs(900)).unwrap();
        let admitted = Amount::from_tokens(self.admitted);
        Sample { pending: live, taken: live, admitted, uncounted: 0, at: self.now, floor }
    }
}
