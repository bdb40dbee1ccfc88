//! Where the ids of leases come from.

use std::fmt;
use std::sync::Arc;

use sluice_core::{LeaseId, TicketId};

/// Draws ids that no other process draws: if an id existed before, it would be taken for this client's own.
/// The default for the key of a row is a UUID (version 7) in 22 characters. The default for an inline lease
/// is 72 random bits in 12 characters: such an id is unique only within one bucket's row, and each write pays
/// for the length of that row. With 200 leases in the row and a million takes a second, two leases would
/// share an id once in 700,000 years (2^72 / 200 / 10^6 seconds).
#[derive(Clone, Default)]
pub(crate) struct LeaseIds(Option<Arc<Draw>>);

type Draw = dyn Fn() -> String + Send + Sync;

impl LeaseIds {
    pub(crate) fn from_fn(next: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(next)))
    }

    /// The next id of a lease row.
    pub(crate) fn next(&self) -> LeaseId {
        self.draw(LeaseId::new, uuid)
    }

    /// The next id of an inline lease.
    pub(crate) fn next_inline(&self) -> LeaseId {
        self.draw(LeaseId::new, inline)
    }

    /// The next id of a ticket, which is part of a URL.
    pub(crate) fn next_ticket(&self) -> TicketId {
        self.draw(TicketId::new, uuid)
    }

    /// If the drawn text is not a valid id, the id is the default one: a slot without a lease would be lost
    /// with its holder.
    fn draw<I>(&self, parse: impl Fn(String) -> Option<I>, default: impl Fn() -> String) -> I {
        let drawn = self.0.as_ref().and_then(|draw| parse(draw()));
        drawn.or_else(|| parse(default())).unwrap_or_else(|| unreachable!("the default ids are valid"))
    }
}

fn uuid() -> String {
    text(uuid::Uuid::now_v7().as_u128(), 22)
}

/// The fixed bits of a random UUID (48 to 51 and 64 to 65 from the top) are mixed with random ones.
fn inline() -> String {
    let bits = uuid::Uuid::new_v4().as_u128();
    text(bits ^ (bits >> 56), 12)
}

/// The lowest bits as short text: six bits a character (RFC 4648, section 5), highest first.
fn text(bits: u128, characters: u32) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digit = |place: u32| char::from(DIGITS[usize::from((bits >> (6 * place)).to_le_bytes()[0] & 63)]);
    (0..characters).rev().map(digit).collect()
}

impl fmt::Debug for LeaseIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseIds")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_short_and_unlike_each_other() {
        let ids = LeaseIds::default();
        for (next, length) in [(LeaseIds::next as fn(&LeaseIds) -> LeaseId, 22), (LeaseIds::next_inline, 12)]
        {
            let drawn: HashSet<_> = (0..1_000).map(|_| next(&ids)).collect();
            assert_eq!(drawn.len(), 1_000);
            assert!(drawn.iter().all(|id| id.as_str().len() == length));
        }
        assert_eq!(LeaseIds::from_fn(|| "a#b".into()).next().as_str().len(), 22, "no id: a UUID");
        assert_eq!(LeaseIds::from_fn(|| "a#b".into()).next_inline().as_str().len(), 12);
        assert_eq!(LeaseIds::from_fn(|| "a:b".into()).next_ticket().as_str().len(), 22, "the same");
    }

    #[test]
    fn every_character_of_an_inline_id_is_random() {
        let ids = LeaseIds::default();
        let drawn: Vec<LeaseId> = (0..4_000).map(|_| ids.next_inline()).collect();
        for place in 0..12 {
            // A digit that no id of 4,000 has: a chance of 64 * (63/64)^4000, below 10^-25.
            let digits: HashSet<u8> = drawn.iter().map(|id| id.as_str().as_bytes()[place]).collect();
            assert_eq!(digits.len(), 64, "place {place}");
        }
    }
}
