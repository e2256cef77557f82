//! `pods/NAME/{log,exec,attach,portforward}` and `nodes/NAME/proxy`: requests that the agent of a node serves.
//!
//! In: a request to the API. Out: the same request to the kubelet API of the node's agent, over TLS with the client certificate of the
//! server; then its response or stream. The container is chosen here.
//!
//! Nodes report the addresses of their agents, and users who may read logs make the server connect to them. So only some addresses
//! are dialed ([`crate::dial`]), and users without permission for the Node learn nothing about a failed attempt, neither from its error
//! nor from its duration.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use api::field::{self, Errors};
use api::kind::Kind;
use api::kinds;
use api::object;
use api::status::{Resource, Status};
use api::value::ValueExt as _;
use api::view::annotations::DEFAULT_CONTAINER;
use http::Method;
use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;
use serde_json::Value;
use store::{Key, Table};
use tokio::time::Instant;

use super::api_request::ApiRequest;
use crate::authz::Attributes;
use crate::forward::{self, BackendRequest, ClientBody, ForwardError};
use crate::handler::Shared;
use crate::query;
use crate::reply::{Body, Reply};

/// Subresources of a Pod that its agent serves.
pub(super) const SUBRESOURCES: [&str; 4] = ["attach", "exec", "log", "portforward"];
/// The port of an agent whose Node does not report one.
const DEFAULT_PORT: u16 = 10250;
/// The timeout for connecting to an agent, including the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of an error response is read, in bytes.
const MAX_ERROR_BODY: usize = 50_000;
/// The first segments of paths that `nodes/proxy` forwards.
const PATHS: [&str; 10] =
    ["attach", "containerLogs", "exec", "healthz", "logs", "metrics", "pods", "portForward", "runningpods", "waypost"];

/// Forwards a request for a subresource of a Pod.
pub(super) async fn pod(request: &ApiRequest<'_>, part: &str, sent: ClientBody) -> Result<Reply, Status> {
    let ApiRequest { shared, context, target, name, .. } = *request;
    if part != "log" {
        may_create(request)?;
    }
    let found = stored(shared, target.kind, &format!("{}/{name}", target.namespace));
    let pod = found.ok_or_else(|| Status::not_found(target.kind.resource(), name))?;
    let (namespace, node) = (target.namespace, pod.text("spec.nodeName"));
    let path = match part {
        "portforward" => format!("/portForward/{namespace}/{name}{}", ports(&context.query)),
        "log" => {
            let query = log_query(&context.query)?;
            format!("/containerLogs/{namespace}/{name}/{}{query}", container(&pod, context.param("container"))?)
        }
        _ => format!(
            "/{part}/{namespace}/{name}/{}{}",
            container(&pod, context.param("container"))?,
            stream_query(&context.query)
        ),
    };
    if node.is_empty() && part == "log" {
        // The container has not started: the log is empty.
        return Ok(Reply::no_content());
    }
    if node.is_empty() {
        return Err(Status::bad_request(format!("pod {name} does not have a host assigned")));
    }
    let reply = to_agent(request, node, &path, sent).await?;
    translate_errors(reply, name).await
}

/// Forwards a request to the agent of a node.
pub(super) async fn node(request: &ApiRequest<'_>, path: &str, sent: ClientBody) -> Result<Reply, Status> {
    let id = request.name;
    let invalid = || Status::bad_request(format!("invalid node request {}", field::quote(id)));
    let (scheme, name, port) = super::proxy::split_id(id).ok_or_else(invalid)?;
    let own = agent_address(request.shared, name)?.port();
    if scheme == "http" || !port.is_empty() && port.parse() != Ok(own) {
        return Err(Status::bad_request(format!("only the agent of a node can be reached, at https:{name}:{own}")));
    }
    let first = path.trim_start_matches('/').split(['/', '?']).next().unwrap_or_default();
    if !PATHS.contains(&first) {
        let message = format!("the agent of a node has no {}; it has: {}", field::quote(first), PATHS.join(", "));
        return Err(Status::bad_request(message));
    }
    to_agent(request, name, path, sent).await
}

/// A GET may be a WebSocket upgrade, so `exec`, `attach` and `portforward` by GET need the permission to create.
fn may_create(request: &ApiRequest<'_>) -> Result<(), Status> {
    let context = request.context;
    if *context.method != Method::GET {
        return Ok(());
    }
    let create = Attributes { verb: "create", ..context.info.attributes(context.user) };
    request.shared.registry.authorizer.require(&create)
}

fn stored(shared: &Shared, kind: &'static Kind, name: &str) -> Option<Value> {
    let entry = shared.registry.store.get(&Key { table: Table::named(kind.table), name: name.into() })?;
    Some(object::decode(kind, &entry.value, entry.modified))
}

/// Chooses the container.
fn container(pod: &Value, requested: Option<&str>) -> Result<String, Status> {
    let name = pod.text("metadata.name");
    let lists = ["spec.initContainers", "spec.containers", "spec.ephemeralContainers"];
    let all: Vec<&str> =
        lists.iter().flat_map(|list| pod.items(list)).map(|container| container.text("name")).collect();
    let annotated = pod.at("metadata.annotations").get(DEFAULT_CONTAINER).and_then(Value::as_str);
    match (requested.filter(|requested| !requested.is_empty()), pod.items("spec.containers")) {
        (Some(requested), _) if all.contains(&requested) => Ok(requested.to_owned()),
        (Some(requested), _) => Err(Status::bad_request(format!("container {requested} is not valid for pod {name}"))),
        (None, [only]) => Ok(only.text("name").to_owned()),
        (None, []) => Err(Status::bad_request(format!("a container name must be specified for pod {name}"))),
        (None, _) => match annotated.filter(|annotated| all.contains(annotated)) {
            Some(annotated) => Ok(annotated.to_owned()),
            None => Err(Status::bad_request(format!(
                "a container name must be specified for pod {name}, choose one of: [{}]",
                all.join(" ")
            ))),
        },
    }
}

type Query = [(String, String)];

/// A flag is true unless its value is `0` or `false`.
fn is_true(query: &Query, name: &str) -> bool {
    query::first(query, name).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
}

/// A query string of the parameters that have a value.
fn query_string<'a>(pairs: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> String {
    let mut out = String::new();
    for (name, value) in pairs {
        if let Some(value) = value {
            out.push(if out.is_empty() { '?' } else { '&' });
            out.push_str(name);
            out.push('=');
            out.push_str(&query::encode(value));
        }
    }
    out
}

/// The query of exec and attach for a kubelet.
fn stream_query(query: &Query) -> String {
    let on = |name| is_true(query, name).then_some("1");
    let streams = [("input", on("stdin")), ("output", on("stdout")), ("error", on("stderr")), ("tty", on("tty"))];
    let command = query.iter().filter(|(name, _)| name == "command").map(|(_, word)| ("command", Some(word.as_str())));
    query_string(streams.into_iter().chain(command))
}

fn ports(query: &Query) -> String {
    query_string(query.iter().filter(|(name, _)| name == "ports").map(|(_, port)| ("port", Some(port.as_str()))))
}

/// The query of a log, validated as in kube-apiserver.
fn log_query(query: &Query) -> Result<String, Status> {
    let mut errors = Errors::default();
    let first = |name| query::first(query, name).filter(|value| !value.is_empty());
    for (name, least) in [("tailLines", 0), ("sinceSeconds", 1), ("limitBytes", 1)] {
        let Some(text) = first(name) else { continue };
        let number: i64 = text.parse().map_err(|_| {
            let text = field::quote(text);
            Status::bad_request(format!("strconv.ParseInt: parsing {text}: invalid syntax"))
        })?;
        if number < least {
            let why = if least == 0 { "must be greater than or equal to 0" } else { "must be greater than 0" };
            errors.invalid(&field::Path::Root(name), number, why);
        }
    }
    if let Some(text) = first("sinceTime")
        && text.parse::<Timestamp>().is_err()
    {
        return Err(Status::bad_request(format!("sinceTime: {} is no RFC 3339 time", field::quote(text))));
    }
    if first("sinceTime").is_some() && first("sinceSeconds").is_some() {
        let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        errors.forbidden(&field::Path::Root(""), why);
    }
    if !errors.is_empty() {
        return Err(Status::invalid("", "PodLogOptions", "", &errors));
    }
    let on = |name| is_true(query, name).then_some("true");
    Ok(query_string([
        ("follow", on("follow")),
        ("previous", on("previous")),
        ("timestamps", on("timestamps")),
        ("sinceSeconds", first("sinceSeconds")),
        ("sinceTime", first("sinceTime")),
        ("tailLines", first("tailLines")),
        ("limitBytes", first("limitBytes")),
    ]))
}

/// The address of the agent of a node, from the status of its Node.
fn agent_address(shared: &Shared, name: &str) -> Result<SocketAddr, Status> {
    let nodes = Resource { group: "", plural: "nodes", kind: "Node" };
    let kind = kinds::find("", "v1", "nodes").ok_or_else(|| Status::not_found(nodes, name))?;
    let node = stored(shared, kind, name).ok_or_else(|| Status::not_found(nodes, name))?;
    let internal = node.items("status.addresses").iter().filter(|address| address.text("type") == "InternalIP");
    let address: Option<IpAddr> = internal.filter_map(|address| address.text("address").parse().ok()).next();
    let none = || Status::raw(format!("no preferred addresses found; node {name} has no InternalIP in its status"));
    let port = u16::try_from(node.int("status.daemonEndpoints.kubeletEndpoint.Port")).ok().filter(|port| *port > 0);
    Ok(SocketAddr::new(address.ok_or_else(none)?, port.unwrap_or(DEFAULT_PORT)))
}

async fn to_agent(request: &ApiRequest<'_>, node: &str, path: &str, sent: ClientBody) -> Result<Reply, Status> {
    let (shared, context) = (request.shared, request.context);
    let address = agent_address(shared, node)?;
    let Some(tls) = shared.agents.as_ref().map(|identity| identity.get().agents_config()) else {
        return Err(Status::unavailable(format!("this server has no certificate for the agent of node {node}")));
    };
    let started = Instant::now();
    let io = match shared.dial.agent(node, address, &super::proxy::service_ranges(shared)) {
        Ok(()) => forward::connect(address, Some(tls), CONNECT_TIMEOUT).await,
        Err(reason) => Err(ForwardError::NotAllowed { address, reason }),
    };
    let io = match io {
        Ok(io) => io,
        Err(error) => return Err(unreachable_error(request, node, address, error, started).await),
    };
    let failed = |error| Status::raw(format!("error dialing backend: {error}"));
    let backend = BackendRequest { method: context.method, path, host: &address.to_string(), headers: context.headers };
    forward::send(io, &backend, sent).await.map_err(failed)
}

/// The error when an agent cannot be reached or authenticated. Users with permission for `nodes/proxy` get the details. For others all
/// failures take the same time and have the same text: they could otherwise scan ports at addresses that a Node reports.
async fn unreachable_error(
    request: &ApiRequest<'_>,
    node: &str,
    address: SocketAddr,
    error: ForwardError,
    started: Instant,
) -> Status {
    let (user, path) = (request.context.user, request.context.uri.path());
    tracing::info!(node, %address, user = user.name, path, %error, "failed to reach agent");
    let right = Attributes {
        user,
        verb: "get",
        group: "",
        resource: "nodes",
        subresource: "proxy",
        name: node,
        namespace: "",
        fields: &[],
        path: None,
    };
    if request.shared.registry.authorizer.authorize(&right).allowed {
        let hint = if error.is_unknown_issuer() { UNKNOWN_ISSUER } else { "" };
        return Status::raw(format!("error dialing backend: {error}{hint}"));
    }
    tokio::time::sleep_until(started + CONNECT_TIMEOUT).await;
    Status::raw(format!("error dialing backend: agent of node {node} is not reachable"))
}

/// A hint for agents whose certificate predates the agent CA.
const UNKNOWN_ISSUER: &str = " (the certificate is not of this cluster's agent CA; if the node was not upgraded with the server, upgrade it, \
                              or remove node/serving.crt in its data directory and restart it)";

/// The response of an agent; errors become a Status. Kubelets and agents send plain text, and kubectl parses text with a colon as YAML and
/// loses the message. Errors of protocol negotiation (403) stay as they are: clients then try another protocol.
async fn translate_errors(mut reply: Reply, name: &str) -> Result<Reply, Status> {
    if reply.code < 400 || reply.code == 403 {
        return Ok(reply);
    }
    let body = std::mem::replace(&mut reply.body, Body::Whole(None));
    let read =
        Limited::new(body, MAX_ERROR_BODY).collect().await.map_err(|error| Status::internal(error.to_string()))?;
    let text = String::from_utf8_lossy(&read.to_bytes()).trim_end().to_owned();
    Err(match reply.code {
        400 => Status::bad_request(text),
        404 => Status { message: text, ..Status::not_found(Resource { group: "", plural: "pods", kind: "Pod" }, name) },
        503 => Status::unavailable(text),
        _ => Status::internal(text),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_container_is_chosen_by_name_or_default() {
        let one = json!({"metadata": {"name": "x"}, "spec": {"containers": [{"name": "a"}], "initContainers": [{"name": "i"}]}});
        let requested = |pod: &Value, name| container(pod, name).map_err(|status| (status.code, status.message));
        assert_eq!(requested(&one, None), Ok("a".to_owned()));
        assert_eq!(requested(&one, Some("")), Ok("a".to_owned()));
        assert_eq!(requested(&one, Some("i")), Ok("i".to_owned()));
        assert_eq!(requested(&one, Some("c")), Err((400, "container c is not valid for pod x".to_owned())));
        let mut two = json!({"metadata": {"name": "x"}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        let choose = "a container name must be specified for pod x, choose one of: [a b]";
        assert_eq!(requested(&two, None), Err((400, choose.to_owned())));
        two["metadata"]["annotations"] = json!({DEFAULT_CONTAINER: "b"});
        assert_eq!(requested(&two, None), Ok("b".to_owned()));
        two["metadata"]["annotations"] = json!({DEFAULT_CONTAINER: "gone"});
        assert_eq!(requested(&two, None), Err((400, choose.to_owned())));
    }

    #[test]
    fn queries_are_translated_for_kubelets() {
        let query =
            query::parse("container=c&command=sh&command=-c&command=a+%26+b%0A&stdin=true&stdout&stderr=false&tty=0");
        assert_eq!(stream_query(&query), "?input=1&output=1&command=sh&command=-c&command=a%20%26%20b%0A");
        assert_eq!(ports(&query::parse("ports=80&ports=81")), "?port=80&port=81");
        assert_eq!(ports(&[]), "");
        let log = |text: &str| log_query(&query::parse(text));
        assert_eq!(log("follow=true&tailLines=5&container=c").as_deref(), Ok("?follow=true&tailLines=5"));
        assert_eq!(
            log("sinceTime=2024-01-01T00:00:00%2B01:00").as_deref(),
            Ok("?sinceTime=2024-01-01T00%3A00%3A00%2B01%3A00")
        );
        assert_eq!(log("tailLines=-1").map_err(|status| status.code), Err(422));
        assert_eq!(log("sinceSeconds=1&sinceTime=2024-01-01T00:00:00Z").map_err(|status| status.code), Err(422));
        assert_eq!(log("tailLines=x").map_err(|status| status.code), Err(400));
    }
}
