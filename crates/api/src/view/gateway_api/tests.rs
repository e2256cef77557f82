use serde_json::json;

use super::*;
use crate::view::StringMap;

#[test]
fn an_http_route_is_read_with_its_defaults() {
    let route: HttpRoute = serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": "web", "generation": 3},
        "spec": {
            "parentRefs": [{"name": "public"}, {"group": "", "kind": "Service", "name": "s", "namespace": "other", "port": 80}],
            "rules": [{
                "matches": [{"path": {"type": "Exact", "value": "/a"}, "headers": [{"name": "x", "value": "1"}]}, {"path": null}],
                "filters": [{"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}},
                            {"type": "Later"}],
                "backendRefs": [{"name": "one", "port": 8080}, {"name": "two", "port": 8080, "weight": 0}],
            }],
        },
    }))
    .expect("a route");
    assert_eq!(route.metadata.generation, 3);
    let [gateway, service] = &*route.spec.parent_refs else { panic!("two parents") };
    assert!(gateway.is("Gateway") && !gateway.is_service() && service.is_service());
    assert_eq!((&*gateway.key("shop"), &*service.key("shop")), ("shop/public", "other/s"));
    let rule = &route.spec.rules[0];
    let kinds: Vec<_> = rule.matches.iter().map(|one| one.path.as_ref().map(|path| path.kind)).collect();
    assert_eq!(kinds, [Some(PathMatchKind::Exact), None]);
    assert_eq!(
        rule.filters.iter().map(|filter| filter.kind).collect::<Vec<_>>(),
        [FilterKind::UrlRewrite, FilterKind::Unknown]
    );
    assert_eq!(rule.backend_refs.iter().map(|one| one.weight).collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn a_listener_is_read_with_its_defaults() {
    let gateway: Gateway = serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": "public"},
        "spec": {"gatewayClassName": "waypost", "listeners": [
            {"name": "http", "port": 80, "protocol": "HTTP", "hostname": ""},
            {"name": "tls", "port": 443, "protocol": "TLS", "tls": {"mode": "Passthrough"}},
        ]},
    }))
    .expect("a gateway");
    let [http, tls] = &*gateway.spec.listeners else { panic!("two listeners") };
    assert_eq!((http.host(), http.is_passthrough(), tls.is_passthrough()), (None, false, true));
    assert!(gateway.spec.allowed_listeners.namespaces.from.is_none() && gateway.spec.tls.frontend.is_none());
}

#[test]
fn selectors_match_labels() {
    let labels: StringMap = [("a", "1"), ("b", "2")].into_iter().collect();
    let matches = |selector: serde_json::Value| {
        serde_json::from_value::<LabelSelector>(selector).expect("a selector").matches(&labels)
    };
    assert!(
        matches(json!({}))
            && matches(json!({"matchLabels": {"a": "1"}}))
            && !matches(json!({"matchLabels": {"a": "2"}}))
    );
    let expression = |operator: &str, key: &str, values: &[&str]| {
        matches(json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
    };
    assert!(expression("In", "a", &["1", "3"]) && !expression("In", "c", &["1"]));
    assert!(expression("NotIn", "c", &["1"]) && !expression("NotIn", "a", &["1"]));
    assert!(expression("Exists", "a", &[]) && expression("DoesNotExist", "c", &[]) && !expression("Like", "a", &[]));
}

#[test]
fn a_grant_names_group_kind_namespace_and_perhaps_a_name() {
    let grant: ReferenceGrant = serde_json::from_value(json!({"spec": {
        "from": [{"group": GROUP, "kind": "HTTPRoute", "namespace": "shop"}],
        "to": [{"group": "", "kind": "Service", "name": "web"}, {"group": "", "kind": "Secret"}],
    }}))
    .expect("a grant");
    let from = (GROUP, "HTTPRoute", "shop");
    assert!(grant.permits(from, ("", "Service", "web")) && grant.permits(from, ("", "Secret", "any")));
    assert!(!grant.permits(from, ("", "Service", "other")) && !grant.permits(from, ("", "ConfigMap", "web")));
    assert!(!grant.permits((GROUP, "GRPCRoute", "shop"), ("", "Secret", "any")));
    assert!(!grant.permits((GROUP, "HTTPRoute", "other"), ("", "Secret", "any")));
}
