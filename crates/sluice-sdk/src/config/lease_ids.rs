use std::fmt;
use std::sync::Arc;

use sluice_core::{LeaseId, TicketId};

/// Draws ids that no other process draws. The default is UUIDs (version 7) from the system's clock and random
/// source, in 22 characters. If an id existed before, it would be taken for this client's own.
#[derive(Clone)]
pub(crate) struct LeaseIds(Arc<dyn Fn() -> String + Send + Sync>);

impl LeaseIds {
    pub(crate) fn from_fn(next: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self(Arc::new(next))
    }

    /// The next id. If the drawn text is not a valid id, the id is a UUID: a slot without a lease would be
    /// lost with its holder.
    pub(crate) fn next(&self) -> LeaseId {
        let drawn = LeaseId::new((self.0)()).or_else(|| LeaseId::new(uuid()));
        drawn.unwrap_or_else(|| unreachable!("a UUID is an id"))
    }

    /// As [`next`](Self::next), for a ticket. The id of a ticket is part of a URL.
    pub(crate) fn next_ticket(&self) -> TicketId {
        let drawn = TicketId::new((self.0)()).or_else(|| TicketId::new(uuid()));
        drawn.unwrap_or_else(|| unreachable!("a UUID is an id"))
    }
}

impl Default for LeaseIds {
    fn default() -> Self {
        Self::from_fn(uuid)
    }
}

/// A UUID as short text, since an item holds many: six bits a character (RFC 4648, section 5), highest first.
fn uuid() -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits = uuid::Uuid::now_v7().as_u128();
    let digit = |place: u32| char::from(DIGITS[usize::from((bits >> (6 * place)).to_le_bytes()[0] & 63)]);
    (0..22).rev().map(digit).collect()
}

impl fmt::Debug for LeaseIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseIds")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_short_and_unlike_each_other() {
        let ids = LeaseIds::default();
        let drawn: std::collections::HashSet<_> = (0..1_000).map(|_| ids.next()).collect();
        assert_eq!(drawn.len(), 1_000);
        assert!(drawn.iter().all(|id| id.as_str().len() == 22));
        assert_eq!(LeaseIds::from_fn(|| "a#b".into()).next().as_str().len(), 22, "no id: a UUID");
        assert_eq!(LeaseIds::from_fn(|| "a:b".into()).next_ticket().key().len(), "ticket#".len() + 22, "the same");
    }
}
