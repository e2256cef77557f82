//! Validates values against a schema, with the messages of kube-apiserver.
//!
//! In: a value after pruning and defaulting, on updates the old one too. Out: field errors. Nothing is allocated for a
//! value without errors, except where alternatives (`anyOf`, `oneOf`, `not`) are tried.

mod junctor;
mod number;
mod value;

use std::collections::HashSet;
use std::fmt;

use serde_json::Value;

use super::ratchet::Change;
use super::{Structural, lists, metadata};
use crate::field::{Errors, FieldError, Path};

/// Maximum number of errors; more give no new information, and would take more memory than the request.
const MAX_ERRORS: usize = 10_000;

impl Structural {
    /// Checks an object: its values, then embedded resources, then uniqueness in lists. On updates, errors of unchanged
    /// values are dropped. `path` is where the value stands, if it is not the root of an object.
    pub fn validate(&self, object: &Value, old: Option<&Value>, path: Option<&Path<'_>>, errors: &mut Errors) {
        self.validate_values(object, old, path, errors);
        metadata::validate(self, object, self.embedded, path, errors);
        self.validate_lists(object, old, errors);
    }

    /// Checks only the values. Names in messages are relative to `path`, as those of `status` are.
    pub fn validate_values(&self, value: &Value, old: Option<&Value>, path: Option<&Path<'_>>, errors: &mut Errors) {
        self.check_values(value, old, Context { path, raw: false }, errors);
    }

    /// Checks only `apiVersion`, `kind` and `metadata` of embedded resources.
    pub fn validate_embedded(&self, object: &Value, errors: &mut Errors) {
        metadata::validate_embedded(self, object, errors);
    }

    /// Checks only that elements of sets and keys of lists that are maps are unique, in the root of an object.
    pub fn validate_lists(&self, object: &Value, old: Option<&Value>, errors: &mut Errors) {
        lists::validate(self, object, old, errors);
    }

    /// Checks a default. Here `x-kubernetes-int-or-string` does not restrict the type.
    pub(super) fn validate_default(&self, value: &Value, path: &Path<'_>, errors: &mut Errors) {
        self.check_values(value, None, Context { path: Some(path), raw: true }, errors);
    }

    fn check_values(&self, value: &Value, old: Option<&Value>, context: Context<'_>, errors: &mut Errors) {
        let mut report = Report::default();
        context.node(self, value, &Name::Root, None, &mut report);
        if !report.is_valid()
            && let Some(old) = old
        {
            // Only now is it worth looking for what changed.
            report = Report::default();
            context.node(self, value, &Name::Root, Some(Change { schema: self, new: value, old }), &mut report);
        }
        let mut seen = HashSet::new();
        let unique: Vec<bool> = report.errors.iter().map(|error| seen.insert((&error.field, &error.body))).collect();
        let mut unique = unique.into_iter();
        errors.0.extend(report.errors.into_iter().filter(|_| unique.next().unwrap_or(true)));
    }
}

/// What holds for a whole validation.
#[derive(Clone, Copy)]
struct Context<'c> {
    /// The path of the value, if it is not the root of an object.
    path: Option<&'c Path<'c>>,
    /// `x-kubernetes-int-or-string` does not restrict the type.
    raw: bool,
}

/// The place of a value below the one that is validated.
#[derive(Clone, Copy)]
enum Name<'n> {
    Root,
    /// A property.
    Property(&'n Self, &'n str),
    /// A further property.
    Further(&'n Self, &'n str),
    Element(&'n Self, usize),
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Property(Self::Root, name) => f.write_str(name),
            Self::Property(parent, name) | Self::Further(parent, name) => write!(f, "{parent}.{name}"),
            Self::Element(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// What a validation found.
#[derive(Default)]
struct Report {
    errors: Vec<FieldError>,
    /// How many errors there are, also those that were not kept.
    failures: usize,
    /// How many checks passed; decides which alternative came closest.
    matches: usize,
}

impl Report {
    fn is_valid(&self) -> bool {
        self.failures == 0
    }

    fn push(&mut self, error: FieldError) {
        self.failures += 1;
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(error);
        }
    }

    fn merge(&mut self, mut other: Self) {
        self.failures += other.failures;
        self.matches += other.matches;
        other.errors.truncate(MAX_ERRORS.saturating_sub(self.errors.len()));
        self.errors.append(&mut other.errors);
    }
}

impl Context<'_> {
    /// An error about the value called `name`.
    fn fail(&self, report: &mut Report, reason: &'static str, name: &Name<'_>, body: String) {
        let name = name.to_string();
        let below = name.strip_prefix('.').unwrap_or(&name);
        let field = match (self.path, below) {
            (None, "") => "<nil>".to_owned(),
            (None, below) => below.to_owned(),
            (Some(path), "") => path.to_string(),
            (Some(path), below) => format!("{path}.{below}"),
        };
        report.push(FieldError { reason, field, body });
    }

    /// A value that is not acceptable.
    fn invalid(&self, report: &mut Report, name: &Name<'_>, shown: &str, detail: &str) {
        self.fail(report, "FieldValueInvalid", name, format!("Invalid value: {shown}: {name} in body {detail}"));
    }

    /// An error that names no field.
    fn general(&self, report: &mut Report, detail: &str) {
        self.fail(report, "FieldValueInvalid", &Name::Root, format!("Invalid value: \"\": {detail}"));
    }
}
