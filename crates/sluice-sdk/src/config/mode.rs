//! Whether limits hold, or every call goes on and is counted.

/// Whether the limits hold for the calls of a client (`SLUICE_MODE`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Calls wait, and are refused.
    #[default]
    Enforce,
    /// Every call goes on at once. It takes what its buckets have, and what they do not have is counted: for
    /// a trial on production traffic. See `docs/semantics.md`, "Shadow mode".
    Shadow,
}

impl Mode {
    /// The mode as the environment names it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
        }
    }

    pub(crate) const fn is_shadow(self) -> bool {
        matches!(self, Self::Shadow)
    }
}
