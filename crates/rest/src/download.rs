//! Limits of response bodies that clients have not read yet.
//!
//! In: the user of a request, and its response. Out: the same response, whose bytes count as memory of the user until they are sent. Users over
//! their limit are refused: otherwise one account that requests large lists and reads none of them could exhaust the memory of the
//! server. The check is before the request runs, so the limit may be exceeded by the responses of requests in progress.

use api::status::Status;
use bytes::Bytes;

use crate::auth::User;
use crate::memory::{Limits, Memory, Share};

/// Bytes in transit: a controller or node that starts lists everything it needs at once.
const LIMITS: Limits = Limits { administrator: usize::MAX, user: 256 << 20, node: 256 << 20, class: 1 << 30 };
/// Smaller bodies are not counted, in bytes: the buffers of a connection hold more.
const MIN_COUNTED: usize = 64 << 10;

/// The memory that responses hold.
pub(crate) struct Downloads {
    memory: Memory,
}

/// The account that a response is charged to.
pub(crate) struct Account(Share);

/// Bytes that are counted until they are dropped.
struct Counted {
    bytes: Bytes,
    _share: Share,
}

impl Default for Downloads {
    fn default() -> Self {
        Self { memory: Memory::new(LIMITS) }
    }
}

impl Downloads {
    /// Admits a request.
    ///
    /// # Errors
    /// 429 when its user has too many unread responses.
    pub(crate) fn admit(&self, user: &User) -> Result<Account, Status> {
        let share = self.memory.share(user);
        if share.has_room() {
            return Ok(Account(share));
        }
        Err(Status::too_many_requests("too many responses are waiting to be read, please try again later"))
    }
}

impl Account {
    /// Charges a body.
    pub(crate) fn charge(self, bytes: Bytes) -> Bytes {
        let Self(mut share) = self;
        if bytes.len() < MIN_COUNTED {
            return bytes;
        }
        share.charge(bytes.len());
        Bytes::from_owner(Counted { bytes, _share: share })
    }
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::MASTERS;

    fn user(name: &str, group: &str) -> User {
        User { name: name.into(), groups: vec![group.into()], ..User::default() }
    }

    #[test]
    fn clients_with_unread_responses_are_refused() {
        let (downloads, slow) = (Downloads::default(), user("slow", "x"));
        let large = Bytes::from(vec![b'x'; 64 << 20]);
        let mut unread = Vec::new();
        let refused = loop {
            match downloads.admit(&slow) {
                Ok(account) => unread.push(account.charge(large.clone())),
                Err(status) => break status,
            }
        };
        assert_eq!((refused.code, unread.len()), (429, 4));
        assert!(unread.iter().all(|bytes| *bytes == large));
        for (name, group) in [("other", "x"), ("root", MASTERS), ("system:node:n", crate::authz::node::NODES)] {
            assert!(downloads.admit(&user(name, group)).is_ok(), "{name}");
        }
        // A part that is still to be sent holds all of it.
        let rest = unread.pop().map(|bytes| bytes.slice(1..2));
        assert!(downloads.admit(&slow).is_err());
        drop(rest);
        assert!(downloads.admit(&slow).is_ok());
        drop(unread);
        assert_eq!(downloads.memory.held(), (0, 0));
    }

    #[test]
    fn small_responses_are_not_counted() {
        let downloads = Downloads::default();
        let account = downloads.admit(&user("a", "x")).unwrap_or_else(|status| panic!("{status:?}"));
        let small = account.charge(Bytes::from_static(b"small"));
        assert_eq!((&small[..], downloads.memory.held()), (&b"small"[..], (0, 0)));
    }
}
