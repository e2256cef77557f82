//! One attempt at a watch, over one connection: the list if there is no position, then events until something ends it.
//!
//! The list is a streaming list where the server has them (`sendInitialEvents`): one object in memory at a time, and no gap between
//! list and watch. Otherwise it is read in pages, or in one response when the pages expire faster than they are read.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout};

use super::reflector::{End, State};
use super::slim::{Line, Note, Slim, slim};
use super::split::{Items, Lines};
use super::{Remote, Timing};
use crate::http::Client;
use crate::http::connection::full;
use crate::path;
use crate::watch::Event;

/// Objects per page.
const PAGE: &str = "500";
/// The part of an error response that is read, in bytes.
const MAX_ERROR: usize = 64 << 10;
/// Upper limit of `Retry-After`.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);
/// Time after `timeoutSeconds` until we end a watch that the server has not ended.
const GRACE: Duration = Duration::from_secs(10);
/// Some servers accept a watch and then send an error event; without one within this time the watch is in sync.
const SETTLING: Duration = Duration::from_millis(250);
/// Part of the message of a kube-apiserver whose etcd cannot report progress; it then has no streaming lists (code 500).
const NO_PROGRESS: &str = "required storage feature";

/// How the list is requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Listing {
    /// As initial events of the watch.
    Streamed,
    /// In pages.
    Pages,
    /// In one response.
    Whole,
}

/// See the module.
pub(super) struct Attempt<'a> {
    client: Client,
    timing: Timing,
    state: &'a mut State,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(remote: &Remote, state: &'a mut State) -> Self {
        Self { client: remote.streaming(), timing: remote.timing, state }
    }

    pub(super) async fn run(mut self) -> End {
        let done = match (&self.state.position, self.state.listing) {
            (Some(_), _) => self.watch(false).await,
            (None, Listing::Streamed) => self.watch(true).await.map_err(without_streaming),
            (None, Listing::Pages | Listing::Whole) => match self.list().await {
                Ok(()) => self.watch(false).await,
                Err(end) => Err(end),
            },
        };
        done.err().unwrap_or(End::Finished)
    }

    /// Reads the list, in pages or in one response.
    async fn list(&mut self) -> Result<(), End> {
        let limit = if self.state.listing == Listing::Pages { PAGE } else { "" };
        let mut token = String::new();
        loop {
            let query = [("limit", limit), ("continue", &token)];
            let response = self.open(&path::query(&self.state.selection, &query)).await;
            let response = response.map_err(|end| match end {
                // Later pages are of the revision of the first, which may have expired.
                End::Expired(_) if !token.is_empty() => End::FallBack(Listing::Whole),
                other => other,
            })?;
            if token.is_empty() {
                self.send(Event::Init).await?;
            }
            let note = self.page(response.into_body()).await?;
            if note.metadata.continue_token.is_empty() {
                return self.listed(note).await;
            }
            token = note.metadata.continue_token;
        }
    }

    /// The list is complete.
    async fn listed(&mut self, note: Note) -> Result<(), End> {
        if note.metadata.resource_version.is_empty() {
            return Err(malformed("a list without a resourceVersion"));
        }
        self.send(Event::InitDone).await?;
        self.advance(note.metadata.resource_version);
        Ok(())
    }

    /// Sends the objects of one page; returns its list metadata.
    async fn page(&mut self, mut body: Incoming) -> Result<Note, End> {
        let mut items = Items::default();
        while let Some(bytes) = chunk(&mut body, self.timing.response).await.map_err(interrupted)? {
            self.state.heard = Instant::now();
            for item in items.push(&bytes).map_err(malformed)? {
                if let Some(slim) = read(&item)? {
                    self.send(Event::InitApply(slim.object)).await?;
                }
            }
        }
        serde_json::from_slice(&items.rest()).map_err(malformed)
    }

    /// Watches from the position, or with the initial events of a streaming list.
    async fn watch(&mut self, mut initial: bool) -> Result<(), End> {
        let duration = self.timing.max_duration.mul_f64(1.0 + fastrand::f64());
        let response = self.open(&self.watch_path(initial, duration)).await.map_err(|end| match end {
            // A position that the server cannot parse, perhaps of another server.
            End::Refused { code: 400 | 422, reason, .. } if !initial => End::Expired(reason),
            other => other,
        })?;
        if initial {
            self.send(Event::Init).await?;
        }
        let (mut body, mut lines) = (response.into_body(), Lines::default());
        let (end, mut settled) = (Instant::now() + duration + GRACE, initial);
        loop {
            let limit = match (initial, settled) {
                (true, _) => self.timing.response,
                (false, true) => self.timing.idle,
                (false, false) => SETTLING.min(self.timing.idle),
            };
            let left = end.saturating_duration_since(Instant::now());
            match chunk(&mut body, limit.min(left)).await {
                Ok(Some(bytes)) => {
                    self.state.heard = Instant::now();
                    lines.push(&bytes);
                }
                Ok(None) if initial => return Err(End::Disconnected("stream ended within the list".to_owned())),
                Ok(None) if lines.is_within() => {
                    return Err(End::Disconnected("stream ended within an event".to_owned()));
                }
                Ok(None) => return Ok(()),
                // A server that ignores sendInitialEvents never sends the bookmark at the end of the list.
                Err(NoChunk::TimedOut) if initial => return Err(End::FallBack(Listing::Pages)),
                Err(NoChunk::TimedOut) if settled => return Ok(()),
                Err(NoChunk::TimedOut) => {}
                Err(NoChunk::Disconnected(reason)) => return Err(End::Disconnected(reason)),
            }
            while let Some(line) = lines.next().map_err(malformed)? {
                self.line(&line, &mut initial).await?;
            }
            if !std::mem::replace(&mut settled, true) {
                self.state.out.synced();
            }
        }
    }

    fn watch_path(&self, initial: bool, duration: Duration) -> String {
        let seconds = duration.as_secs().max(1).to_string();
        let (send, matching) = if initial { ("true", "NotOlderThan") } else { ("", "") };
        let query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", &seconds),
            ("sendInitialEvents", send),
            ("resourceVersionMatch", matching),
            ("resourceVersion", self.state.position.as_deref().unwrap_or_default()),
        ];
        path::query(&self.state.selection, &query)
    }

    /// Decodes one line of the stream and sends its event.
    async fn line(&mut self, line: &[u8], initial: &mut bool) -> Result<(), End> {
        let Line { kind, object } = serde_json::from_slice(line).map_err(malformed)?;
        let json = object.get().as_bytes();
        match &*kind {
            "ADDED" | "MODIFIED" | "DELETED" => {
                let Some(Slim { object, revision }) = read(json)? else { return Ok(()) };
                if !*initial {
                    self.check(&revision)?;
                }
                let event = match &*kind {
                    "DELETED" => Event::Delete(object),
                    _ if *initial => Event::InitApply(object),
                    _ => Event::Apply(object),
                };
                self.send(event).await?;
                if !*initial {
                    self.advance(revision);
                }
            }
            "BOOKMARK" => {
                let note: Note = serde_json::from_slice(json).map_err(malformed)?;
                if !*initial {
                    self.check(&note.metadata.resource_version)?;
                    self.advance(note.metadata.resource_version);
                } else if note.ends_initial() {
                    self.listed(note).await?;
                    *initial = false;
                }
            }
            "ERROR" => {
                let note: Note = serde_json::from_slice(json).map_err(malformed)?;
                return Err(refusal(note.code, &note.message, Duration::ZERO));
            }
            other => tracing::debug!(watch = %self.state.selection, other, "ignoring watch event of unknown type"),
        }
        Ok(())
    }

    /// A server restored from a backup has older revisions, and would send no events up to our position.
    fn check(&self, revision: &str) -> Result<(), End> {
        let position = self.state.position.as_deref().unwrap_or_default();
        match (position.parse::<u64>(), revision.parse::<u64>()) {
            (Ok(before), Ok(now)) if now < before => {
                Err(End::Expired(format!("the server went back from resourceVersion {before} to {now}")))
            }
            _ => Ok(()),
        }
    }

    fn advance(&mut self, revision: String) {
        self.state.progress = true;
        if !revision.is_empty() {
            self.state.position = Some(revision);
        }
    }

    async fn send(&self, event: Event) -> Result<(), End> {
        if self.state.out.send(event).await { Ok(()) } else { Err(End::Dropped) }
    }

    /// Sends a request; an error response is an end.
    async fn open(&mut self, path: &str) -> Result<Response<Incoming>, End> {
        let opened = timeout(self.timing.response, self.client.open(Method::GET, path, None, Bytes::new())).await;
        let response = match opened {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(End::Disconnected(error.to_string())),
            Err(_) => return Err(End::Disconnected(format!("no response within {:?}", self.timing.response))),
        };
        if response.status() == StatusCode::OK {
            self.state.heard = Instant::now();
            return Ok(response);
        }
        let code = response.status().as_u16();
        let wait = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let wait = Duration::from_secs(wait.unwrap_or_default()).min(MAX_RETRY_AFTER);
        let (mut body, mut text) = (response.into_body(), Vec::new());
        while let Ok(Some(bytes)) = chunk(&mut body, self.timing.response).await {
            text.extend_from_slice(&bytes);
            if text.len() > MAX_ERROR {
                break;
            }
        }
        let message = serde_json::from_slice(&text).map_or_else(
            |_| String::from_utf8_lossy(&text[..text.len().min(200)]).trim().to_owned(),
            |note: Note| note.message,
        );
        Err(refusal(code, &message, wait))
    }
}

/// The next bytes of a body; `None` at its end.
async fn chunk(body: &mut Incoming, limit: Duration) -> Result<Option<Bytes>, NoChunk> {
    loop {
        let frame = match timeout(limit, body.frame()).await {
            Err(_) => return Err(NoChunk::TimedOut),
            Ok(None) => return Ok(None),
            Ok(Some(Err(error))) => return Err(NoChunk::Disconnected(full(&error))),
            Ok(Some(Ok(frame))) => frame,
        };
        // Trailers are ignored.
        if let Ok(bytes) = frame.into_data() {
            return Ok(Some(bytes));
        }
    }
}

/// Why there are no next bytes.
enum NoChunk {
    TimedOut,
    Disconnected(String),
}

fn interrupted(cause: NoChunk) -> End {
    match cause {
        NoChunk::TimedOut => End::Disconnected("timed out within a list".to_owned()),
        NoChunk::Disconnected(reason) => End::Disconnected(reason),
    }
}

fn malformed(error: impl std::fmt::Display) -> End {
    End::Malformed(format!("malformed response: {error}"))
}

/// The end that an error response or an error event stands for.
fn refusal(code: u16, message: &str, retry_after: Duration) -> End {
    let reason = if message.is_empty() { format!("HTTP status {code}") } else { format!("{code}: {message}") };
    match code {
        // 504: the position is ahead of a server that was restored from a backup.
        410 | 504 => End::Expired(reason),
        403 | 404 => End::NotServed { code, reason },
        _ => End::Refused { code, reason, retry_after },
    }
}

/// Falls back to a list when the server refuses streaming lists: it does not know them (400, 422), or its storage has no support (500).
fn without_streaming(end: End) -> End {
    match end {
        End::Refused { code: 400 | 422, .. } => End::FallBack(Listing::Pages),
        End::Refused { code: 500, reason, .. } if reason.contains(NO_PROGRESS) => End::FallBack(Listing::Pages),
        other => other,
    }
}

/// An object of a list or an event; one without a name is skipped.
fn read(json: &[u8]) -> Result<Option<Slim>, End> {
    let slim = slim(json).map_err(malformed)?;
    if slim.is_none() {
        tracing::warn!("skipped an object without a name");
    }
    Ok(slim)
}
