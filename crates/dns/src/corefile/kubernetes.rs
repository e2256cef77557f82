//! `kubernetes [ZONES…] { … }`
//!
//! The connection to the API server is configured by flags.

use super::ParseError;
use super::blocks::Directive;
use super::directives::{once, unknown_option};
use super::lex::Token;
use super::values::{Words, all_zones, duration, fallthrough, number};
use crate::config::{Block, Kubernetes, Name, Pods};

const OPTIONS: &[&str] = &[
    "endpoint_pod_names",
    "fallthrough",
    "ignore",
    "labels",
    "namespace_labels",
    "namespaces",
    "noendpoints",
    "pods",
    "startup_timeout",
    "ttl",
];

/// Options about the connection, which `--kubeconfig` replaces.
const CONNECTION: &[&str] =
    &["endpoint", "tls", "kubeconfig", "apiserver_qps", "apiserver_burst", "apiserver_max_inflight"];

pub(super) fn kubernetes(directive: &Directive<'_>, block: &mut Block) -> Result<(), ParseError> {
    once(directive.name, block.kubernetes.is_some())?;
    let mut out = Kubernetes { zones: all_zones(&directive.args)?, ..Kubernetes::default() };
    if out.zones.is_empty() {
        out.zones = block.keys.iter().map(|key| key.zone.clone()).collect();
    }
    if out.zones.iter().all(is_reverse) {
        let next = "add the cluster's domain, as in `kubernetes cluster.local in-addr.arpa ip6.arpa`";
        return Err(directive.name.error("`kubernetes` has only reverse zones", next));
    }
    for line in &directive.body {
        let mut words = Words::of(line);
        option(directive.name, &mut words, &mut out)?;
        words.end()?;
    }
    if !out.namespaces.is_empty() && out.namespace_labels.is_some() {
        let next = "keep one of them";
        return Err(directive.name.error("`namespaces` and `namespace_labels` exclude each other", next));
    }
    block.kubernetes = Some(out);
    Ok(())
}

/// Whether a zone is a reverse zone, which cannot contain Service names.
fn is_reverse(zone: &Name) -> bool {
    ["in-addr.arpa", "ip6.arpa"].iter().any(|text| Name::parse(text).is_ok_and(|name| name.covers(zone.as_wire())))
}

fn option(directive: &Token, words: &mut Words<'_>, out: &mut Kubernetes) -> Result<(), ParseError> {
    match words.name().text.as_str() {
        "pods" => {
            let mode = words.want("a mode")?;
            out.pods = match mode.text.as_str() {
                "disabled" => Pods::Disabled,
                "insecure" => Pods::Insecure,
                "verified" => Pods::Verified,
                other => {
                    let what = format!("`pods {other}` is not a mode");
                    return Err(mode.error(what, "write disabled, insecure or verified"));
                }
            };
        }
        "endpoint_pod_names" => out.endpoint_pod_names = true,
        "noendpoints" => out.noendpoints = true,
        "ttl" => out.ttl = number(words.want("a number of seconds")?, 3600)?,
        // Ignored: CoreDNS answers from incomplete lists after this time; we never do.
        "startup_timeout" => drop(duration(words.want("a duration")?)?),
        "fallthrough" => out.fallthrough = fallthrough(words)?,
        "namespaces" => {
            out.namespaces.push(words.want("a namespace")?.text.clone());
            out.namespaces.extend(words.all().iter().map(|token| token.text.clone()));
        }
        "labels" => out.labels = Some(selector(words)?),
        "namespace_labels" => out.namespace_labels = Some(selector(words)?),
        "ignore" => {
            let what = words.want("`empty_service`")?;
            if what.text != "empty_service" {
                return Err(what.error(format!("unknown `ignore {}`", what.text), "write `ignore empty_service`"));
            }
            out.ignore_empty_service = true;
        }
        name if CONNECTION.contains(&name) => {
            let next = "remove it: the connection is set with --kubeconfig";
            return Err(words.name().error(format!("the option `{name}` of `kubernetes` is not supported"), next));
        }
        _ => return Err(unknown_option(directive, words.name(), OPTIONS)),
    }
    Ok(())
}

/// Label selector: the rest of the line, validated here so that an error has a line number.
fn selector(words: &mut Words<'_>) -> Result<String, ParseError> {
    let first = words.want("a label selector")?;
    let rest = words.all().iter().map(|token| token.text.as_str());
    let text = std::iter::once(first.text.as_str()).chain(rest).collect::<Vec<_>>().join(" ");
    api::selector::parse(&api::kinds::service::KIND, &text, "").map_err(|_| {
        first.error(format!("`{text}` is not a label selector"), "write one as in app=web,tier in (a,b)")
    })?;
    Ok(text)
}
