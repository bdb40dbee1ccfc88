//! Tickets: whose tokens travel, and who has taken them up.

use serde_json::Value;

use super::{COMMON, Ledger, Writer, name_of_line};
use crate::account::Booking;
use crate::row::{Micros, number};

/// A ticket's row.
#[derive(Clone, Debug)]
pub(super) struct TicketRow {
    /// Who took what it holds: by its booking, or by a claim that was taken back.
    taken_by: String,
    /// What it holds, by bucket.
    parts: Vec<Part>,
    is_redeemed: bool,
    /// Who wrote that it is.
    redeemed_by: String,
}

/// What a ticket holds of one bucket.
#[derive(Clone, Debug)]
struct Part {
    bucket: String,
    cost: Micros,
    /// Its part of the write that took it, as far as the ledger still has that.
    booking: Option<Booking>,
}

impl Ledger {
    pub(super) fn ticket_changed(
        &mut self,
        writer: Writer<'_>,
        key: &str,
        row: Option<&Value>,
    ) -> Result<(), String> {
        let by = writer.name();
        let before = self.tickets.remove(key);
        let Some(row) = row else {
            return match before {
                Some(ticket) if !ticket.is_redeemed => {
                    Err(format!("{by} removed {key}, which nobody redeemed"))
                }
                _ => Ok(()),
            };
        };
        let entries = row["booked"]["M"].as_object().into_iter().flatten();
        let parts = entries.filter_map(|(name, part)| {
            let part = &part["M"];
            let (cost, line) =
                (number(part, "cost", 6)?, (number(part, "last_refill_at", 6)?, number(part, "tokens", 6)?));
            let name = name_of_line(name, part["share"]["S"].as_str().unwrap_or(COMMON));
            let known = before.iter().flat_map(|ticket| &ticket.parts).find(|known| known.bucket == name);
            let booking = match known {
                Some(known) => known.booking.clone(),
                None => self.account(by, &name).carried_by(key, line, cost),
            };
            Some(Part { bucket: name, cost, booking })
        });
        let parts = parts.collect();
        let mut after = TicketRow {
            taken_by: before.as_ref().map_or(by, |ticket| &ticket.taken_by).to_owned(),
            parts,
            is_redeemed: row["redeemed_by"]["S"].is_string(),
            redeemed_by: by.to_owned(),
        };
        match before {
            None if after.is_redeemed => return Err(format!("{by} made {key} anew, which was removed")),
            None => self.judgements.push("a ticket is booked"),
            // A cool-down came between: its redeemer, who has what it holds, leaves it to the next.
            Some(before) if before.is_redeemed && !after.is_redeemed => {
                if before.redeemed_by != by || self.taken_up.contains(key) {
                    return Err(format!("{by} took back {key}, which was granted or someone else's: {row}"));
                }
                self.judgements.push("a claim of a ticket is taken back");
                by.clone_into(&mut after.taken_by);
                before.parts.iter().for_each(|part| self.account(by, &part.bucket).ticket_is_gone(key));
            }
            Some(before) if before.is_redeemed => {
                return Err(format!("{by} redeemed {key}, which was redeemed before: {row}"));
            }
            Some(before) => {
                self.judgements.push("a ticket is redeemed");
                // What one process took another has from now on: for the caller that redeemed it, or, if that
                // left, for the next.
                for Part { bucket, cost, booking } in before.parts {
                    self.account(&before.taken_by, &bucket).taken -= cost;
                    let account = self.account(by, &bucket);
                    (account.taken, account.excused) = (account.taken + cost, account.excused + cost);
                    booking.into_iter().for_each(|booking| account.booked(booking));
                }
            }
        }
        self.tickets.insert(key.to_owned(), after);
        Ok(())
    }

    /// A caller was granted a ticket: the only one.
    pub(crate) fn took_up(&mut self, key: &str) -> Result<(), String> {
        if self.taken_up.insert(key.to_owned()) {
            if let Some(ticket) = self.tickets.get(key).cloned() {
                let buckets = ticket.parts.iter().map(|part| &part.bucket);
                buckets.for_each(|bucket| self.account(&ticket.redeemed_by, bucket).ticket_is_gone(key));
            }
            return Ok(());
        }
        Err(format!("{key} was granted twice"))
    }
}
