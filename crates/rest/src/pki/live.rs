//! The identity in use, which is replaced while everything runs on.
//!
//! In: an identity, and each next one that was read from the folder. Out: the current one, to whoever needs it at this moment; and that it changed.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use tokio::sync::watch;

use super::Pki;

/// See the module. Clones share it.
#[derive(Clone)]
pub struct Live(watch::Sender<Arc<Pki>>);

impl Live {
    /// Begins with this one.
    #[must_use]
    pub fn new(pki: Pki) -> Self {
        Self(watch::Sender::new(Arc::new(pki)))
    }

    /// The one in use.
    #[must_use]
    pub fn get(&self) -> Arc<Pki> {
        self.0.borrow().clone()
    }

    /// Uses another from now on; answers whether it is another.
    pub fn replace(&self, next: Pki) -> bool {
        self.0.send_if_modified(|current| {
            let is_other = !current.is_same(&next);
            if is_other {
                *current = Arc::new(next);
            }
            is_other
        })
    }

    /// The one in use, and each change of it.
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
