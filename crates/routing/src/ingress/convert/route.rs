//! The HTTPRoutes of a class: one for each Ingress and host, and one more where some of its requests are redirected to https.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::view::gateway_api::{HttpRouteMatch, MatchKind, NamedMatch, PathMatchKind};
use serde_json::{Value, json};

use super::super::{Defaults, VirtualGateway};
use super::gateway::{certificates, listener_name, namespace};
use super::{Conversion, Note, filters, paths, slug};
use crate::model::{Backend, BackendProtocol, Matches, RouteId, Rule, Target};
use crate::policy::Policy;

/// The most rules of an HTTPRoute.
const MOST_RULES: usize = 16;

/// The rules of an Ingress for a host.
type Rules = Vec<Arc<Rule>>;

pub(super) fn routes(gateway: &VirtualGateway, conversion: &mut Conversion) {
    let mut groups = BTreeMap::<(RouteId, Option<Arc<str>>), Rules>::new();
    for (host, _, rule) in gateway.table.rules() {
        groups.entry((rule.route.clone(), host.cloned())).or_default().push(rule.clone());
    }
    let mut policies = BTreeMap::new();
    for ((route, host), rules) in &groups {
        let (namespace, name) = (namespace(&route.key), route.key.split_once('/').map_or("", |(_, name)| name));
        let is_only = groups.keys().filter(|(other, _)| other == route).count() == 1;
        let name = if is_only { name.to_owned() } else { format!("{name}-{}", slug(host.as_deref())) };
        let mut writer =
            Writer { class: &gateway.class, namespace, host: host.as_deref(), ingress: &route.key, conversion };
        let has_tls = !certificates(gateway, namespace, host.as_deref()).is_empty();
        writer.write(&name, rules, has_tls);
        writer.backends(rules, &mut policies);
        if host.as_deref().is_some_and(|host| host.starts_with("*.")) {
            writer.note(
                "a wildcard host of a Gateway matches any number of labels, that of an Ingress exactly one".to_owned(),
            );
        }
    }
    conversion.objects.extend(policies.into_values());
}

struct Writer<'a> {
    class: &'a str,
    namespace: &'a str,
    host: Option<&'a str>,
    ingress: &'a Arc<str>,
    conversion: &'a mut Conversion,
}

impl Writer<'_> {
    fn note(&mut self, message: String) {
        self.conversion.notes.push(Note { ingress: self.ingress.clone(), message });
    }

    /// Writes the routes of a host: without redirects to https one for all listeners; otherwise one for each port.
    fn write(&mut self, name: &str, rules: &[Arc<Rule>], has_tls: bool) {
        let status = |rule: &Arc<Rule>| rule.policy.as_deref().and_then(|policy| policy.require_https);
        if !rules.iter().any(|rule| status(rule).is_some()) {
            let rules: Vec<_> = rules.iter().map(|rule| self.rule(rule)).collect();
            self.push(name, if has_tls { &["http", "https"] } else { &["http"] }, &rules);
            return;
        }
        if has_tls {
            let rules: Vec<_> = rules.iter().map(|rule| self.rule(rule)).collect();
            self.push(name, &["https"], &rules);
        } else {
            self.note("requests are redirected to https, for which there is no certificate".to_owned());
        }
        let mut redirects = Vec::new();
        for rule in rules {
            redirects.push(match status(rule) {
                Some(status) => json!({"matches": matches(rule, None), "filters": [filters::https_redirect(status)]}),
                None => self.rule(rule),
            });
        }
        let first = status(&rules[0]);
        if rules.iter().all(|rule| status(rule) == first) {
            redirects = first.map(|status| json!({"filters": [filters::https_redirect(status)]})).into_iter().collect();
        }
        self.push(&format!("{name}-redirect"), &["http"], &redirects);
    }

    fn push(&mut self, name: &str, schemes: &[&str], rules: &[Value]) {
        for (number, rules) in rules.chunks(MOST_RULES).enumerate() {
            let name = if number == 0 { name.to_owned() } else { format!("{name}-{}", number + 1) };
            let parent = |scheme| json!({"name": self.class, "sectionName": listener_name(self.host, scheme)});
            let mut route = json!({
                "apiVersion": "gateway.networking.k8s.io/v1",
                "kind": "HTTPRoute",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"parentRefs": schemes.iter().map(|scheme| parent(scheme)).collect::<Vec<_>>(), "rules": rules},
            });
            if let Some(host) = self.host {
                route["spec"]["hostnames"] = json!([host]);
            }
            self.conversion.objects.push(route);
        }
    }

    fn rule(&mut self, rule: &Rule) -> Value {
        let policy = rule.policy.as_deref().cloned().unwrap_or_default();
        self.note_policy(&policy);
        let mut filters = filters::filters(rule);
        let mut path = None;
        if let Some(redirect) = &policy.redirect {
            match filters::redirect(redirect) {
                Some(filter) => return json!({"matches": matches(rule, None), "filters": [filter]}),
                None => self.note(format!("the redirect to {} has no equivalent", redirect.location.source())),
            }
        }
        if let Some(rewrite) = &policy.rewrite {
            match paths::rewrite(rewrite) {
                Some(converted) => {
                    path = converted.path;
                    merge(&mut filters, converted.filter);
                }
                None => {
                    let (pattern, target) = (rewrite.pattern.source(), rewrite.target.source());
                    self.note(format!("the rewrite of {pattern} to {target} has no equivalent"));
                }
            }
        }
        let mut value =
            json!({"matches": matches(rule, path.as_ref()), "backendRefs": self.backend_refs(&rule.backends)});
        if !filters.is_empty() {
            value["filters"] = filters.into();
        }
        if let Some(retry) = rule.retry.as_ref().filter(|retry| retry.attempts > 0 && !retry.codes.is_empty()) {
            value["retry"] = json!({"codes": retry.codes, "attempts": retry.attempts});
        }
        if let Some(session) = &policy.session {
            let mut persistence = json!({"sessionName": session.name, "type": "Cookie"});
            if let Some(age) = session.max_age.or(session.expires) {
                persistence["absoluteTimeout"] = format!("{}s", age.as_secs()).into();
                persistence["cookieConfig"] = json!({"lifetimeType": "Permanent"});
            }
            value["sessionPersistence"] = persistence;
        }
        value
    }

    fn backend_refs(&self, backends: &[Backend]) -> Vec<Value> {
        let reference = |backend: &Backend| match &backend.target {
            Target::Service(service) => {
                let name = service.service.split_once('/').map_or("", |(_, name)| name);
                let mut value = json!({"name": name, "port": service.port});
                if backends.len() > 1 {
                    value["weight"] = backend.weight.into();
                }
                Some(value)
            }
            // A finding says so.
            Target::Invalid(_) => None,
        };
        backends.iter().filter_map(reference).collect()
    }

    /// Notes what no object of the Gateway API says.
    fn note_policy(&mut self, policy: &Policy) {
        let defaults = Defaults::default();
        let timeouts = [
            ("proxy-connect-timeout", policy.connect_timeout != Some(defaults.connect_timeout)),
            ("proxy-read-timeout", policy.read_timeout != Some(defaults.read_timeout)),
            ("proxy-send-timeout", policy.send_timeout != Some(defaults.send_timeout)),
        ];
        let all = [
            (
                "address ranges (allowlist-source-range, denylist-source-range)",
                !policy.allow.is_empty() || !policy.deny.is_empty(),
            ),
            ("basic authentication (auth-type)", policy.basic_auth.is_some()),
            ("external authorisation (auth-url)", policy.external_auth.is_some()),
            ("limits of requests and connections (limit-rps, limit-rpm, limit-connections)", {
                !policy.rate_limits.is_empty() || policy.connection_limit.is_some()
            }),
            ("the body limit (proxy-body-size)", policy.body_limit != defaults.body_limit),
        ];
        // Without a policy at all there is nothing to note.
        if policy.connect_timeout.is_none() {
            return;
        }
        for (what, _) in all.into_iter().filter(|(_, is_set)| *is_set) {
            self.note(format!("{what} has no equivalent in the Gateway API"));
        }
        for (what, _) in timeouts.into_iter().filter(|(_, is_set)| *is_set) {
            self.note(format!(
                "{what} limits silence; timeouts of an HTTPRoute limit the whole exchange, so none is set"
            ));
        }
    }

    /// BackendTLSPolicies of the Services.
    fn backends(&mut self, rules: &[Arc<Rule>], policies: &mut BTreeMap<Arc<str>, Value>) {
        for backend in rules.iter().flat_map(|rule| &rule.backends) {
            let Target::Service(service) = &backend.target else { continue };
            if service.tls.is_none() || policies.contains_key(&service.service) {
                continue;
            }
            let name = service.service.split_once('/').map_or("", |(_, name)| name);
            let host = format!("{name}.{}.svc", self.namespace);
            self.note(format!(
                "the certificate of Service {name} was not verified; its BackendTLSPolicy requires one for {host}"
            ));
            let policy = json!({
                "apiVersion": "gateway.networking.k8s.io/v1",
                "kind": "BackendTLSPolicy",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {
                    "targetRefs": [{"group": "", "kind": "Service", "name": name}],
                    "validation": {"wellKnownCACertificates": "System", "hostname": host},
                },
            });
            policies.insert(service.service.clone(), policy);
        }
        let is_http2 = |backend: &Backend| matches!(&backend.target, Target::Service(one) if one.protocol == BackendProtocol::Http2);
        if rules.iter().flat_map(|rule| &rule.backends).any(is_http2) {
            self.note(
                "set appProtocol: kubernetes.io/h2c at the ports of its Services, in place of backend-protocol"
                    .to_owned(),
            );
        }
    }
}

/// Adds a rewrite of the path to the one of the host: a rule may have one filter of the type.
fn merge(filters: &mut Vec<Value>, filter: Option<Value>) {
    let Some(filter) = filter else { return };
    match filters.iter_mut().find(|have| have["type"] == "URLRewrite") {
        Some(have) => have["urlRewrite"]["path"] = filter["urlRewrite"]["path"].clone(),
        None => filters.push(filter),
    }
}

/// The conditions of a rule, with another one on the path if given.
fn matches(rule: &Rule, path: Option<&Value>) -> Vec<Value> {
    let Matches::Http(all) = &rule.matches else { return Vec::new() };
    all.iter().map(|one| condition(one, path)).collect()
}

fn condition(one: &HttpRouteMatch, path: Option<&Value>) -> Value {
    let own = one.path.as_ref().map(|path| {
        let kind = match path.kind {
            PathMatchKind::Exact => "Exact",
            PathMatchKind::RegularExpression => "RegularExpression",
            _ => "PathPrefix",
        };
        json!({"type": kind, "value": path.value})
    });
    let mut value = json!({"path": path.cloned().or(own)});
    if !one.headers.is_empty() {
        value["headers"] = one.headers.iter().map(header).collect();
    }
    value
}

fn header(one: &NamedMatch) -> Value {
    let kind = if one.kind == MatchKind::RegularExpression { "RegularExpression" } else { "Exact" };
    json!({"type": kind, "name": one.name, "value": one.value})
}
