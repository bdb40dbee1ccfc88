//! Leases in the row of their bucket, as one write changes them.

use super::damage::{Kind, is_damage};
use super::{Ledger, Touched, Writer};
use crate::row::{BucketRow, Micros};

impl Ledger {
    /// The leases in the bucket's own row; whether any was taken.
    pub(super) fn inline_changed(
        &mut self,
        writer: Writer<'_>,
        change: &Touched,
        now: Micros,
        error: Micros,
    ) -> Result<bool, String> {
        let (key, by) = (&change.key, writer.name());
        if is_damage(writer, key) {
            return Ok(false);
        }
        let Some(after) = change.row.as_ref().and_then(BucketRow::read) else { return Ok(false) };
        let after = self.damage.truly(after);
        let Some(before) = self.buckets.get(key) else { return Ok(false) };
        let (mut released, mut ended) = (0, Vec::new());
        for (id, was) in &before.inline {
            match after.inline.get(id) {
                Some(is) if is.ends < was.ends || is.cost != was.cost => {
                    return Err(format!("{key}: {by} changed the lease {id} from {was:?} to {is:?}"));
                }
                Some(_) => {}
                None if was.caller == by && !change.reclaims.contains(id) => {
                    released += 1;
                    self.damage.lease_gone(id, Kind::Inline, false);
                }
                None if was.ends > now => {
                    return Err(format!(
                        "{key}: {by} took the lease {id} from its holder {} us early",
                        was.ends - now
                    ));
                }
                None => {
                    self.damage.lease_gone(id, Kind::Inline, true);
                    ended.push((id.clone(), was.ends));
                    *self.swept.entry(was.caller.clone()).or_default() += 1;
                }
            }
        }
        let taken = after.inline.iter().filter(|(id, _)| !before.inline.contains_key(*id));
        let (mut count, mut foreign) = (0, None);
        for (id, lease) in taken {
            count += 1;
            foreign = foreign.or((lease.caller != by).then_some(id));
        }
        if let Some(id) = foreign {
            return Err(format!("{key}: {by} made the lease {id} in another's name"));
        }
        let took_over = !ended.is_empty() && count > 0;
        for (id, ends) in ended {
            // Nobody needs a mark for it: the row was read, and the end of the lease stands in the condition.
            self.reclaimed(Writer::Sweeper(by), key, &id, ends, (now, error))?;
        }
        self.judgements.extend(took_over.then_some("inline: dead holders taken over"));
        self.judgements
            .extend((released > 0 && count > 0).then_some("inline: take and release in one write"));
        self.judgements.extend((count > 1).then_some("inline: several take in one write"));
        Ok(count > 0)
    }
}
