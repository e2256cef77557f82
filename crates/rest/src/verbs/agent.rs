//! `pods/NAME/{log,exec,attach,portforward}` and `nodes/NAME/proxy`: what only the agent of a node can answer.
//!
//! In: the request of a client, in the words of the API. Out: the same request in the words of a kubelet, sent to the agent of the Pod's
//! node over TLS with the server's own certificate; then its answer, or its bytes. Which container is meant is decided here.
//!
//! Nodes say themselves where their agents are, and whoever may read logs has the server connect there. So only some addresses are dialled
//! ([`crate::dial`]), and who has no right to the Node learns nothing of an attempt that fails, neither from its text nor from its time.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
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

use crate::authz::Attributes;
use crate::forward::{self, Outward, Sent};
use crate::handler::{Ask, Shared};
use crate::query;
use crate::reply::{Body, Reply};
use crate::route::Target;

/// Parts of a Pod that its agent serves.
pub(super) const PARTS: [&str; 4] = ["attach", "exec", "log", "portforward"];
/// The port of an agent whose Node does not name one.
const PORT: u16 = 10250;
/// How long it may take until an agent has shown who it is.
const CONNECT: Duration = Duration::from_secs(5);
/// How much of a refusal is read.
const REFUSAL: usize = 50_000;
/// What `nodes/proxy` leads to.
const PATHS: [&str; 9] =
    ["attach", "containerLogs", "exec", "healthz", "metrics", "pods", "portForward", "runningpods", "waypost"];

/// Answers a request about a part of a Pod.
pub(super) async fn pod(
    shared: &Arc<Shared>,
    ask: &Ask<'_>,
    target: &Target<'_>,
    part: &'static str,
    sent: Sent,
) -> Result<Reply, Status> {
    let name = target.name.unwrap_or_default();
    if part != "log" {
        may_create(shared, ask)?;
    }
    let found = stored(shared, target.kind, &format!("{}/{name}", target.namespace));
    let pod = found.ok_or_else(|| Status::not_found(target.kind.resource(), name))?;
    let (namespace, node) = (target.namespace, pod.text("spec.nodeName"));
    let path = match part {
        "portforward" => format!("/portForward/{namespace}/{name}{}", ports(&ask.query)),
        "log" => {
            let query = log_query(&ask.query)?;
            format!("/containerLogs/{namespace}/{name}/{}{query}", container(&pod, ask.param("container"))?)
        }
        _ => format!("/{part}/{namespace}/{name}/{}{}", container(&pod, ask.param("container"))?, switches(&ask.query)),
    };
    if node.is_empty() && part == "log" {
        // Nothing can have been written yet.
        return Ok(Reply::no_content());
    }
    if node.is_empty() {
        return Err(Status::bad_request(format!("pod {name} does not have a host assigned")));
    }
    let reply = to_agent(shared, ask, node, &path, sent).await?;
    understood(reply, name).await
}

/// Answers a request to the agent of a node.
pub(super) async fn node(
    shared: &Arc<Shared>,
    ask: &Ask<'_>,
    target: &Target<'_>,
    path: &str,
    sent: Sent,
) -> Result<Reply, Status> {
    let id = target.name.unwrap_or_default();
    let invalid = || Status::bad_request(format!("invalid node request {}", field::quote(id)));
    let (scheme, name, port) = super::proxy::split_id(id).ok_or_else(invalid)?;
    let own = agent_address(shared, name)?.port();
    if scheme == "http" || !port.is_empty() && port.parse() != Ok(own) {
        return Err(Status::bad_request(format!("only the agent of a node can be reached, at https:{name}:{own}")));
    }
    let first = path.trim_start_matches('/').split(['/', '?']).next().unwrap_or_default();
    if !PATHS.contains(&first) {
        let message = format!("the agent of a node has no {}; it has: {}", field::quote(first), PATHS.join(", "));
        return Err(Status::bad_request(message));
    }
    to_agent(shared, ask, name, path, sent).await
}

/// Whoever may only read must not get in by a GET: with WebSocket that is how getting in looks.
fn may_create(shared: &Shared, ask: &Ask<'_>) -> Result<(), Status> {
    if *ask.method != Method::GET {
        return Ok(());
    }
    shared.registry.authorizer.require(&Attributes { verb: "create", ..ask.info.attributes(ask.user) })
}

fn stored(shared: &Shared, kind: &'static Kind, name: &str) -> Option<Value> {
    let entry = shared.registry.store.get(&Key { table: Table::named(kind.table), name: name.into() })?;
    Some(object::decode(kind, &entry.value, entry.modified))
}

/// Which container is meant.
fn container(pod: &Value, asked: Option<&str>) -> Result<String, Status> {
    let name = pod.text("metadata.name");
    let lists = ["spec.initContainers", "spec.containers", "spec.ephemeralContainers"];
    let all: Vec<&str> =
        lists.iter().flat_map(|list| pod.items(list)).map(|container| container.text("name")).collect();
    let annotated = pod.at("metadata.annotations").get(DEFAULT_CONTAINER).and_then(Value::as_str);
    match (asked.filter(|asked| !asked.is_empty()), pod.items("spec.containers")) {
        (Some(asked), _) if all.contains(&asked) => Ok(asked.to_owned()),
        (Some(asked), _) => Err(Status::bad_request(format!("container {asked} is not valid for pod {name}"))),
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

/// A switch is on unless its value says no.
fn is_on(query: &Query, name: &str) -> bool {
    query::first(query, name).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
}

/// A query of these parameters, those without a value left out.
fn written<'a>(pairs: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> String {
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

/// The query of exec and attach, in the words of a kubelet.
fn switches(query: &Query) -> String {
    let on = |name| is_on(query, name).then_some("1");
    let streams = [("input", on("stdin")), ("output", on("stdout")), ("error", on("stderr")), ("tty", on("tty"))];
    let command = query.iter().filter(|(name, _)| name == "command").map(|(_, word)| ("command", Some(word.as_str())));
    written(streams.into_iter().chain(command))
}

fn ports(query: &Query) -> String {
    written(query.iter().filter(|(name, _)| name == "ports").map(|(_, port)| ("port", Some(port.as_str()))))
}

/// The query of a log, checked as the original checks it.
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
    let on = |name| is_on(query, name).then_some("true");
    Ok(written([
        ("follow", on("follow")),
        ("previous", on("previous")),
        ("timestamps", on("timestamps")),
        ("sinceSeconds", first("sinceSeconds")),
        ("sinceTime", first("sinceTime")),
        ("tailLines", first("tailLines")),
        ("limitBytes", first("limitBytes")),
    ]))
}

/// Where the agent of a node is: the node says so itself.
fn agent_address(shared: &Shared, name: &str) -> Result<SocketAddr, Status> {
    let nodes = Resource { group: "", plural: "nodes", kind: "Node" };
    let kind = kinds::find("", "v1", "nodes").ok_or_else(|| Status::not_found(nodes, name))?;
    let node = stored(shared, kind, name).ok_or_else(|| Status::not_found(nodes, name))?;
    let internal = node.items("status.addresses").iter().filter(|address| address.text("type") == "InternalIP");
    let address: Option<IpAddr> = internal.filter_map(|address| address.text("address").parse().ok()).next();
    let none = || Status::raw(format!("no preferred addresses found; node {name} has no InternalIP in its status"));
    let port = u16::try_from(node.int("status.daemonEndpoints.kubeletEndpoint.Port")).ok().filter(|port| *port > 0);
    Ok(SocketAddr::new(address.ok_or_else(none)?, port.unwrap_or(PORT)))
}

async fn to_agent(shared: &Shared, ask: &Ask<'_>, node: &str, path: &str, sent: Sent) -> Result<Reply, Status> {
    let address = agent_address(shared, node)?;
    let Some(tls) = shared.agents.as_ref().map(|identity| identity.get().agents_config()) else {
        return Err(Status::unavailable(format!("this server has no certificate for the agent of node {node}")));
    };
    let begun = Instant::now();
    let io = match shared.dial.agent(node, address, &super::proxy::service_ranges(shared)) {
        Ok(()) => forward::connect(address, Some(tls), CONNECT).await,
        Err(why) => Err(format!("{address} is no address of an agent: {why}")),
    };
    let io = match io {
        Ok(io) => io,
        Err(why) => return Err(unreachable(shared, ask, node, address, why, begun).await),
    };
    let failed = |why: String| Status::raw(format!("error dialing backend: {why}"));
    let outward = Outward { method: ask.method, path, host: &address.to_string(), headers: ask.headers };
    forward::send(io, &outward, sent).await.map_err(failed)
}

/// The answer when there is no agent that has shown who it is. Who may use `nodes/proxy` may know all of it. For others, whatever was
/// tried takes as long and sounds the same: they could otherwise find out which ports are open wherever a Node says that it is.
async fn unreachable(
    shared: &Shared,
    ask: &Ask<'_>,
    node: &str,
    address: SocketAddr,
    why: String,
    begun: Instant,
) -> Status {
    tracing::info!(node, %address, user = ask.user.name, path = ask.uri.path(), error = why, "failed to reach agent");
    let right = Attributes {
        user: ask.user,
        verb: "get",
        group: "",
        resource: "nodes",
        subresource: "proxy",
        name: node,
        namespace: "",
        fields: &[],
        path: None,
    };
    if shared.registry.authorizer.authorize(&right).allowed {
        return Status::raw(format!("error dialing backend: {why}{}", unknown_issuer(&why)));
    }
    tokio::time::sleep_until(begun + CONNECT).await;
    Status::raw(format!("error dialing backend: agent of node {node} is not reachable"))
}

/// What to do about an agent of the time before agents had a CA of their own.
fn unknown_issuer(why: &str) -> &'static str {
    if !why.contains("UnknownIssuer") {
        return "";
    }
    " (the certificate is not of this cluster's agent CA; if the node was not upgraded with the server, upgrade it, or remove \
     node/serving.crt in its data directory and restart it)"
}

/// An answer of an agent; refusals in the form of the API. Agents speak in sentences, as kubelets do, and kubectl takes a sentence with
/// a colon for YAML, in which it then finds no message. Only what is about protocols stays as it is: clients try another one then.
async fn understood(mut reply: Reply, name: &str) -> Result<Reply, Status> {
    if reply.code < 400 || reply.code == 403 {
        return Ok(reply);
    }
    let body = std::mem::replace(&mut reply.body, Body::Whole(None));
    let read = Limited::new(body, REFUSAL).collect().await.map_err(|error| Status::internal(error.to_string()))?;
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
    fn which_container_is_meant() {
        let one = json!({"metadata": {"name": "x"}, "spec": {"containers": [{"name": "a"}], "initContainers": [{"name": "i"}]}});
        let asked = |pod: &Value, name| container(pod, name).map_err(|status| (status.code, status.message));
        assert_eq!(asked(&one, None), Ok("a".to_owned()));
        assert_eq!(asked(&one, Some("")), Ok("a".to_owned()));
        assert_eq!(asked(&one, Some("i")), Ok("i".to_owned()));
        assert_eq!(asked(&one, Some("c")), Err((400, "container c is not valid for pod x".to_owned())));
        let mut two = json!({"metadata": {"name": "x"}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        let choose = "a container name must be specified for pod x, choose one of: [a b]";
        assert_eq!(asked(&two, None), Err((400, choose.to_owned())));
        two["metadata"]["annotations"] = json!({DEFAULT_CONTAINER: "b"});
        assert_eq!(asked(&two, None), Ok("b".to_owned()));
        two["metadata"]["annotations"] = json!({DEFAULT_CONTAINER: "gone"});
        assert_eq!(asked(&two, None), Err((400, choose.to_owned())));
    }

    #[test]
    fn questions_change_their_words() {
        let query =
            query::parse("container=c&command=sh&command=-c&command=a+%26+b%0A&stdin=true&stdout&stderr=false&tty=0");
        assert_eq!(switches(&query), "?input=1&output=1&command=sh&command=-c&command=a%20%26%20b%0A");
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
