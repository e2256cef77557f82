//! The current PKI, which can be replaced at run time.
//!
//! In: a PKI, and each later reading of the directory. Out: the current one, and notifications of changes.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use tokio::sync::watch;

use super::Pki;

/// See the module. Clones share it.
#[derive(Clone)]
pub struct Live(watch::Sender<Arc<Pki>>);

impl Live {
    /// Starts with this one.
    #[must_use]
    pub fn new(pki: Pki) -> Self {
        Self(watch::Sender::new(Arc::new(pki)))
    }

    /// The current one.
    #[must_use]
    pub fn get(&self) -> Arc<Pki> {
        self.0.borrow().clone()
    }

    /// Replaces it; returns whether it has changed.
    pub fn replace(&self, next: Pki) -> bool {
        self.0.send_if_modified(|current| {
            let is_other = !current.is_same(&next);
            if is_other {
                *current = Arc::new(next);
            }
            is_other
        })
    }

    /// The current one, and changes of it.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Arc<Pki>> {
        self.0.subscribe()
    }
}

impl Debug for Live {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Live").field(&*self.0.borrow()).finish()
    }
}
