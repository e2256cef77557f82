//! The verbs of the API: which one a request is, and what it does.
//!
//! In: a request for a resource. Out: its reply. `api_request` parses what all verbs have in common; the other files have one verb or
//! subresource each.

mod agent;
mod api_request;
mod connect_admission;
mod delete;
mod pod_messages;
mod proxy;
mod read;
mod scale;
mod write;

use std::sync::Arc;

use api::kind::SCALE;
use api::status::Status;
use api::value::ValueExt as _;
use api::{apply, kinds, lifecycle};
use http::Method;

use self::api_request::ApiRequest;
use crate::forward::ClientBody;
use crate::handler::{RequestContext, Shared};
use crate::query;
use crate::reply::Reply;
use crate::reviews;
use crate::route::Target;

/// Subresources of a Pod that are not implemented.
const UNSERVED: [&str; 2] = ["ephemeralcontainers", "resize"];

/// The verb of a request; `None` if the resource does not support it.
pub(crate) fn verb(context: &RequestContext<'_>, target: &Target<'_>) -> Option<&'static str> {
    let watch = target.watch || query::wants_watch(&context.query);
    if target.subresource.is_some_and(|sub| sub.name == "proxy") {
        return match *context.method {
            Method::GET | Method::HEAD | Method::OPTIONS => Some("get"),
            Method::POST => Some("create"),
            Method::PUT => Some("update"),
            Method::PATCH => Some("patch"),
            Method::DELETE => Some("delete"),
            _ => None,
        };
    }
    // A custom resource may be created at the URL of an object.
    let is_custom = target.kind.is_custom();
    if is_custom && target.subresource.is_none() && context.method == Method::POST {
        return Some("create");
    }
    let verb = match (context.method.as_str(), target.name.is_some()) {
        ("GET", false) if watch => "watch",
        ("GET", false) => "list",
        ("GET", true) if target.watch => "watch",
        ("GET", true) => "get",
        ("POST", false) => "create",
        ("POST", true) if target.subresource.is_some() => "create",
        ("PUT", true) => "update",
        ("PATCH", true) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => return None,
    };
    let across_namespaces = target.kind.namespaced && target.namespace.is_empty();
    if across_namespaces && !matches!(verb, "list" | "watch") {
        return None;
    }
    let verbs = target.subresource.map_or(target.kind.verbs, |sub| sub.verbs);
    verbs.contains(&verb).then_some(verb)
}

/// The error for a method that a resource does not have.
pub(crate) fn not_allowed(context: &RequestContext<'_>, target: &Target<'_>) -> Status {
    if !target.kind.is_custom() {
        return Status::method_not_allowed();
    }
    let verb = match (context.method.as_str(), target.name.is_some()) {
        ("POST", _) => "create",
        ("DELETE", _) => "delete",
        ("PUT" | "PATCH", false) => return Status::bad_request("name must be provided"),
        ("PUT", true) => "update",
        ("PATCH", true) => "patch",
        _ => return Status::method_not_allowed(),
    };
    Status::verb_not_supported(verb, target.kind.resource())
}

/// Whether a request has no timeout: it is proxied to a Pod or an agent, and may be a stream.
pub(crate) fn is_long_running(target: &Target<'_>) -> bool {
    target.subresource.is_some_and(|sub| sub.name == "proxy" || agent::SUBRESOURCES.contains(&sub.name))
}

/// Runs a long-running request: forwards it to a Pod or to the agent of a node.
pub(crate) async fn connect(
    shared: &Arc<Shared>,
    context: &RequestContext<'_>,
    target: &Target<'_>,
    sent: ClientBody,
) -> Result<Reply, Status> {
    let request = ApiRequest::new(shared, context, target, &[])?;
    let warnings = connect_admission::admit(&request).await?;
    let part = target.subresource.map_or("", |sub| sub.name);
    let mut reply = if agent::SUBRESOURCES.contains(&part) {
        agent::pod(&request, part, sent).await?
    } else {
        proxy::proxy(&request, sent).await?
    };
    reply.warnings.extend(warnings);
    Ok(reply)
}

/// Runs every other request.
pub(crate) async fn run(
    shared: &Arc<Shared>,
    context: &RequestContext<'_>,
    target: &Target<'_>,
    verb: &str,
    body: &[u8],
    warnings: &mut Vec<String>,
) -> Result<Reply, Status> {
    let request = &ApiRequest::new(shared, context, target, body)?;
    if target.kind.plural == kinds::binding::KIND.plural {
        return pod_messages::bind(request, warnings).await;
    }
    if target.kind.table.is_empty() {
        return review(request, warnings);
    }
    match target.subresource.map_or("", |sub| sub.name) {
        SCALE => return scale::run(request, verb, warnings).await,
        part if target.kind.plural == "pods" && UNSERVED.contains(&part) => return Err(unserved(request, part)),
        _ => {}
    }
    match verb {
        "get" => read::get(request).await,
        "list" => read::list(request).await,
        "watch" => read::watch(request).await,
        "create" if target.subresource.is_some() => write::create_subresource(request, warnings).await,
        "create" => write::create(request, warnings).await,
        "update" => write::update(request, warnings).await,
        "patch" => write::patch(request, warnings).await,
        "delete" => delete::delete(request, warnings).await,
        "deletecollection" => delete::delete_collection(request, warnings).await,
        _ => Err(Status::method_not_allowed()),
    }
}

/// The error for a subresource of a Pod that is not implemented.
fn unserved(request: &ApiRequest<'_>, part: &str) -> Status {
    let name = request.name;
    let pod = match request.shared.registry.get(&request.call("", false), name) {
        Ok(entry) => crate::view::read(request.target.kind, &entry),
        Err(not_found) => return not_found,
    };
    match (part, pod.text("spec.nodeName")) {
        ("ephemeralcontainers", _) => Status::bad_request(format!(
            "ephemeral containers cannot be added to pod {name}: this cluster does not run them; use kubectl exec, or kubectl debug \
             with --copy-to"
        )),
        (_, "") => Status::bad_request(format!("pod {name} does not have a host assigned")),
        (_, node) => Status::unavailable(format!("{part} of pod {name}: no agent runs on node {node}")),
    }
}

/// Kinds that are evaluated and not stored.
fn review(request: &ApiRequest<'_>, warnings: &mut Vec<String>) -> Result<Reply, Status> {
    let (context, kind) = (request.context, request.target.kind);
    let (options, mut object) = request.create(kind, warnings)?;
    if kind.namespaced {
        object.put("metadata.namespace", request.target.namespace);
    }
    let api_version = kind.api_version();
    object.put("kind", kind.kind);
    object.put("apiVersion", &*api_version);
    let manager = apply::Manager { name: &options.field_manager, api_version: &api_version, subresource: "" };
    apply::track_update(kind.type_id(), None, &mut object, &manager, &lifecycle::seconds(context.now));
    let shared = request.shared;
    let review_context =
        reviews::ReviewContext { user: context.user, authn: &shared.authn, authorizer: &shared.registry.authorizer };
    let answer = reviews::review(kind, &object, &review_context, context.now)?;
    Ok(Reply::document(201, context.view.object(kind, answer)?))
}
