//! Keeps equal values once. Names of ports, nodes and zones come with every endpoint, and there are few of them.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// Below this size nothing is worth throwing away.
const SMALL: usize = 64;

/// Values that are shared.
#[derive(Debug)]
pub(crate) struct Pool<T: ?Sized> {
    held: HashSet<Arc<T>>,
    limit: usize,
}

impl<T: ?Sized> Default for Pool<T> {
    fn default() -> Self {
        Self { held: HashSet::new(), limit: SMALL }
    }
}

impl<T: ?Sized + Hash + Eq> Pool<T> {
    /// The shared form of a value. What nobody else holds any more is thrown away whenever the pool has doubled, so
    /// that it follows what is in use without counting.
    pub(crate) fn share(&mut self, value: impl Borrow<T> + Into<Arc<T>>) -> Arc<T> {
        if let Some(held) = self.held.get(value.borrow()) {
            return Arc::clone(held);
        }
        if self.held.len() >= self.limit {
            self.held.retain(|one| Arc::strong_count(one) > 1);
            self.held.shrink_to(self.held.len() * 2);
            self.limit = SMALL.max(self.held.len() * 2);
        }
        let value = value.into();
        self.held.insert(Arc::clone(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_and_unused_ones_go() {
        let mut pool: Pool<str> = Pool::default();
        let kept: Vec<Arc<str>> = (0..10).map(|number| pool.share(number.to_string().into_boxed_str())).collect();
        assert!(Arc::ptr_eq(&kept[3], &pool.share("3")));
        for number in 0..10_000 {
            pool.share(format!("passing {number}"));
        }
        assert!(pool.held.len() <= SMALL, "{} are held", pool.held.len());
        assert!(Arc::ptr_eq(&kept[3], &pool.share("3")));
    }
}
