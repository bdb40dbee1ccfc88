//! The two kinds of lease that a slot may have, as far as tests must tell them apart.

use sluice_sdk::Leases;
use sluice_testkit::{Fault, Operation};

use crate::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Each lease is a row, and changes with its bucket in one transaction.
    Rows,
    /// The leases stand in the bucket's row, and change with it in one update.
    Inline,
}

impl Kind {
    pub(crate) const fn leases(self) -> Leases {
        match self {
            Self::Rows => Leases::Concurrent,
            Self::Inline => Leases::Inline,
        }
    }

    /// A table whose clients write such leases.
    pub(crate) async fn world(self) -> World {
        World::new().await.with(self)
    }

    /// With one concurrency bucket.
    pub(crate) async fn with_slots(self, name: &str, slots: i32) -> World {
        let world = self.world().await;
        world.slots(name, slots).await;
        world
    }

    /// With one requests bucket, full.
    pub(crate) async fn with_rate(self, name: &str, capacity: i32, window_secs: u64) -> World {
        let world = self.world().await;
        world.rate(name, capacity, window_secs).await;
        world
    }

    /// The request that takes slots, gives them back or reclaims them.
    pub(crate) const fn write(self) -> Operation {
        match self {
            Self::Rows => Operation::TransactWriteItems,
            Self::Inline => Operation::UpdateItem,
        }
    }

    /// That request meets another writer of the same items.
    pub(crate) fn conflict(self) -> Fault {
        match self {
            Self::Rows => Fault::cancelled(&["TransactionConflict", "None"]),
            Self::Inline => Fault::conflict(),
        }
    }

    /// DynamoDB never accepts that request, and says why with `code`.
    pub(crate) fn never(self, code: &str) -> Fault {
        match self {
            Self::Rows => Fault::cancelled(&[code, "None"]),
            Self::Inline => Fault::service(code, 400, serde_json::json!({ "message": code })),
        }
    }
}
