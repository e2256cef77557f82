//! The subresource `scale`: how many Pods an object has, read and changed without knowing what kind it is.
//!
//! In: a Scale, whole or as a patch. Out: the same object with another `spec.replicas`, stored under the rules of its own
//! kind, and shown as a Scale again. The resourceVersion of a Scale is that of the object, so conflicts are found as always.

use std::sync::Arc;

use api::field::Errors;
use api::kinds::scale::{self, KIND};
use api::list;
use api::options::{FieldValidation, WriteOptions};
use api::patch::{Patch, PatchError, PatchKind};
use api::status::Status;
use api::value::ValueExt as _;
use http::header;
use serde_json::Value;

use super::{call, manager};
use crate::handler::{Ask, Shared};
use crate::registry::{Change, Outcome, Shown, Source, check_name};
use crate::reply::Reply;
use crate::route::Target;
use crate::{body, negotiate, view};

/// GET, PUT and PATCH of a scale.
pub(super) async fn run(
    shared: &Arc<Shared>,
    ask: &Ask<'_>,
    target: &Target<'_>,
    verb: &str,
    bytes: &[u8],
    warnings: &mut Vec<String>,
) -> Result<Reply, Status> {
    match verb {
        "get" => get(shared, ask, target),
        "update" => update(shared, ask, target, bytes, warnings).await,
        "patch" => patch(shared, ask, target, bytes, warnings).await,
        _ => Err(Status::method_not_allowed()),
    }
}

fn get(shared: &Arc<Shared>, ask: &Ask<'_>, target: &Target<'_>) -> Result<Reply, Status> {
    list::get_version(&ask.query)?;
    let entry = shared.registry.get(&call(ask, target, "", false), target.name.unwrap_or_default())?;
    Ok(Reply::document(200, ask.view.object(&KIND, scale::of(&view::read(target.kind, &entry)))?))
}

async fn update(
    shared: &Arc<Shared>,
    ask: &Ask<'_>,
    target: &Target<'_>,
    bytes: &[u8],
    warnings: &mut Vec<String>,
) -> Result<Reply, Status> {
    let options = WriteOptions::update(&ask.query)?;
    let media = negotiate::body_media(ask.header(header::CONTENT_TYPE))?;
    let sent = body::object(&KIND, media, bytes, options.field_validation, warnings)?;
    let run = |old: &Value, _: &mut Vec<String>| scaled(target, &sent, old);
    store(shared, ask, target, &options, &run, warnings).await
}

async fn patch(
    shared: &Arc<Shared>,
    ask: &Ask<'_>,
    target: &Target<'_>,
    bytes: &[u8],
    warnings: &mut Vec<String>,
) -> Result<Reply, Status> {
    let content_type = negotiate::essence(ask.header(header::CONTENT_TYPE).unwrap_or_default());
    let kind = PatchKind::of_content_type(&content_type).ok_or_else(Status::unsupported_patch_type)?;
    let options = WriteOptions::patch(&ask.query, false)?;
    let patch = Patch::parse(kind, bytes, options.field_validation).map_err(PatchError::into_status)?;
    let run = |old: &Value, noted: &mut Vec<String>| {
        let sent = patched(&patch, &scale::of(old), options.field_validation, noted)?;
        scaled(target, &sent, old)
    };
    store(shared, ask, target, &options, &run, warnings).await
}

/// A patched Scale.
fn patched(patch: &Patch, old: &Value, how: FieldValidation, noted: &mut Vec<String>) -> Result<Value, Status> {
    let ty = KIND.type_id();
    let mut new = patch.apply(ty, old).map_err(PatchError::into_status)?;
    if new.text("kind") != KIND.kind || new.text("apiVersion") != KIND.api_version() {
        let (group, version) = new.text("apiVersion").rsplit_once('/').unwrap_or(("", new.text("apiVersion")));
        let why = body::conversion_error(&KIND, group, version, new.text("kind"));
        return Err(patch.refuse(ty, old, &why));
    }
    let mut strict = patch.strict_errors().to_vec();
    strict.extend(api::decode::check(ty, &mut new).map_err(|error| patch.refuse(ty, old, &error.to_string()))?);
    body::judge(how, &strict, noted).map_err(|why| patch.refuse(ty, old, &why))?;
    Ok(new)
}

/// The object with what a Scale says.
fn scaled(target: &Target<'_>, sent: &Value, old: &Value) -> Result<Value, Status> {
    let name = target.name.unwrap_or_default();
    check_name(sent, name)?;
    let namespace = sent.text("metadata.namespace");
    if !namespace.is_empty() && namespace != target.namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let uid = sent.text("metadata.uid");
    if !uid.is_empty() && uid != old.text("metadata.uid") {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            old.text("metadata.uid")
        );
        return Err(Status::conflict(target.kind.resource(), name, &why));
    }
    let mut errors = Errors::default();
    KIND.rules.validate_create(sent, &mut errors);
    if !errors.is_empty() {
        return Err(Status::invalid(KIND.group, KIND.kind, name, &errors));
    }
    let mut new = old.clone();
    new.put("spec.replicas", sent.int("spec.replicas"));
    new.put("metadata.resourceVersion", sent.at("metadata.resourceVersion").clone());
    Ok(new)
}

/// Changes the object, and shows its new scale.
async fn store(
    shared: &Arc<Shared>,
    ask: &Ask<'_>,
    target: &Target<'_>,
    options: &WriteOptions,
    run: &crate::registry::Patching<'_>,
    warnings: &mut Vec<String>,
) -> Result<Reply, Status> {
    let manager = manager(ask, &options.field_manager);
    let call = call(ask, target, &manager, options.dry_run);
    let change = Change { name: target.name.unwrap_or_default(), source: Source::Patch(run) };
    let Outcome { code, shown } = shared.registry.update(&call, &change, warnings).await?;
    let object = match shown {
        Shown::Entry(entry) => view::read(target.kind, &entry),
        Shown::Object(object) | Shown::Status(object) => object,
    };
    Ok(Reply::document(code, ask.view.object(&KIND, scale::of(&object))?))
}
