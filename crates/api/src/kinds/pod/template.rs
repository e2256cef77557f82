//! Templates of Pods, as ReplicaSets, Deployments and their like have them: the rules of Pods at another place.
//!
//! In: a template and the path where it stands. Out: its defaults, field errors and warnings. What a template adds to a
//! Pod is that it must bear the labels by which its owner finds the Pods again, and that its Pods must run for ever.

use serde_json::{Map, Value};

use super::{defaults, spec, warn};
use crate::facts::Facts;
use crate::field::{Errors, Path};
use crate::meta;
use crate::selector::Selector;
use crate::value::ValueExt as _;

/// Fills a template.
pub(in crate::kinds) fn fill(template: Option<&mut Value>) {
    let Some(template) = template.filter(|template| template.is_object()) else { return };
    if !template.at("spec").is_object() {
        template.put("spec", Map::new());
    }
    if let Some(spec) = template.get_mut("spec") {
        defaults::fill_spec(spec);
    }
}

/// Checks that a template bears the labels that are selected, and then the template.
pub(in crate::kinds) fn validate_selected(path: &Path<'_>, template: &Value, selector: &Selector, errors: &mut Errors) {
    if !selector.is_everything() {
        validate_labels(path, template, selector, errors);
    }
    validate(path, template, errors);
}

/// Checks that a template bears the labels that are selected.
pub(in crate::kinds) fn validate_labels(path: &Path<'_>, template: &Value, selector: &Selector, errors: &mut Errors) {
    let labels = template.at("metadata.labels");
    if !selector.matches(&facts(labels), "", "") {
        let metadata = path.child("metadata");
        errors.invalid(&metadata.child("labels"), labels, "`selector` does not match template `labels`");
    }
}

/// Checks a template.
pub(in crate::kinds) fn validate(path: &Path<'_>, template: &Value, errors: &mut Errors) {
    meta::validate_labels(&path.child("labels"), template.at("metadata.labels"), errors);
    meta::validate_annotations(&path.child("annotations"), template.at("metadata.annotations"), errors);
    let spec_path = path.child("spec");
    spec::validate(&spec_path, template.at("spec"), errors);
    if !template.items("spec.ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.forbidden(&spec_path.child("ephemeralContainers"), detail);
    }
}

/// Refuses templates of Pods that end by themselves; `owner` is the kind that would have to replace them.
pub(in crate::kinds) fn validate_lasting(path: &Path<'_>, template: &Value, owner: &str, errors: &mut Errors) {
    let spec = path.child("spec");
    let policy = template.text("spec.restartPolicy");
    if policy != "Always" {
        errors.not_supported(&spec.child("restartPolicy"), policy, &["Always"]);
    }
    if template.has("spec.activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {owner} is not Supported");
        errors.forbidden(&spec.child("activeDeadlineSeconds"), &detail);
    }
}

/// Warnings about a template.
pub(in crate::kinds) fn warn(path: &Path<'_>, template: &Value, out: &mut Vec<String>) {
    warn::collect_spec(&path.child("spec"), template.at("spec"), out);
}

/// Labels as selectors ask them.
fn facts(labels: &Value) -> Facts {
    let labels = labels.as_object().into_iter().flatten();
    Facts {
        labels: labels.map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or_default().into())).collect(),
        fields: Box::default(),
    }
}
