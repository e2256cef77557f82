//! Follows all EndpointSlices and Endpoints through list and watch, as a proxy on every node would, and knows when they
//! are right.
//!
//! Two tasks read, stamp each event with the moment it came, and pass it on; the measurement takes them in one by one.
//! Counts decide in passing; whether the contents are right too is for [`check`](super::check) to say.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use client::http::{Client, Method};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::objects::Size;
use super::sight::{Kind, Metadata, Sight, Wire};
use super::tally::Tally;
use crate::lines::Lines;

/// Something that came, and when.
struct Seen {
    at: Instant,
    what: What,
}

enum What {
    /// All there is of a kind.
    Listed(Kind, Vec<Sight>),
    /// An object was written or, if the flag is set, deleted.
    Changed(Kind, Sight, bool),
    /// A kind cannot be followed.
    Failed(anyhow::Error),
}

/// How many events came of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// EndpointSlices.
    pub slices: usize,
    /// Endpoints.
    pub endpoints: usize,
}

/// See the module.
pub struct Tracker {
    seen: mpsc::UnboundedReceiver<Seen>,
    tally: Tally,
    writes: Writes,
    _readers: JoinSet<()>,
}

// === impl Tracker ===

impl Tracker {
    /// Starts watching; existing objects count.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub async fn start(client: &Client, size: Size) -> anyhow::Result<Self> {
        let (sender, seen) = mpsc::unbounded_channel();
        let mut readers = JoinSet::new();
        for kind in Kind::ALL {
            readers.spawn(follow(client.another(), kind, sender.clone()));
        }
        let mut tracker = Self { seen, tally: Tally::new(size), writes: Writes::default(), _readers: readers };
        let mut listed = 0;
        while listed < Kind::ALL.len() {
            let seen = tracker.seen.recv().await.context("all readers have ended")?;
            listed += usize::from(matches!(seen.what, What::Listed(..)));
            tracker.take(seen.what)?;
        }
        Ok(tracker)
    }

    /// Events so far.
    #[must_use]
    pub const fn writes(&self) -> Writes {
        self.writes
    }

    /// Waits until every Service has all its Pods; the moment of the event that made it so.
    ///
    /// # Errors
    /// When that takes too long.
    pub async fn until_right(&mut self, limit: Duration) -> anyhow::Result<Instant> {
        let deadline = Instant::now() + limit;
        let mut at = Instant::now();
        while !self.tally.is_right() {
            let Ok(seen) = timeout_at(deadline, self.seen.recv()).await else {
                bail!("not right after {limit:?}: {}", self.tally.describe());
            };
            let seen = seen.context("all readers have ended")?;
            at = seen.at;
            self.take(seen.what)?;
        }
        Ok(at)
    }

    /// Waits for a slice that has a Pod in this state; the moment it came.
    ///
    /// # Errors
    /// When that takes too long.
    pub async fn until_shown(&mut self, pod: &str, ready: bool, limit: Duration) -> anyhow::Result<Instant> {
        let deadline = Instant::now() + limit;
        loop {
            let Ok(seen) = timeout_at(deadline, self.seen.recv()).await else {
                bail!("no slice showed {pod} with ready={ready} in {limit:?}");
            };
            let Seen { at, what } = seen.context("all readers have ended")?;
            let shown = matches!(&what, What::Changed(Kind::Slices, sight, false)
                if sight.members.iter().any(|member| member.pod == pod && member.ready == ready));
            self.take(what)?;
            if shown {
                return Ok(at);
            }
        }
    }

    /// Processes everything that arrives during this time.
    ///
    /// # Errors
    /// When following fails.
    pub async fn pause(&mut self, time: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + time;
        while let Ok(seen) = timeout_at(deadline, self.seen.recv()).await {
            self.take(seen.context("all readers have ended")?.what)?;
        }
        Ok(())
    }

    fn take(&mut self, what: What) -> anyhow::Result<()> {
        match what {
            What::Listed(kind, sights) => {
                self.tally.forget(kind);
                sights.iter().for_each(|sight| self.tally.put(kind, sight));
            }
            What::Changed(kind, sight, deleted) => {
                match kind {
                    Kind::Slices => self.writes.slices += 1,
                    Kind::Endpoints => self.writes.endpoints += 1,
                }
                if deleted {
                    self.tally.remove(kind, &sight.name);
                } else {
                    self.tally.put(kind, &sight);
                }
            }
            What::Failed(error) => return Err(error),
        }
        Ok(())
    }
}

// === impl Writes ===

impl Writes {
    /// What arrived since then.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self { slices: self.slices - before.slices, endpoints: self.endpoints - before.endpoints }
    }
}

/// A list on the wire.
#[derive(Deserialize)]
struct List {
    metadata: Metadata,
    items: Vec<Wire>,
}

/// A line of a watch.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    object: Wire,
}

/// All there is of a kind, and the revision it was at.
///
/// # Errors
/// When the list is refused.
pub async fn list(client: &mut Client, kind: Kind) -> anyhow::Result<(Vec<Sight>, String)> {
    let (code, answer) = client.bytes(Method::GET, kind.path(), None, Bytes::new()).await?;
    ensure!(code == 200, "the list of {kind:?} was answered with {code}");
    let List { metadata, items } = serde_json::from_slice(&answer).context("reading a list")?;
    Ok((items.into_iter().map(Sight::from).collect(), metadata.resource_version))
}

/// Lists and watches until the receiver is dropped. A watch that the server closed because it was too slow is
/// restarted.
async fn follow(mut client: Client, kind: Kind, out: mpsc::UnboundedSender<Seen>) {
    while !out.is_closed() {
        if let Err(error) = follow_once(&mut client, kind, &out).await {
            let what = What::Failed(error.context(format!("following {kind:?}")));
            let _ = out.send(Seen { at: Instant::now(), what });
            return;
        }
    }
}

async fn follow_once(client: &mut Client, kind: Kind, out: &mpsc::UnboundedSender<Seen>) -> anyhow::Result<()> {
    let (sights, revision) = list(client, kind).await?;
    let _ = out.send(Seen { at: Instant::now(), what: What::Listed(kind, sights) });
    let path = format!("{}?watch=1&resourceVersion={revision}&timeoutSeconds=3600", kind.path());
    let response = client.open(Method::GET, &path, None, Bytes::new()).await?;
    ensure!(response.status().as_u16() == 200, "the watch was answered with {}", response.status());
    let (mut stream, mut lines) = (response.into_body(), Lines::default());
    while let Some(Ok(frame)) = stream.frame().await {
        let at = Instant::now();
        let Ok(data) = frame.into_data() else { continue };
        let mut read = Ok(());
        lines.feed(&data, |line| {
            let Ok(line) = serde_json::from_slice::<Line>(line).inspect_err(|error| read = Err(error.to_string()))
            else {
                return;
            };
            let deleted = match line.kind.as_str() {
                "ADDED" | "MODIFIED" => false,
                "DELETED" => true,
                "BOOKMARK" => return,
                // Too old: the list comes next.
                _ => return eprintln!("a watch of {kind:?} ends: {}", line.object.message),
            };
            let _ = out.send(Seen { at, what: What::Changed(kind, line.object.into(), deleted) });
        });
        if let Err(error) = read {
            bail!("a line of the watch cannot be read: {error}");
        }
    }
    Ok(())
}
