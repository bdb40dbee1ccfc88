//! Lazily created state that most buckets never need: a client may know ten thousand buckets.

use std::ops::Deref;
use std::sync::OnceLock;

/// A `T` on the heap (`Box`, `Arc`), created by the first dereference; [`get`](Self::get) creates nothing.
#[derive(Debug)]
pub(crate) struct Lazy<T>(OnceLock<T>);

impl<T> Lazy<T> {
    /// The value, if it was ever used.
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
