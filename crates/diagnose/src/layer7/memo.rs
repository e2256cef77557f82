//! Answers that are expensive to find and the same for many objects: thousands of routes may lead to one Service.
//!
//! In: a question and how to answer it. Out: the answer, which is found once for each [`super::Layer7`].

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use routing::model::ServiceTarget;

use crate::finding::Finding;

/// How many names that do not exist are compared with those that do: each costs as much as there are names.
const HINTS: usize = 256;

/// A Service and the name of one of its ports.
type ServicePort = (Arc<str>, Arc<str>);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Memo {
    /// Whether a port of a Service has a ready endpoint.
    ready: RefCell<BTreeMap<ServicePort, bool>>,
    /// Why a Service has none.
    causes: RefCell<BTreeMap<Arc<str>, Option<Finding>>>,
    /// What was probably meant by the key of a kind.
    hints: RefCell<BTreeMap<(&'static str, Box<str>), String>>,
}

impl Memo {
    pub(super) fn ready(&self, target: &ServiceTarget, find: impl FnOnce() -> bool) -> bool {
        let key = (target.service.clone(), target.port_name.clone());
        let known = self.ready.borrow().get(&key).copied();
        known.unwrap_or_else(|| {
            let found = find();
            self.ready.borrow_mut().insert(key, found);
            found
        })
    }

    pub(super) fn cause(&self, service: &Arc<str>, find: impl FnOnce() -> Option<Finding>) -> Option<Finding> {
        let known = self.causes.borrow().get(service).cloned();
        known.unwrap_or_else(|| {
            let found = find();
            self.causes.borrow_mut().insert(service.clone(), found.clone());
            found
        })
    }

    /// The end of a sentence; empty beyond [`HINTS`] different names.
    pub(super) fn hint(&self, kind: &'static str, key: &str, find: impl FnOnce() -> String) -> String {
        let known = self.hints.borrow().get(&(kind, key.into())).cloned();
        known.unwrap_or_else(|| {
            if self.hints.borrow().len() >= HINTS {
                return String::new();
            }
            let found = find();
            self.hints.borrow_mut().insert((kind, key.into()), found.clone());
            found
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_once_and_only_so_many() {
        let (memo, asked) = (Memo::default(), RefCell::new(0));
        let hint = |key: &str| {
            memo.hint("Service", key, || {
                *asked.borrow_mut() += 1;
                "; did you mean web?".to_owned()
            })
        };
        for _ in 0..3 {
            assert_eq!(hint("a/wbe"), "; did you mean web?");
        }
        assert_eq!(*asked.borrow(), 1);
        for at in 1..HINTS {
            hint(&format!("a/{at}"));
        }
        assert_eq!((hint("a/one-more"), hint("a/wbe")), (String::new(), "; did you mean web?".to_owned()));
        assert_eq!(*asked.borrow(), HINTS);
    }
}
