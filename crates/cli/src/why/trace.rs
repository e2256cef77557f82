//! `waypost trace SRC svc:port`: what happens to a packet on a node, step by step; `waypost trace http://host/path`: which
//! rule of a Gateway or Ingress takes a request ([`super::request`]).
//!
//! In: the source and the destination of a packet; the objects, and the report of the node. Out: the steps and the verdict of
//! [`plan::oracle`], each endpoint that may get the packet, and what [`diagnose`] finds for the Service.

mod parse;

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, bail, ensure};
use api::ip::Family;
use clap::Args;
use diagnose::Finding;
use diagnose::layer7::request::Request;
use plan::oracle::{Outcome, Packet};
use plan::why::trace::{Trace, trace};
use plan::{Planner, Protocol, why};
use serde_json::{Value, json};

use self::parse::{Source, Target};
use super::cluster::{ClusterObjects, finding_lines};
use super::node_view::{self, NodeView};
use super::{Output, pretty, report, request, wait};
use crate::api_client::ApiFlags;
use crate::terminal;

/// Settings of the command.
#[derive(Args, Debug, Clone)]
pub struct Arguments {
    /// The source: a Pod, an address, `node` or `outside`; or the URL of an HTTP request
    #[arg(value_name = "SRC|URL")]
    source: String,
    /// The destination: SERVICE[.NAMESPACE]:PORT, IP:PORT or a node port; an arrow may be between the two
    #[arg(value_name = "svc:port", allow_hyphen_values = true)]
    target: Option<String>,
    /// The destination, after an arrow
    #[arg(hide = true)]
    after_arrow: Option<String>,
    /// The namespace of the Pod, and of the Service unless it names its own
    #[arg(short, long, default_value = "default", value_name = "NAMESPACE")]
    namespace: String,
    /// On this node [default: the Pod's own, this machine, or the first node there is]
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// The protocol, where a port number alone is ambiguous [default: that of the port, else TCP]
    #[arg(long, value_name = "TCP|UDP|SCTP", value_parser = read_protocol)]
    protocol: Option<Protocol>,
    /// The method of an HTTP request
    #[arg(short = 'X', long, default_value = "GET", value_name = "METHOD")]
    method: String,
    /// A header of an HTTP request, as 'Name: value'; may be given several times
    #[arg(short = 'H', long, value_name = "HEADER")]
    header: Vec<String>,
    /// The Gateway that gets the HTTP request [default: those that its address or host selects]
    #[arg(long, value_name = "NAMESPACE/NAME")]
    gateway: Option<String>,
    /// The server name of an https request [default: the host of the URL]
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: Output,
    #[command(flatten)]
    api: ApiFlags,
}

/// The trace with its context.
struct Answer {
    packet: Packet,
    trace: Trace,
    view: NodeView,
    /// The endpoints that may receive it, with their Pods.
    endpoints: Vec<(SocketAddr, Option<String>)>,
    /// The findings of [`diagnose`] for the Service.
    findings: Vec<Finding>,
}

/// Runs the command.
pub(crate) fn exec(arguments: &Arguments) -> anyhow::Result<()> {
    if request::is_url(&arguments.source) {
        return exec_request(arguments);
    }
    let answer = wait(find(arguments))?;
    terminal::print(&match arguments.output {
        Output::Text => text(&answer),
        Output::Json => pretty(&document(&answer)),
    })
}

/// The same for the URL of a request.
fn exec_request(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { source, target, method, header, gateway, sni, output, api, .. } = arguments;
    ensure!(
        target.is_none(),
        "a URL is the whole request: write `waypost trace URL`, without a source or destination, and `-X POST` with a space"
    );
    let request = Request::parse(source, method, header, sni.as_deref())?;
    let gateway = gateway.as_deref().map(|name| match name.contains('/') {
        true => name.to_owned(),
        false => format!("{}/{name}", arguments.namespace),
    });
    let found = wait(request::find(api, &request, gateway.as_deref()))?;
    terminal::print(&match output {
        Output::Text => request::text(&found),
        Output::Json => pretty(&request::json(&found)),
    })
}

async fn find(arguments: &Arguments) -> anyhow::Result<Answer> {
    let words: Vec<&str> = [Some(&arguments.source), arguments.target.as_ref(), arguments.after_arrow.as_ref()]
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect();
    let (source, target) = parse::split(&words)?;
    let (source, target) = (Source::read(source)?, Target::read(target)?);
    let mut api = arguments.api.client()?;
    let cluster = ClusterObjects::read(&mut api).await?;
    let namespace = &*arguments.namespace;
    let at_home = source.node(&cluster, namespace)?;
    let node = node_view::choose(&cluster, arguments.node.as_deref().or(at_home.as_deref()))?;
    let view = NodeView::of(&mut api, &cluster, &node, report::NO_SERVICE).await;
    let family = source.family(&cluster, namespace)?;
    let (destination, port, protocol) = target.find(&cluster, &view.planner, namespace, family, arguments.protocol)?;
    let packet = packet(&source, &cluster, &view.planner, namespace, (destination, port, protocol))?;
    let trace = trace(view.planner.plan(), &packet);
    let endpoints = match &trace.outcome {
        Outcome::Forward(forward) => {
            let named = |one: &plan::Backend| (SocketAddr::new(one.ip, one.port), cluster.pod_at(&one.ip.to_string()));
            forward.possible().iter().map(named).collect()
        }
        _ => Vec::new(),
    };
    let findings = target.service(&cluster, namespace).map(|service| cluster.findings(service)).unwrap_or_default();
    Ok(Answer { packet, trace, view, endpoints, findings })
}

/// The packet that the source would send.
fn packet(
    source: &Source,
    cluster: &ClusterObjects,
    planner: &Planner,
    namespace: &str,
    (destination, port, protocol): (IpAddr, u16, Protocol),
) -> anyhow::Result<Packet> {
    let plan = planner.plan();
    let family = Family::of(destination);
    let own = || {
        let node = &plan.options.node_name;
        let address = plan.node_ips.iter().find(|ip| Family::of(**ip) == family).copied();
        address.with_context(|| format!("the Node {node} names no {} address of its own", family.as_str()))
    };
    let (address, inside) = match source {
        Source::Node => (own()?, false),
        Source::Outside => (why::stranger(plan, family).context("every address belongs to the cluster")?, false),
        Source::Address(ip) => (*ip, cluster.pod_at(&ip.to_string()).is_some()),
        Source::Pod(name) => {
            let pod = parse::pod(cluster, namespace, name)?;
            (parse::pod_address(pod, family)?, true)
        }
    };
    if Family::of(address) != family {
        bail!("{address} cannot send to {destination}: they are of different families");
    }
    let from_node = plan.node_ips.contains(&address);
    let interface = match (from_node, inside) {
        (true, _) => None,
        (false, true) => Some(why::pod_interface(plan)),
        (false, false) => Some(String::new()),
    };
    Ok(Packet { source: address, from_node, interface, destination, protocol, port })
}

fn read_protocol(text: &str) -> anyhow::Result<Protocol> {
    Protocol::named(&text.to_uppercase()).with_context(|| format!("{text:?} is none of TCP, UDP and SCTP"))
}

fn text(answer: &Answer) -> String {
    let Answer { packet, trace, view, endpoints, findings } = answer;
    let to = SocketAddr::new(packet.destination, packet.port);
    let mut lines = vec![format!("{} -> {to}/{} on node {}", packet.source, packet.protocol, view.node)];
    for (number, step) in (1..).zip(&trace.steps) {
        lines.push(format!("{number:>2}  {:15} {}", step.at.as_str(), step.says));
        if step.at == why::trace::Stage::Candidates {
            lines.extend(endpoints.iter().map(|(at, pod)| {
                let pod = pod.as_deref().map(|pod| format!("  {pod}")).unwrap_or_default();
                format!("{:19} {at}{pod}", "")
            }));
        }
    }
    lines.extend(finding_lines(findings));
    lines.extend(view.assumption().map(|assumption| format!("note: {assumption}")));
    lines.join("\n") + "\n"
}

fn document(answer: &Answer) -> Value {
    let Answer { packet, trace, view, endpoints, findings } = answer;
    let verdict = match &trace.outcome {
        Outcome::Pass => "pass",
        Outcome::Refuse(_) => "refuse",
        Outcome::Drop(_) => "drop",
        Outcome::Forward(_) => "forward",
    };
    let (service, masquerade) = match &trace.outcome {
        Outcome::Forward(forward) => (Some(forward.port.to_string()), Some(forward.masquerade)),
        _ => (None, None),
    };
    let steps: Vec<Value> = trace.steps.iter().map(|step| json!({"at": step.at.as_str(), "says": step.says})).collect();
    let share = format!("1/{}", endpoints.len());
    let endpoint =
        |(at, pod): &(SocketAddr, Option<String>)| json!({"address": at.to_string(), "pod": pod, "share": share});
    json!({
        "source": packet.source.to_string(), "protocol": packet.protocol.as_str(), "node": view.node,
        "destination": SocketAddr::new(packet.destination, packet.port).to_string(), "verdict": verdict,
        "port": service, "masquerade": masquerade, "steps": steps,
        "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
        "findings": findings.iter().map(Finding::json).collect::<Vec<_>>(), "measured": view.report.is_ok(), "notMeasured": view.report.as_ref().err().map(ToString::to_string),
    })
}
