//! The same for Ingresses: the rules of the host, then those of the path, then what annotations demand.

use std::net::{IpAddr, Ipv4Addr};

use routing::ingress::VirtualGateway;
use routing::policy::{Policy, RequestValues};

use super::answer::Answer;
use super::listeners::ListenerStep;
use super::rules::{RuleStep, shown, why_not};
use super::{Candidate, Layer7, Request};
use crate::layer7::matches;
use crate::layer7::objects::Kind;

impl Layer7<'_> {
    /// What becomes of a request at the Ingresses of a class.
    pub(super) fn at_ingresses(&self, request: &Request, gateway: &VirtualGateway, why: &'static str) -> Candidate {
        let steps = gateway.config.listeners.iter().map(|listener| {
            let chosen = listener.port == request.port && listener.protocol.ends_tls() == request.tls;
            let says = match (chosen, listener.port == request.port) {
                (true, _) => "it takes all hosts".to_owned(),
                (false, true) => format!("it is not for {}", request.scheme()),
                (false, false) => format!("another port: {}", listener.port),
            };
            let listener = format!("{} (port {})", listener.id.name, listener.port);
            ListenerStep { listener, set: None, chosen, says, id: None }
        });
        let mut candidate = Candidate {
            gateway: super::Subject { kind: "IngressClass", key: (*gateway.class).into() },
            addresses: self.addresses(&gateway.config),
            why,
            listeners: steps.collect(),
            rules: Vec::new(),
            more_rules: 0,
            taken: None,
            answer: Answer::refused(format!("no listener is for {} on port {}", request.scheme(), request.port)),
            findings: Vec::new(),
        };
        if !candidate.listeners.iter().any(|one| one.chosen) {
            return candidate;
        }
        if request.tls && gateway.certificates.find(request.server_name.as_deref()).is_none() {
            let name = request.server_name.as_deref().unwrap_or("(none)");
            candidate.answer =
                Answer::reset(format!("there is no certificate for server name {name}: the TLS handshake fails"));
            return candidate;
        }
        self.apply_ingress_rules(request, gateway, &mut candidate);
        candidate
    }

    fn apply_ingress_rules(&self, request: &Request, gateway: &VirtualGateway, candidate: &mut Candidate) {
        let considered = gateway.table.explain(&request.view());
        let first = considered.iter().position(|one| one.failed.is_none());
        let step = |(place, one): (usize, &routing::ingress::Considered<'_>)| RuleStep {
            route: Kind::Ingress.subject(&one.rule.route.key),
            rule: one.rule.index,
            name: one.rule.name.as_deref().map(str::to_owned),
            host: one.host.map_or("*", |host| host).to_owned(),
            condition: matches::all(one.rule).join("; "),
            taken: first == Some(place),
            why_not: match one.failed {
                Some(failed) => Some(why_not(request, one.rule, 0, failed)),
                None => (first != Some(place)).then(|| "it would take the request, but comes later".to_owned()),
            },
        };
        let steps = considered.iter().enumerate().map(step).collect();
        (candidate.rules, candidate.more_rules) = shown(steps, first);
        let Some(rule) = first.and_then(|first| considered.get(first)).map(|one| one.rule) else {
            let host = &request.host;
            candidate.answer =
                Answer::status(404, format!("no Ingress has a rule for host {host} and path {}", request.path));
            return;
        };
        let (mut taken, mut answer) = self.answer(request, request.port, rule, None);
        if let Some(policy) = &rule.policy {
            taken.filters.extend(demands(policy));
            if let Some(own) = own_answer(request, policy) {
                (answer, taken.forwarded) = (own, None);
            } else if let Some(path) = policy.rewrite.as_ref().and_then(|rewrite| rewrite.apply(&values(request)))
                && let Some(forwarded) = &mut taken.forwarded
            {
                forwarded.path = path;
            }
        }
        if answer.is_failure() {
            candidate.findings.extend(self.of(Kind::Ingress, &rule.route.key));
        }
        (candidate.taken, candidate.answer) = (Some(taken), answer);
    }
}

/// What a policy answers without a backend, as far as that does not depend on the client.
fn own_answer(request: &Request, policy: &Policy) -> Option<Answer> {
    let Request { host, path, query, .. } = request;
    if let Some(status) = policy.require_https.filter(|_| !request.tls) {
        let query = query.as_deref().map(|query| format!("?{query}")).unwrap_or_default();
        return Some(Answer::status(status, format!("redirected to https://{host}{path}{query}")));
    }
    if let Some(status) = policy.refuse {
        return Some(Answer::status(status, "access was to be restricted in a way that cannot be enforced"));
    }
    let redirect = policy.redirect.as_ref()?;
    Some(Answer::status(redirect.status, format!("redirected to {}", redirect.location.render(&values(request)))))
}

/// What a policy demands that depends on the client.
fn demands(policy: &Policy) -> Vec<String> {
    let mut all = Vec::new();
    let ranges = |ranges: &[ipnet::IpNet]| ranges.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if !policy.allow.is_empty() {
        all.push(format!("only clients of {}; others get status 403", ranges(&policy.allow)));
    }
    if !policy.deny.is_empty() {
        all.push(format!("no clients of {}; they get status 403", ranges(&policy.deny)));
    }
    if !policy.rate_limits.is_empty() || policy.connection_limit.is_some() {
        all.push("limits of requests or connections for each client".to_owned());
    }
    all.extend(
        policy
            .basic_auth
            .as_ref()
            .map(|auth| format!("basic authentication (Secret {}), else status 401", auth.secret)),
    );
    all.extend(policy.external_auth.as_ref().map(|auth| format!("authorisation by {}", auth.url.source())));
    all.extend(policy.body_limit.map(|limit| format!("bodies of at most {limit} bytes, else status 413")));
    all.extend(policy.rewrite.as_ref().map(|rewrite| format!("rewrite the path to {}", rewrite.target.source())));
    all.extend(policy.session.as_ref().map(|_| "sticky sessions by cookie".to_owned()));
    all
}

fn values(request: &Request) -> RequestValues<'_> {
    RequestValues {
        scheme: request.scheme(),
        authority: &request.host,
        method: request.method.as_str(),
        path: &request.path,
        query: request.query.as_deref(),
        headers: &request.headers,
        client: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        port: request.port,
        captures: &[],
    }
}
