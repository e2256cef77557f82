//! patch: JSON, merge, strategic, and server-side apply.

use std::sync::Arc;

use api::options::{FieldValidation, WriteOptions};
use api::patch::{Patch, PatchError, PatchKind};
use api::status::Status;
use api::value::ValueExt as _;
use api::{decode, yaml};
use http::header;
use serde_json::Value;

use super::{call, manager, written};
use crate::handler::{Ask, Shared};
use crate::registry::{Change, Source, check_name};
use crate::reply::Reply;
use crate::route::Target;
use crate::{body, negotiate};

/// PATCH of an object or a part of it.
pub(super) async fn patch(
    shared: &Arc<Shared>,
    ask: &Ask<'_>,
    target: &Target<'_>,
    bytes: &[u8],
    warnings: &mut Vec<String>,
) -> Result<Reply, Status> {
    let content_type = negotiate::essence(ask.header(header::CONTENT_TYPE).unwrap_or_default());
    if content_type == "application/apply-patch+yaml" {
        return apply(shared, ask, target, bytes, warnings).await;
    }
    let kind = PatchKind::of_content_type(&content_type).ok_or_else(Status::unsupported_patch_type)?;
    let options = WriteOptions::patch(&ask.query, false)?;
    let patch = Patch::parse(kind, bytes, options.field_validation).map_err(PatchError::into_status)?;
    let name = target.name.unwrap_or_default();
    let run = |old: &Value, noted: &mut Vec<String>| patched(target, &patch, old, options.field_validation, noted);
    let manager = manager(ask, &options.field_manager);
    let call = call(ask, target, &manager, options.dry_run);
    let change = Change { name, source: Source::Patch(&run) };
    written(ask, target, shared.registry.update(&call, &change, warnings).await?)
}

/// A patched object, checked and defaulted.
fn patched(
    target: &Target<'_>,
    patch: &Patch,
    old: &Value,
    validation: FieldValidation,
    noted: &mut Vec<String>,
) -> Result<Value, Status> {
    let ty = target.kind.type_id();
    let mut new = patch.apply(ty, old).map_err(PatchError::into_status)?;
    let (group, version) = new.text("apiVersion").rsplit_once('/').unwrap_or(("", new.text("apiVersion")));
    if new.text("kind") != target.kind.kind || new.text("apiVersion") != target.kind.api_version() {
        let why = body::conversion_error(target.kind, group, version, new.text("kind"));
        return Err(patch.refuse(ty, old, &why));
    }
    let mut strict = patch.strict_errors().to_vec();
    strict.extend(decode::check(ty, &mut new).map_err(|error| patch.refuse(ty, old, &error.to_string()))?);
    body::judge(validation, &strict, noted).map_err(|why| patch.refuse(ty, old, &why))?;
    target.kind.rules.default(&mut new);
    check_name(&new, target.name.unwrap_or_default())?;
    Ok(new)
}

/// Server-side apply.
async fn apply(
    shared: &Arc<Shared>,
    ask: &Ask<'_>,
    target: &Target<'_>,
    bytes: &[u8],
    warnings: &mut Vec<String>,
) -> Result<Reply, Status> {
    let options = WriteOptions::patch(&ask.query, true)?;
    let bad = |error: &dyn std::fmt::Display| Status::bad_request(format!("error decoding YAML: {error}"));
    let (config, complaints) = yaml::from_yaml(bytes).map_err(|error| bad(&error))?;
    if !config.is_object() {
        return Err(bad(&"the configuration is not an object"));
    }
    body::judge(options.field_validation, &complaints, warnings).map_err(|why| {
        Status::bad_request(format!("error strict decoding YAML: error converting YAML to JSON: {why}"))
    })?;
    let name = target.name.unwrap_or_default();
    let (api_version, kind) = (config.text("apiVersion"), config.text("kind"));
    if api_version != target.kind.api_version() || kind != target.kind.kind {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        return Err(Status::bad_request(format!("invalid object type: {group}/{version}, Kind={kind}")));
    }
    let manager = manager(ask, &options.field_manager);
    let call = call(ask, target, &manager, options.dry_run);
    let change = Change { name, source: Source::Apply { config: &config, force: options.force } };
    written(ask, target, shared.registry.update(&call, &change, warnings).await?)
}
