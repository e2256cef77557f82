//! Memory accounting per user and class of users.
//!
//! In: a request for more memory by a user. Out: a [`Share`] that is released when it is dropped, or [`Exhausted`]. A user gets a limited part
//! of the limit of the user's class, and no class can use the memory of another.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::auth::User;
use crate::authz::node;
use crate::pki::MASTERS;

/// Users that share memory and threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    Administrator,
    Node,
    Other,
}

impl Class {
    /// The number of classes.
    pub(crate) const COUNT: usize = 3;

    pub(crate) fn of(user: &User) -> Self {
        if user.is_in(MASTERS) {
            Self::Administrator
        } else if node::is_node(user) {
            Self::Node
        } else {
            Self::Other
        }
    }
}

/// Upper bounds, in bytes. Administrators together are not limited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// For one administrator.
    pub(crate) administrator: usize,
    /// For one user who is neither administrator nor node.
    pub(crate) user: usize,
    /// For one node.
    pub(crate) node: usize,
    /// For all nodes together, and for all other users together.
    pub(crate) class: usize,
}

impl Limits {
    /// The limit for one user of a class, and for all of the class.
    const fn of(self, class: Class) -> (usize, usize) {
        match class {
            Class::Administrator => (self.administrator, usize::MAX),
            Class::Node => (self.node, self.class),
            Class::Other => (self.user, self.class),
        }
    }
}

/// Accounting for one kind of memory.
pub(crate) struct Memory {
    limits: Limits,
    held: Arc<Mutex<Held>>,
}

#[derive(Default)]
struct Held {
    by_class: [usize; Class::COUNT],
    by_user: HashMap<String, usize>,
}

/// The limit is exceeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Exhausted;

/// Memory in use by a user.
pub(crate) struct Share {
    held: Arc<Mutex<Held>>,
    limits: Limits,
    user: String,
    class: Class,
    size: usize,
}

impl Memory {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, held: Arc::default() }
    }

    /// An empty share.
    pub(crate) fn share(&self, user: &User) -> Share {
        let (held, limits) = (self.held.clone(), self.limits);
        Share { held, limits, user: user.name.clone(), class: Class::of(user), size: 0 }
    }

    /// Bytes in use, and by how many users.
    #[cfg(test)]
    pub(crate) fn held(&self) -> (usize, usize) {
        let held = self.held.lock();
        (held.by_class.iter().sum(), held.by_user.len())
    }
}

impl Share {
    /// Adds bytes, within the limits.
    pub(crate) fn grow(&mut self, size: usize) -> Result<(), Exhausted> {
        let mut held = self.held.lock();
        if !held.has_room(self.limits, self.class, &self.user, size) {
            return Err(Exhausted);
        }
        held.add(self.class, &self.user, size);
        self.size += size;
        Ok(())
    }

    /// Whether the user is below the limits.
    pub(crate) fn has_room(&self) -> bool {
        self.held.lock().has_room(self.limits, self.class, &self.user, 1)
    }

    /// Adds bytes that are in use already, regardless of the limits.
    pub(crate) fn charge(&mut self, size: usize) {
        self.held.lock().add(self.class, &self.user, size);
        self.size += size;
    }
}

impl Held {
    fn has_room(&self, limits: Limits, class: Class, user: &str, size: usize) -> bool {
        let (user_limit, class_limit) = limits.of(class);
        let own = self.by_user.get(user).copied().unwrap_or_default();
        own + size <= user_limit && self.by_class[class as usize] + size <= class_limit
    }

    fn add(&mut self, class: Class, user: &str, size: usize) {
        self.by_class[class as usize] += size;
        match self.by_user.get_mut(user) {
            Some(sum) => *sum += size,
            None => drop(self.by_user.insert(user.to_owned(), size)),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.held.lock();
        held.by_class[self.class as usize] -= self.size;
        let Some(sum) = held.by_user.get_mut(&self.user) else { return };
        *sum -= self.size;
        if *sum == 0 {
            held.by_user.remove(&self.user);
        }
    }
}
