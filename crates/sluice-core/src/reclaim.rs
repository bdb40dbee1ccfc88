//! Giving slots back: one transaction deletes leases of a bucket and restores their slots.

use alloc::string::String;
use alloc::vec::Vec;

use crate::amount::Amount;
use crate::bucket::Bucket;
use crate::lease::Lease;
use crate::plan::slots::{Fill, give_back};
use crate::reason::{CancellationCause, CancellationReason};
use crate::recount::Returned;
use crate::schema::{Exact, RowError};
use crate::statement::Write;

/// Most leases in one transaction: DynamoDB allows 100 actions, and one of them is the bucket's.
pub const MAX_LEASES_PER_TRANSACTION: usize = 99;

/// Why the leases of a chunk may be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReleaseCause {
    /// Their holder releases them.
    Held,
    /// A scan saw that they had ended.
    Expired,
}

/// Leases of one bucket that one transaction gives back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    cause: ReleaseCause,
    bucket_key: String,
    part: BucketPart,
    leases: Vec<Lease>,
}

/// What becomes of the bucket when the leases are deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum BucketPart {
    /// The slots come back, if there is room by this capacity.
    Restore(Exact<Amount>),
    /// There is room for some slots: these come back, and the bucket counts the rest.
    Fill(Fill),
    /// Nothing: rate buckets refill by time, and a bucket may be gone.
    None,
}

/// What to do after a cancelled transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChunkStep {
    /// All that is known is that the transaction did not happen: send these chunks after a pause. They are
    /// split, so that one contended item holds up ever fewer of the others.
    BackOff(Vec<Chunk>),
    /// Send these chunks instead, at once. They leave out leases that others gave back or renewed
    /// (`lost_races` of them). There may be none.
    Continue {
        /// The chunks to send.
        chunks: Vec<Chunk>,
        /// How many leases need nothing any more.
        lost_races: usize,
    },
    /// The transaction can never pass: DynamoDB's message, or what is wrong with the bucket's row.
    Fail(String),
}

impl Chunk {
    /// The leases of holders that release: at most [`MAX_LEASES_PER_TRANSACTION`], and all of `bucket`.
    #[must_use]
    pub fn release(bucket: &Bucket, leases: Vec<Lease>) -> Self {
        Self::of(ReleaseCause::Held, bucket, leases)
    }

    /// A lease of a holder that releases, if only the row of the lease is left to delete.
    #[must_use]
    pub fn release_row(lease: Lease) -> Self {
        Self::gone(ReleaseCause::Held, alloc::vec![lease])
    }

    /// Ended leases of `bucket`, cut into transactions. `bucket` is `None` if it is gone.
    #[must_use]
    pub fn reclaim(bucket: Option<&Bucket>, mut leases: Vec<Lease>) -> Vec<Self> {
        let mut chunks = Vec::new();
        while !leases.is_empty() {
            let rest = leases.split_off(leases.len().min(MAX_LEASES_PER_TRANSACTION));
            let part = core::mem::replace(&mut leases, rest);
            chunks.push(match bucket {
                Some(bucket) => Self::of(ReleaseCause::Expired, bucket, part),
                None => Self::gone(ReleaseCause::Expired, part),
            });
        }
        chunks
    }

    fn of(cause: ReleaseCause, bucket: &Bucket, leases: Vec<Lease>) -> Self {
        let part = match bucket.limit().is_concurrent() {
            true => BucketPart::Restore(bucket.capacity_as_read().clone()),
            false => BucketPart::None,
        };
        Self { bucket_key: bucket.key(), part, ..Self::gone(cause, leases) }
    }

    const fn gone(cause: ReleaseCause, leases: Vec<Lease>) -> Self {
        Self { cause, bucket_key: String::new(), part: BucketPart::None, leases }
    }

    /// The leases in the chunk.
    #[must_use]
    pub fn leases(&self) -> &[Lease] {
        &self.leases
    }

    /// What the leases in the chunk hold.
    #[must_use]
    pub fn cost(&self) -> Amount {
        self.leases.iter().fold(Amount::ZERO, |sum, lease| sum.plus(lease.cost().amount()))
    }

    /// Whether the transaction gives slots back.
    #[must_use]
    pub const fn restores_slots(&self) -> bool {
        matches!(self.part, BucketPart::Restore(_))
    }

    /// Whether slots turned out to be back already, so that the lease is deleted without them.
    #[must_use]
    pub fn is_already_capped(&self) -> bool {
        matches!(&self.part, BucketPart::Fill(fill) if fill.over > Amount::ZERO)
    }

    /// What the transaction does to slots, for the recount.
    #[must_use]
    pub fn returned(&self) -> Returned {
        let mut returned = Returned::default();
        match &self.part {
            BucketPart::Restore(_) => returned.slots = self.cost(),
            BucketPart::Fill(fill) => (returned.slots, returned.capped) = (fill.back, fill.over),
            BucketPart::None => {}
        }
        returned
    }

    /// The actions: the deletes in the order of [`leases`](Self::leases), then the bucket's action.
    #[must_use]
    pub fn writes(&self) -> Vec<Write> {
        let delete = |lease: &Lease| match self.cause {
            ReleaseCause::Held => Write::Delete(lease.delete_held()),
            ReleaseCause::Expired => Write::Delete(lease.delete_expired()),
        };
        let mut writes: Vec<Write> = self.leases.iter().map(delete).collect();
        let key = self.bucket_key.clone();
        match &self.part {
            BucketPart::Restore(capacity) => {
                writes.push(Write::Update(give_back(key, capacity, self.cost())))
            }
            BucketPart::Fill(fill) => writes.push(Write::Update(fill.update(key))),
            BucketPart::None => {}
        }
        writes
    }

    /// What to do after the transaction of [`writes`](Self::writes) was cancelled, with a reason for each
    /// action, in order. `bucket` is the row that a failed condition on the bucket returned, if any.
    #[must_use]
    pub fn after(
        self,
        reasons: &[CancellationReason],
        bucket: Option<Result<Bucket, RowError>>,
    ) -> ChunkStep {
        if let Some(permanent) = reasons.iter().find(|r| r.cause == CancellationCause::Permanent) {
            // One lease that can never pass must not hold up the others.
            return match self.leases.len() {
                0 | 1 => ChunkStep::Fail(permanent.message.clone()),
                _ => ChunkStep::Continue { chunks: self.split(), lost_races: 0 },
            };
        }
        let cause = |at: usize| reasons.get(at).map_or(CancellationCause::Passed, |r| r.cause);
        let gone = |at: usize| cause(at) == CancellationCause::ConditionFailed;
        let lost_races = (0..self.leases.len()).filter(|at| gone(*at)).count();
        if lost_races > 0 {
            let mut at = 0;
            let mut chunk = self;
            chunk.leases.retain(|_| {
                at += 1;
                !gone(at - 1)
            });
            let chunks = if chunk.leases.is_empty() { Vec::new() } else { alloc::vec![chunk] };
            return ChunkStep::Continue { chunks, lost_races };
        }
        if self.part != BucketPart::None && gone(self.leases.len()) {
            return self.after_no_room(bucket);
        }
        ChunkStep::BackOff(self.split())
    }

    /// Two halves, or the chunk itself if it has one lease.
    fn split(mut self) -> Vec<Self> {
        if self.leases.len() < 2 {
            return alloc::vec![self];
        }
        let upper = self.leases.split_off(self.leases.len() / 2);
        let rest = Self { leases: upper, ..self.clone() };
        alloc::vec![self, rest]
    }

    /// The condition on the bucket failed: no room, another capacity, or another bucket.
    fn after_no_room(mut self, bucket: Option<Result<Bucket, RowError>>) -> ChunkStep {
        let chunks = match bucket {
            Some(Err(error)) => return ChunkStep::Fail(alloc::format!("{error}")),
            Some(Ok(bucket)) if bucket.limit().is_concurrent() => {
                let restore = BucketPart::Restore(bucket.capacity_as_read().clone());
                let has_room = bucket.tokens().plus(self.cost()) <= bucket.limit().capacity();
                // If a restore failed and there seems to be room all the same, that room is the noise of a
                // client that counts in floats.
                if self.part != restore && (has_room || !matches!(self.part, BucketPart::Fill(_))) {
                    self.part = restore;
                    alloc::vec![self]
                } else if self.leases.len() == 1 {
                    self.part = BucketPart::Fill(Fill::new(&bucket, self.cost()));
                    alloc::vec![self]
                } else {
                    self.split()
                }
            }
            // The bucket was removed, and perhaps recreated as a rate bucket: there is no slot to give back.
            _ => {
                self.part = BucketPart::None;
                alloc::vec![self]
            }
        };
        ChunkStep::Continue { chunks, lost_races: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amount::Cost;
    use crate::dimension::Dimension;
    use crate::lease::LeaseId;
    use crate::limit::Limit;
    use crate::timestamp::Timestamp;
    use core::time::Duration;

    fn bucket(capacity: i32) -> Bucket {
        let limit = Limit::concurrent(Amount::from_tokens(capacity), Cost::ONE).unwrap();
        Bucket::full(Dimension::new("a#b").unwrap(), limit, Timestamp::from_secs(0))
    }

    fn leases(count: usize) -> Vec<Lease> {
        let make = |n| {
            let id = LeaseId::new(std::format!("{n}")).unwrap();
            let now = Timestamp::from_secs(0);
            Lease::new(
                Dimension::new("a#b").unwrap(),
                &id,
                Cost::ONE,
                now,
                now.after(Duration::from_secs(60)),
                "test",
            )
        };
        (0..count).map(make).collect()
    }

    fn reasons(codes: &[&str]) -> Vec<CancellationReason> {
        codes
            .iter()
            .map(|c| CancellationReason { cause: CancellationCause::from_code(c), message: (*c).into() })
            .collect()
    }

    #[test]
    fn a_transaction_holds_99_leases_and_their_bucket() {
        let chunks = Chunk::reclaim(Some(&bucket(500)), leases(250));
        assert_eq!(chunks.iter().map(|c| c.writes().len()).collect::<Vec<_>>(), [100, 100, 53]);
        let writes = chunks[2].writes();
        assert!(matches!(&writes[52], Write::Update(update) if update.key == "a#b"), "{writes:?}");
        assert!(chunks[0].restores_slots() && !Chunk::reclaim(None, leases(1))[0].restores_slots());
    }

    #[test]
    fn a_conflict_never_drops_a_lease() {
        for code in ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"] {
            for codes in [[code, "None"], ["None", code]] {
                let chunk = Chunk::reclaim(Some(&bucket(5)), leases(1)).remove(0);
                let step = chunk.clone().after(&reasons(&codes), None);
                assert_eq!(step, ChunkStep::BackOff(std::vec![chunk]), "{codes:?}");
            }
        }
    }

    #[test]
    fn contention_and_what_can_never_pass_split_a_chunk_and_lose_nothing() {
        for code in ["TransactionConflict", "ValidationError"] {
            let chunk = Chunk::reclaim(Some(&bucket(5)), leases(3)).remove(0);
            let halves = match chunk.after(&reasons(&["None", code, "None", "None"]), None) {
                ChunkStep::BackOff(halves) => halves,
                ChunkStep::Continue { chunks, lost_races: 0 } => chunks,
                other => panic!("{other:?}"),
            };
            assert_eq!(halves.iter().map(|half| half.leases().len()).collect::<Vec<_>>(), [1, 2], "{code}");
        }
        let one = Chunk::reclaim(Some(&bucket(5)), leases(1)).remove(0);
        assert_eq!(
            one.after(&reasons(&["ValidationError", "None"]), None),
            ChunkStep::Fail("ValidationError".into())
        );
    }

    #[test]
    fn a_lease_that_is_gone_is_left_out_and_the_rest_goes_on() {
        let chunk = Chunk::reclaim(Some(&bucket(5)), leases(3)).remove(0);
        let mixed =
            reasons(&["ConditionalCheckFailed", "None", "TransactionConflict", "ConditionalCheckFailed"]);
        let ChunkStep::Continue { chunks, lost_races: 1 } = chunk.after(&mixed, Some(Ok(bucket(5)))) else {
            panic!()
        };
        let left: Vec<_> = chunks[0].leases().iter().map(Lease::key).collect();
        assert_eq!(left, ["lease#a#b#1", "lease#a#b#2"]);
    }

    #[test]
    fn a_full_bucket_splits_down_to_one_lease_that_is_deleted_alone() {
        let failed = |n: usize| reasons(&[&["None"].repeat(n)[..], &["ConditionalCheckFailed"]].concat());
        let mut chunk = Chunk::reclaim(Some(&bucket(5)), leases(4)).remove(0);
        for left in [2, 1] {
            let count = chunk.leases().len();
            let ChunkStep::Continue { mut chunks, .. } = chunk.after(&failed(count), Some(Ok(bucket(5))))
            else {
                panic!()
            };
            assert_eq!(chunks.len(), 2);
            chunk = chunks.remove(0);
            assert_eq!(chunk.leases().len(), left);
        }
        let ChunkStep::Continue { chunks, .. } = chunk.after(&failed(1), Some(Ok(bucket(5)))) else {
            panic!()
        };
        assert!(chunks[0].is_already_capped());
        assert_eq!(chunks[0].returned(), Returned { capped: Amount::from_tokens(1), ..Returned::default() });
    }

    /// For example if a lease of two makes up for a minted slot: one of the two comes back.
    #[test]
    fn where_there_is_room_for_some_of_a_lease_some_of_it_comes_back() {
        let five = bucket(5);
        let (id, now) = (LeaseId::new("1".into()).unwrap(), Timestamp::from_secs(0));
        let two = Cost::new(Amount::from_tokens(2)).unwrap();
        let lease = Lease::new(Dimension::new("a#b").unwrap(), &id, two, now, now, "test");
        let chunk = Chunk::release(&five, std::vec![lease]);
        let failed = reasons(&["None", "ConditionalCheckFailed"]);
        let ChunkStep::Continue { chunks, .. } = chunk.after(&failed, Some(Ok(five.after_taking(Cost::ONE))))
        else {
            panic!()
        };
        let one = Amount::from_tokens(1);
        assert_eq!(chunks[0].returned(), Returned { slots: one, capped: one, ..Returned::default() });
        // Another slot was taken in the meantime: now there is room for both.
        let room = Some(Ok(five.after_taking(two)));
        let ChunkStep::Continue { chunks, .. } = chunks[0].clone().after(&failed, room) else { panic!() };
        assert!(chunks[0].restores_slots());
    }

    #[test]
    fn a_changed_capacity_is_planned_again_and_a_missing_bucket_only_deleted() {
        let chunk = Chunk::reclaim(Some(&bucket(5)), leases(2)).remove(0);
        let failed = reasons(&["None", "None", "ConditionalCheckFailed"]);
        let ChunkStep::Continue { chunks, .. } = chunk.clone().after(&failed, Some(Ok(bucket(7)))) else {
            panic!()
        };
        assert_eq!(chunks, Chunk::reclaim(Some(&bucket(7)), leases(2)));
        let ChunkStep::Continue { chunks, .. } = chunk.after(&failed, None) else { panic!() };
        assert_eq!(chunks[0].writes().len(), 2);
    }
}
