//! Errors of requests that were never sent, so that the vendor does not count them.

use std::error::Error;
use std::io::{self, ErrorKind};

/// Whether the vendor may have had a request that failed so. An error of a type that cannot be looked into
/// counts as one of a request that was sent.
#[cfg(feature = "tower")]
pub(crate) fn was_sent<E: 'static>(error: &E) -> bool {
    let error: &dyn std::any::Any = error;
    let inner: Option<&(dyn Error + 'static)> = None
        .or_else(|| error.downcast_ref::<Box<dyn Error + Send + Sync>>().map(|error| &**error as _))
        .or_else(|| error.downcast_ref::<Box<dyn Error + Send>>().map(|error| &**error as _))
        .or_else(|| error.downcast_ref::<hyper_util::client::legacy::Error>().map(|error| error as _))
        .or_else(|| error.downcast_ref::<io::Error>().map(|error| error as _));
    inner.is_none_or(|error| !never_sent(error))
}

/// Whether an error, or what caused it, says that there was no connection to send the request on.
pub(crate) fn never_sent(error: &(dyn Error + 'static)) -> bool {
    is_of_connecting(error) || error.source().is_some_and(never_sent)
}

fn is_of_connecting(cause: &(dyn Error + 'static)) -> bool {
    cause.downcast_ref::<hyper_util::client::legacy::Error>().is_some_and(|error| error.is_connect())
        || cause.downcast_ref::<io::Error>().is_some_and(|error| KINDS.contains(&error.kind()))
}

/// Kinds that no connection has once it is there.
const KINDS: &[ErrorKind] = &[
    ErrorKind::ConnectionRefused,
    ErrorKind::HostUnreachable,
    ErrorKind::NetworkUnreachable,
    ErrorKind::AddrNotAvailable,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] io::Error);

    #[test]
    fn only_an_error_of_connecting_says_that_nothing_was_sent() {
        assert!(never_sent(&Outer(ErrorKind::ConnectionRefused.into())));
        assert!(!never_sent(&Outer(ErrorKind::ConnectionReset.into())));
        assert!(!never_sent(&Outer(ErrorKind::TimedOut.into())));
    }

    #[cfg(feature = "tower")]
    #[test]
    fn an_error_in_a_box_is_looked_into_and_an_unknown_one_counts_as_sent() {
        let boxed: Box<dyn Error + Send + Sync> = Box::new(Outer(ErrorKind::ConnectionRefused.into()));
        assert!(!was_sent(&boxed));
        assert!(!was_sent(&io::Error::from(ErrorKind::ConnectionRefused)));
        assert!(was_sent(&io::Error::from(ErrorKind::BrokenPipe)));
        assert!(was_sent(&"an error of some type"));
    }
}
