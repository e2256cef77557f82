//! Conversion of custom resources by a webhook: the review that is sent, and what its response may be. Pure.
//!
//! In: objects of one definition, later the bytes of a response. Out: a `ConversionReview` as JSON, later the converted objects,
//! or an error with the message of kube-apiserver. A webhook may change everything but the identity of an object: of the
//! metadata only labels and annotations are used, and the rest is that of the original.

use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::field::{Errors, Path, quote};
use crate::meta;
use crate::review::{Review, group_version_kind, json_type, shorten};
use crate::value::ValueExt as _;

const GROUP: &str = "apiextensions.k8s.io";
const KIND: &str = "ConversionReview";
const METADATA: Path<'_> = Path::Root("metadata");

/// The webhook of a definition with the strategy `Webhook`.
#[derive(Clone, PartialEq, Debug)]
pub struct Webhook {
    /// The name of the definition.
    pub definition: String,
    /// `clientConfig`.
    pub client_config: Value,
    /// The first version of ConversionReview that it and the server support; `None` without one.
    pub review_version: Option<&'static str>,
}

impl Webhook {
    /// The webhook of a definition; `None` with another strategy.
    #[must_use]
    pub fn of(definition: &Value) -> Option<Self> {
        let conversion = definition.at("spec.conversion");
        if conversion.text("strategy") != "Webhook" {
            return None;
        }
        let known = |version: &str| ["v1", "v1beta1"].into_iter().find(|known| *known == version);
        Some(Self {
            definition: definition.text("metadata.name").to_owned(),
            client_config: conversion.at("webhook.clientConfig").clone(),
            review_version: conversion.texts("webhook.conversionReviewVersions").into_iter().find_map(known),
        })
    }
}

/// Why objects were not converted.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ConversionError {
    /// The webhook supports no version of ConversionReview that the server supports.
    #[error("no supported conversion review versions")]
    NoReviewVersion,
    /// An object is stored in a version that the definition does not have any more.
    #[error("request to convert CR from an invalid group/version: {0}")]
    UnknownVersion(String),
    /// The call failed, or the webhook reports a failure.
    #[error("conversion webhook for {of} failed: {why}")]
    Failed {
        /// The type of the first object.
        of: String,
        /// Why.
        why: String,
    },
    /// Objects are missing, or there are too many.
    #[error("conversion webhook for {of} returned {found} objects, expected {expected}")]
    Count {
        /// The type of the first object.
        of: String,
        /// How many were returned.
        found: usize,
        /// How many were sent.
        expected: usize,
    },
    /// An object is not the converted form of the one that was sent.
    #[error("conversion webhook for {of} returned invalid {what}: {why}")]
    Invalid {
        /// The type of the first object.
        of: String,
        /// Which object, or which part of it.
        what: String,
        /// What is wrong with it.
        why: String,
    },
}

/// One exchange with a webhook.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The uid of the review.
    pub uid: &'a str,
    /// The version of the review.
    pub version: &'a str,
    /// The `apiVersion` of the converted objects.
    pub desired: &'a str,
    /// The objects to convert, with `apiVersion` and `kind`.
    pub objects: &'a [Value],
}

impl Exchange<'_> {
    /// The review to send.
    #[must_use]
    pub fn request(&self) -> Vec<u8> {
        let review = json!({
            "kind": KIND, "apiVersion": format!("{GROUP}/{}", self.version),
            "request": {"uid": self.uid, "desiredAPIVersion": self.desired, "objects": self.objects},
            // The original sends an empty response with it.
            "response": {"uid": "", "convertedObjects": null, "result": {"metadata": {}}},
        });
        serde_json::to_vec(&review).unwrap_or_default()
    }

    /// An error of the call itself.
    #[must_use]
    pub fn failed(&self, why: &str) -> ConversionError {
        ConversionError::Failed { of: self.described(), why: why.to_owned() }
    }

    /// The converted objects of a response, in the order of those that were sent.
    ///
    /// # Errors
    /// When the response is not one to this review, reports a failure, or has objects that are no converted forms.
    pub fn read(&self, bytes: &[u8]) -> Result<Vec<Value>, ConversionError> {
        let converted = self.converted(bytes).map_err(|why| self.failed(&why))?;
        if converted.len() != self.objects.len() {
            let (found, expected) = (converted.len(), self.objects.len());
            return Err(ConversionError::Count { of: self.described(), found, expected });
        }
        let pairs = self.objects.iter().zip(converted).enumerate();
        pairs.map(|(index, (original, converted))| self.restored(index, original, converted)).collect()
    }

    /// The type of the first object, for messages.
    fn described(&self) -> String {
        self.objects
            .first()
            .map(|first| group_version_kind(first.text("apiVersion"), first.text("kind")))
            .unwrap_or_default()
    }

    /// `convertedObjects` of a response that reports success.
    fn converted(&self, bytes: &[u8]) -> Result<Vec<Value>, String> {
        let review = Review { group: GROUP, version: self.version, kind: KIND };
        let mut answer = review.parse(bytes)?;
        // kube-apiserver does not check this of v1beta1.
        let is_strict = self.version == "v1";
        if is_strict {
            review.check_type(&answer)?;
        }
        let response = answer.at("response");
        if response.is_null() {
            return Err("no response provided".to_owned());
        }
        let uid = member(response, "uid", "types.UID", Value::is_string)?.as_str().unwrap_or_default();
        if is_strict && uid != self.uid {
            return Err(format!("expected response.uid={}, got {}", quote(self.uid), quote(&shorten(uid))));
        }
        let result = member(response, "result", "v1.Status", Value::is_object)?;
        let (status, message) = (result.text("status"), result.text("message"));
        match (status, message) {
            ("Success", _) => {}
            (_, "") => return Err(format!("response.result.status was '{}', not 'Success'", shorten(status))),
            (_, message) => return Err(shorten(message)),
        }
        member(response, "convertedObjects", "[]runtime.RawExtension", Value::is_array)?;
        match answer.at_mut("response").and_then(|response| response.get_mut("convertedObjects")).map(Value::take) {
            Some(Value::Array(converted)) => Ok(converted),
            _ => Ok(Vec::new()),
        }
    }

    /// A converted object with the metadata of its original.
    fn restored(&self, index: usize, original: &Value, mut converted: Value) -> Result<Value, ConversionError> {
        let is_list = self.objects.len() > 1;
        let invalid = |what: String, why: String| ConversionError::Invalid { of: self.described(), what, why };
        let object = if is_list { "converted object" } else { "object" };
        self.check_type(original, &converted).map_err(|why| invalid(format!("{object} at index {index}"), why))?;
        let at = |what: &str| if is_list { format!("{what} at index {index}") } else { what.to_owned() };
        check_identity(original, &converted).map_err(|why| invalid(at(object), why))?;
        let part = if is_list { "metadata in object" } else { "metadata" };
        restore_metadata(original, &mut converted).map_err(|why| invalid(at(part), why))?;
        Ok(converted)
    }

    fn check_type(&self, original: &Value, converted: &Value) -> Result<(), String> {
        let (api_version, kind) = (converted.text("apiVersion"), converted.text("kind"));
        if kind.is_empty() {
            return Err(format!("Object 'Kind' is missing in '{}'", shorten(&converted.to_string())));
        }
        if api_version != self.desired {
            let (expected, received) = (self.desired, shorten(api_version));
            return Err(format!("invalid groupVersion (expected {expected}, received {received})"));
        }
        if kind != original.text("kind") {
            return Err(format!("invalid kind (expected {}, received {})", original.text("kind"), shorten(kind)));
        }
        Ok(())
    }
}

/// A member of the response: null, or of its type.
fn member<'r>(response: &'r Value, name: &str, ty: &str, fits: impl Fn(&Value) -> bool) -> Result<&'r Value, String> {
    let value = response.at(name);
    if response.is_object() && (value.is_null() || fits(value)) {
        return Ok(value);
    }
    let word = json_type(if response.is_object() { value } else { response });
    Err(format!("json: cannot unmarshal {word} into Go struct field ConversionResponse.response.{name} of type {ty}"))
}

fn check_identity(original: &Value, converted: &Value) -> Result<(), String> {
    for (path, name) in [("metadata.name", "name"), ("metadata.namespace", "namespace"), ("metadata.uid", "UID")] {
        let (expected, found) = (original.text(path), converted.text(path));
        if expected != found {
            return Err(format!("must have the same {name}: {expected} != {}", shorten(found)));
        }
    }
    Ok(())
}

/// Replaces the metadata of a converted object by that of the original, except for labels and annotations.
fn restore_metadata(original: &Value, converted: &mut Value) -> Result<(), String> {
    let Some(received) = converted.get("metadata") else {
        return Err("missing metadata in converted object".to_owned());
    };
    let Some(received) = received.as_object() else {
        return Err(format!("invalid metadata of type {} in converted object", go_type(received)));
    };
    let mut metadata = original.map("metadata").cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        match received.get(field) {
            None | Some(Value::Null) => drop(metadata.remove(field)),
            Some(Value::Object(texts)) => {
                check_texts(field, texts, metadata.get(field))?;
                metadata.insert(field.to_owned(), Value::Object(texts.clone()));
            }
            Some(other) => {
                return Err(format!("invalid metadata.{field} of type {} in converted object", go_type(other)));
            }
        }
    }
    converted.put("metadata", Value::Object(metadata));
    Ok(())
}

/// Checks labels or annotations, unless they are those of the original.
fn check_texts(field: &str, texts: &Map<String, Value>, original: Option<&Value>) -> Result<(), String> {
    if let Some((key, value)) = texts.iter().find(|(_, value)| !value.is_string()) {
        let (key, ty) = (shorten(key), go_type(value));
        return Err(format!("metadata.{field}[{key}] must be a string, but is {ty} in converted object"));
    }
    if original.and_then(Value::as_object).is_some_and(|original| original == texts) {
        return Ok(());
    }
    let (mut errors, texts) = (Errors::default(), Value::Object(texts.clone()));
    if field == "labels" {
        meta::validate_labels(&METADATA.child("labels"), &texts, &mut errors);
    } else {
        // Without its plural, as in kube-apiserver.
        meta::validate_annotations(&METADATA.child("annotation"), &texts, &mut errors);
    }
    let all: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
    match all.as_slice() {
        [] => Ok(()),
        [one] => Err(shorten(one)),
        all => Err(shorten(&format!("[{}]", all.join(", ")))),
    }
}

/// How Go prints the type of a decoded value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests;
