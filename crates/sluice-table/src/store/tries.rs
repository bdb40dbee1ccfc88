//! The budget of tries for a change of a row that other writers keep changing. Callers in a queue have the
//! round of their lane instead, which answers them or lets them wait. Releases, sweeps and notes of
//! self-healing have bounds of their own.

use std::time::Duration;

use tokio::time::Instant;

use super::connection::Store;

/// How often a change is tried. A condition that failed means that another writer succeeded. A larger number
/// succeeds beside more writers, and costs a write unit a try; a smaller number gives up sooner.
pub const MOST_TRIES: u32 = 20;

/// A limited number of tries. None begins later than the longest time of one request, so that all tries, the
/// last included, end within twice that time.
#[derive(Debug)]
pub struct TryBudget {
    left: u32,
    until: Instant,
}

impl Store {
    /// The tries of one change, from now: [`MOST_TRIES`].
    #[must_use]
    pub fn tries(&self) -> TryBudget {
        TryBudget::within(self.longest_request(), MOST_TRIES)
    }
}

impl TryBudget {
    fn within(time: Duration, most: u32) -> Self {
        Self { left: most, until: Instant::now() + time }
    }

    /// Whether another try may begin.
    pub fn another(&mut self) -> bool {
        let is_left = self.left > 0 && Instant::now() < self.until;
        self.left = self.left.saturating_sub(1);
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tries_end_by_number_and_by_time() {
        let mut tries = TryBudget::within(Duration::from_secs(4), 2);
        assert!(tries.another() && tries.another() && !tries.another());
        let mut tries = TryBudget::within(Duration::from_secs(4), 1_000);
        assert!(tries.another());
        tokio::time::advance(Duration::from_secs(4)).await;
        assert!(!tries.another(), "none begins after the longest time of a request");
    }
}
