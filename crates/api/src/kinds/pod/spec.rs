//! Checks of the whole `spec` of a Pod, in the order kube-apiserver makes them.
//!
//! Covered is what a server of Services relies on: names, containers, ports, addresses, scheduling fields. Rules
//! of storage plug-ins, security contexts, affinity and resource claims are left to the agent.

use std::collections::HashSet;

use serde_json::Value;

use super::containers::{self, Context};
use super::volumes;
use crate::field::{Errors, Path};
use crate::ip;
use crate::kinds::common::{one_of, report};
use crate::kinds::node::EFFECTS;
use crate::meta;
use crate::names;
use crate::value::ValueExt as _;

const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARACTERS: usize = 2048;

/// Checks the spec of a Pod, or of a Pod template, which is at another path.
pub(super) fn validate(path: &Path<'_>, spec: &Value, errors: &mut Errors) {
    let volumes = volumes::validate(&path.child("volumes"), spec, errors);
    let context = Context { volumes, grace: spec.int("terminationGracePeriodSeconds") };
    containers::validate_main(&path.child("containers"), spec, &context, errors);
    containers::validate_init(&path.child("initContainers"), spec, &context, errors);
    validate_host_network(&path.child("containers"), spec, errors);
    one_of(&path.child("restartPolicy"), spec.text("restartPolicy"), &["Always", "OnFailure", "Never"], errors);
    let known = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    one_of(&path.child("dnsPolicy"), spec.text("dnsPolicy"), &known, errors);
    meta::validate_labels(&path.child("nodeSelector"), spec.at("nodeSelector"), errors);
    if spec.flag("hostPID") && spec.flag("shareProcessNamespace") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&path.child("shareProcessNamespace"), Value::Bool(true), detail);
    }
    validate_dns(&path.child("dnsConfig"), spec, errors);
    let gates = path.child("readinessGates");
    for (index, gate) in spec.items("readinessGates").iter().enumerate() {
        let name = gate.text("conditionType");
        report(&gates.index(index).child("conditionType"), name, names::qualified_name(name), errors);
    }
    validate_scheduling_gates(&path.child("schedulingGates"), spec, errors);
    validate_names(path, spec, errors);
    validate_tolerations(&path.child("tolerations"), spec, errors);
    validate_host_aliases(&path.child("hostAliases"), spec, errors);
    let class = spec.text("priorityClassName");
    if !class.is_empty() {
        report(&path.child("priorityClassName"), class, names::name_is_subdomain(class, false), errors);
    }
    if let Some(class) = spec.at("runtimeClassName").as_str() {
        report(&path.child("runtimeClassName"), class, names::name_is_subdomain(class, false), errors);
    }
    if let Some(policy) = spec.at("preemptionPolicy").as_str() {
        one_of(&path.child("preemptionPolicy"), policy, &["PreemptLowerPriority", "Never"], errors);
    }
    if spec.int("terminationGracePeriodSeconds") < 0 {
        let seconds = spec.int("terminationGracePeriodSeconds");
        errors.invalid(&path.child("terminationGracePeriodSeconds"), seconds, "must be greater than or equal to 0");
    }
}

fn validate_host_network(list: &Path<'_>, spec: &Value, errors: &mut Errors) {
    if !spec.flag("hostNetwork") {
        return;
    }
    for (index, container) in spec.items("containers").iter().enumerate() {
        let container_path = list.index(index);
        let ports = container_path.child("ports");
        for (index, port) in container.items("ports").iter().enumerate() {
            if port.int("hostPort") != port.int("containerPort") {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(&ports.index(index).child("hostPort"), port.int("hostPort"), detail);
            }
        }
    }
}

fn validate_dns(path: &Path<'_>, spec: &Value, errors: &mut Errors) {
    let config = spec.at("dnsConfig");
    let servers = config.texts("nameservers");
    if spec.text("dnsPolicy") == "None" {
        if config.is_null() {
            errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.required(&path.child("nameservers"), detail);
            return;
        }
    }
    let list = path.child("nameservers");
    if servers.len() > MAX_NAMESERVERS {
        let detail = format!("must not have more than {MAX_NAMESERVERS} nameservers");
        errors.invalid(&list, config.at("nameservers"), &detail);
    }
    for (index, server) in servers.into_iter().enumerate() {
        ip::check_address(&list.index(index), server, &[], errors);
    }
    let (list, searches) = (path.child("searches"), config.texts("searches"));
    if searches.len() > MAX_SEARCHES {
        let detail = format!("must not have more than {MAX_SEARCHES} search paths");
        errors.invalid(&list, config.at("searches"), &detail);
    }
    if searches.join(" ").len() > MAX_SEARCH_CHARACTERS {
        let detail =
            format!("must not have more than {MAX_SEARCH_CHARACTERS} characters (including spaces) in the search list");
        errors.invalid(&list, config.at("searches"), &detail);
    }
    for (index, search) in searches.into_iter().enumerate().filter(|(_, search)| *search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        // Underscores are fine in searches; nothing else differs from a name.
        if !names::dns_subdomain(&search.replace('_', "0")).is_empty() {
            report(&list.index(index), search, names::dns_subdomain(search), errors);
        }
    }
    let list = path.child("options");
    for (index, option) in config.items("options").iter().enumerate() {
        if option.text("name").is_empty() {
            errors.required(&list.index(index), "must not be empty");
        }
    }
}

fn validate_scheduling_gates(path: &Path<'_>, spec: &Value, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for (index, gate) in spec.items("schedulingGates").iter().enumerate() {
        let name = gate.text("name");
        report(&path.index(index), name, names::qualified_name(name), errors);
        if !seen.insert(name) {
            errors.duplicate(&path.index(index), name);
        }
    }
}

/// Names of accounts, nodes and hosts.
fn validate_names(path: &Path<'_>, spec: &Value, errors: &mut Errors) {
    if let Some(host) = spec.at("hostnameOverride").as_str() {
        validate_hostname_override(&path.child("hostnameOverride"), host, spec, errors);
    }
    for field in ["serviceAccountName", "nodeName"] {
        let name = spec.text(field);
        if !name.is_empty() {
            report(&path.child(field), name, names::name_is_subdomain(name, false), errors);
        }
    }
    if let Some(seconds) = spec.at("activeDeadlineSeconds").as_i64()
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let detail = "must be between 1 and 2147483647, inclusive";
        errors.invalid(&path.child("activeDeadlineSeconds"), seconds, detail);
    }
    for field in ["hostname", "subdomain"] {
        let name = spec.text(field);
        if !name.is_empty() {
            report(&path.child(field), name, names::dns_label(name), errors);
        }
    }
}

fn validate_hostname_override(path: &Path<'_>, host: &str, spec: &Value, errors: &mut Errors) {
    for other in ["setHostnameAsFQDN", "hostNetwork"] {
        if spec.flag(other) {
            errors.forbidden(path, &format!("may not be specified when {other} is true"));
        }
    }
    if host.len() > 64 {
        errors.too_long(path, 64);
    }
    report(path, host, names::dns_subdomain(host), errors);
}

/// Checks the tolerations of the Pod.
pub(super) fn validate_tolerations(list: &Path<'_>, spec: &Value, errors: &mut Errors) {
    for (index, toleration) in spec.items("tolerations").iter().enumerate() {
        let path = list.index(index);
        let (key, value) = (toleration.text("key"), toleration.text("value"));
        let (operator, effect) = (toleration.text("operator"), toleration.text("effect"));
        if !key.is_empty() {
            report(&path.child("key"), key, names::qualified_name(key), errors);
        } else if operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&path.child("operator"), operator, detail);
        }
        if toleration.has("tolerationSeconds") && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(&path.child("effect"), effect, detail);
        }
        match operator {
            "Equal" | "" => {
                let wrong = names::label_value(value);
                if !wrong.is_empty() {
                    errors.invalid(&path.child("operator"), value, &wrong.join(";"));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    let detail = "value must be empty when `operator` is 'Exists'";
                    errors.invalid(&path.child("operator"), value, detail);
                }
            }
            _ => errors.not_supported(&path.child("operator"), operator, &["Equal", "Exists"]),
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            errors.not_supported(&path.child("effect"), effect, EFFECTS);
        }
    }
}

fn validate_host_aliases(list: &Path<'_>, spec: &Value, errors: &mut Errors) {
    for (index, alias) in spec.items("hostAliases").iter().enumerate() {
        let path = list.index(index);
        ip::check_address(&path.child("ip"), alias.text("ip"), &[], errors);
        let hosts = path.child("hostnames");
        for (index, host) in alias.texts("hostnames").into_iter().enumerate() {
            report(&hosts.index(index), host, names::dns_subdomain(host), errors);
        }
    }
}
