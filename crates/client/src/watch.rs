//! A watch: the events of a selection of objects, and whether they are in sync.
//!
//! In: a [`Selection`]. Out: [`Event`]s through a [`Watch`], from a [`Source`]: an API server over HTTP ([`crate::remote`]) or the store of
//! the same process (`rest::local`).
//!
//! ```text
//! Init ─▶ InitApply … ─▶ InitDone ─▶ Apply, Delete …
//!   ▲_________│______________________________│     resourceVersion expired, or the list was interrupted
//! ```
//! Between `Init` and `InitDone` the list is incomplete: an object that is missing from it must not be treated as deleted
//! ([`KnownKeys`]); `Delete` may occur before `InitDone`. A source retries for ever with backoff; while it is out of sync,
//! [`WatchStatus`] has the time and the reason, and the last known state remains.

mod channel;
mod known_keys;

use std::fmt;

use api::kind::Kind;
use api::selector::{self, Selector};
use api::status::Status;
use bytes::Bytes;

pub use channel::{Health, OutOfSync, Watch, WatchSender, WatchStatus};
pub use known_keys::KnownKeys;

/// An event of a watch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A list begins. Once complete it replaces the objects known before.
    Init,
    /// An object of the list.
    InitApply(Object),
    /// The list is complete.
    InitDone,
    /// An object is new, or has changed.
    Apply(Object),
    /// An object was deleted or is no longer selected: a tombstone with its last known state.
    Delete(Object),
}

/// An object, not decoded: most consumers need a few of its fields.
#[derive(Clone, PartialEq, Eq)]
pub struct Object {
    /// Its namespace; empty when it has none.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its JSON in stored form ([`api::object`]): `metadata` first, without `kind`, `apiVersion` and `resourceVersion`. Objects of
    /// a remote server are without `managedFields`, too.
    pub value: Bytes,
}

impl Object {
    /// `namespace/name`, or `name` alone: its name in the store.
    #[must_use]
    pub fn key(&self) -> String {
        if self.namespace.is_empty() { self.name.to_string() } else { format!("{}/{}", self.namespace, self.name) }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.key())
    }
}

/// The objects to watch: a kind, a namespace, selectors.
#[derive(Clone)]
pub struct Selection {
    /// The kind.
    pub kind: &'static Kind,
    namespace: String,
    labels: String,
    fields: String,
    selector: Selector,
    is_single: bool,
    absence: Absence,
}

/// What it means that a server does not serve what is selected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Absence {
    /// The watch fails.
    Failure,
    /// There are no objects if the server does not have the kind; it must not forbid it.
    EmptyIfUnknown,
    /// There are no objects.
    Empty,
}

impl Selection {
    /// Every object of a kind.
    #[must_use]
    pub fn all(kind: &'static Kind) -> Self {
        let (namespace, labels, fields) = Default::default();
        Self {
            kind,
            namespace,
            labels,
            fields,
            selector: Selector::default(),
            is_single: false,
            absence: Absence::Failure,
        }
    }

    /// Only those of a namespace.
    #[must_use]
    pub fn within(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// Only those that match both selectors, in the syntax of requests; empty selectors match all.
    ///
    /// # Errors
    /// 400, when a text cannot be parsed or names a field that the kind does not have.
    pub fn selected(mut self, labels: &str, fields: &str) -> Result<Self, Status> {
        self.selector = selector::parse(self.kind, labels, fields)?;
        (self.labels, self.fields) = (labels.to_owned(), fields.to_owned());
        Ok(self)
    }

    /// Only the object of this name.
    ///
    /// # Errors
    /// 400, when the name is not valid in a selector.
    pub fn named(self, name: &str) -> Result<Self, Status> {
        Ok(Self { is_single: true, ..self.selected("", &format!("metadata.name={name}"))? })
    }

    /// A server that does not serve the kind, or forbids it, counts as having no objects of it, instead of failing the watch.
    #[must_use]
    pub const fn optional(mut self) -> Self {
        self.absence = Absence::Empty;
        self
    }

    /// A server without the kind counts as having no objects of it; one that forbids it fails the watch. For objects whose
    /// absence would permit something.
    #[must_use]
    pub const fn optional_if_permitted(mut self) -> Self {
        self.absence = Absence::EmptyIfUnknown;
        self
    }

    /// The namespace; empty for all.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The label selector; empty for all.
    #[must_use]
    pub fn labels(&self) -> &str {
        &self.labels
    }

    /// The field selector; empty for all.
    #[must_use]
    pub fn fields(&self) -> &str {
        &self.fields
    }

    /// Both selectors, parsed.
    #[must_use]
    pub const fn selector(&self) -> &Selector {
        &self.selector
    }

    /// Whether a response with this status code, 403 or 404, means that there are no objects.
    #[must_use]
    pub const fn is_empty_at(&self, code: u16) -> bool {
        match self.absence {
            Absence::Failure => false,
            Absence::EmptyIfUnknown => code == 404,
            Absence::Empty => true,
        }
    }

    /// Whether it is one object, by its name.
    #[must_use]
    pub const fn is_single(&self) -> bool {
        self.is_single
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind.resource().plural_group())?;
        let parts = [("in", &self.namespace), ("labelled", &self.labels), ("with", &self.fields)];
        parts.iter().filter(|(_, text)| !text.is_empty()).try_for_each(|(word, text)| write!(f, " {word} {text}"))
    }
}

impl fmt::Debug for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Selection({self})")
    }
}

/// A source of watches.
pub trait Source: Send + Sync {
    /// Starts a watch on the current tokio runtime; it runs until the [`Watch`] is dropped.
    fn watch(&self, selection: Selection) -> Watch;
}
