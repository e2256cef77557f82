//! `waypost explain route/NAME`: a Gateway, a ListenerSet, a route, a BackendTLSPolicy or an Ingress with everything that its
//! traffic passes, and what is wrong.
//!
//! In: the objects of the API. Out: the [`Explanation`] of [`diagnose::layer7`], as text or JSON.

use anyhow::bail;
use diagnose::layer7::{Explanation, Item, Kind, Layer7};
use serde_json::{Value, json};

use super::cluster::{ClusterObjects, finding_lines};
use super::{Output, pretty};
use crate::api_client::ApiClient;
use crate::layer7::Layer7Objects;
use crate::terminal;

/// The kinds of routes.
const ROUTES: &[Kind] = &[Kind::HttpRoute, Kind::GrpcRoute, Kind::TlsRoute, Kind::TcpRoute, Kind::UdpRoute];

/// The kinds and the name in `route/NAME`, `gateway/NAME` or `ingress NAME`; none for other kinds.
pub(crate) fn subject(words: &[String]) -> Option<(&'static [Kind], &str)> {
    let (kind, name) = match words {
        [one] => one.split_once('/')?,
        [kind, name] => (kind.as_str(), name.as_str()),
        _ => return None,
    };
    // With its group too: `gateways.gateway.networking.k8s.io`.
    let kind = kind.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let kinds: &[Kind] = match &*kind {
        "route" | "routes" => ROUTES,
        "gateway" | "gateways" | "gtw" => &[Kind::Gateway],
        "listenerset" | "listenersets" | "lset" => &[Kind::ListenerSet],
        "httproute" | "httproutes" => &[Kind::HttpRoute],
        "grpcroute" | "grpcroutes" => &[Kind::GrpcRoute],
        "tlsroute" | "tlsroutes" => &[Kind::TlsRoute],
        "tcproute" | "tcproutes" => &[Kind::TcpRoute],
        "udproute" | "udproutes" => &[Kind::UdpRoute],
        "backendtlspolicy" | "backendtlspolicies" | "btlspolicy" => &[Kind::BackendTlsPolicy],
        "ingress" | "ingresses" | "ing" => &[Kind::Ingress],
        _ => return None,
    };
    Some((kinds, name))
}

/// Prints the explanation.
pub(crate) async fn answer(
    api: &mut ApiClient,
    kinds: &[Kind],
    (namespace, name): (&str, &str),
    output: Output,
) -> anyhow::Result<()> {
    let cluster = ClusterObjects::read(api).await?;
    let objects = Layer7Objects::read(api).await;
    let snapshot = cluster.snapshot();
    let found = find(&objects.layer7(&snapshot, cluster.has_pods()), kinds, (namespace, name))?;
    let missing: Vec<&String> = cluster.missing.iter().chain(&objects.missing).collect();
    terminal::print(&match output {
        Output::Text => text(&found, &missing),
        Output::Json => pretty(&document(&found, &missing)),
    })
}

/// The explanations of the objects with a name, of which there may be one of each kind.
fn find(layer7: &Layer7<'_>, kinds: &[Kind], (namespace, name): (&str, &str)) -> anyhow::Result<Vec<Explanation>> {
    let key = format!("{namespace}/{name}");
    let found: Vec<Explanation> = kinds.iter().filter_map(|kind| layer7.explain(*kind, &key)).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let what = match kinds {
        [one] => one.name(),
        _ => "route",
    };
    let elsewhere = kinds.iter().flat_map(|kind| layer7.named(*kind, name)).next();
    if let Some(other) = elsewhere {
        let there = other.namespace();
        bail!("there is no {what} {key}, but there is {other}; add `-n {there}`");
    }
    let list = if kinds.len() == 1 { what.to_ascii_lowercase() } else { "httproutes".to_owned() };
    bail!("there is no {what} {key}; `waypost get {list} -A` lists those there are")
}

fn text(found: &[Explanation], missing: &[&String]) -> String {
    let mut lines = Vec::new();
    for one in found {
        lines.push(format!("{}: {}", one.subject, one.state));
        lines.extend(finding_lines(&one.findings));
        lines.push(String::new());
        one.items.iter().for_each(|item| add(item, 0, &mut lines));
        lines.push(String::new());
    }
    lines.pop();
    lines.extend(missing.iter().map(|missing| format!("note: {missing}")));
    lines.join("\n") + "\n"
}

pub(super) fn add(item: &Item, depth: usize, lines: &mut Vec<String>) {
    let says = if item.says.is_empty() { String::new() } else { format!(": {}", item.says) };
    let kind = if item.kind == "more" { String::new() } else { format!("{} ", item.kind) };
    lines.push(format!("{}{kind}{}{says}", "  ".repeat(depth), item.name));
    item.items.iter().for_each(|part| add(part, depth + 1, lines));
}

fn document(found: &[Explanation], missing: &[&String]) -> Value {
    json!({ "objects": found, "missing": missing })
}

#[cfg(test)]
mod tests {
    use super::super::request::testing;
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn objects_of_layer_7_are_named_like_other_objects() {
        for (text, kinds, name) in [
            ("route/web", ROUTES, "web"),
            ("httproute web", &[Kind::HttpRoute][..], "web"),
            ("gateways.gateway.networking.k8s.io/web", &[Kind::Gateway], "web"),
            ("Ingress/web", &[Kind::Ingress], "web"),
        ] {
            let words = words(text);
            assert_eq!(subject(&words), Some((kinds, name)), "{text}");
        }
        for text in ["gateway", "svc/web", "web", "gateway.spec", "httproute a b"] {
            assert_eq!(subject(&words(text)), None, "{text}");
        }
    }

    #[test]
    fn a_route_is_shown_from_its_parents_to_its_endpoints() {
        let (cluster, objects) = testing::shop();
        let snapshot = cluster.snapshot();
        let layer7 = objects.layer7(&snapshot, false);
        let found = find(&layer7, ROUTES, ("default", "shop")).expect("the route");
        let text = text(&found, &[&"pods could not be read".to_owned()]);
        let wanted = "\
HTTPRoute default/shop: degraded
  degraded  BackendMissing: rule 0: Service default/wbe does not exist; did you mean web?
  fix       kubectl edit httproute shop -n default

hostnames shop.example.com
parent Gateway default/gw: attached to 1 of 2 listeners
  listener http (port 80, *.example.com): attached for shop.example.com
  listener other (port 80, other.test): not attached: no hostname in common
rule 0
  match path prefix /shop
  filter rewrite the matched prefix of the path to /
  backend Service default/web port 80: weight 3 of 4: 1 of 2 endpoints ready
    endpoint 10.0.0.1:8080: ready
    endpoint 10.0.0.2:8080: not ready
  backend none: weight 1 of 4: there is no such Service, or it has no such port
note: pods could not be read
";
        assert_eq!(text, wanted);
        let document = document(&found, &[]);
        assert_eq!(document["objects"][0]["findings"][0]["code"], "BackendMissing", "{document}");
        assert_eq!(document["objects"][0]["items"][1]["items"][0]["kind"], "listener", "{document}");
    }

    #[test]
    fn a_route_that_does_not_exist_is_looked_for_in_other_namespaces() {
        let (cluster, objects) = testing::shop();
        let snapshot = cluster.snapshot();
        let layer7 = objects.layer7(&snapshot, false);
        let refused = |kinds, place| find(&layer7, kinds, place).map_err(|error| error.to_string()).unwrap_err();
        let elsewhere = refused(ROUTES, ("prod", "shop"));
        assert_eq!(elsewhere, "there is no route prod/shop, but there is HTTPRoute default/shop; add `-n default`");
        let nowhere = refused(&[Kind::Gateway], ("default", "x"));
        assert_eq!(nowhere, "there is no Gateway default/x; `waypost get gateway -A` lists those there are");
    }
}
