//! The sweep's one loop: takes what the scan finds, and gives back leases of a few buckets at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use sluice_core::{CLOCK_ERROR, Dimension, Lease, MAX_LEASES_PER_TRANSACTION, Timestamp};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::reclaim::{self, BucketRead, EndedLeases, Reclaimed};
use super::recount::Recount;
use super::report::{SweepOptions, SweepReport};
use super::scan::{self, Found, LeasePage, Query};
use super::{Deadlines, is_over};
use sluice_table::{Store, StoreError};

/// The most ended leases that wait here (about 8 MB); then the scan has to wait.
const MOST_WAITING: usize = 25_000;

/// A sweep between its two readings of the buckets.
pub(super) struct Pipeline {
    store: Store,
    deadlines: Deadlines,
    at_once: usize,
    recount: Recount,
    /// If dropped, the scan stops.
    scan: JoinSet<()>,
    found: Option<mpsc::Receiver<Found>>,
    /// Ended leases of each bucket that do not fill a transaction yet.
    groups: BTreeMap<Dimension, Vec<Lease>>,
    /// Full transactions, and buckets with inline leases that have ended.
    ready: VecDeque<(Dimension, EndedLeases)>,
    /// Leases that ended before this instant have ended by every clock.
    cutoff: Timestamp,
    /// Leases in `groups` and `ready`.
    waiting: usize,
    tasks: JoinSet<Reclaimed>,
    /// Buckets being given back to, and how many leases: transactions of one bucket would conflict.
    busy: BTreeMap<Dimension, usize>,
    /// What is known of each bucket.
    known: BTreeMap<Dimension, BucketRead>,
    scanned: Result<(), StoreError>,
    given_back: Result<(), StoreError>,
}

impl Pipeline {
    pub(super) fn new(store: &Store, options: &SweepOptions, deadlines: Deadlines, recount: Recount) -> Self {
        let at_once = usize::from(options.concurrency.max(1));
        let recounted: BTreeSet<Dimension> = recount.buckets().cloned().collect();
        let (read_at, recounted) = (recount.read_at(), Arc::new(recounted));
        let cutoff = read_at.begun.before(CLOCK_ERROR);
        let query = Query { read_at, cutoff, recounted, unparsable: Arc::default() };
        let (sender, found) = mpsc::channel(at_once);
        let mut scan = JoinSet::new();
        scan.spawn(scan::scan(store.clone(), options.clone(), deadlines, query, sender));
        let known = recount
            .readings()
            .map(|(name, bucket)| (name.clone(), BucketRead::Bucket(Arc::new(bucket.clone()))))
            .collect();
        Self {
            store: store.clone(),
            deadlines,
            at_once,
            recount,
            scan,
            found: Some(found),
            groups: BTreeMap::new(),
            ready: VecDeque::new(),
            cutoff,
            waiting: 0,
            tasks: JoinSet::new(),
            busy: BTreeMap::new(),
            known,
            scanned: Ok(()),
            given_back: Ok(()),
        }
    }

    /// Runs until everything is done, the time is over, or the table fails.
    pub(super) async fn run(&mut self, report: &mut SweepReport) -> Result<(), StoreError> {
        while self.is_going_on() {
            self.hand_out();
            if self.found.is_none() && self.tasks.is_empty() {
                break;
            }
            let (found, has_room) = (&mut self.found, self.waiting < MOST_WAITING);
            let next = async {
                match found {
                    Some(found) if has_room => found.recv().await,
                    _ => std::future::pending().await,
                }
            };
            let hard = async {
                match self.deadlines.hard {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = hard => break,
                Some(done) = self.tasks.join_next() => match done {
                    Ok(done) => self.finish(done, report),
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                },
                found = next => {
                    if found.is_none() {
                        self.scan_is_over().await;
                    }
                    self.take(found, report);
                }
            }
        }
        self.leave_the_rest(report);
        let given_back = std::mem::replace(&mut self.given_back, Ok(()));
        given_back.and(std::mem::replace(&mut self.scanned, Ok(())))
    }

    pub(super) fn into_recount(self) -> Recount {
        self.recount
    }

    /// Waits for the end of the scan. A panic in the scan is a panic of the sweep.
    async fn scan_is_over(&mut self) {
        if let Some(Err(error)) = self.scan.join_next().await
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }

    /// Whether the loop goes on. After a failure or the end of the time, it waits only for what is under way.
    fn is_going_on(&self) -> bool {
        let begins_more = self.given_back.is_ok() && !is_over(self.deadlines.work);
        begins_more || !self.tasks.is_empty()
    }

    fn take(&mut self, found: Option<Found>, report: &mut SweepReport) {
        match found {
            Some(Found::Page(page)) => self.take_page(page, report),
            Some(Found::SegmentDone) => report.segments_unscanned -= 1,
            // What was found before is still given back.
            Some(Found::Failed(error)) => {
                self.scanned = Err(error);
                self.end_scan();
            }
            None => self.end_scan(),
        }
    }

    fn end_scan(&mut self) {
        self.found = None;
        let mut rest: Vec<_> = std::mem::take(&mut self.groups).into_iter().collect();
        fastrand::shuffle(&mut rest);
        self.ready.extend(rest.into_iter().map(|(dimension, leases)| (dimension, EndedLeases::Rows(leases))));
    }

    fn take_page(&mut self, page: LeasePage, report: &mut SweepReport) {
        report.rows_scanned += page.rows_scanned;
        report.unparsable += page.unparsable;
        report.expired += page.ended.len();
        report.add_unreadable(page.unreadable_buckets);
        self.recount.count(page.census, page.buckets);
        self.waiting += page.ended.len();
        for lease in page.ended {
            let dimension = lease.dimension().clone();
            let group = self.groups.entry(dimension.clone()).or_default();
            group.push(lease);
            if group.len() == MAX_LEASES_PER_TRANSACTION {
                let full = std::mem::take(group);
                self.ready.push_back((dimension, EndedLeases::Rows(full)));
            }
        }
        for (dimension, leases) in page.ended_inline {
            report.expired += leases;
            self.waiting += leases;
            self.ready.push_back((dimension, EndedLeases::Inline(leases)));
        }
    }

    /// Begins as many groups as there are free places, of buckets that are not busy.
    fn hand_out(&mut self) {
        if self.waiting >= MOST_WAITING && self.ready.is_empty() {
            // There are too many buckets to wait until one of them has leases for a transaction.
            let groups = std::mem::take(&mut self.groups).into_iter();
            self.ready.extend(groups.map(|(dimension, leases)| (dimension, EndedLeases::Rows(leases))));
        }
        while self.tasks.len() < self.at_once && self.given_back.is_ok() && !is_over(self.deadlines.work) {
            let is_free = |(dimension, _): &(Dimension, EndedLeases)| !self.busy.contains_key(dimension);
            let Some(at) = self.ready.iter().position(is_free) else { return };
            let Some((dimension, ended)) = self.ready.remove(at) else { return };
            self.waiting -= ended.len();
            if ended.len() == 0 {
                continue;
            }
            self.busy.insert(dimension.clone(), ended.len());
            let known = self.known.get(&dimension).cloned();
            let sweep =
                reclaim::Sweep { store: self.store.clone(), deadlines: self.deadlines, cutoff: self.cutoff };
            self.tasks.spawn(reclaim::reclaim(sweep, dimension, known, ended));
        }
    }

    fn finish(&mut self, done: Reclaimed, report: &mut SweepReport) {
        self.busy.remove(&done.dimension);
        report.count(&done.dimension, &done.tally);
        self.recount.gave_back(&done.dimension, done.tally.returned);
        if let Some(known) = done.known {
            self.known.insert(done.dimension.clone(), known);
        }
        if let Err(error) = done.result {
            // The first failure ends the sweep: otherwise every bucket would cost its retries.
            self.found = None;
            self.given_back = std::mem::replace(&mut self.given_back, Ok(())).and(Err(error));
        }
    }

    fn leave_the_rest(&mut self, report: &mut SweepReport) {
        self.tasks.abort_all();
        report.left += self.waiting + self.busy.values().sum::<usize>();
    }
}
