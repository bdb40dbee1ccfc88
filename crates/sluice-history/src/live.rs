//! Concurrency buckets: never more live grants than capacity.
//!
//! A grant certainly lives from the moment its caller has the answer until the caller sends the release, or
//! until other processes may consider its lease ended. The counted interval lies inside the true one, so that
//! the history of a correct limiter never shows a violation.

use crate::log::{Entry, Errors, NEVER};
use crate::timeline::Timeline;
use crate::verdict::Window;

/// Returns the instant at which most was held, and each stretch of time in which too much was held.
///
/// After a change to a smaller limit, holders may continue to hold: only a new grant must find room.
pub(crate) fn check(grants: &[Entry], timeline: &Timeline, errors: Errors) -> (Option<Window>, Vec<Window>) {
    let life = |grant: &Entry| (grant.granted_at.saturating_add(errors.stamp), end(grant, errors));
    let lives = |n: &usize| life(&grants[*n]).0 < life(&grants[*n]).1;
    let mut begins: Vec<usize> = (0..grants.len()).filter(lives).collect();
    let mut ends = begins.clone();
    begins.sort_by_key(|n| life(&grants[*n]).0);
    ends.sort_by_key(|n| life(&grants[*n]).1);
    let mut ends = ends.into_iter().map(|n| (life(&grants[n]).1, i128::from(grants[n].cost))).peekable();
    let (mut held, mut peak, mut exceeded): (i128, Option<Window>, _) = (0, None, Exceeded::default());
    for grant in begins.into_iter().map(|n| &grants[n]) {
        let now = life(grant).0;
        // What ends at this very moment may have made room.
        while let Some((at, cost)) = ends.next_if(|(at, _)| *at <= now) {
            held -= cost;
            exceeded.ended(at, held);
        }
        held += i128::from(grant.cost);
        let from = grant.asked_at.saturating_sub(errors.stamp);
        let allowed = timeline.capacity_within(from, grant.granted_at.saturating_add(errors.stamp)).into();
        if peak.as_ref().is_none_or(|peak| peak.granted < held) {
            peak = Some(instant(grant, held, allowed));
        }
        if held > allowed {
            exceeded.began(grant, held, allowed);
        }
    }
    for (at, cost) in ends.take_while(|(at, _)| *at < NEVER) {
        held -= cost;
        exceeded.ended(at, held);
    }
    (peak, exceeded.finish())
}

/// The time until which the grant certainly lives.
pub(crate) fn end(grant: &Entry, errors: Errors) -> i64 {
    let released =
        if grant.released_at == NEVER { NEVER } else { grant.released_at.saturating_sub(errors.stamp) };
    // The process that considers the lease ended reads a clock too.
    let ended = if grant.ends_at == NEVER {
        NEVER
    } else {
        grant.ends_at.saturating_sub(errors.clock + errors.both())
    };
    released.min(ended)
}

fn instant(grant: &Entry, granted: i128, allowed: i128) -> Window {
    let id = grant.id.to_string();
    let (from_micros, to_micros) = (grant.granted_at, grant.granted_at);
    Window { from_micros, to_micros, granted, allowed, first_id: id.clone(), last_id: id }
}

/// The stretches of time in which too much is held.
#[derive(Default)]
struct Exceeded {
    open: Option<Window>,
    closed: Vec<Window>,
}

impl Exceeded {
    fn began(&mut self, grant: &Entry, held: i128, allowed: i128) {
        match &mut self.open {
            None => self.open = Some(instant(grant, held, allowed)),
            Some(open) => {
                if held - allowed > open.granted - open.allowed {
                    (open.granted, open.allowed) = (held, allowed);
                }
                (open.to_micros, open.last_id) = (grant.granted_at, grant.id.to_string());
            }
        }
    }

    fn ended(&mut self, at: i64, held: i128) {
        if let Some(mut open) = self.open.take_if(|open| held <= open.allowed) {
            open.to_micros = at;
            self.closed.push(open);
        }
    }

    fn finish(mut self) -> Vec<Window> {
        self.closed.extend(self.open);
        self.closed
    }
}
