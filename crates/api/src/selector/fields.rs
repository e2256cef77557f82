//! Field selectors: `metadata.name=a,spec.type!=NodePort`.
//!
//! Terms are comma-separated; a backslash escapes a comma, an equals sign or a backslash in a value. Which fields
//! exist, and the error message for others, depend on the kind.

use crate::facts::Facts;
use crate::field::quote;
use crate::kind::Kind;

/// Terms as written: field, equal or not, value.
pub type Terms = Vec<(String, bool, String)>;

/// One term, with the field found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Requirement {
    place: Place,
    equal: bool,
    value: Box<str>,
}

/// Where the value of a field is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Name,
    Namespace,
    Fact(usize),
}

/// Kinds with their own list of fields, and with it their own error message for others. The flag is whether
/// `metadata.namespace` is on the list. All other kinds support only name and namespace.
const OWN_FIELDS: &[(&str, &str, bool)] = &[
    ("", "Event", true),
    ("", "Namespace", false),
    ("", "Node", false),
    ("", "Pod", true),
    ("", "ReplicationController", true),
    ("", "Secret", true),
    ("", "Service", true),
    ("certificates.k8s.io", "CertificateSigningRequest", false),
    ("events.k8s.io", "Event", true),
];

/// Other names of fields, for old clients.
const ALIASES: &[(&str, &str, &str)] = &[("Pod", "spec.host", "spec.nodeName")];

/// Reads the text.
pub(super) fn parse(text: &str) -> Result<Terms, String> {
    let mut terms = split(text);
    // kube-apiserver sorts, which decides what it reports first.
    terms.sort_unstable();
    let mut out = Terms::new();
    for term in terms.into_iter().filter(|term| !term.is_empty()) {
        let Some((field, equal, value)) = cut(term) else {
            return Err(format!("invalid selector: '{text}'; can't understand '{term}'"));
        };
        out.push((field.to_owned(), equal, unescape(value)?));
    }
    Ok(out)
}

/// Finds the fields in the kind's table.
pub(super) fn resolve(kind: &Kind, terms: Terms) -> Result<Vec<Requirement>, String> {
    terms
        .into_iter()
        .map(|(field, equal, value)| Ok(Requirement { place: find(kind, &field)?, equal, value: value.into() }))
        .collect()
}

fn find(kind: &Kind, field: &str) -> Result<Place, String> {
    let own = OWN_FIELDS.iter().find(|(group, name, _)| *group == kind.group && *name == kind.kind);
    let (known, namespaced) = own.map_or((false, true), |(_, _, namespaced)| (true, *namespaced));
    let alias = ALIASES.iter().find(|(name, alias, _)| *name == kind.kind && *alias == field);
    let wanted = alias.map_or(field, |(_, _, meant)| *meant);
    match wanted {
        "metadata.name" => return Ok(Place::Name),
        "metadata.namespace" if namespaced => return Ok(Place::Namespace),
        _ => {}
    }
    match kind.selectable.iter().position(|selectable| selectable.label == wanted) {
        Some(index) => Ok(Place::Fact(index)),
        None if known || (!kind.selectable.is_empty() && kind.is_custom()) => {
            Err(format!("field label not supported: {field}"))
        }
        None if (kind.group, kind.kind) == ("batch", "Job") => {
            Err(format!("field label {} not supported for Job", quote(field)))
        }
        None => {
            let field = quote(field);
            Err(format!("{field} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""))
        }
    }
}

/// The text between the commas that are not escaped.
fn split(text: &str) -> Vec<&str> {
    let (mut out, mut start, mut escaped) = (Vec::new(), 0, false);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                out.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    out.push(&text[start..]);
    out
}

/// The term at its first operator.
fn cut(term: &str) -> Option<(&str, bool, &str)> {
    term.match_indices(['!', '=']).find_map(|(index, _)| {
        let (field, rest) = term.split_at(index);
        if let Some(value) = rest.strip_prefix("!=") {
            return Some((field, false, value));
        }
        rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')).map(|value| (field, true, value))
    })
}

fn unescape(value: &str) -> Result<String, String> {
    let invalid = |sequence: String| Err(format!("invalid field selector: invalid escape sequence: {sequence}"));
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => return invalid(format!("\\{c}")),
                None => return invalid("\\".to_owned()),
            },
            ',' | '=' => {
                return Err(format!("invalid field selector: unescaped character in value: {}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

// === impl Requirement ===

impl Requirement {
    /// Whether it selects a field of the kind.
    pub(super) fn is_fact(&self) -> bool {
        matches!(self.place, Place::Fact(_))
    }

    /// The term `metadata.name=name`.
    pub(super) fn named(name: &str) -> Self {
        Self { place: Place::Name, equal: true, value: name.into() }
    }

    pub(super) fn matches(&self, facts: &Facts, namespace: &str, name: &str) -> bool {
        let have = match self.place {
            Place::Name => name,
            Place::Namespace => namespace,
            Place::Fact(index) => facts.fields.get(index).map_or("", |value| value),
        };
        (have == &*self.value) == self.equal
    }

    pub(super) fn name(&self) -> Option<&str> {
        (self.equal && self.place == Place::Name).then_some(&self.value)
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        (self.equal && self.place == Place::Namespace).then_some(&self.value)
    }
}
