//! The explanation as text, one line for each endpoint, or as JSON.

use std::net::IpAddr;

use plan::oracle::Outcome;
use plan::why::{Candidate, EndpointTraffic, Port, TrafficPath, Unassigned};
use plan::{Frontend, Policy, PortKey, RedirectedFrontends};
use serde_json::{Value, json};

use super::super::cluster::finding_lines;
use super::super::node_view::kind;
use super::super::routes::add as add_item;
use super::Answer;
use crate::host::Announcement;

/// As text.
pub(super) fn text(answer: &Answer) -> String {
    let explanation = &answer.explanation;
    let mut lines =
        vec![format!("Service {} ({}) on node {}", explanation.service, kind(&answer.service), explanation.node)];
    lines.push(format!("  policies  {}", policies(answer)));
    lines.push(format!("  rules     {}", rules(answer)));
    lines.extend(
        answer.announced.iter().map(|(ip, announcement)| format!("  announced {ip}: {}", announced(announcement))),
    );
    lines.extend(finding_lines(&answer.findings));
    answer.layer_7.iter().for_each(|item| add_item(item, 1, &mut lines));
    for port in &explanation.ports {
        lines.push(String::new());
        lines.push(format!("port {}", port_name(&port.planned.key, port.planned.port)));
        lines.extend(grouped(&port.paths).into_iter().map(|line| format!("  {line}")));
        let width = port.candidates.iter().map(|one| one.place().len()).max().unwrap_or_default();
        lines.extend(port.candidates.iter().map(|one| format!("  {}", candidate(port, one, width))));
        if port.candidates.is_empty() {
            lines.push("  no endpoint".to_owned());
        }
    }
    if !explanation.unassigned.is_empty() {
        lines.push(String::new());
        lines.push("behind no port".to_owned());
        lines.extend(explanation.unassigned.iter().map(|one| format!("  out  {}", unassigned(one))));
    }
    lines.push(String::new());
    lines.extend(explanation.problems.iter().chain(&answer.missing).map(|problem| format!("note: {problem}")));
    lines.extend(answer.view.assumption().map(|assumption| format!("note: {assumption}")));
    lines.push(explanation.summary());
    lines.join("\n") + "\n"
}

/// The announcement of an address as text.
fn announced(announcement: &Announcement) -> String {
    match announcement {
        Announcement::Announced { how, .. } => how.clone(),
        Announcement::NotAnnounced { why, fix } => format!("not announced: {why}; see `{fix}`"),
        Announcement::NotOurs(why) => why.clone(),
        Announcement::Unknown { why, how } => format!("not measured: {why} (to measure: {how})"),
    }
}

fn policies(answer: &Answer) -> String {
    let spec = &answer.service.spec;
    let internal = spec.internal_traffic_policy.as_deref().unwrap_or("Cluster");
    let external = spec.external_traffic_policy.as_deref();
    let external = external.map(|policy| format!(", from outside {policy}")).unwrap_or_default();
    let affinity = match answer.explanation.ports.first().and_then(|port| port.planned.affinity) {
        Some(seconds) => format!("; a client stays with its endpoint for {seconds} s"),
        None => String::new(),
    };
    let ranges = spec.load_balancer_source_ranges.join(", ");
    let ranges = if ranges.is_empty() { ranges } else { format!("; its load balancer lets in {ranges}") };
    let policy = answer.explanation.ports.first().map(|port| port.planned.balancing.policy()).unwrap_or_default();
    let balancing = if policy == Policy::Random { String::new() } else { format!("; load balancing {policy}") };
    format!("traffic from inside {internal}{external}{balancing}{affinity}{ranges}")
}

/// Whether the kernel of the node has the planned rules, as it reports.
fn rules(answer: &Answer) -> String {
    let Ok(report) = &answer.view.report else { return "not measured".to_owned() };
    let mode = report["mode"].as_str().unwrap_or("?");
    match answer.programmed() {
        None => format!("none for this Service, as the node reports ({mode})"),
        Some(service) if service["programmed"] == true => {
            format!("in the kernel as planned, as the node reports ({mode})")
        }
        Some(service) => {
            format!("not as planned, as the node reports ({mode}): {}", service["why"].as_str().unwrap_or_default())
        }
    }
}

fn port_name(key: &PortKey, number: u16) -> String {
    let name = if key.port.is_empty() { String::new() } else { format!("{} ", key.port) };
    let place = key.redirected.map_or("", RedirectedFrontends::suffix);
    format!("{name}{number}/{}{place} ({})", key.protocol, key.family.as_str())
}

/// The address of a frontend.
fn frontend(frontend: &Frontend) -> String {
    match frontend {
        Frontend::Address(ip, _, port) => std::net::SocketAddr::new(*ip, *port).to_string(),
        Frontend::NodePort(_, _, port) => format!("*:{port}"),
    }
}

/// The paths to a port; sources with the same result share a line.
fn grouped(paths: &[TrafficPath]) -> Vec<String> {
    let mut lines: Vec<(String, Vec<String>, String)> = Vec::new();
    for path in paths {
        let at = format!("{} {}", path.role, frontend(&path.frontend));
        let (sender, verdict) = (path.sender.to_string(), path.verdict());
        match lines.iter_mut().find(|line| line.0 == at && line.2 == verdict) {
            Some(line) => line.1.push(sender),
            None => lines.push((at, vec![sender], verdict)),
        }
    }
    lines.into_iter().map(|(at, senders, verdict)| format!("{at}: traffic {} {verdict}", senders.join(", "))).collect()
}

fn candidate(port: &Port, one: &Candidate, width: usize) -> String {
    let mark = if one.is_in() { "in " } else { "out" };
    let place = one.place();
    let pod = one.pod.as_deref().map(|pod| format!("  {pod}")).unwrap_or_default();
    let node = one.node.as_deref().map(|node| format!("  on {node}")).unwrap_or_default();
    let why = match (one.is_in(), one.out()) {
        (false, Some(out)) => format!("  {out}"),
        _ => partly(port, one),
    };
    format!("{mark}  {place:width$}{pod}{node}{why}")
}

/// Traffic that an endpoint does not get, and why.
fn partly(port: &Port, one: &Candidate) -> String {
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    let last_resort =
        one.traffic.iter().any(|traffic| matches!(traffic, EndpointTraffic::Receives { last_resort: true, .. }));
    for (path, traffic) in port.paths.iter().zip(&one.traffic) {
        let EndpointTraffic::Excluded(out) = traffic else { continue };
        let (why, by) = (out.to_string(), format!("{} by its {}", path.sender, path.role));
        match reasons.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, paths)) if paths.contains(&by) => {}
            Some((_, paths)) => paths.push(by),
            None => reasons.push((why, vec![by])),
        }
    }
    let mut out = if last_resort { "  terminating, and nothing better is left".to_owned() } else { String::new() };
    for (why, paths) in reasons {
        out += &format!("  but nothing {}: {why}", paths.join(", "));
    }
    out
}

fn unassigned(one: &Unassigned) -> String {
    let pod = one.pod.as_deref().filter(|pod| *pod != one.what).map(|pod| format!("  {pod}")).unwrap_or_default();
    let slice = one.slice.as_deref().map(|slice| format!("  in slice {slice}")).unwrap_or_default();
    format!("{}{pod}{slice}  {}", one.what, one.out)
}

/// As JSON.
pub(super) fn json(answer: &Answer) -> Value {
    let explanation = &answer.explanation;
    let spec = &answer.service.spec;
    json!({
        "service": explanation.service, "type": kind(&answer.service), "node": explanation.node, "summary": explanation.summary(),
        "internalTrafficPolicy": spec.internal_traffic_policy, "externalTrafficPolicy": spec.external_traffic_policy,
        "measured": answer.view.report.is_ok(), "notMeasured": answer.view.report.as_ref().err().map(ToString::to_string),
        "programmed": answer.programmed().map(|service| service["programmed"].clone()),
        "ports": explanation.ports.iter().map(port_json).collect::<Vec<_>>(),
        "left": explanation.unassigned.iter().map(unassigned_json).collect::<Vec<_>>(),
        "announced": answer.announced.iter().map(announced_json).collect::<Vec<_>>(), "problems": explanation.problems, "missing": answer.missing,
        "layer7": answer.layer_7,
        "findings": answer.findings.iter().map(diagnose::Finding::json).collect::<Vec<_>>(),
    })
}

fn announced_json((ip, announcement): &(IpAddr, Announcement)) -> Value {
    let (verdict, node) = match announcement {
        Announcement::Announced { node, .. } => ("announced", node.as_deref()),
        Announcement::NotAnnounced { .. } => ("not announced", None),
        Announcement::NotOurs(_) => ("not ours", None),
        Announcement::Unknown { .. } => ("not measured", None),
    };
    json!({"address": ip.to_string(), "verdict": verdict, "node": node, "why": announced(announcement)})
}

fn port_json(port: &Port) -> Value {
    let planned = &port.planned;
    let candidate = |one: &Candidate| {
        let traffic: Vec<Value> =
            port.paths.iter().zip(&one.traffic).map(|(path, traffic)| traffic_json(path, traffic)).collect();
        json!({
            "address": one.place(), "node": one.node, "pod": one.pod, "in": one.is_in(),
            "why": one.out().map(ToString::to_string), "ways": traffic,
        })
    };
    json!({
        "name": &*planned.key.port, "protocol": planned.key.protocol.as_str(), "family": planned.key.family.as_str(),
        "port": planned.port, "redirected": planned.key.redirected.is_some(),
        "servedBy": planned.served_by().map(ToString::to_string), "affinitySeconds": planned.affinity,
        "ways": port.paths.iter().map(path_json).collect::<Vec<_>>(),
        "endpoints": port.candidates.iter().map(candidate).collect::<Vec<_>>(),
    })
}

fn path_json(path: &TrafficPath) -> Value {
    let backends = match &path.outcome {
        Outcome::Forward(forward) if path.taken.is_none() => forward.backends.len(),
        _ => 0,
    };
    json!({
        "frontend": frontend(&path.frontend), "kind": path.role.to_string(), "sender": path.sender.to_string(),
        "backends": backends, "verdict": path.verdict(), "rule": path.rule.map(|rule| rule.to_string()),
    })
}

fn traffic_json(path: &TrafficPath, traffic: &EndpointTraffic) -> Value {
    let (share, why) = match traffic {
        EndpointTraffic::Receives { share, of, .. } => (json!(format!("{share}/{of}")), Value::Null),
        EndpointTraffic::Excluded(out) => (Value::Null, json!(out.to_string())),
    };
    json!({"frontend": frontend(&path.frontend), "sender": path.sender.to_string(), "share": share, "why": why})
}

fn unassigned_json(one: &Unassigned) -> Value {
    json!({"what": one.what, "pod": one.pod, "slice": one.slice, "why": one.out.to_string()})
}
