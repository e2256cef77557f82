//! What a change of a definition may leave wrong because it was wrong before.

use serde_json::Value;

use super::spec::{Part, Spec};
use super::{conversion, selectable};
use crate::crd::condition;
use crate::structural::rules::Known;
use crate::structural::{Structural, check};
use crate::value::ValueExt as _;

/// Which checks apply.
pub(super) struct Options<'a> {
    /// The definition before the change; `None` on create.
    pub(super) old: Option<&'a Value>,
    /// A webhook must support a version of ConversionReview that the server supports.
    pub(super) known_review_version: bool,
    /// Scope and kind may not change.
    pub(super) immutable_names: bool,
    /// Every version needs a schema.
    pub(super) schemas: bool,
    /// Which checks of schemas apply.
    pub(super) schema_checks: check::Options,
    /// Rules that were there before.
    pub(super) known_expressions: Option<Known>,
    /// The CA bundle of a webhook may be unreadable.
    pub(super) any_ca_bundle: bool,
}

impl<'a> Options<'a> {
    /// Of a new definition.
    pub(super) fn create() -> Self {
        Self {
            old: None,
            known_review_version: true,
            immutable_names: false,
            schemas: true,
            schema_checks: check::Options::default(),
            known_expressions: None,
            any_ca_bundle: true,
        }
    }

    /// Of a change.
    pub(super) fn update(old: &'a Value) -> Self {
        let is_established = condition::is_true(old, condition::ESTABLISHED);
        let schemas: Vec<&Value> = Spec::of(old).schemas().collect();
        let mut known = Known::default();
        schemas.iter().for_each(|schema| known.add(&Structural::parse(schema)));
        let ca_bundle = old.text("spec.conversion.webhook.clientConfig.caBundle");
        Self {
            old: Some(old),
            known_review_version: conversion::has_known_version(old),
            immutable_names: is_established,
            schemas: Spec::of(old).has_schemas(),
            schema_checks: check::Options::for_update(&schemas),
            known_expressions: Some(known),
            any_ca_bundle: !is_established || (!ca_bundle.is_empty() && conversion::read_ca_bundle(ca_bundle).is_err()),
        }
    }

    /// Whether a version has the schema that it had before.
    pub(super) fn has_same_schema(&self, new: Spec<'_>, name: &str) -> bool {
        let Some(old) = self.old.map(Spec::of) else { return false };
        let find = |spec: Spec<'_>| spec.versions().iter().find(|version| version.text("name") == name).cloned();
        find(old).is_some_and(|old| find(new).is_some_and(|new| new.at("schema") == old.at("schema")))
    }

    /// Whether selectable fields may be too many: they were before, and did not change. `version` is `None` for those
    /// that all versions share.
    pub(super) fn any_number_of_fields(&self, new: &Value, version: Option<&str>) -> bool {
        let Some(old) = self.old.map(Spec::of) else { return false };
        let before = match version {
            None => old.shared(Part::Selectable),
            Some(name) => match old.versions().iter().rfind(|version| version.text("name") == name) {
                Some(version) => old.own(version, Part::Selectable),
                None => return false,
            },
        };
        before.as_array().is_some_and(|fields| fields.len() > selectable::MAX) && before == new
    }
}
