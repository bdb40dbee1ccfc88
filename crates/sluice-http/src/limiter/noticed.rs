//! Events that are told once, not with every call.

use std::collections::HashSet;

use parking_lot::Mutex;

/// The most subjects that are remembered. Paths may contain ids: after so many, no new one is told.
const MOST: usize = 100;

/// What was reported already.
#[derive(Debug, Default)]
pub(crate) struct Noticed(Mutex<HashSet<(&'static str, Box<str>)>>);

impl Noticed {
    /// Whether `event` is to be reported for `subject`: the first time.
    pub(super) fn is_new(&self, event: &'static str, subject: &str) -> bool {
        let mut told = self.0.lock();
        told.len() < MOST && told.insert((event, subject.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_subject_is_told_once_and_memory_is_bounded() {
        let noticed = Noticed::default();
        assert!(noticed.is_new("event", "a"));
        assert!(!noticed.is_new("event", "a"));
        assert!(noticed.is_new("other", "a"));
        let told = (0..1_000).filter(|n| noticed.is_new("event", &n.to_string())).count();
        assert_eq!(told, MOST - 2);
    }
}
