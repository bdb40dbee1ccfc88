//! Tries of a write on a row that others keep moving.

use std::time::Duration;

use tokio::time::Instant;

use super::connection::Store;

/// At most so many tries, of which none begins after the longest time of one request: with the last, they end within two.
#[derive(Debug)]
pub struct Tries {
    left: u32,
    until: Instant,
}

impl Store {
    /// Up to `most` tries, from now.
    #[must_use]
    pub fn tries(&self, most: u32) -> Tries {
        Tries::within(self.longest_request(), most)
    }
}

impl Tries {
    fn within(time: Duration, most: u32) -> Self {
        Self { left: most, until: Instant::now() + time }
    }

    /// Whether there is another one.
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
        let mut tries = Tries::within(Duration::from_secs(4), 2);
        assert!(tries.another() && tries.another() && !tries.another());
        let mut tries = Tries::within(Duration::from_secs(4), 1_000);
        assert!(tries.another());
        tokio::time::advance(Duration::from_secs(4)).await;
        assert!(!tries.another(), "none begins after the longest time of a request");
    }
}
