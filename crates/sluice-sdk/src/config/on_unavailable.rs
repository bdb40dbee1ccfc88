//! What callers get while DynamoDB does not answer.

use std::str::FromStr;

use sluice_core::Factor;

/// What an acquire returns while DynamoDB is unavailable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnUnavailable {
    /// The error. The vendor's limit holds, and calls fail.
    #[default]
    Error,
    /// A grant. Calls continue, and the vendor's limit does not hold.
    Allow,
    /// This share of each limit that the process has read, counted in the process. With as many processes as
    /// shares, the vendor's limit holds.
    Share(Factor),
    /// The same with an equal share for each process: as many as noted a use of the bucket in the last five
    /// to ten minutes ([`ClientBuilder::note_use`](crate::ClientBuilder::note_use)). If a rate limit is split
    /// into shares, it is a share of the whole limit. The error, for a process that has not noted any: its
    /// first note is due after a minute. Of slots, it is a share of what is free; and slots that the process's
    /// own calls give back in the outage are granted again.
    EqualShare,
}

impl OnUnavailable {
    /// Whether the process counts its own share.
    pub(crate) const fn is_share(self) -> bool {
        matches!(self, Self::Share(_) | Self::EqualShare)
    }
}

/// Not what an acquire may return while DynamoDB is unavailable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it must be {ON_UNAVAILABLE}")]
pub struct OnUnavailableError(());

/// What the setting takes.
pub(crate) const ON_UNAVAILABLE: &str =
    "error, allow, share, or share:FACTOR with a factor between 0 and 1, as in share:0.1";

/// As `SLUICE_ON_UNAVAILABLE` has it: `error`, `allow`, `share` or `share:0.1`.
impl FromStr for OnUnavailable {
    type Err = OnUnavailableError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text, text.strip_prefix("share:").map(str::parse)) {
            ("error", _) => Ok(Self::Error),
            ("allow", _) => Ok(Self::Allow),
            ("share", _) => Ok(Self::EqualShare),
            (_, Some(Ok(factor))) => Ok(Self::Share(factor)),
            _ => Err(OnUnavailableError(())),
        }
    }
}
