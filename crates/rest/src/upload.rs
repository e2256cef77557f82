//! Request bodies, read whole before a request counts as in flight.
//!
//! In: the body of a request and its user. Out: the bytes, with a share of memory that is released when they are dropped. The client decides
//! how fast a body arrives, so reading it holds no permit: only memory, of which one user gets a bounded share. A client that sends one byte
//! and waits delays nobody but itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::status::Status;
use bytes::{Bytes, BytesMut};
use http_body::Body as HttpBody;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;

use crate::auth::User;
use crate::authz::node;
use crate::body;
use crate::pki::MASTERS;

/// Memory for the bodies of one user, in bytes.
const USER_LIMIT: usize = 64 * 1024 * 1024;
/// Memory for the bodies of one node, in bytes: nodes send small objects, and a join token makes many nodes.
const NODE_LIMIT: usize = 8 * 1024 * 1024;
/// Memory for the bodies of all nodes together, and for those of all other users together but administrators.
const CLASS_LIMIT: usize = 256 * 1024 * 1024;
/// What a request costs before any of its body has arrived: it bounds how many a user may begin (4096).
const BASE_COST: usize = 16 * 1024;

/// The memory that bodies hold.
#[derive(Default)]
pub(crate) struct Uploads {
    held: Arc<Mutex<Held>>,
}

#[derive(Default)]
struct Held {
    by_class: [usize; 3],
    by_user: HashMap<String, usize>,
}

/// Users that share memory: those of one class cannot use up that of another.
#[derive(Clone, Copy)]
enum Class {
    Administrator,
    Node,
    Other,
}

impl Class {
    fn of(user: &User) -> Self {
        if user.is_in(MASTERS) {
            Self::Administrator
        } else if node::is_node(user) {
            Self::Node
        } else {
            Self::Other
        }
    }

    /// The limit for one user, and for all of the class.
    const fn limits(self) -> (usize, usize) {
        match self {
            Self::Administrator => (USER_LIMIT, usize::MAX),
            Self::Node => (NODE_LIMIT, CLASS_LIMIT),
            Self::Other => (USER_LIMIT, CLASS_LIMIT),
        }
    }
}

/// A body, and the memory it holds.
pub(crate) struct Uploaded {
    pub(crate) bytes: Bytes,
    _share: Share,
}

/// Memory held by one body.
struct Share {
    held: Arc<Mutex<Held>>,
    user: String,
    class: Class,
    size: usize,
}

impl Uploads {
    /// Reads a whole body within `limit` of time.
    ///
    /// # Errors
    /// 413 when it is too large, 429 when its user holds too much memory already, 504 when it does not arrive in time.
    pub(crate) async fn read<B>(&self, user: &User, body: B, limit: Duration) -> Result<Uploaded, Status>
    where
        B: HttpBody<Data = Bytes>,
        B::Error: std::fmt::Display,
    {
        let share = self.begin(user)?;
        match tokio::time::timeout(limit, collect(body, share)).await {
            Ok(done) => done,
            Err(_) => {
                Err(Status::timeout(format!("Timeout: the body did not arrive within {} seconds", limit.as_secs())))
            }
        }
    }

    fn begin(&self, user: &User) -> Result<Share, Status> {
        let (held, class) = (self.held.clone(), Class::of(user));
        let mut share = Share { held, user: user.name.clone(), class, size: 0 };
        share.grow(BASE_COST)?;
        Ok(share)
    }
}

async fn collect<B>(body: B, mut share: Share) -> Result<Uploaded, Status>
where
    B: HttpBody<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let mut body = std::pin::pin!(body);
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Status::bad_request(format!("the body could not be read: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + rest.len() + data.len() > body::LIMIT {
            return Err(Status::too_large(body::LIMIT));
        }
        share.grow(data.len())?;
        // Most bodies arrive in one piece, which need not be copied.
        if first.is_empty() {
            first = data;
        } else {
            rest.extend_from_slice(&data);
        }
    }
    let bytes = if rest.is_empty() { first } else { [&first[..], &rest[..]].concat().into() };
    Ok(Uploaded { bytes, _share: share })
}

impl Share {
    fn grow(&mut self, size: usize) -> Result<(), Status> {
        let mut held = self.held.lock();
        let own = held.by_user.get(&self.user).copied().unwrap_or_default() + size;
        let all = held.by_class[self.class as usize] + size;
        let (user_limit, class_limit) = self.class.limits();
        if own > user_limit || all > class_limit {
            return Err(Status::too_many_requests(
                "too many request bodies are being received, please try again later",
            ));
        }
        held.by_class[self.class as usize] = all;
        match held.by_user.get_mut(&self.user) {
            Some(sum) => *sum = own,
            None => drop(held.by_user.insert(self.user.clone(), own)),
        }
        self.size += size;
        Ok(())
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

#[cfg(test)]
mod tests {
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;

    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    fn user(name: &str, group: &str) -> User {
        User { name: name.into(), groups: vec![group.into()], ..User::default() }
    }

    fn pieces(pieces: Vec<Bytes>) -> impl HttpBody<Data = Bytes, Error = std::convert::Infallible> {
        StreamBody::new(futures_util::stream::iter(pieces.into_iter().map(|piece| Ok(Frame::data(piece)))))
    }

    fn held(uploads: &Uploads) -> (usize, usize) {
        let held = uploads.held.lock();
        (held.by_class.iter().sum(), held.by_user.len())
    }

    #[tokio::test]
    async fn a_body_is_put_together_and_its_memory_released() {
        let uploads = Uploads::default();
        let alice = user("alice", "x");
        let body = pieces(vec![Bytes::from_static(b"one "), Bytes::from_static(b"two "), Bytes::from_static(b"three")]);
        let read = uploads.read(&alice, body, SOON).await.unwrap_or_else(|status| panic!("{status:?}"));
        assert_eq!(&read.bytes[..], b"one two three");
        assert_eq!(held(&uploads), (BASE_COST + 13, 1));
        drop(read);
        assert_eq!(held(&uploads), (0, 0));
        let large = Full::new(Bytes::from(vec![0; body::LIMIT + 1]));
        assert_eq!(uploads.read(&alice, large, SOON).await.err().map(|status| status.code), Some(413));
        assert_eq!(held(&uploads), (0, 0), "a refused body holds nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_arrives_ends_with_its_time() {
        let uploads = Uploads::default();
        let body = StreamBody::new(futures_util::stream::pending::<Result<Frame<Bytes>, std::convert::Infallible>>());
        assert_eq!(uploads.read(&user("a", "x"), body, SOON).await.err().map(|status| status.code), Some(504));
        assert_eq!(held(&uploads), (0, 0));
    }

    #[tokio::test]
    async fn one_user_leaves_memory_to_others() {
        let uploads = Uploads::default();
        let greedy = user("greedy", "x");
        let mut shares = Vec::new();
        let refused = loop {
            match uploads.begin(&greedy) {
                Ok(share) => shares.push(share),
                Err(status) => break status,
            }
        };
        assert_eq!((refused.code, shares.len()), (429, USER_LIMIT / BASE_COST));
        assert!(uploads.begin(&user("other", "x")).is_ok());
        for name in ["b", "c", "d"] {
            let mut share = uploads.begin(&user(name, "x")).unwrap_or_else(|status| panic!("{status:?}"));
            share.grow(USER_LIMIT - BASE_COST).unwrap();
            shares.push(share);
        }
        assert_eq!(uploads.begin(&user("e", "x")).err().map(|status| status.code), Some(429), "all is in use");
        assert!(uploads.begin(&user("root", MASTERS)).is_ok(), "administrators have memory of their own");
        assert!(uploads.begin(&user("system:node:n", node::NODES)).is_ok(), "and nodes");
    }

    #[test]
    fn many_nodes_do_not_use_up_all_memory() {
        let uploads = Uploads::default();
        let full = |number: usize| {
            let mut share = uploads.begin(&user(&format!("system:node:{number}"), node::NODES))?;
            share.grow(NODE_LIMIT - BASE_COST).map(|()| share)
        };
        let shares: Vec<Share> = (0..).map_while(|number| full(number).ok()).collect();
        assert_eq!(shares.len(), CLASS_LIMIT / NODE_LIMIT);
        assert!(uploads.begin(&user("alice", "x")).is_ok() && uploads.begin(&user("root", MASTERS)).is_ok());
    }
}
