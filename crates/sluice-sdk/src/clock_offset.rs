//! How far this machine's clock is from DynamoDB's, for whoever asks.

use sluice_core::{ClockOffset, Timestamp};

use crate::client::Client;

impl Client {
    /// DynamoDB's clock less this process's, as its replies of the last one to two minutes bound it; `None` before the first.
    ///
    /// The client corrects its clock by it, so it does no harm to limits; above one second the client warns (event `clock.offset`),
    /// once a minute, for the sake of other programs on the machine.
    #[must_use]
    pub fn clock_offset(&self) -> Option<ClockOffset> {
        self.inner.store.clock().offset()
    }

    /// The time by which this client decides and tells starts: this machine's clock, corrected by DynamoDB's replies.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.inner.now()
    }
}
