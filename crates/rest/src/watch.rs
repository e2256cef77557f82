//! Watches: events of the store in, a stream of encoded events out.
//!
//! The common event (JSON, no transform, no selector transition) is encoded once and shared by all watches through a cache in the
//! event. Watches pull: a slow one holds a position in the history, not a queue, and one that falls behind the history gets 410.

use std::sync::Arc;
use std::time::Duration;

use api::kind::Kind;
use api::selector::Selector;
use api::status::Status;
use api::value::ValueExt as _;
use api::{proto, schema};
use bytes::Bytes;
use serde_json::{Value, json};
use store::{Entry, Event, Watch};
use tokio::time::Instant;

use crate::conversion::{self, Converter};
use crate::negotiate::{Media, Transform};
use crate::view::{self, View};

/// The interval of bookmarks on an idle watch.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// How long before its end a watch sends its last bookmark.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// The largest size of one write, in bytes.
const CHUNK: usize = 64 * 1024;

/// The options of a watch.
pub(crate) struct Plan {
    pub(crate) kind: &'static Kind,
    pub(crate) selector: Selector,
    pub(crate) view: View,
    /// Converts objects of events.
    pub(crate) conversion: Arc<Converter>,
    /// The initial objects.
    pub(crate) initial: Vec<Arc<Entry>>,
    /// The revision of the bookmark that ends the initial objects.
    pub(crate) initial_end: Option<u64>,
    pub(crate) bookmarks: bool,
    /// The watch starts after this revision.
    pub(crate) start: u64,
    pub(crate) timeout: Duration,
}

/// A running watch.
pub(crate) struct Feed {
    plan: Plan,
    initial: std::vec::IntoIter<Arc<Entry>>,
    watch: Watch,
    deadline: Instant,
    next_bookmark: Instant,
    reported: u64,
    columns_sent: bool,
    done: bool,
}

/// The type and the object of an event for one watch.
struct WatchEvent<'a> {
    kind: &'static str,
    entry: &'a Entry,
    revision: u64,
}

impl Feed {
    pub(crate) fn new(mut plan: Plan, watch: Watch) -> Self {
        let now = Instant::now();
        let (deadline, reported) = (now + plan.timeout, plan.start);
        let initial = std::mem::take(&mut plan.initial).into_iter();
        Self {
            plan,
            initial,
            watch,
            deadline,
            next_bookmark: now + BOOKMARK_PERIOD,
            reported,
            columns_sent: false,
            done: false,
        }
    }

    /// The next bytes to send; `None` when the watch is over.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        if let Some(bytes) = self.initial_chunk() {
            return Some(bytes);
        }
        loop {
            let last_call = self.deadline.checked_sub(LAST_BOOKMARK).unwrap_or(self.deadline);
            let bookmark_at =
                if Instant::now() < last_call { self.next_bookmark.min(last_call) } else { self.next_bookmark };
            let found = tokio::select! {
                biased;
                found = self.watch.next() => found,
                () = tokio::time::sleep_until(bookmark_at), if self.plan.bookmarks && bookmark_at < self.deadline => {
                    self.next_bookmark = Instant::now() + BOOKMARK_PERIOD;
                    if let Some(bytes) = self.bookmark() {
                        return Some(bytes);
                    }
                    continue;
                }
                () = tokio::time::sleep_until(self.deadline) => {
                    self.done = true;
                    return None;
                }
            };
            match found {
                Ok(events) => {
                    let events = match converted(&self.plan, events).await {
                        Ok(events) => events,
                        Err(status) => {
                            self.done = true;
                            return Some(error_event(&self.plan.view, &status));
                        }
                    };
                    let mut out = Vec::new();
                    for event in events {
                        self.write_event(&mut out, &event);
                    }
                    if !out.is_empty() {
                        return Some(out.into());
                    }
                }
                Err(compacted) => {
                    self.done = true;
                    return Some(expired(&self.plan.view, compacted.requested, compacted.oldest));
                }
            }
        }
    }

    fn initial_chunk(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        while out.len() < CHUNK {
            let Some(entry) = self.initial.next() else { break };
            let watch_event = WatchEvent { kind: "ADDED", entry: &entry, revision: entry.modified };
            self.write_watch_event(&mut out, &watch_event);
        }
        if out.len() < CHUNK
            && let Some(revision) = self.plan.initial_end.take()
        {
            self.reported = revision;
            self.write_bookmark(&mut out, revision, true);
        }
        (!out.is_empty()).then(|| out.into())
    }

    fn bookmark(&mut self) -> Option<Bytes> {
        let position = self.watch.position();
        if position <= self.reported {
            return None;
        }
        self.reported = position;
        let mut out = Vec::new();
        self.write_bookmark(&mut out, position, false);
        Some(out.into())
    }

    fn write_event(&mut self, out: &mut Vec<u8>, event: &Event) {
        let Some(watch_event) = watch_event(self.plan.kind, &self.plan.selector, event) else { return };
        self.reported = self.reported.max(event.revision);
        let form = self.plan.view.form;
        let natural = event_type(event);
        // Two kinds may share a table; only the one that is stored as shown may use the cache.
        let shared = form.media == Media::Json
            && form.transform == Transform::None
            && watch_event.kind == natural
            && !self.plan.kind.reshapes(&watch_event.entry.value, watch_event.entry.modified);
        if shared {
            let line = event.encoded.get_or_init(|| {
                let mut line = Vec::with_capacity(watch_event.entry.value.len() + 160);
                write_json_line(&mut line, self.plan.kind, &watch_event);
                line.into()
            });
            out.extend_from_slice(line);
        } else {
            self.write_watch_event(out, &watch_event);
        }
    }

    fn write_watch_event(&mut self, out: &mut Vec<u8>, watch_event: &WatchEvent<'_>) {
        let form = self.plan.view.form;
        if form.media == Media::Json && form.transform == Transform::None {
            write_json_line(out, self.plan.kind, watch_event);
            return;
        }
        let object = view::read_at(self.plan.kind, watch_event.entry, watch_event.revision);
        self.write_object(out, watch_event.kind, object);
    }

    fn write_object(&mut self, out: &mut Vec<u8>, kind: &str, object: Value) {
        let shown = match self.plan.view.form.transform {
            Transform::Table { version } => {
                let meta = json!({"resourceVersion": object.text("metadata.resourceVersion")});
                let columns = !std::mem::replace(&mut self.columns_sent, true);
                self.plan.view.table(self.plan.kind, version, &meta, std::iter::once(object), columns)
            }
            _ => match self.plan.view.transformed(self.plan.kind, object) {
                Ok(shown) => shown,
                Err(status) => status.to_value(),
            },
        };
        let view = &self.plan.view;
        write_value(out, view, kind, &shown, || view.encode(self.plan.kind, &shown));
    }

    fn write_bookmark(&mut self, out: &mut Vec<u8>, revision: u64, end_of_initial: bool) {
        let kind = self.plan.kind;
        let mut object = json!({"metadata": {"resourceVersion": revision.to_string()}});
        if end_of_initial {
            object.put("metadata.annotations", json!({"k8s.io/initial-events-end": "true"}));
        }
        kind.normalize(&mut object);
        object.put("kind", kind.kind);
        object.put("apiVersion", kind.api_version());
        self.write_object(out, "BOOKMARK", object);
    }
}

/// Events with their objects in the version of the watch; all that are pending are converted together.
async fn converted(plan: &Plan, events: Vec<Arc<Event>>) -> Result<Vec<Arc<Event>>, Status> {
    let (kind, selector) = (plan.kind, &plan.selector);
    if !conversion::applies(kind) {
        return Ok(events);
    }
    let events: Vec<_> = events.into_iter().filter(|event| may_select(selector, &event.entry)).collect();
    // The previous object decides about entering and leaving a selection, and is the one that a deletion shows.
    let needs_previous = |event: &Event| event.deleted || !selector.is_everything();
    let mut entries = Vec::new();
    for event in &events {
        entries.extend((!event.deleted).then(|| event.entry.clone()));
        entries.extend(event.previous.clone().filter(|_| needs_previous(event)));
    }
    let mut converted = plan.conversion.entries(kind, entries).await?.into_iter();
    let rebuilt = events.iter().map(|event| {
        let entry = if event.deleted { None } else { converted.next() };
        let entry = entry.unwrap_or_else(|| event.entry.clone());
        let previous = event.previous.clone();
        let previous = if needs_previous(event) { previous.and_then(|_| converted.next()) } else { previous };
        Arc::new(Event::new(event.revision, entry, previous, event.deleted))
    });
    Ok(rebuilt.collect())
}

/// The event for a watch with this selector: entering the selection is an addition, leaving it a deletion.
fn watch_event<'a>(kind: &Kind, selector: &Selector, event: &'a Event) -> Option<WatchEvent<'a>> {
    let matches = |entry: &Entry| selects(kind, selector, entry);
    let before = event.previous.as_deref().filter(|entry| matches(entry));
    let after = (!event.deleted && matches(&event.entry)).then_some(&*event.entry);
    let revision = event.revision;
    match (before, after) {
        (None, None) => None,
        (None, Some(entry)) => Some(WatchEvent { kind: "ADDED", entry, revision }),
        (Some(_), Some(entry)) => Some(WatchEvent { kind: "MODIFIED", entry, revision }),
        (Some(entry), None) => Some(WatchEvent { kind: "DELETED", entry, revision }),
    }
}

/// Whether a selector may match an entry, by its name alone.
pub(crate) fn may_select(selector: &Selector, entry: &Entry) -> bool {
    let (namespace, name) = entry.key.name.split_once('/').unwrap_or(("", &entry.key.name));
    selector.name_requirement().is_none_or(|wanted| wanted == name)
        && selector.namespace_requirement().is_none_or(|wanted| wanted == namespace)
}

/// Whether a selector matches an entry. Fields of custom resources are not among the facts of the store.
pub(crate) fn selects(kind: &Kind, selector: &Selector, entry: &Entry) -> bool {
    let (namespace, name) = entry.key.name.split_once('/').unwrap_or(("", &entry.key.name));
    if selector.asks_for_fields() && kind.is_custom() {
        return selector.matches(&kind.all_facts(&view::read(kind, entry)), namespace, name);
    }
    selector.matches(&entry.facts, namespace, name)
}

fn event_type(event: &Event) -> &'static str {
    match (event.deleted, &event.previous) {
        (true, _) => "DELETED",
        (false, None) => "ADDED",
        (false, Some(_)) => "MODIFIED",
    }
}

fn write_json_line(out: &mut Vec<u8>, kind: &Kind, watch_event: &WatchEvent<'_>) {
    write_line(out, watch_event.kind, |out| {
        view::write_entry(out, kind, watch_event.entry, watch_event.revision, true);
    });
}

/// The type comes first, as in kube-apiserver: some clients inspect it before they parse the object.
fn write_line(out: &mut Vec<u8>, event_type: &str, write_object: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(event_type.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    write_object(out);
    out.extend_from_slice(b"}\n");
}

fn write_value(out: &mut Vec<u8>, view: &View, kind: &str, object: &Value, raw: impl FnOnce() -> Vec<u8>) {
    match view.form.media {
        Media::Protobuf => {
            let envelope = proto::encode_envelope(object.text("apiVersion"), object.text("kind"), &raw());
            out.extend_from_slice(&proto::encode_watch_frame(kind, &envelope));
        }
        Media::Json | Media::Yaml => {
            write_line(out, kind, |out| drop(serde_json::to_writer(out, object)));
        }
    }
}

/// The error event for compacted history.
pub(crate) fn expired(view: &View, requested: u64, oldest: u64) -> Bytes {
    let status = Status::expired(format!("too old resource version: {requested} ({oldest})"));
    error_event(view, &status)
}

/// An error event.
pub(crate) fn error_event(view: &View, status: &Status) -> Bytes {
    let mut out = Vec::new();
    let shown = status.to_value();
    write_value(&mut out, view, "ERROR", &shown, || proto::encode(schema::named("meta.Status"), &shown));
    out.into()
}

/// The content type of a stream.
pub(crate) fn content_type(media: Media) -> &'static str {
    match media {
        Media::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        Media::Json | Media::Yaml => "application/json",
    }
}
