//! Interns values: names of ports, nodes and zones repeat with every endpoint.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// Minimum size before unused values are dropped.
const SMALL: usize = 64;

/// Interned values.
#[derive(Debug)]
pub(crate) struct Pool<T: ?Sized> {
    values: HashSet<Arc<T>>,
    limit: usize,
}

impl<T: ?Sized> Default for Pool<T> {
    fn default() -> Self {
        Self { values: HashSet::new(), limit: SMALL }
    }
}

impl<T: ?Sized + Hash + Eq> Pool<T> {
    /// The shared form of a value. Unused values are dropped whenever the pool has doubled, so that its size follows
    /// what is in use.
    pub(crate) fn share(&mut self, value: impl Borrow<T> + Into<Arc<T>>) -> Arc<T> {
        if let Some(value) = self.values.get(value.borrow()) {
            return Arc::clone(value);
        }
        if self.values.len() >= self.limit {
            self.values.retain(|one| Arc::strong_count(one) > 1);
            self.values.shrink_to(self.values.len() * 2);
            self.limit = SMALL.max(self.values.len() * 2);
        }
        let value = value.into();
        self.values.insert(Arc::clone(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_shared_and_unused_ones_are_dropped() {
        let mut pool: Pool<str> = Pool::default();
        let kept: Vec<Arc<str>> = (0..10).map(|number| pool.share(number.to_string().into_boxed_str())).collect();
        assert!(Arc::ptr_eq(&kept[3], &pool.share("3")));
        for number in 0..10_000 {
            pool.share(format!("passing {number}"));
        }
        assert!(pool.values.len() <= SMALL, "{} are held", pool.values.len());
        assert!(Arc::ptr_eq(&kept[3], &pool.share("3")));
    }
}
