//! Checks of the volumes of a Pod: one source each, and files that stay inside of them.

use std::collections::HashSet;

use serde_json::Value;

use super::containers::check_relative;
use crate::field::{Errors, Path};
use crate::kinds::common::report;
use crate::names;
use crate::value::ValueExt as _;

/// The lifetime of a projected token, in seconds.
const MIN_TOKEN_SECONDS: i64 = 600;
const MAX_TOKEN_SECONDS: i64 = 1 << 32;
const MAX_MODE: i64 = 0o777;

/// Checks the volumes; gives back the names of the good ones.
pub(super) fn validate<'s>(list: &Path<'_>, spec: &'s Value, errors: &mut Errors) -> HashSet<&'s str> {
    let mut good = HashSet::new();
    for (index, volume) in spec.items("volumes").iter().enumerate() {
        let path = list.index(index);
        let before = errors.0.len();
        validate_source(&path, volume, errors);
        let name = volume.text("name");
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        } else {
            report(&path.child("name"), name, names::dns_label(name), errors);
        }
        if good.contains(name) {
            errors.duplicate(&path.child("name"), name);
        }
        if errors.0.len() == before {
            good.insert(name);
        }
    }
    good
}

fn validate_source(path: &Path<'_>, volume: &Value, errors: &mut Errors) {
    let mut sources = volume
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, value)| key.as_str() != "name" && !value.is_null())
        .map(|(key, _)| key.as_str());
    if sources.next().is_none() {
        errors.required(path, "must specify a volume type");
    }
    for other in sources {
        errors.forbidden(&path.child(other), "may not specify more than 1 volume type");
    }
    for (source, field) in
        [("hostPath", "path"), ("secret", "secretName"), ("configMap", "name"), ("persistentVolumeClaim", "claimName")]
    {
        if volume.has(source) && volume.at(source).text(field).is_empty() {
            errors.required(&path.child(source).child(field), "");
        }
    }
    for source in ["secret", "configMap"] {
        let path = path.child(source);
        validate_mode(&path.child("defaultMode"), volume.at(source).at("defaultMode"), errors);
        validate_items(&path.child("items"), volume.at(source), errors);
    }
    if volume.has("projected") {
        validate_projected(&path.child("projected"), volume.at("projected"), errors);
    }
}

fn validate_mode(path: &Path<'_>, mode: &Value, errors: &mut Errors) {
    if let Some(mode) = mode.as_i64().filter(|mode| !(0..=MAX_MODE).contains(mode)) {
        errors.invalid(path, mode, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}

/// The keys of a Secret or ConfigMap, and the files that they become.
fn validate_items(list: &Path<'_>, source: &Value, errors: &mut Errors) {
    for (index, item) in source.items("items").iter().enumerate() {
        let path = list.index(index);
        if item.text("key").is_empty() {
            errors.required(&path.child("key"), "");
        }
        if item.text("path").is_empty() {
            errors.required(&path.child("path"), "");
        }
        validate_file(&path.child("path"), item.text("path"), errors);
        validate_mode(&path.child("mode"), item.at("mode"), errors);
    }
}

/// A file below the volume. Names that begin with two dots are kept for atomic updates.
fn validate_file(path: &Path<'_>, file: &str, errors: &mut Errors) {
    check_relative(path, file, errors);
    if file.starts_with("..") && !file.starts_with("../") {
        errors.invalid(path, file, "must not start with '..'");
    }
}

fn validate_projected(path: &Path<'_>, projected: &Value, errors: &mut Errors) {
    validate_mode(&path.child("defaultMode"), projected.at("defaultMode"), errors);
    let sources = path.child("sources");
    let mut files = HashSet::new();
    for (index, source) in projected.items("sources").iter().enumerate() {
        let own = sources.index(index);
        for kind in ["secret", "configMap"].into_iter().filter(|kind| source.has(kind)) {
            let (from, from_path) = (source.at(kind), own.child(kind));
            if from.text("name").is_empty() {
                errors.required(&from_path.child("name"), "");
            }
            validate_items(&from_path.child("items"), from, errors);
            let repeated = repeated(&mut files, from.items("items"));
            repeated.for_each(|_| errors.invalid(path, from.text("name"), "conflicting duplicate paths"));
        }
        for file in repeated(&mut files, source.items("downwardAPI.items")) {
            errors.invalid(path, file, "conflicting duplicate paths");
        }
        if source.has("serviceAccountToken") {
            validate_token(path, &own.child("serviceAccountToken"), source.at("serviceAccountToken"), errors);
        }
        if source.as_object().is_some_and(|kinds| kinds.values().filter(|value| !value.is_null()).count() > 1) {
            errors.forbidden(&own, "may not specify more than 1 volume type per source");
        }
    }
}

/// The paths of items that an earlier item has already.
fn repeated<'v>(files: &mut HashSet<&'v str>, items: &'v [Value]) -> impl Iterator<Item = &'v str> {
    let repeated: Vec<&str> =
        items.iter().map(|item| item.text("path")).filter(|file| !file.is_empty() && !files.insert(file)).collect();
    repeated.into_iter()
}

/// A projected token. Errors of its file name the volume, as in kube-apiserver.
fn validate_token(volume: &Path<'_>, path: &Path<'_>, token: &Value, errors: &mut Errors) {
    let seconds = token.int("expirationSeconds");
    if seconds < MIN_TOKEN_SECONDS {
        errors.invalid(&path.child("expirationSeconds"), seconds, "may not specify a duration less than 10 minutes");
    }
    if seconds > MAX_TOKEN_SECONDS {
        errors.invalid(
            &path.child("expirationSeconds"),
            seconds,
            "may not specify a duration larger than 2^32 seconds",
        );
    }
    match token.text("path") {
        "" => errors.required(&volume.child("path"), ""),
        file => validate_file(&volume.child("path"), file, errors),
    }
}
