//! The verbs: which one a request is, and what it does. One file a verb.

mod agent;
mod connect;
mod delete;
mod patch;
mod placement;
mod proxy;
mod read;
mod scale;
mod write;

use std::sync::Arc;

use api::dynamic_admission::request::Operation;
use api::kind::SCALE;
use api::options::WriteOptions;
use api::status::Status;
use api::value::ValueExt as _;
use api::{apply, kinds, lifecycle, names};
use http::{Method, header};

use crate::forward::Sent;
use crate::handler::{Ask, Shared};
use crate::query;
use crate::registry::{About, Call, Outcome, Shown};
use crate::reply::Reply;
use crate::reviews;
use crate::route::Target;

/// Parts of a Pod that nobody serves.
const UNSERVED: [&str; 2] = ["ephemeralcontainers", "resize"];
/// The longest name of a field manager that is taken from a User-Agent.
const MANAGER_LIMIT: usize = 128;

/// The verb of a request, or nothing where the resource does not have it.
pub(crate) fn verb(ask: &Ask<'_>, target: &Target<'_>) -> Option<&'static str> {
    let watch = target.watch || query::wants_watch(&ask.query);
    if target.subresource.is_some_and(|sub| sub.name == "proxy") {
        return match *ask.method {
            Method::GET | Method::HEAD | Method::OPTIONS => Some("get"),
            Method::POST => Some("create"),
            Method::PUT => Some("update"),
            Method::PATCH => Some("patch"),
            Method::DELETE => Some("delete"),
            _ => None,
        };
    }
    let verb = match (ask.method.as_str(), target.name.is_some()) {
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

/// Whether a request may take as long as it takes: somebody else answers it, or it is a conversation.
pub(crate) fn takes_its_time(target: &Target<'_>) -> bool {
    target.subresource.is_some_and(|sub| sub.name == "proxy" || agent::PARTS.contains(&sub.name))
}

/// Carries out a request that somebody else answers.
pub(crate) async fn converse(
    shared: &Arc<Shared>,
    ask: &Ask<'_>,
    target: &Target<'_>,
    sent: Sent,
) -> Result<Reply, Status> {
    check_url_name(target)?;
    let warnings = connect::admit(shared, ask, target).await?;
    let part = target.subresource.map_or("", |sub| sub.name);
    let mut reply = match agent::PARTS.into_iter().find(|name| *name == part) {
        Some(part) => agent::pod(shared, ask, target, part, sent).await?,
        None => proxy::proxy(shared, ask, target, sent).await?,
    };
    reply.warnings.extend(warnings);
    Ok(reply)
}

/// Carries out any other request.
pub(crate) async fn run(
    shared: &Arc<Shared>,
    ask: &Ask<'_>,
    target: &Target<'_>,
    verb: &str,
    body: &[u8],
    warnings: &mut Vec<String>,
) -> Result<Reply, Status> {
    check_url_name(target)?;
    if target.kind.plural == kinds::binding::KIND.plural {
        return placement::bind(shared, ask, target, body, warnings).await;
    }
    if target.kind.table.is_empty() {
        return review(shared, ask, target, body, warnings);
    }
    match target.subresource.map_or("", |sub| sub.name) {
        SCALE => return scale::run(shared, ask, target, verb, body, warnings).await,
        part if target.kind.plural == "pods" && UNSERVED.contains(&part) => return unserved(shared, target, part),
        _ => {}
    }
    match verb {
        "get" => read::get(shared, ask, target).await,
        "list" => read::list(shared, ask, target).await,
        "watch" => read::watch(shared, ask, target).await,
        "create" if target.subresource.is_some() => write::create_part(shared, ask, target, body, warnings).await,
        "create" => write::create(shared, ask, target, body, warnings).await,
        "update" => write::update(shared, ask, target, body, warnings).await,
        "patch" => patch::patch(shared, ask, target, body, warnings).await,
        "delete" => delete::delete(shared, ask, target, body, warnings).await,
        "deletecollection" => delete::delete_collection(shared, ask, target, body, warnings).await,
        _ => Err(Status::method_not_allowed()),
    }
}

fn check_url_name(target: &Target<'_>) -> Result<(), Status> {
    let Some(name) = target.name else { return Ok(()) };
    let wrong = names::name_is_path_segment(name, false);
    if wrong.is_empty() {
        return Ok(());
    }
    let name = api::field::quote(name);
    Err(Status::bad_request(format!("Name parameter invalid: {name}: {}", wrong.join(", "))))
}

/// The answer to a request about a part of a Pod where no agent runs.
fn unserved(shared: &Shared, target: &Target<'_>, part: &str) -> Result<Reply, Status> {
    let name = target.name.unwrap_or_default();
    let entry = shared.registry.store.get(&crate::registry::key(target.kind, target.namespace, name));
    let entry = entry.ok_or_else(|| Status::not_found(target.kind.resource(), name))?;
    Err(match (part, crate::view::read(target.kind, &entry).text("spec.nodeName")) {
        // Nothing can have been written yet.
        ("log", "") => return Ok(Reply::no_content()),
        ("ephemeralcontainers", _) => Status::bad_request(format!(
            "ephemeral containers cannot be added to pod {name}: this cluster does not run them; use kubectl exec, or kubectl debug \
             with --copy-to"
        )),
        (_, "") => Status::bad_request(format!("pod {name} does not have a host assigned")),
        (_, node) => Status::unavailable(format!("{part} of pod {name}: no agent runs on node {node}")),
    })
}

/// Kinds that are answered and not stored.
fn review(
    shared: &Arc<Shared>,
    ask: &Ask<'_>,
    target: &Target<'_>,
    body: &[u8],
    warnings: &mut Vec<String>,
) -> Result<Reply, Status> {
    let options = WriteOptions::create(&ask.query)?;
    let media = crate::negotiate::body_media(ask.header(header::CONTENT_TYPE))?;
    let mut object = crate::body::object(target.kind, media, body, options.field_validation, warnings)?;
    if target.kind.namespaced {
        object.put("metadata.namespace", target.namespace);
    }
    let api_version = target.kind.api_version();
    object.put("kind", target.kind.kind);
    object.put("apiVersion", &*api_version);
    let name = manager(ask, &options.field_manager);
    let manager = apply::Manager { name: &name, api_version: &api_version, subresource: "" };
    apply::track_update(target.kind.type_id(), None, &mut object, &manager, &lifecycle::seconds(ask.now));
    let asked = reviews::Asked { user: ask.user, authn: &shared.authn, authorizer: &shared.registry.authorizer };
    let answer = reviews::review(target.kind, &object, &asked, ask.now)?;
    Ok(Reply::document(201, ask.view.object(target.kind, answer)?))
}

/// A call of the registry.
fn call<'a>(ask: &Ask<'a>, target: &Target<'a>, manager: &'a str, dry_run: bool) -> Call<'a> {
    Call {
        kind: target.kind,
        namespace: target.namespace,
        subresource: target.subresource,
        manager,
        dry_run,
        now: ask.now,
        user: ask.user,
        audit: Some(ask.audit),
    }
}

/// The subject of an admission request: a message to the object of a URL, or a connection to it.
fn about<'a>(target: &Target<'_>, operation: Operation, name: &'a str) -> About<'a> {
    About { operation, kind: target.kind, subresource: target.subresource, name }
}

/// Who owns what this request writes: the manager it names, or its program.
fn manager(ask: &Ask<'_>, named: &str) -> String {
    if !named.is_empty() {
        return named.to_owned();
    }
    let agent = ask.header(header::USER_AGENT).unwrap_or_default();
    let program = agent.split('/').next().unwrap_or_default();
    let mut out = String::new();
    for c in program.chars().filter(|c| !c.is_control()) {
        if out.len() + c.len_utf8() > MANAGER_LIMIT {
            break;
        }
        out.push(c);
    }
    if out.is_empty() { "unknown".to_owned() } else { out }
}

/// The answer to a write.
fn written(ask: &Ask<'_>, target: &Target<'_>, outcome: Outcome) -> Result<Reply, Status> {
    let document = match outcome.shown {
        Shown::Entry(entry) => ask.view.entry(target.kind, &entry)?,
        Shown::Object(object) => ask.view.object(target.kind, object)?,
        Shown::Status(status) => ask.view.success(&status),
    };
    Ok(Reply::document(outcome.code, document))
}
