//! Replies that come in pieces: read to their end, broken off by an error, or dropped.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use sluice_core::Amount;
use sluice_sdk::Grant;
use tokio::time::sleep;

use super::calls::{Used, amount};
use super::{Caller, Need};

/// What a piece says of the use so far.
type Piece = Vec<(String, Amount)>;

/// How the reply ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Whole,
    Broken,
    Dropped,
}

impl Caller {
    pub(super) async fn streams(&mut self, id: &str, need: &Need, used: Vec<Used>, grant: Grant) {
        let fate = [Fate::Whole, Fate::Whole, Fate::Broken, Fate::Dropped][self.rng.usize(0..4)];
        let pieces = self.rng.u32(1..=4);
        let pause = self.universe.scenario.lease_ttl.mul_f64(self.rng.f64() * 0.4);
        self.universe.act("a stream begins", &format!("{}: {pieces} pieces", self.process.name));
        // The usage comes with the last piece, which those that are cut off never see.
        let last: Piece = used.iter().map(|call| (call.bucket().to_owned(), amount(call.used()))).collect();
        match fate {
            Fate::Whole => used.iter().for_each(|call| {
                self.begins_to_settle(id, call);
            }),
            Fate::Broken => self.fails(id, need, &used, &[]),
            Fate::Dropped => {}
        }
        let (universe, ended) = (Arc::clone(&self.universe), id.to_owned());
        let reply = unfold(0, move |sent| {
            let (universe, last, ended) = (Arc::clone(&universe), last.clone(), ended.clone());
            async move {
                sleep(pause).await;
                if sent < pieces {
                    return Some((Ok(Piece::new()), sent + 1));
                }
                if sent == pieces && fate == Fate::Whole {
                    return Some((Ok(last), sent + 1));
                }
                // Its grant is given back next.
                universe.record(|record| record.released(&ended, universe.time()));
                (sent == pieces).then(|| (Err(std::io::Error::other("the vendor went away")), sent + 1))
            }
        });
        let mut stream = grant.stream(reply.boxed());
        for call in &used {
            let bucket = call.bucket().to_owned();
            let read =
                move |piece: &Piece| piece.iter().find(|(name, _)| *name == bucket).map(|(_, used)| *used);
            stream = stream.used(call.bucket(), read);
        }
        let mut read = 0;
        while let Some(piece) = stream.next().await {
            read += u32::from(piece.is_ok());
            if fate == Fate::Dropped && read == pieces {
                self.universe.act("a stream is dropped", &self.process.name);
                self.universe.record(|record| record.released(id, self.universe.time()));
                break;
            }
        }
        drop(stream);
        sleep(Duration::from_millis(1)).await;
    }
}
