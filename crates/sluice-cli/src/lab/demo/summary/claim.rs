//! A statement that the demo should prove, and what became of it.

/// A statement about a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) text: String,
    pub(super) verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Holds,
    /// It was not shown: the machine could not, or nothing happened that would show it. Not Sluice's fault.
    NotShown,
    /// Sluice broke it.
    Fails,
}

impl Claim {
    pub(super) const fn of(text: String, holds: bool) -> Self {
        Self { text, verdict: if holds { Verdict::Holds } else { Verdict::Fails } }
    }

    pub(super) const fn not_shown(text: String) -> Self {
        Self { text, verdict: Verdict::NotShown }
    }

    /// What fails is not Sluice's if there is an excuse: what the machine could not do.
    pub(super) fn unless(self, excuse: Option<String>) -> Self {
        match (self.verdict, excuse) {
            (Verdict::Fails, Some(excuse)) => Self::not_shown(format!("{}; {excuse}", self.text)),
            _ => self,
        }
    }
}
