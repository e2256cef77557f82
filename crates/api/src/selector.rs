//! Selectors: parses `labelSelector` and `fieldSelector` into a [`Selector`] that is matched against [`Facts`].
//!
//! Parsing is done once per request and may allocate; matching runs for every object of a list and every event of a
//! watch, and compares borrowed strings only. Field names are resolved to positions in the kind's table when parsing,
//! so a field that the kind does not support is rejected then, with the message of that kind.

mod fields;
mod labels;
mod object;
#[cfg(test)]
pub(crate) mod tests;

use crate::facts::Facts;
use crate::kind::Kind;
use crate::status::Status;

pub use self::fields::Terms;
pub use self::object::{from_map, from_object, from_requirements, text};

/// The selectors of a list, a watch or a delete of a collection; all of them must match.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selector {
    labels: Vec<labels::Requirement>,
    fields: Vec<fields::Requirement>,
}

/// Selectors whose syntax was checked, before the fields are resolved by the kind. kube-apiserver validates the other
/// options in between.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parsed {
    labels: Vec<labels::Requirement>,
    fields: Terms,
}

/// Reads both selectors of a request; empty texts select everything.
///
/// # Errors
/// 400, when a text cannot be parsed or names a field that the kind does not support.
pub fn parse(kind: &Kind, label: &str, field: &str) -> Result<Selector, Status> {
    read(label, field)?.resolve(kind)
}

/// Reads both selectors without asking the kind.
///
/// # Errors
/// 400, when a text cannot be read.
pub fn read(label: &str, field: &str) -> Result<Parsed, Status> {
    let labels = labels::parse(label).map_err(Status::bad_request)?;
    let fields = fields::parse(field).map_err(Status::bad_request)?;
    Ok(Parsed { labels, fields })
}

/// The terms of a field selector as they are written; none when it is invalid, which its use reports.
#[must_use]
pub fn field_terms(text: &str) -> Terms {
    fields::parse(text).unwrap_or_default()
}

impl Parsed {
    /// Finds the fields in the kind's table.
    ///
    /// # Errors
    /// 400, when the kind does not support one.
    pub fn resolve(self, kind: &Kind) -> Result<Selector, Status> {
        let fields = fields::resolve(kind, self.fields).map_err(Status::bad_request)?;
        Ok(Selector { labels: self.labels, fields })
    }
}

impl Selector {
    /// Whether an object with these facts is meant.
    #[must_use]
    pub fn matches(&self, facts: &Facts, namespace: &str, name: &str) -> bool {
        self.labels.iter().all(|label| label.matches(facts))
            && self.fields.iter().all(|field| field.matches(facts, namespace, name))
    }

    /// Whether it selects fields other than name and namespace.
    #[must_use]
    pub fn asks_for_fields(&self) -> bool {
        self.fields.iter().any(fields::Requirement::is_fact)
    }

    /// Whether every object is meant.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The only name that can match (`metadata.name=x`): a list is a look-up then.
    #[must_use]
    pub fn name_requirement(&self) -> Option<&str> {
        self.fields.iter().find_map(fields::Requirement::name)
    }

    /// The only namespace that can match (`metadata.namespace=x`).
    #[must_use]
    pub fn namespace_requirement(&self) -> Option<&str> {
        self.fields.iter().find_map(fields::Requirement::namespace)
    }

    /// Narrowed to one name, for paths that watch a single object.
    ///
    /// # Errors
    /// 400, when the field selector selects another one.
    pub fn with_name(mut self, name: &str) -> Result<Self, Status> {
        if self.fields.is_empty() {
            self.fields.push(fields::Requirement::named(name));
        } else if self.name_requirement() != Some(name) {
            return Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name"));
        }
        Ok(self)
    }
}
