//! Request bodies: bytes in, a checked and defaulted object out.
//!
//! Errors have the texts of kube-apiserver: malformed, of another kind, of the wrong type, with unknown fields.

use api::decode::{self, Decoded};
use api::kind::Kind;
use api::options::FieldValidation;
use api::schema;
use api::status::Status;
use api::value::ValueExt as _;
use api::{kinds, proto, yaml};
use serde_json::Value;

use crate::negotiate::Media;
use crate::view::go_package;

/// The largest body, in bytes.
pub(crate) const LIMIT: usize = 3 * 1024 * 1024;
/// How much of a malformed body is quoted in the error, in characters.
const EXCERPT: usize = 30;

/// Kinds of core/v1 that Kubernetes has and we do not serve: bodies may still name one.
const UNSERVED: [&str; 1] = ["ComponentStatus"];
/// Kinds that exist in every group.
const UNIVERSAL_KINDS: [&str; 8] = [
    "CreateOptions",
    "DeleteOptions",
    "GetOptions",
    "ListOptions",
    "PatchOptions",
    "Status",
    "UpdateOptions",
    "WatchEvent",
];

/// Decodes an object of a kind, and sets defaults.
pub(crate) fn object(
    kind: &Kind,
    media: Media,
    bytes: &[u8],
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<Value, Status> {
    let unhandled = |why: &dyn std::fmt::Display| {
        Status::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: {why}",
            kind.kind, kind.version, kind.kind
        ))
    };
    let is_custom = kind.is_custom();
    let Decoded { mut value, strict } = match media {
        Media::Protobuf if is_custom => return Err(unsupported_media()),
        Media::Protobuf => Decoded { value: protobuf(kind, bytes)?, strict: Vec::new() },
        Media::Json => {
            let claimed = decode::find_kind(bytes).map_err(|error| unrecognized(kind.kind, &error, bytes))?;
            check_type(kind, &claimed.api_version, &claimed.kind)?;
            kind.decode_json(bytes).map_err(|error| unhandled(&error))?
        }
        Media::Yaml => {
            let Decoded { mut value, mut strict } = text(kind.kind, media, bytes)?;
            check_type(kind, value.text("apiVersion"), value.text("kind"))?;
            strict.extend(kind.check(&mut value).map_err(|error| unhandled(&error))?);
            Decoded { value, strict }
        }
    };
    if value.is_null() {
        value = Value::Object(serde_json::Map::new());
    }
    apply_validation(validation, &strict, warnings).map_err(|error| unhandled(&error))?;
    if is_custom {
        complete_type(kind, &mut value)?;
    }
    kind.rules.default(&mut value);
    Ok(value)
}

/// A custom resource is of the version of the URL; its kind is checked by the rules of the kind.
fn complete_type(kind: &Kind, value: &mut Value) -> Result<(), Status> {
    let (sent, want) = (value.text("apiVersion"), kind.api_version());
    if !sent.is_empty() && sent != want {
        return Err(Status::bad_request(format!(
            "the API version in the data ({sent}) does not match the expected API version ({want})"
        )));
    }
    value.put("apiVersion", want);
    if value.text("kind").is_empty() {
        value.put("kind", kind.kind);
    }
    Ok(())
}

/// The error for a body of a custom resource in protobuf.
fn unsupported_media() -> Status {
    Status {
        code: 415,
        reason: Some("UnsupportedMediaType"),
        ..Status::raw(
            "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml",
        )
    }
}

/// Applies `fieldValidation` to strict decoding errors: ignored, warnings, or an error.
pub(crate) fn apply_validation(
    validation: FieldValidation,
    complaints: &[String],
    warnings: &mut Vec<String>,
) -> Result<(), String> {
    match validation {
        _ if complaints.is_empty() => Ok(()),
        FieldValidation::Ignore => Ok(()),
        FieldValidation::Warn => {
            warnings.extend_from_slice(complaints);
            Ok(())
        }
        FieldValidation::Strict => Err(format!("strict decoding error: {}", complaints.join(", "))),
    }
}

/// Parses JSON or YAML of any type.
pub(crate) fn text(expected: &str, media: Media, bytes: &[u8]) -> Result<Decoded, Status> {
    let (value, strict) = match media {
        Media::Yaml => yaml::from_yaml(bytes).map_err(|error| unrecognized(expected, &error, bytes))?,
        Media::Json | Media::Protobuf => {
            decode::find_kind(bytes).map_err(|error| unrecognized(expected, &error, bytes))?;
            decode::parse_json(bytes).map_err(|error| unrecognized(expected, &error, bytes))?
        }
    };
    if !value.is_object() && !value.is_null() {
        return Err(unrecognized(expected, &"the document is not an object", bytes));
    }
    Ok(Decoded { value, strict })
}

/// The error for a body whose type cannot be read.
fn unrecognized(expected: &str, error: &dyn std::fmt::Display, bytes: &[u8]) -> Status {
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {expected}): couldn't get version/kind; json parse error: \
         {error} ({})",
        excerpt(bytes)
    ))
}

fn protobuf(kind: &Kind, bytes: &[u8]) -> Result<Value, Status> {
    let broken = |error: &dyn std::fmt::Display| {
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {error} ({})",
            kind.kind,
            hex(bytes)
        ))
    };
    let envelope = proto::decode_envelope(bytes).map_err(|error| broken(&error))?;
    check_type(kind, &envelope.api_version, &envelope.kind)?;
    let mut value = proto::decode(kind.type_id(), envelope.raw).map_err(|error| broken(&error))?;
    value.put("kind", kind.kind);
    value.put("apiVersion", kind.api_version());
    Ok(value)
}

/// Decodes a message that is not a stored kind, such as a `TokenRequest`.
pub(crate) fn message(schema: &str, media: Media, bytes: &[u8]) -> Result<Value, Status> {
    let ty = schema::named(schema);
    let name = schema.rsplit('.').next().unwrap_or(schema);
    let bad = |error: &dyn std::fmt::Display| Status::bad_request(format!("{name} cannot be read: {error}"));
    if media == Media::Protobuf {
        let envelope = proto::decode_envelope(bytes).map_err(|error| bad(&error))?;
        return proto::decode(ty, envelope.raw).map_err(|error| bad(&error));
    }
    let mut value = text(name, media, bytes)?.value;
    let (kind, api_version) = (value.text("kind"), value.text("apiVersion"));
    if !kind.is_empty() && kind != name {
        let version = api_version.rsplit('/').next().unwrap_or_default();
        return Err(Status::bad_request(format!(
            "{kind} in version {} cannot be handled as a {name}: converting ({version}.{kind}) to ({schema}): unknown conversion",
            api::field::quote(version)
        )));
    }
    decode::check(ty, &mut value).map_err(|error| bad(&error))?;
    Ok(value)
}

/// Decodes the `DeleteOptions` in the body of a DELETE; `None` without a body.
pub(crate) fn delete_options(media: Media, bytes: &[u8]) -> Result<Option<Value>, Status> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let ty = schema::named("meta.DeleteOptions");
    let mut value = match media {
        Media::Protobuf => {
            let bad = |error: proto::ProtoError| Status::bad_request(error.to_string());
            let envelope = proto::decode_envelope(bytes).map_err(bad)?;
            proto::decode(ty, envelope.raw).map_err(bad)?
        }
        Media::Json => {
            let bad = |error: decode::JsonError| {
                Status::bad_request(format!("couldn't get version/kind; json parse error: {error}"))
            };
            decode::find_kind(bytes).map_err(bad)?;
            decode::parse_json(bytes).map_err(bad)?.0
        }
        Media::Yaml => text("DeleteOptions", media, bytes)?.value,
    };
    if value.is_null() {
        return Ok(None);
    }
    let kind = value.text("kind").to_owned();
    if !kind.is_empty() && kind != "DeleteOptions" {
        return Err(Status::bad_request(format!("decoded object cannot be converted to DeleteOptions: {kind}")));
    }
    decode::check(ty, &mut value).map_err(|error| Status::bad_request(error.to_string()))?;
    Ok(Some(value))
}

/// Checks the type that a body names against that of the URL; it may be omitted.
fn check_type(kind: &Kind, api_version: &str, name: &str) -> Result<(), Status> {
    if kind.is_custom() {
        // Custom resources are checked when their fields are.
        return Ok(());
    }
    let want = kind.api_version();
    if (api_version.is_empty() || api_version == want) && (name.is_empty() || name == kind.kind) {
        return Ok(());
    }
    let api_version = if api_version.is_empty() { &want } else { api_version };
    let name = if name.is_empty() { kind.kind } else { name };
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let why = conversion_error(kind, group, version, name);
    Err(Status::bad_request(format!(
        "{name} in version {} cannot be handled as a {}: {why}",
        quote(version),
        kind.kind
    )))
}

/// The error for an object of another type.
pub(crate) fn conversion_error(kind: &Kind, group: &str, version: &str, name: &str) -> String {
    let single = name.strip_suffix("List").unwrap_or(name);
    let served = |known: &&Kind| known.group == group && known.version == version && known.kind == single;
    let known = kinds::KINDS.iter().any(served) || group.is_empty() && version == "v1" && UNSERVED.contains(&single);
    if known || version == "v1" && UNIVERSAL_KINDS.contains(&name) {
        return format!("converting ({version}.{name}) to ({}.{}): unknown conversion", go_package(kind), kind.kind);
    }
    let full = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    format!(
        "no kind {} is registered for version {} in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        quote(name),
        quote(&full)
    )
}

fn quote(text: &str) -> String {
    api::field::quote(text)
}

fn excerpt(bytes: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(bytes) else { return hex(bytes) };
    match text.trim_start().chars().next() {
        None => "<empty>".to_owned(),
        Some('{') if text.chars().count() > EXCERPT => {
            format!("{} ...", text.chars().take(EXCERPT).collect::<String>())
        }
        Some('{') => text.to_owned(),
        Some(_) => hex(bytes),
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut out = String::new();
    for byte in bytes.iter().take(EXCERPT) {
        let _ = write!(out, "{byte:02x}");
    }
    if bytes.len() > EXCERPT {
        out.push_str(" ...");
    }
    out
}
