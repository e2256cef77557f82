//! One attempt at a watch, over one connection: a list if need be, then changes until something ends it.
//!
//! The first objects come as a watch does, if the server can (`sendInitialEvents`): one object in memory at a time, and no gap
//! between list and watch. Otherwise they come in pages, and if pages are forgotten faster than they are read, as one list.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use store::source::Event;
use tokio::time::{Instant, timeout};

use super::follow::{End, State};
use super::slim::{Line, Note, Slim, slim};
use super::split::{Items, Lines};
use super::{Remote, Timing, path};
use crate::client::Client;
use crate::client::connection::full;

/// How many objects a page has.
const PAGE: &str = "500";
/// How much of a refusal is read.
const REFUSAL: usize = 64 << 10;
/// No server makes us wait longer by saying so.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// A server ends a watch by itself when its time is over; so much later we do.
const GRACE: Duration = Duration::from_secs(10);

/// A watch that is refused after all is refused within this time.
const SETTLING: Duration = Duration::from_millis(250);

/// How the first objects are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Listing {
    /// As the beginning of the watch.
    Streamed,
    /// In pages.
    Pages,
    /// In one list.
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
            (None, Listing::Streamed) => self.watch(true).await,
            (None, Listing::Pages | Listing::Whole) => match self.list().await {
                Ok(()) => self.watch(false).await,
                Err(end) => Err(end),
            },
        };
        match done {
            Ok(()) => End::Over,
            Err(end) => end,
        }
    }

    /// A list in pages, or in one.
    async fn list(&mut self) -> Result<(), End> {
        let limit = if self.state.listing == Listing::Pages { PAGE } else { "" };
        let mut token = String::new();
        loop {
            let query = [("limit", limit), ("continue", &token)];
            let response = self.open(&path::query(&self.state.what, &query)).await;
            let response = response.map_err(|end| match end {
                // Later pages are of the revision of the first, which may be forgotten by now.
                End::Expired(_) if !token.is_empty() => End::Simpler(Listing::Whole),
                other => other,
            })?;
            if token.is_empty() {
                self.say(Event::Init).await?;
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
            return Err(unreadable("a list without a resourceVersion"));
        }
        self.say(Event::InitDone).await?;
        self.move_on(note.metadata.resource_version);
        Ok(())
    }

    /// Hands the objects of one page on, and gives what stands around them.
    async fn page(&mut self, mut body: Incoming) -> Result<Note, End> {
        let mut items = Items::default();
        while let Some(bytes) = piece(&mut body, self.timing.answer).await.map_err(broken)? {
            self.state.heard = Instant::now();
            for item in items.push(&bytes).map_err(unreadable)? {
                if let Some(slim) = read(&item)? {
                    self.say(Event::InitApply(slim.object)).await?;
                }
            }
        }
        serde_json::from_slice(&items.rest()).map_err(unreadable)
    }

    /// A watch, from the position or with the first objects before it.
    async fn watch(&mut self, mut initial: bool) -> Result<(), End> {
        let lasting = self.timing.lasting.mul_f64(1.0 + fastrand::f64());
        let response = self.open(&self.watch_path(initial, lasting)).await.map_err(|end| match end {
            End::Refused { code: 400 | 422, .. } if initial => End::Simpler(Listing::Pages),
            // It does not understand the position that we have, perhaps from another server.
            End::Refused { code: 400 | 422, why, .. } => End::Expired(why),
            other => other,
        })?;
        if initial {
            self.say(Event::Init).await?;
        }
        let (mut body, mut lines) = (response.into_body(), Lines::default());
        let (end, mut settled) = (Instant::now() + lasting + GRACE, initial);
        loop {
            let patience = match (initial, settled) {
                (true, _) => self.timing.answer,
                (false, true) => self.timing.silence,
                (false, false) => SETTLING.min(self.timing.silence),
            };
            let left = end.saturating_duration_since(Instant::now());
            match piece(&mut body, patience.min(left)).await {
                Ok(Some(bytes)) => {
                    self.state.heard = Instant::now();
                    lines.push(&bytes);
                }
                Ok(None) if initial => return Err(End::Broken("the watch ended before its list did".to_owned())),
                Ok(None) if lines.is_within() => return Err(End::Broken("the watch ended within a line".to_owned())),
                Ok(None) => return Ok(()),
                // Servers that do not know the parameter say everything but the end of the list.
                Err(Piece::Silent) if initial => return Err(End::Simpler(Listing::Pages)),
                Err(Piece::Silent) if settled => return Ok(()),
                Err(Piece::Silent) => {}
                Err(Piece::Broken(why)) => return Err(End::Broken(why)),
            }
            while let Some(line) = lines.next().map_err(unreadable)? {
                self.line(&line, &mut initial).await?;
            }
            if !std::mem::replace(&mut settled, true) {
                self.state.out.synced();
            }
        }
    }

    fn watch_path(&self, initial: bool, lasting: Duration) -> String {
        let seconds = lasting.as_secs().max(1).to_string();
        let (send, matching) = if initial { ("true", "NotOlderThan") } else { ("", "") };
        let query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", &seconds),
            ("sendInitialEvents", send),
            ("resourceVersionMatch", matching),
            ("resourceVersion", self.state.position.as_deref().unwrap_or_default()),
        ];
        path::query(&self.state.what, &query)
    }

    /// Makes an event of a line.
    async fn line(&mut self, line: &[u8], initial: &mut bool) -> Result<(), End> {
        let Line { kind, object } = serde_json::from_slice(line).map_err(unreadable)?;
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
                self.say(event).await?;
                if !*initial {
                    self.move_on(revision);
                }
            }
            "BOOKMARK" => {
                let note: Note = serde_json::from_slice(json).map_err(unreadable)?;
                if !*initial {
                    self.check(&note.metadata.resource_version)?;
                    self.move_on(note.metadata.resource_version);
                } else if note.ends_initial() {
                    self.listed(note).await?;
                    *initial = false;
                }
            }
            "ERROR" => {
                let note: Note = serde_json::from_slice(json).map_err(unreadable)?;
                return Err(refusal(note.code, &note.message, Duration::ZERO));
            }
            other => tracing::debug!(watch = %self.state.what, other, "an event of a type that is not known"),
        }
        Ok(())
    }

    /// A server that was brought back from a backup counts anew, and would keep silent about everything up to our position.
    fn check(&self, revision: &str) -> Result<(), End> {
        let position = self.state.position.as_deref().unwrap_or_default();
        match (position.parse::<u64>(), revision.parse::<u64>()) {
            (Ok(before), Ok(now)) if now < before => {
                Err(End::Expired(format!("the server's history went back from {before} to {now}")))
            }
            _ => Ok(()),
        }
    }

    fn move_on(&mut self, revision: String) {
        self.state.progress = true;
        if !revision.is_empty() {
            self.state.position = Some(revision);
        }
    }

    async fn say(&self, event: Event) -> Result<(), End> {
        if self.state.out.send(event).await { Ok(()) } else { Err(End::Unheard) }
    }

    /// Sends a request; an answer that says no is an end.
    async fn open(&mut self, path: &str) -> Result<Response<Incoming>, End> {
        let asked = timeout(self.timing.answer, self.client.open(Method::GET, path, None, Bytes::new())).await;
        let response = match asked {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(End::Broken(error.to_string())),
            Err(_) => return Err(End::Broken(format!("no answer within {:?}", self.timing.answer))),
        };
        if response.status() == StatusCode::OK {
            self.state.heard = Instant::now();
            return Ok(response);
        }
        let code = response.status().as_u16();
        let wait = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let wait = Duration::from_secs(wait.unwrap_or_default()).min(LONGEST_WAIT);
        let (mut body, mut text) = (response.into_body(), Vec::new());
        while let Ok(Some(bytes)) = piece(&mut body, self.timing.answer).await {
            text.extend_from_slice(&bytes);
            if text.len() > REFUSAL {
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
async fn piece(body: &mut Incoming, patience: Duration) -> Result<Option<Bytes>, Piece> {
    loop {
        let frame = match timeout(patience, body.frame()).await {
            Err(_) => return Err(Piece::Silent),
            Ok(None) => return Ok(None),
            Ok(Some(Err(error))) => return Err(Piece::Broken(full(&error))),
            Ok(Some(Ok(frame))) => frame,
        };
        // What is no data are trailers, which say nothing here.
        if let Ok(bytes) = frame.into_data() {
            return Ok(Some(bytes));
        }
    }
}

/// Why there is no next piece.
enum Piece {
    Silent,
    Broken(String),
}

fn broken(piece: Piece) -> End {
    match piece {
        Piece::Silent => End::Broken("the server went silent within a list".to_owned()),
        Piece::Broken(why) => End::Broken(why),
    }
}

fn unreadable(error: impl std::fmt::Display) -> End {
    End::Unreadable(format!("what the server sent cannot be read: {error}"))
}

/// What an answer that is no means for a watch.
fn refusal(code: u16, message: &str, wait: Duration) -> End {
    let why = if message.is_empty() { format!("the server answers {code}") } else { format!("{code}: {message}") };
    match code {
        // 504: a position that is ahead of the server, which was brought back from a backup.
        410 | 504 => End::Expired(why),
        403 | 404 => End::Absent(why),
        _ => End::Refused { code, why, wait },
    }
}

/// An object of a list or an event; one without a name is left out and said.
fn read(json: &[u8]) -> Result<Option<Slim>, End> {
    let slim = slim(json).map_err(unreadable)?;
    if slim.is_none() {
        tracing::warn!("an object without a name was left out");
    }
    Ok(slim)
}
