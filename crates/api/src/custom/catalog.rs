//! The kinds that follow the definitions of a cluster, one change after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::{Defined, Interner, Kinds};

/// The kinds, and the definitions that they come from.
pub struct Catalog {
    interner: Interner,
    defined: BTreeMap<String, Defined>,
    kinds: Arc<Kinds>,
}

impl Default for Catalog {
    fn default() -> Self {
        Self { interner: Interner::default(), defined: BTreeMap::new(), kinds: Arc::new(Kinds::fixed().clone()) }
    }
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog").field("definitions", &self.defined.keys()).finish_non_exhaustive()
    }
}

impl Catalog {
    /// The kinds at this moment.
    #[must_use]
    pub fn kinds(&self) -> &Arc<Kinds> {
        &self.kinds
    }

    /// Applies a change of the definition of this name, which is stored at a revision; `None` when it was deleted.
    pub fn apply(&mut self, name: &str, definition: Option<&Value>, revision: u64) {
        match definition {
            Some(definition) => {
                let defined = self.interner.define(definition, revision);
                self.defined.insert(name.to_owned(), defined);
            }
            None => {
                if let Some(defined) = self.defined.remove(name) {
                    defined.release();
                }
            }
        }
        self.kinds = Arc::new(Kinds::new(&self.defined, self.kinds.generation() + 1));
    }
}
