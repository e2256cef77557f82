//! A watch, wherever it comes from: five events, and a word on how well it goes.
//!
//! In: [`What`] somebody wants to know of. Out: [`Event`]s of its present and its future, through a [`Watching`]. The store of
//! this process ([`Local`]) and a server elsewhere (`rest::remote`) say the same things in the same order, so that whoever
//! listens need not know where it runs:
//!
//! ```text
//! Init ─▶ InitApply … ─▶ InitDone ─▶ Apply, Delete …
//!   ▲_________│______________________________│     history was forgotten, or a list broke off
//! ```
//! Between `Init` and `InitDone` the listener knows only a part and must not act on what is missing ([`Known`]); an object that
//! goes meanwhile may be deleted before the list is complete. A source never gives up: what goes wrong is told through
//! [`Watched`], and once in the log, while what was said stays as it is.

mod known;
mod local;
#[cfg(test)]
mod tests;
mod watching;

use std::fmt;

use api::kind::Kind;
use api::selector::{self, Selector};
use api::status::Status;
use bytes::Bytes;

pub use known::Known;
pub use local::Local;
pub use watching::{Feeder, Health, Lost, Watched, Watching};

/// What a watch says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A list begins. It replaces everything that was said before, once it is complete.
    Init,
    /// An object of the list.
    InitApply(Object),
    /// The list is complete.
    InitDone,
    /// An object is new, or has changed.
    Apply(Object),
    /// An object is gone, or no longer selected; this is how it was last seen.
    Delete(Object),
}

/// An object, not decoded: most listeners need a few of its fields.
#[derive(Clone, PartialEq, Eq)]
pub struct Object {
    /// Its namespace; empty when it has none.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its JSON in stored form ([`api::object`]): `metadata` first, without `kind`, `apiVersion` and `resourceVersion`. What
    /// came over the network is without `managedFields` too.
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

/// What to watch: a kind, and which of its objects.
#[derive(Clone)]
pub struct What {
    /// The kind.
    pub kind: &'static Kind,
    namespace: String,
    labels: String,
    fields: String,
    selector: Selector,
    optional: bool,
}

impl What {
    /// Every object of a kind.
    #[must_use]
    pub fn all(kind: &'static Kind) -> Self {
        let (namespace, labels, fields) = Default::default();
        Self { kind, namespace, labels, fields, selector: Selector::default(), optional: false }
    }

    /// Only those of a namespace.
    #[must_use]
    pub fn within(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// Only those that both selectors mean, as requests write them; empty texts mean all.
    ///
    /// # Errors
    /// 400, when a text cannot be read or names a field that the kind does not know.
    pub fn selected(mut self, labels: &str, fields: &str) -> Result<Self, Status> {
        self.selector = selector::parse(self.kind, labels, fields)?;
        (self.labels, self.fields) = (labels.to_owned(), fields.to_owned());
        Ok(self)
    }

    /// Only the one of this name. Names that no object can have are refused, as selectors would mean something else by them.
    ///
    /// # Errors
    /// 400, when the name cannot stand in a selector.
    pub fn named(self, name: &str) -> Result<Self, Status> {
        self.selected("", &format!("metadata.name={name}"))
    }

    /// A server that does not know the kind, or does not let us see it, has none of it. Otherwise it is a watch that fails.
    #[must_use]
    pub const fn optional(mut self) -> Self {
        self.optional = true;
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

    /// Both selectors, read.
    #[must_use]
    pub const fn selector(&self) -> &Selector {
        &self.selector
    }

    /// Whether a server may lack the kind.
    #[must_use]
    pub const fn is_optional(&self) -> bool {
        self.optional
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind.resource().plural_group())?;
        let parts = [("in", &self.namespace), ("labelled", &self.labels), ("with", &self.fields)];
        parts.iter().filter(|(_, text)| !text.is_empty()).try_for_each(|(word, text)| write!(f, " {word} {text}"))
    }
}

impl fmt::Debug for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "What({self})")
    }
}

/// A place from which objects come.
pub trait Source: Send + Sync {
    /// Begins a watch; to be called inside a tokio runtime, on which it runs until the [`Watching`] is dropped.
    fn watch(&self, what: What) -> Watching;
}
