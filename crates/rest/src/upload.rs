//! Request bodies, read completely before a request counts as in flight.
//!
//! In: the body of a request and its user. Out: the bytes, with a share of memory that is released when they are dropped. The client
//! determines how fast a body arrives, so reading it holds no permit, only memory, of which each user has a limited share. A slow client
//! delays only itself.

use std::time::Duration;

use api::status::Status;
use bytes::{Bytes, BytesMut};
use http_body::Body as HttpBody;
use http_body_util::BodyExt as _;

use crate::auth::User;
use crate::body;
use crate::memory::{Exhausted, Limits, Memory, Share};

/// Limits of memory for bodies, in bytes. Nodes send small objects, and one join token can make many nodes.
const LIMITS: Limits = Limits { administrator: 64 << 20, user: 64 << 20, node: 8 << 20, class: 256 << 20 };
/// The cost of a request before its body arrives, in bytes: it bounds how many requests a user may start (4096).
const BASE_COST: usize = 16 * 1024;

/// The memory that bodies hold.
pub(crate) struct Uploads {
    memory: Memory,
}

/// A body, and the memory it holds.
pub(crate) struct Uploaded {
    pub(crate) bytes: Bytes,
    _share: Share,
}

impl Default for Uploads {
    fn default() -> Self {
        Self { memory: Memory::new(LIMITS) }
    }
}

impl Uploads {
    /// Reads a complete body within the timeout `limit`.
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
        let mut share = self.memory.share(user);
        share.grow(BASE_COST).map_err(refused)?;
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
        share.grow(data.len()).map_err(refused)?;
        // Most bodies arrive in one chunk, which need not be copied.
        if first.is_empty() {
            first = data;
        } else {
            rest.extend_from_slice(&data);
        }
    }
    let bytes = if rest.is_empty() { first } else { [&first[..], &rest[..]].concat().into() };
    Ok(Uploaded { bytes, _share: share })
}

fn refused(_: Exhausted) -> Status {
    Status::too_many_requests("too many request bodies are being received, please try again later")
}

#[cfg(test)]
mod tests {
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;

    use super::*;
    use crate::authz::node;
    use crate::pki::MASTERS;

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn user(name: &str, group: &str) -> User {
        User { name: name.into(), groups: vec![group.into()], ..User::default() }
    }

    fn pieces(pieces: Vec<Bytes>) -> impl HttpBody<Data = Bytes, Error = std::convert::Infallible> {
        StreamBody::new(futures_util::stream::iter(pieces.into_iter().map(|piece| Ok(Frame::data(piece)))))
    }

    #[tokio::test]
    async fn a_body_is_assembled_and_its_memory_released() {
        let uploads = Uploads::default();
        let alice = user("alice", "x");
        let body = pieces(vec![Bytes::from_static(b"one "), Bytes::from_static(b"two "), Bytes::from_static(b"three")]);
        let read = uploads.read(&alice, body, TIMEOUT).await.unwrap_or_else(|status| panic!("{status:?}"));
        assert_eq!(&read.bytes[..], b"one two three");
        assert_eq!(uploads.memory.held(), (BASE_COST + 13, 1));
        drop(read);
        assert_eq!(uploads.memory.held(), (0, 0));
        let large = Full::new(Bytes::from(vec![0; body::LIMIT + 1]));
        assert_eq!(uploads.read(&alice, large, TIMEOUT).await.err().map(|status| status.code), Some(413));
        assert_eq!(uploads.memory.held(), (0, 0), "a refused body holds nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_arrives_times_out() {
        let uploads = Uploads::default();
        let body = StreamBody::new(futures_util::stream::pending::<Result<Frame<Bytes>, std::convert::Infallible>>());
        assert_eq!(uploads.read(&user("a", "x"), body, TIMEOUT).await.err().map(|status| status.code), Some(504));
        assert_eq!(uploads.memory.held(), (0, 0));
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
        assert_eq!((refused.code, shares.len()), (429, LIMITS.user / BASE_COST));
        assert!(uploads.begin(&user("other", "x")).is_ok());
        for name in ["b", "c", "d"] {
            let mut share = uploads.begin(&user(name, "x")).unwrap_or_else(|status| panic!("{status:?}"));
            share.grow(LIMITS.user - BASE_COST).unwrap();
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
            share.grow(LIMITS.node - BASE_COST).map_err(refused).map(|()| share)
        };
        let shares: Vec<Share> = (0..).map_while(|number| full(number).ok()).collect();
        assert_eq!(shares.len(), LIMITS.class / LIMITS.node);
        assert!(uploads.begin(&user("alice", "x")).is_ok() && uploads.begin(&user("root", MASTERS)).is_ok());
    }
}
