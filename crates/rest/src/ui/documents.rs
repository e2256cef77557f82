//! The latest documents of findings: while no object and no right of a user changes, findings are not computed again.
//!
//! In: everything that a document follows from. Out: the document, if it is still there. The memory is bounded; the oldest makes room.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;
use ring::digest::{Context, SHA256};
use store::{Store, Table};

use super::rights::Lists;
use crate::auth::User;

/// The most documents, and their total size in bytes.
const MOST: usize = 64;
const MOST_BYTES: usize = 32 << 20;
/// What decides what a user may list.
const GRANTS: [&str; 4] = ["clusterrolebindings", "clusterroles", "rolebindings", "roles"];

/// Identifies a document by everything that it follows from.
pub(super) type Identity = [u8; 32];

/// See the module.
#[derive(Default)]
pub(crate) struct Documents(Mutex<VecDeque<(Identity, Bytes)>>);

impl Documents {
    pub(super) fn get(&self, identity: &Identity) -> Option<Bytes> {
        self.0.lock().iter().find(|(own, _)| own == identity).map(|(_, document)| document.clone())
    }

    pub(super) fn put(&self, identity: Identity, document: &Bytes) {
        let mut all = self.0.lock();
        all.retain(|(own, _)| *own != identity);
        all.push_back((identity, document.clone()));
        while all.len() > MOST || all.iter().map(|(_, document)| document.len()).sum::<usize>() > MOST_BYTES {
            all.pop_front();
        }
    }
}

/// The identity of the document about `subject` for a user who may list these objects.
pub(super) fn identity(store: &dyn Store, user: &User, subject: &str, lists: &Lists) -> Identity {
    let mut hash = Context::new(&SHA256);
    let mut add = |text: &str| {
        hash.update(&text.len().to_le_bytes());
        hash.update(text.as_bytes());
    };
    [&user.name, &user.uid].into_iter().chain(&user.groups).for_each(|text| add(text));
    add(&format!("{:?}", user.extra));
    add(subject);
    for table in GRANTS {
        let range = store.range(Table::named(table), "", None);
        for entry in range.map_or_else(|_| Vec::new(), |range| range.entries) {
            add(&entry.key.name);
            add(&entry.modified.to_string());
        }
    }
    for (plural, entries) in lists {
        add(plural);
        for entry in entries {
            add(&entry.key.name);
            add(&entry.modified.to_string());
        }
    }
    hash.finish().as_ref().try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_documents_make_room() {
        let documents = Documents::default();
        let identity = |at: usize| std::array::from_fn(|place| if place == 0 { u8::try_from(at).unwrap() } else { 0 });
        for at in 0..=MOST {
            documents.put(identity(at), &Bytes::from_static(b"{}"));
        }
        assert!(documents.get(&identity(0)).is_none() && documents.get(&identity(1)).is_some());
        documents.put(identity(200), &vec![0; MOST_BYTES].into());
        assert!(documents.get(&identity(200)).is_some() && documents.get(&identity(MOST)).is_none());
    }
}
