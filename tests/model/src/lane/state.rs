//! One bucket, its leases, and two lanes.
//!
//! Callers of a process go by the order in which they came, so that the queue is the set of those that wait.
//! A lease has the number of the caller that it was drawn for, whoever holds it in the end. Sets are bits.

/// Processes.
pub(crate) const PROCESSES: usize = 2;

/// Callers of a process at most.
pub(crate) const EACH: usize = 3;

/// Callers, and leases, of both.
pub(crate) const ALL: usize = PROCESSES * EACH;

/// Where a caller stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Caller {
    /// It has not come yet.
    #[default]
    Outside,
    /// In the queue.
    Waiting,
    /// In the batch.
    Batched,
    /// The lease's grant lies ready for it.
    Answered(u8),
    /// It has the grant.
    Holding(u8),
    /// It was refused, has released, or left.
    Gone,
}

/// A lease in the row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Lease {
    #[default]
    Absent,
    Live,
    Ended,
}

/// A write of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Write {
    /// Leases that it puts in.
    pub(crate) takes: u8,
    /// Leases that it gives back.
    pub(crate) releases: u8,
    /// Leases of whomever, seen ended, that it takes over.
    pub(crate) dead: u8,
}

/// What a worker is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Work {
    /// It sleeps, or plans the next write for its batch.
    #[default]
    Planning,
    /// The write was applied, and the reply is on its way, with the row as it was then.
    Applied(Write, Row),
    /// The same for a write that failed.
    Failed(Write, Row),
    /// No reply will come.
    Lost(Write),
}

/// A row as a reply shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Row {
    pub(crate) free: i8,
    /// Leases that have ended.
    pub(crate) ended: u8,
    /// Leases that are there, ended or not.
    pub(crate) there: u8,
}

/// A lane and its worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lane {
    pub(crate) is_crashed: bool,
    /// The row as it was last seen.
    pub(crate) seen: Row,
    pub(crate) work: Work,
    /// Leases that nobody in the process uses any more.
    pub(crate) idle: u8,
    /// Leases that a write without a reply may have put in, or may have removed or remove yet.
    pub(crate) unsure: u8,
    /// Mutants only: something is to be done, and nobody knows.
    pub(crate) is_asleep: bool,
}

impl Lane {
    /// Leases that a write puts in of which the worker waits for the reply.
    pub(crate) const fn in_flight(&self) -> u8 {
        match self.work {
            Work::Planning => 0,
            Work::Applied(write, _) | Work::Failed(write, _) | Work::Lost(write) => write.takes,
        }
    }
}

/// What went wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Wrongs {
    /// More leases stood in the row than the capacity.
    pub(crate) overbooked: bool,
    /// A caller was told a grant whose lease had ended or was not there.
    pub(crate) groundless: bool,
    /// Two callers were told the same grant.
    pub(crate) shared: bool,
    /// A caller was answered before one that came earlier.
    pub(crate) unordered: bool,
}

/// One state of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct State {
    pub(crate) free: i8,
    pub(crate) leases: [Lease; ALL],
    /// Leases that have ended at some time.
    pub(crate) over: u8,
    /// Leases that a late write put in behind its process's back.
    pub(crate) stray: u8,
    pub(crate) callers: [Caller; ALL],
    pub(crate) lanes: [Lane; PROCESSES],
    /// A write that is on its way long after its lane stopped to wait for it.
    pub(crate) late: Option<Write>,
    pub(crate) losses: u8,
    pub(crate) crashes: u8,
    pub(crate) wrongs: Wrongs,
}

/// The leases, and the callers, of a process.
pub(crate) const fn of(process: usize) -> std::ops::Range<usize> {
    process * EACH..(process + 1) * EACH
}

/// A set of one.
pub(crate) const fn bit(at: usize) -> u8 {
    1 << at
}

/// The members of a set, in order.
pub(crate) fn members(set: u8) -> impl DoubleEndedIterator<Item = usize> {
    (0..ALL).filter(move |at| set & bit(*at) > 0)
}

impl State {
    pub(crate) fn first(capacity: i8, losses: u8, crashes: u8) -> Self {
        let seen = Row { free: capacity, ..Row::default() };
        Self {
            free: capacity,
            leases: [Lease::Absent; ALL],
            over: 0,
            stray: 0,
            callers: [Caller::Outside; ALL],
            lanes: [Lane { seen, ..Lane::default() }; PROCESSES],
            late: None,
            losses,
            crashes,
            wrongs: Wrongs::default(),
        }
    }

    /// The callers of a process that stand so.
    pub(crate) fn standing(&self, process: usize, caller: Caller) -> u8 {
        of(process).filter(|at| self.callers[*at] == caller).fold(0, |set, at| set | bit(at))
    }

    pub(crate) fn with(&self, is: impl Fn(Lease) -> bool) -> u8 {
        (0..ALL).filter(|at| is(self.leases[*at])).fold(0, |set, at| set | bit(at))
    }

    /// The row as a reply shows it now.
    pub(crate) fn row(&self) -> Row {
        Row {
            free: self.free,
            ended: self.with(|lease| lease == Lease::Ended),
            there: self.with(|lease| lease != Lease::Absent),
        }
    }

    /// Leases that callers of a process hold, or will find.
    pub(crate) fn held(&self, process: usize) -> u8 {
        of(process).fold(0, |set, at| match self.callers[at] {
            Caller::Answered(lease) | Caller::Holding(lease) => set | bit(lease.into()),
            _ => set,
        })
    }

    /// The one of all states that differ from this one in the names of processes only, or in what nobody asks
    /// for any more.
    pub(crate) fn canonical(mut self) -> Self {
        for (process, lane) in self.lanes.iter_mut().enumerate() {
            let calls = of(process).any(|at| self.callers[at] != Caller::Gone);
            if lane.is_crashed || !(calls || lane.idle > 0 || lane.work != Work::Planning) {
                *lane = Lane { is_crashed: lane.is_crashed, ..Lane::default() };
            }
        }
        let mut other = self;
        other.lanes.reverse();
        other.callers.rotate_left(EACH);
        other.leases.rotate_left(EACH);
        let swap = |set: u8| (set >> EACH) | ((set << EACH) & (bit(ALL) - 1));
        let swap_write = |Write { takes, releases, dead }| Write {
            takes: swap(takes),
            releases: swap(releases),
            dead: swap(dead),
        };
        let swap_row = |Row { free, ended, there }| Row { free, ended: swap(ended), there: swap(there) };
        other.over = swap(other.over);
        other.stray = swap(other.stray);
        other.late = other.late.map(swap_write);
        for caller in &mut other.callers {
            if let Caller::Answered(lease) | Caller::Holding(lease) = caller {
                *lease = swap(bit((*lease).into())).trailing_zeros().try_into().unwrap_or(0);
            }
        }
        for lane in &mut other.lanes {
            lane.idle = swap(lane.idle);
            lane.unsure = swap(lane.unsure);
            lane.seen = swap_row(lane.seen);
            lane.work = match lane.work {
                Work::Planning => Work::Planning,
                Work::Applied(write, row) => Work::Applied(swap_write(write), swap_row(row)),
                Work::Failed(write, row) => Work::Failed(swap_write(write), swap_row(row)),
                Work::Lost(write) => Work::Lost(swap_write(write)),
            };
        }
        self.min(other)
    }
}
