//! What most buckets never need, made when it is first used: a client may know ten thousand of them.

use std::ops::Deref;
use std::sync::OnceLock;

/// A `T` on the heap (`Box`, `Arc`), once somebody used it. To use it makes it; [`get`](Self::get) does not.
#[derive(Debug)]
pub(crate) struct Lazy<T>(OnceLock<T>);

impl<T> Lazy<T> {
    /// It, if it was ever used.
    pub(crate) fn get(&self) -> Option<&T> {
        self.0.get()
    }
}

impl<T> Default for Lazy<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<T: Default> Deref for Lazy<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.get_or_init(T::default)
    }
}
