//! The answer as text, one line for each endpoint, or as JSON.

use std::net::IpAddr;

use announce::who::Said;
use plan::oracle::Outcome;
use plan::why::{Candidate, EndpointTraffic, Port, TrafficPath, Unassigned};
use plan::{Frontend, PortKey};
use serde_json::{Value, json};

use super::super::view::kind;
use super::super::world::finding_lines;
use super::Answer;

/// For people.
pub(super) fn text(answer: &Answer) -> String {
    let explanation = &answer.explanation;
    let mut lines =
        vec![format!("Service {} ({}) on node {}", explanation.service, kind(&answer.service), explanation.node)];
    lines.push(format!("  policies  {}", policies(answer)));
    lines.push(format!("  rules     {}", rules(answer)));
    lines.extend(answer.announced.iter().map(|(ip, said)| format!("  announced {ip}: {}", announced(said))));
    lines.extend(finding_lines(&answer.findings));
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
        lines.extend(explanation.unassigned.iter().map(|one| format!("  out  {}", left(one))));
    }
    lines.push(String::new());
    lines.extend(explanation.problems.iter().chain(&answer.missing).map(|problem| format!("note: {problem}")));
    lines.extend(answer.view.assumption().map(|assumption| format!("note: {assumption}")));
    lines.push(explanation.summary());
    lines.join("\n") + "\n"
}

/// The announcement of an address as text.
fn announced(said: &Said) -> String {
    match said {
        Said::Announced { how, .. } => how.clone(),
        Said::Nobody { why, fix } => format!("not announced: {why}; see `{fix}`"),
        Said::NotOurs(why) => why.clone(),
        Said::Unknown { why, how } => format!("not measured: {why} (to measure: {how})"),
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
    format!("traffic from inside {internal}{external}{affinity}{ranges}")
}

/// Whether the kernel of the node has what is planned, as the node says.
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
    format!("{name}{number}/{} ({})", key.protocol, key.family.as_str())
}

/// The address of a frontend, as people type it.
fn frontend(frontend: &Frontend) -> String {
    match frontend {
        Frontend::Address(ip, _, port) => std::net::SocketAddr::new(*ip, *port).to_string(),
        Frontend::NodePort(_, _, port) => format!("*:{port}"),
    }
}

/// The ways to a port; senders to whom the same happens share a line.
fn grouped(ways: &[TrafficPath]) -> Vec<String> {
    let mut lines: Vec<(String, Vec<String>, String)> = Vec::new();
    for way in ways {
        let at = format!("{} {}", way.role, frontend(&way.frontend));
        let (sender, verdict) = (way.sender.to_string(), way.verdict());
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

/// What an endpoint that gets traffic does not get, and why.
fn partly(port: &Port, one: &Candidate) -> String {
    let mut said: Vec<(String, Vec<String>)> = Vec::new();
    let last_resort =
        one.traffic.iter().any(|stand| matches!(stand, EndpointTraffic::Receives { last_resort: true, .. }));
    for (way, stand) in port.paths.iter().zip(&one.traffic) {
        let EndpointTraffic::Excluded(out) = stand else { continue };
        let (why, by) = (out.to_string(), format!("{} by its {}", way.sender, way.role));
        match said.iter_mut().find(|(said, _)| *said == why) {
            Some((_, ways)) if ways.contains(&by) => {}
            Some((_, ways)) => ways.push(by),
            None => said.push((why, vec![by])),
        }
    }
    let mut out = if last_resort { "  terminating, and nothing better is left".to_owned() } else { String::new() };
    for (why, ways) in said {
        out += &format!("  but nothing {}: {why}", ways.join(", "));
    }
    out
}

fn left(one: &Unassigned) -> String {
    let pod = one.pod.as_deref().filter(|pod| *pod != one.what).map(|pod| format!("  {pod}")).unwrap_or_default();
    let slice = one.slice.as_deref().map(|slice| format!("  in slice {slice}")).unwrap_or_default();
    format!("{}{pod}{slice}  {}", one.what, one.out)
}

/// For programs.
pub(super) fn json(answer: &Answer) -> Value {
    let explanation = &answer.explanation;
    let spec = &answer.service.spec;
    json!({
        "service": explanation.service, "type": kind(&answer.service), "node": explanation.node, "summary": explanation.summary(),
        "internalTrafficPolicy": spec.internal_traffic_policy, "externalTrafficPolicy": spec.external_traffic_policy,
        "measured": answer.view.report.is_ok(), "notMeasured": answer.view.report.as_ref().err(),
        "programmed": answer.programmed().map(|service| service["programmed"].clone()),
        "ports": explanation.ports.iter().map(port_json).collect::<Vec<_>>(),
        "left": explanation.unassigned.iter().map(left_json).collect::<Vec<_>>(),
        "announced": answer.announced.iter().map(announced_json).collect::<Vec<_>>(), "problems": explanation.problems, "missing": answer.missing,
        "findings": answer.findings.iter().map(diagnose::Finding::json).collect::<Vec<_>>(),
    })
}

fn announced_json((ip, said): &(IpAddr, Said)) -> Value {
    let (verdict, node) = match said {
        Said::Announced { node, .. } => ("announced", node.as_deref()),
        Said::Nobody { .. } => ("nobody", None),
        Said::NotOurs(_) => ("not ours", None),
        Said::Unknown { .. } => ("not measured", None),
    };
    json!({"address": ip.to_string(), "verdict": verdict, "node": node, "why": announced(said)})
}

fn port_json(port: &Port) -> Value {
    let planned = &port.planned;
    let candidate = |one: &Candidate| {
        let stands: Vec<Value> =
            port.paths.iter().zip(&one.traffic).map(|(way, stand)| stand_json(way, stand)).collect();
        json!({
            "address": one.place(), "node": one.node, "pod": one.pod, "in": one.is_in(),
            "why": one.out().map(ToString::to_string), "ways": stands,
        })
    };
    json!({
        "name": &*planned.key.port, "protocol": planned.key.protocol.as_str(), "family": planned.key.family.as_str(),
        "port": planned.port, "affinitySeconds": planned.affinity,
        "ways": port.paths.iter().map(way_json).collect::<Vec<_>>(),
        "endpoints": port.candidates.iter().map(candidate).collect::<Vec<_>>(),
    })
}

fn way_json(way: &TrafficPath) -> Value {
    let backends = match &way.outcome {
        Outcome::Forward(forward) if way.taken.is_none() => forward.backends.len(),
        _ => 0,
    };
    json!({
        "frontend": frontend(&way.frontend), "kind": way.role.to_string(), "sender": way.sender.to_string(),
        "backends": backends, "verdict": way.verdict(), "rule": way.rule.map(|rule| rule.to_string()),
    })
}

fn stand_json(way: &TrafficPath, stand: &EndpointTraffic) -> Value {
    let (share, why) = match stand {
        EndpointTraffic::Receives { of, .. } => (json!(format!("1/{of}")), Value::Null),
        EndpointTraffic::Excluded(out) => (Value::Null, json!(out.to_string())),
    };
    json!({"frontend": frontend(&way.frontend), "sender": way.sender.to_string(), "share": share, "why": why})
}

fn left_json(one: &Unassigned) -> Value {
    json!({"what": one.what, "pod": one.pod, "slice": one.slice, "why": one.out.to_string()})
}
