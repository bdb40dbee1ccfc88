//! The failure of the first read of a bucket, for all callers that wait for this read.

use tokio::time::Instant;

use crate::api::error::AcquireError;

/// How the last such read failed, and when. Callers that waited for the read meanwhile share the failure.
#[derive(Debug, Default)]
pub(crate) struct FirstRead(Option<Box<(Instant, AcquireError)>>);

impl FirstRead {
    /// Returns the failure if it is younger than `came`.
    pub(crate) fn failure_since(&self, came: Instant) -> Option<AcquireError> {
        self.0.as_ref().filter(|failure| failure.0 > came).map(|failure| failure.1.clone())
    }

    pub(crate) fn failed(&mut self, error: &AcquireError) {
        self.0 = Some(Box::new((Instant::now(), error.clone())));
    }
}
