//! What to tell the author of a Pod that is allowed and surely not meant.

use std::collections::HashMap;

use serde_json::Value;

use crate::field::{Path, quote};
use crate::ip;
use crate::names;
use crate::value::ValueExt as _;

/// Warnings about a new Pod.
pub(super) fn collect(pod: &Value, out: &mut Vec<String>) {
    let wrong = names::dns_label(pod.text("metadata.name"));
    if !wrong.is_empty() {
        out.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label \
             is recommended: [{}]",
            wrong.join(" ")
        ));
    }
    collect_spec(&Path::Root("spec"), pod.at("spec"), out);
}

/// Warnings about the spec of a Pod or of a template.
pub(super) fn collect_spec(path: &Path<'_>, spec: &Value, out: &mut Vec<String>) {
    let (aliases, secrets) = (path.child("hostAliases"), path.child("imagePullSecrets"));
    repeated(&aliases, spec.items("hostAliases"), "ip", out);
    repeated(&secrets, spec.items("imagePullSecrets"), "name", out);
    for (index, secret) in spec.items("imagePullSecrets").iter().enumerate() {
        if secret.text("name").is_empty() {
            out.push(format!("{secrets}[{index}].name: invalid empty name \"\""));
        }
    }
    for (path, container) in containers(path, spec) {
        hidden_variables(&path, container.items("env"), out);
    }
    overlapping_ports(path, spec, out);
    repeated_port_names(path, spec, out);
    let config = path.child("dnsConfig");
    for (index, server) in spec.texts("dnsConfig.nameservers").into_iter().enumerate() {
        ip::warn_address(&config.child("nameservers").index(index), server, out);
    }
    for (index, alias) in spec.items("hostAliases").iter().enumerate() {
        ip::warn_address(&aliases.index(index).child("ip"), alias.text("ip"), out);
    }
}

/// Every container with its path, in the order of kube-apiserver.
fn containers<'s>(path: &Path<'_>, spec: &'s Value) -> impl Iterator<Item = (String, &'s Value)> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |list| {
        let named = move |(index, container)| (format!("{path}.{list}[{index}]"), container);
        spec.items(list).iter().enumerate().map(named)
    })
}

fn repeated(path: &Path<'_>, items: &[Value], field: &str, out: &mut Vec<String>) {
    for (index, item) in items.iter().enumerate() {
        let value = item.text(field);
        if items[..index].iter().any(|earlier| earlier.text(field) == value) {
            out.push(format!("{path}[{index}].{field}: duplicate {field} {}", quote(value)));
        }
    }
}

fn hidden_variables(path: &str, variables: &[Value], out: &mut Vec<String>) {
    let mut seen = std::collections::HashSet::new();
    for (index, variable) in variables.iter().enumerate() {
        let (name, value) = (variable.text("name"), variable.text("value"));
        if seen.insert(name) {
            continue;
        }
        // A value that builds on the earlier one needs it.
        let reference = format!("$({name})");
        if variable.has("valueFrom") || value == reference || !value.contains(&reference) {
            out.push(format!(
                "{path}.env[{index}]: hides previous definition of {}, which may be dropped when using apply",
                quote(name)
            ));
        }
    }
}

fn overlapping_ports(path: &Path<'_>, spec: &Value, out: &mut Vec<String>) {
    let mut seen: HashMap<(i64, &str), Vec<(String, &Value)>> = HashMap::new();
    for (path, container) in containers(path, spec) {
        for (index, port) in container.items("ports").iter().enumerate() {
            let here = format!("{path}.ports[{index}]");
            let others = seen.entry((port.int("containerPort"), port.text("protocol"))).or_default();
            for (there, other) in others.iter() {
                if let Some(how) = overlap(port, other) {
                    out.push(format!("{here}: {how} port definition with {there}"));
                }
            }
            others.push((here, port));
        }
    }
}

fn overlap(port: &Value, other: &Value) -> Option<&'static str> {
    let (host, other_host) = (port.int("hostPort"), other.int("hostPort"));
    let (address, other_address) = (port.text("hostIP"), other.text("hostIP"));
    if address == other_address && host == other_host {
        Some("duplicate")
    } else if host == 0 || other_host == 0 {
        Some("overlapping")
    } else if host == other_host && address.is_empty() != other_address.is_empty() {
        Some("dangerously ambiguous")
    } else {
        None
    }
}

fn repeated_port_names(path: &Path<'_>, spec: &Value, out: &mut Vec<String>) {
    let mut seen: HashMap<&str, String> = HashMap::new();
    for (path, container) in containers(path, spec) {
        for (index, port) in
            container.items("ports").iter().enumerate().filter(|(_, port)| !port.text("name").is_empty())
        {
            let here = format!("{path}.ports[{index}]");
            let name = port.text("name");
            match seen.get(name) {
                Some(other) => out.push(format!(
                    "{here}: duplicate port name {} with {other}, services and probes that select ports by name will \
                     use {other}",
                    quote(name)
                )),
                None => {
                    seen.insert(name, here);
                }
            }
        }
    }
}
