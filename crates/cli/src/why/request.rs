//! `waypost trace http://host/path`: which listener and which rule take a request, and why the others do not.
//!
//! In: a request, and the objects of the API. Out: the [`Trace`] of [`diagnose::layer7::request`], as text or JSON.

use diagnose::layer7::request::{BackendStep, Candidate, ListenerStep, Outcome, Request, RuleStep, Taken, Trace};
use serde_json::{Value, json};

use super::cluster::{ClusterObjects, finding_lines};
use crate::api_client::ApiFlags;
use crate::layer7::Layer7Objects;

/// A trace, and what could not be read for it.
pub(super) struct Answer {
    trace: Trace,
    missing: Vec<String>,
}

/// Whether an argument is a URL.
pub(super) fn is_url(text: &str) -> bool {
    text.contains("://")
}

/// Traces a request.
pub(super) async fn find(api: &ApiFlags, request: &Request, gateway: Option<&str>) -> anyhow::Result<Answer> {
    let mut api = api.client()?;
    let cluster = ClusterObjects::read(&mut api).await?;
    let objects = Layer7Objects::read(&mut api).await;
    let snapshot = cluster.snapshot();
    let trace = objects.layer7(&snapshot, cluster.has_pods()).trace(request, gateway);
    Ok(Answer { trace, missing: cluster.missing.iter().chain(&objects.missing).cloned().collect() })
}

/// As text.
pub(super) fn text(answer: &Answer) -> String {
    let Answer { trace, missing } = answer;
    let mut lines = vec![trace.request.clone()];
    for candidate in &trace.candidates {
        lines.push(String::new());
        add(candidate, &mut lines);
    }
    if !trace.notes.is_empty() {
        lines.push(String::new());
    }
    lines.extend(trace.notes.iter().chain(missing).map(|note| format!("note: {note}")));
    lines.join("\n") + "\n"
}

/// As JSON.
pub(super) fn json(answer: &Answer) -> Value {
    let mut document = json!(answer.trace);
    document["missing"] = json!(answer.missing);
    document
}

fn add(candidate: &Candidate, lines: &mut Vec<String>) {
    let addresses = match &candidate.addresses[..] {
        [] => "no address".to_owned(),
        all => all.join(", "),
    };
    lines.push(format!("{} ({addresses}): {}", candidate.gateway, candidate.why));
    lines.extend(candidate.listeners.iter().map(listener));
    lines.extend((1..).zip(&candidate.rules).map(|(number, step)| rule(number, step)));
    if candidate.more_rules > 0 {
        lines.push(format!("            {} more rules do not take it", candidate.more_rules));
    }
    if let Some(taken) = &candidate.taken {
        add_taken(taken, lines);
    }
    let status = candidate.answer.status.map(|status| format!("status {status}: ")).unwrap_or_default();
    let outcome = match candidate.answer.outcome {
        Outcome::Forwarded => "forwarded ",
        Outcome::Answered => "",
        Outcome::Refused => "refused: ",
        Outcome::Reset => "reset: ",
    };
    lines.push(format!("  answer    {outcome}{status}{}", candidate.answer.why));
    lines.extend(finding_lines(&candidate.findings));
}

fn listener(step: &ListenerStep) -> String {
    let set = step.set.as_deref().map(|set| format!(" of ListenerSet {set}")).unwrap_or_default();
    let mark = if step.chosen { "yes" } else { "no" };
    format!("  listener  {}{set}  {mark}: {}", step.listener, step.says)
}

fn rule(number: usize, step: &RuleStep) -> String {
    let name = step.name.as_deref().map(|name| format!(" ({name})")).unwrap_or_default();
    let condition = if step.condition.is_empty() { String::new() } else { format!(", {}", step.condition) };
    let verdict = match &step.why_not {
        None => "yes: it takes the request".to_owned(),
        Some(why) => format!("no: {why}"),
    };
    format!("  {number:>3}       {} rule {}{name} ({}{condition})  {verdict}", step.route, step.rule, step.host)
}

fn add_taken(taken: &Taken, lines: &mut Vec<String>) {
    lines.extend(taken.filters.iter().map(|filter| format!("  filter    {filter}")));
    if let Some(forwarded) = &taken.forwarded {
        lines.push(format!("  request   host {}, path {}", forwarded.host, forwarded.path));
        lines.extend(forwarded.headers.iter().map(|header| format!("  header    {header}")));
    }
    taken.backends.iter().for_each(|one| add_backend(one, lines));
}

fn add_backend(backend: &BackendStep, lines: &mut Vec<String>) {
    let why = match backend.status {
        Some(status) => format!(": status {status}, {}", backend.why),
        None => String::new(),
    };
    lines.push(format!("  backend   {} ({}){why}", backend.target, backend.share));
    lines.extend(backend.filters.iter().map(|filter| format!("              filter {filter}")));
    lines.extend(
        backend
            .endpoints
            .iter()
            .map(|one| format!("              {}  {}", one.address, if one.ready { "ready" } else { "not ready" })),
    );
    if backend.more_endpoints > 0 {
        lines.push(format!("              {} more", backend.more_endpoints));
    }
}

/// Objects for tests.
#[cfg(test)]
pub(super) mod testing {
    use serde_json::json;

    use super::*;

    /// A Gateway with two listeners and a route with a rule for `/shop`, of whose two Services one does not exist.
    pub(in crate::why) fn shop() -> (ClusterObjects, Layer7Objects) {
        let meta =
            |name: &str| json!({"name": name, "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"});
        let services = vec![
            json!({"metadata": meta("web"), "spec": {"clusterIP": "10.96.0.1", "selector": {"app": "web"},
                "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}}),
            json!({"metadata": meta("gw-waypost"), "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.2"},
                "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}),
        ];
        let slices = vec![json!({
            "metadata": {"name": "web-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}],
            "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"], "conditions": {"ready": false}}],
        })];
        let controller = "waypost.dev/gateway-controller";
        let rewrite = json!({"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}});
        let objects = [
            json!({"kind": "GatewayClass", "metadata": {"name": "waypost"}, "spec": {"controllerName": controller}}),
            json!({"kind": "Gateway", "metadata": meta("gw"), "spec": {"gatewayClassName": "waypost", "listeners": [
                {"name": "http", "port": 80, "protocol": "HTTP", "hostname": "*.example.com"},
                {"name": "other", "port": 80, "protocol": "HTTP", "hostname": "other.test"},
            ]}}),
            json!({"kind": "HTTPRoute", "metadata": meta("shop"), "spec": {
                "parentRefs": [{"name": "gw"}], "hostnames": ["shop.example.com"], "rules": [{
                    "matches": [{"path": {"type": "PathPrefix", "value": "/shop"}}], "filters": [rewrite],
                    "backendRefs": [{"name": "web", "port": 80, "weight": 3}, {"name": "wbe", "port": 80}],
                }],
            }}),
        ];
        (ClusterObjects::of(services, slices), Layer7Objects::of(&objects))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traced(url: &str, headers: &[String]) -> Answer {
        let (cluster, objects) = testing::shop();
        let snapshot = cluster.snapshot();
        let request = Request::parse(url, "GET", headers, None).expect("a request");
        Answer { trace: objects.layer7(&snapshot, false).trace(&request, None), missing: Vec::new() }
    }

    #[test]
    fn a_request_is_followed_to_its_endpoints() {
        let answer = traced("http://192.0.2.1/shop/cart?q=1", &["Host: shop.example.com".to_owned()]);
        let wanted = "\
GET http://192.0.2.1:80/shop/cart?q=1 with host shop.example.com

Gateway default/gw (192.0.2.1): it has the address
  listener  http (HTTP 80, *.example.com)  yes: *.example.com covers host shop.example.com
  listener  other (HTTP 80, other.test)  no: other.test does not cover host shop.example.com
    1       HTTPRoute default/shop rule 0 (shop.example.com, path prefix /shop)  yes: it takes the request
  filter    rewrite the matched prefix of the path to /
  request   host shop.example.com, path /cart?q=1
  backend   Service default/web port 80 (weight 3 of 4)
              10.0.0.1:8080  ready
              10.0.0.2:8080  not ready
  backend   none (weight 1 of 4): status 500, there is no such Service, or it has no such port
  answer    forwarded to a backend by weight; weight 1 of 4 gets status 500 (there is no such Service, or it has no such port)
";
        assert_eq!(text(&answer), wanted);
        let document = json(&answer);
        assert_eq!(document["candidates"][0]["answer"]["outcome"], "forwarded", "{document}");
        assert_eq!(document["candidates"][0]["rules"][0]["taken"], true, "{document}");
    }

    #[test]
    fn without_a_rule_each_one_says_why() {
        let answer = traced("http://shop.example.com/admin", &[]);
        let text = text(&answer);
        let why = "(shop.example.com, path prefix /shop)  no: path prefix /shop does not match path /admin";
        assert!(text.contains(why), "{text}");
        assert!(text.contains("  answer    status 404: no rule of the listener takes GET /admin"), "{text}");
        assert!(is_url("http://x") && !is_url("web:80"));
    }
}
