//! The subresource `scale`: reads and changes the replicas of an object of any kind that has them.
//!
//! In: a Scale, whole or as a patch. Out: the object with another `spec.replicas`, stored under the rules of its own
//! kind, and shown as a Scale. The resourceVersion of a Scale is that of the object.

use api::crd;
use api::field::Errors;
use api::kind::Kind;
use api::kinds::scale::{self, KIND};
use api::list;
use api::options::WriteOptions;
use api::status::Status;
use api::value::ValueExt as _;
use serde_json::Value;

use super::api_request::{ApiRequest, patched};
use crate::registry::{Outcome, Patching, Shown, Source, check_name};
use crate::reply::Reply;
use crate::route::Target;
use crate::view;

/// GET, PUT and PATCH of a Scale.
pub(super) async fn run(request: &ApiRequest<'_>, verb: &str, warnings: &mut Vec<String>) -> Result<Reply, Status> {
    match verb {
        "get" => get(request).await,
        "update" => update(request, warnings).await,
        "patch" => patch(request, warnings).await,
        _ => Err(Status::method_not_allowed()),
    }
}

async fn get(request: &ApiRequest<'_>) -> Result<Reply, Status> {
    list::get_version(&request.context.query)?;
    let entry = request.shared.registry.read(&request.call("", false), request.name).await?;
    let object = view::read(request.target.kind, &entry);
    let scale = match custom_paths(request.target.kind) {
        Some(paths) => crd::scale::get(&paths, &object).map_err(Status::internal)?,
        None => scale::of(&object),
    };
    shown(request, 200, scale)
}

async fn update(request: &ApiRequest<'_>, warnings: &mut Vec<String>) -> Result<Reply, Status> {
    let (options, sent) = request.update(&KIND, warnings).map_err(|status| unreadable(request, status))?;
    let run = |old: &Value, _: &mut Vec<String>| scaled(request.target, &sent, old);
    store(request, &options, &run, warnings).await
}

async fn patch(request: &ApiRequest<'_>, warnings: &mut Vec<String>) -> Result<Reply, Status> {
    let (options, patch) = request.patch()?;
    let run = |old: &Value, noted: &mut Vec<String>| {
        let scale = match custom_paths(request.target.kind) {
            Some(paths) => crd::scale::before_change(&paths, old).map_err(Status::internal)?,
            None => scale::of(old),
        };
        let sent = patched(&KIND, &patch, &scale, options.field_validation, noted)?;
        scaled(request.target, &sent, old)
    };
    store(request, &options, &run, warnings).await
}

/// The object with the replicas of a Scale.
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
    let mut new = old.clone();
    if let Some(paths) = custom_paths(target.kind) {
        // Replicas of a custom resource are validated as a part of it.
        crd::scale::put(&paths, &mut new, sent).map_err(|error| Status::bad_request(error.to_string()))?;
    } else {
        let mut errors = Errors::default();
        KIND.rules.validate_create(sent, &mut errors);
        if !errors.is_empty() {
            return Err(Status::invalid(KIND.group, KIND.kind, name, &errors));
        }
        new.put("spec.replicas", sent.int("spec.replicas"));
    }
    new.put("metadata.resourceVersion", sent.at("metadata.resourceVersion").clone());
    Ok(new)
}

/// Changes the object and responds with its new Scale.
async fn store(
    request: &ApiRequest<'_>,
    options: &WriteOptions,
    run: &Patching<'_>,
    warnings: &mut Vec<String>,
) -> Result<Reply, Status> {
    let Outcome { code, shown: object } = request.change(options, Source::Patch(run), warnings).await?;
    let object = match object {
        Shown::Entry(entry) => view::read(request.target.kind, &entry),
        Shown::Object(object) | Shown::Status(object) => object,
    };
    let scale = match custom_paths(request.target.kind) {
        Some(paths) => crd::scale::show(&paths, &object).map_err(Status::internal)?,
        None => scale::of(&object),
    };
    shown(request, code, scale)
}

fn shown(request: &ApiRequest<'_>, code: u16, scale: Value) -> Result<Reply, Status> {
    Ok(Reply::document(code, request.context.view.object(&KIND, scale)?))
}

/// The error for a body that is no Scale. kube-apiserver does not know the type where custom resources are served.
fn unreadable(request: &ApiRequest<'_>, status: Status) -> Status {
    if !request.target.kind.is_custom() || !status.message.contains("cannot be handled as a Scale") {
        return status;
    }
    Status::bad_request(
        "no kind is registered for the type v1.Scale in scheme \
         \"k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go:781\"",
    )
}

/// The paths of the Scale of a custom resource.
fn custom_paths(kind: &Kind) -> Option<Value> {
    kind.rules.definition().and_then(|definition| definition.scale.clone())
}
