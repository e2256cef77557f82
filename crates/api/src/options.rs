//! The options of a request: query parameters (or the body of a DELETE) flow in, checked options flow out.
//!
//! Parameters are parsed as kube-apiserver parses them: the first of a repeated one counts (all of `dryRun`),
//! anything but `0` and `false` is true, and invalid values are reported with the messages of Kubernetes, about an
//! object of kind `CreateOptions`, `DeleteOptions` and so on.

#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::field::{Errors, Path, quote};
use crate::status::Status;
use crate::value::ValueExt as _;

/// The query of a request, decoded, in order.
pub type Query = [(String, String)];

const MANAGER_LIMIT: usize = 128;

/// What is done about fields that are unknown or given twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FieldValidation {
    /// Nothing.
    Ignore,
    /// A warning each.
    #[default]
    Warn,
    /// The request is refused.
    Strict,
}

/// Options of a create, an update or a patch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WriteOptions {
    /// Do everything but write.
    pub dry_run: bool,
    /// The field manager; empty: taken from the user agent.
    pub field_manager: String,
    /// What is done about unknown fields.
    pub field_validation: FieldValidation,
    /// Take fields over from other managers (apply only).
    pub force: bool,
}

/// What happens to the dependents of a deleted object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Propagation {
    /// They go first.
    Foreground,
    /// They go later.
    Background,
    /// They stay.
    Orphan,
}

/// Options of a delete.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeleteOptions {
    /// How long the object may take to end.
    pub grace_period_seconds: Option<i64>,
    /// What happens to dependents.
    pub propagation: Option<Propagation>,
    /// The older way to say that dependents stay.
    pub orphan_dependents: Option<bool>,
    /// Only delete the object with this uid.
    pub uid: Option<String>,
    /// Only delete the object in this version.
    pub resource_version: Option<String>,
    /// Do everything but delete.
    pub dry_run: bool,
}

// === impl WriteOptions ===

impl WriteOptions {
    /// Options of a create.
    ///
    /// # Errors
    /// 422 when a value is not acceptable.
    pub fn create(query: &Query) -> Result<Self, Status> {
        Self::parse(query, "CreateOptions", Errors::default())
    }

    /// Options of an update.
    ///
    /// # Errors
    /// 422 when a value is not acceptable.
    pub fn update(query: &Query) -> Result<Self, Status> {
        Self::parse(query, "UpdateOptions", Errors::default())
    }

    /// Options of a patch; `apply` is set for server-side apply.
    ///
    /// # Errors
    /// 422 when a value is not acceptable.
    pub fn patch(query: &Query, apply: bool) -> Result<Self, Status> {
        let mut errors = Errors::default();
        if apply && first(query, "fieldManager").unwrap_or_default().is_empty() {
            errors.required(&Path::Root("fieldManager"), "is required for apply patch");
        }
        let force = first(query, "force").map(truth);
        if !apply && force.is_some() {
            errors.forbidden(&Path::Root("force"), "may not be specified for non-apply patch");
        }
        Ok(Self { force: force.unwrap_or_default(), ..Self::parse(query, "PatchOptions", errors)? })
    }

    fn parse(query: &Query, kind: &str, mut errors: Errors) -> Result<Self, Status> {
        let field_manager = first(query, "fieldManager").unwrap_or_default();
        check_manager(&Path::Root("fieldManager"), field_manager, &mut errors);
        let dry_run = check_dry_run(&all(query, "dryRun"), &mut errors);
        let validation = first(query, "fieldValidation").unwrap_or_default();
        let field_validation = FieldValidation::parse(validation).unwrap_or_else(|| {
            let known = ["", "Ignore", "Strict", "Warn"];
            errors.not_supported(&Path::Root("fieldValidation"), validation, &known);
            FieldValidation::default()
        });
        refuse(kind, &errors)?;
        Ok(Self { dry_run, field_manager: field_manager.to_owned(), field_validation, force: false })
    }
}

impl FieldValidation {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "" | "Warn" => Some(Self::Warn),
            "Ignore" => Some(Self::Ignore),
            "Strict" => Some(Self::Strict),
            _ => None,
        }
    }
}

// === impl DeleteOptions ===

impl DeleteOptions {
    /// Options in the query: they count when there is no body.
    ///
    /// # Errors
    /// 400 or 422 when a value is not acceptable.
    pub fn from_query(query: &Query) -> Result<Self, Status> {
        let grace = first(query, "gracePeriodSeconds").map(parse_int).transpose().map_err(Status::bad_request)?;
        let given = |name| first(query, name).filter(|text| !text.is_empty()).map(str::to_owned);
        let options = Self {
            grace_period_seconds: grace,
            orphan_dependents: first(query, "orphanDependents").map(truth),
            uid: given("uid"),
            resource_version: given("resourceVersion"),
            ..Self::default()
        };
        options.checked(first(query, "propagationPolicy"), &all(query, "dryRun"))
    }

    /// Options in the body, whose shape was checked against `meta.DeleteOptions`.
    ///
    /// # Errors
    /// 422 when a value is not acceptable.
    pub fn from_value(value: &Value) -> Result<Self, Status> {
        let text = |path| value.at(path).as_str().map(str::to_owned);
        let options = Self {
            grace_period_seconds: value.at("gracePeriodSeconds").as_i64(),
            orphan_dependents: value.at("orphanDependents").as_bool(),
            uid: text("preconditions.uid"),
            resource_version: text("preconditions.resourceVersion"),
            ..Self::default()
        };
        options.checked(value.at("propagationPolicy").as_str(), &value.texts("dryRun"))
    }

    fn checked(mut self, policy: Option<&str>, dry_run: &[&str]) -> Result<Self, Status> {
        let mut errors = Errors::default();
        if let Some(word) = policy {
            let path = Path::Root("propagationPolicy");
            if self.orphan_dependents.is_some() {
                errors.invalid(&path, word, "orphanDependents and deletionPropagation cannot be both set");
            }
            self.propagation = match word {
                "Foreground" => Some(Propagation::Foreground),
                "Background" => Some(Propagation::Background),
                "Orphan" => Some(Propagation::Orphan),
                _ => {
                    errors.not_supported(&path, word, &["Foreground", "Background", "Orphan", "nil"]);
                    None
                }
            };
        }
        self.dry_run = check_dry_run(dry_run, &mut errors);
        refuse("DeleteOptions", &errors)?;
        Ok(self)
    }
}

// === helpers ===

/// The first value of a parameter.
pub(crate) fn first<'q>(query: &'q Query, name: &str) -> Option<&'q str> {
    query.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
}

fn all<'q>(query: &'q Query, name: &str) -> Vec<&'q str> {
    query.iter().filter(|(have, _)| have == name).map(|(_, value)| value.as_str()).collect()
}

/// A flag: present means true, unless its value is false.
pub(crate) fn truth(text: &str) -> bool {
    text != "0" && !text.eq_ignore_ascii_case("false")
}

/// A signed number, or Go's error message.
pub(crate) fn parse_int(text: &str) -> Result<i64, String> {
    text.parse::<i64>().map_err(|error| number_error("ParseInt", text, error.kind()))
}

/// An unsigned number, or Go's error message.
pub(crate) fn parse_uint(text: &str) -> Result<u64, String> {
    if text.starts_with('+') {
        return Err(number_error("ParseUint", text, &std::num::IntErrorKind::InvalidDigit));
    }
    text.parse::<u64>().map_err(|error| number_error("ParseUint", text, error.kind()))
}

fn number_error(function: &str, text: &str, kind: &std::num::IntErrorKind) -> String {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let why = if matches!(kind, PosOverflow | NegOverflow) { "value out of range" } else { "invalid syntax" };
    format!("strconv.{function}: parsing {}: {why}", quote(text))
}

/// 422 when there are errors.
pub(crate) fn refuse(kind: &str, errors: &Errors) -> Result<(), Status> {
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid("meta.k8s.io", kind, "", errors)) }
}

/// Checks the name of a field manager: short and printable.
pub fn check_manager(path: &Path<'_>, manager: &str, errors: &mut Errors) {
    if manager.len() > MANAGER_LIMIT {
        errors.too_long(path, MANAGER_LIMIT);
    }
    for (position, c) in manager.char_indices().filter(|(_, c)| !printable(*c)) {
        let detail = format!("invalid character U+{:04X} (at position {position})", u32::from(c));
        errors.invalid(path, manager, &detail);
    }
}

/// Letters, marks, numbers, punctuation, symbols and the space: what the standard library does not escape.
fn printable(c: char) -> bool {
    // A mark is only escaped at the start of a text, so one stands in front.
    matches!(c, '"' | '\'' | '\\') || ['a', c].iter().collect::<String>().escape_debug().eq(['a', c])
}

fn check_dry_run(values: &[&str], errors: &mut Errors) -> bool {
    if values.iter().any(|value| *value != "All") {
        errors.not_supported(&Path::Root("dryRun"), Value::from(values), &["All"]);
    }
    !values.is_empty()
}
