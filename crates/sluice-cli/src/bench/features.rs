//! What the client can do, as the bench switches it on.

use sluice_sdk::ClientBuilder;

/// Whether there are inline leases.
pub(crate) const INLINE: bool = false;

pub(crate) fn with_inline_leases(settings: ClientBuilder) -> ClientBuilder {
    settings
}

/// Whether there is prefetch.
pub(crate) const PREFETCH: bool = false;

pub(crate) fn with_prefetch(settings: ClientBuilder, _dimensions: &[String]) -> ClientBuilder {
    settings
}
