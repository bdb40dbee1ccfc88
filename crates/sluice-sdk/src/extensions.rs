//! State that features keep for a bucket or a client, each under its own type. Lower layers know no type.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

/// A value of each type that was used, looked up one after the other: few features use one, and rarely.
#[derive(Debug, Default)]
pub(crate) struct Extensions(Mutex<Vec<Arc<dyn Any + Send + Sync>>>);

impl Extensions {
    /// Returns the value of this type. Creates it on first use.
    pub(crate) fn of<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        let mut values = self.0.lock();
        if let Some(value) = find(&values) {
            return value;
        }
        let value = Arc::new(T::default());
        values.push(Arc::clone(&value) as Arc<dyn Any + Send + Sync>);
        value
    }

    /// Returns the value of this type, if it was used.
    #[cfg(test)]
    pub(crate) fn used<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        find(&self.0.lock())
    }

    /// How many types were used.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

fn find<T: Any + Send + Sync>(values: &[Arc<dyn Any + Send + Sync>]) -> Option<Arc<T>> {
    let value = values.iter().find(|value| value.is::<T>())?;
    Arc::clone(value).downcast().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_one_value() {
        let extensions = Extensions::default();
        assert!(extensions.used::<Mutex<u32>>().is_none());
        *extensions.of::<Mutex<u32>>().lock() = 7;
        assert_eq!(*extensions.of::<Mutex<u64>>().lock(), 0);
        assert_eq!((*extensions.of::<Mutex<u32>>().lock(), extensions.len()), (7, 2));
    }
}
