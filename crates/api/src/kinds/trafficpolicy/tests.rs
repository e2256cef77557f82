use serde_json::{Value, json};

use super::*;
use crate::kinds::testing::summary;

fn gateway() -> Value {
    json!([{"kind": "Gateway", "name": "public"}])
}

/// What is wrong with a policy of a Gateway that sets these fields.
fn check(fields: &Value) -> String {
    let mut spec = json!({"targetRefs": gateway()});
    spec.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
    check_spec(&spec)
}

fn check_spec(spec: &Value) -> String {
    let mut object = json!({"metadata": {"name": "a", "namespace": "b"}, "spec": spec});
    TrafficPolicyRules.default(&mut object);
    summary(|errors| TrafficPolicyRules.validate_create(&object, errors))
}

fn expect(cases: &[(Value, &str)]) {
    for (fields, wrong) in cases {
        assert_eq!(check(fields), *wrong, "{fields}");
    }
}

#[test]
fn defaults_are_written_into_the_parts_that_are_set() {
    let mut object = json!({"spec": {
        "targetRefs": [{"kind": "Gateway", "name": "g"}, {"kind": "Service", "name": "s"}, {"kind": "Odd", "name": "o"}],
        "authentication": {"external": {"url": "http://auth.example/"}},
        "rateLimits": [{"requests": 7, "per": "Second"}, {"requests": 7, "per": "Hour", "burst": 0, "key": {"type": "Header"}}],
        "outlierDetection": {"consecutiveErrors": 3},
        "session": {"cookie": {"name": "s"}},
    }});
    TrafficPolicyRules.default(&mut object);
    let spec = &object["spec"];
    let groups: Vec<_> =
        spec["targetRefs"].as_array().expect("a list").iter().map(|target| target.text("group")).collect();
    assert_eq!(groups, ["gateway.networking.k8s.io", "", ""]);
    assert_eq!(
        spec["authentication"]["external"],
        json!({"url": "http://auth.example/", "method": "GET", "signInRedirectParameter": "rd"})
    );
    assert_eq!(spec["rateLimits"][0], json!({"requests": 7, "per": "Second", "burst": 7, "key": {"type": "Client"}}));
    assert_eq!(spec["rateLimits"][1]["burst"], 0);
    assert_eq!(
        spec["outlierDetection"],
        json!({"consecutiveErrors": 3, "baseEjectionTime": "30s", "maxEjectionTime": "5m", "maxEjectionPercent": 50})
    );
    assert_eq!(spec["session"]["changeOnFailure"], true);
    let mut empty = json!({"spec": {"targetRefs": gateway()}});
    TrafficPolicyRules.default(&mut empty);
    assert_eq!(empty["spec"].as_object().map(Map::len), Some(1), "a part that is not set stays absent");
}

#[test]
fn every_field_has_values_that_are_accepted() {
    for fields in [
        json!({"requestBody": {"maxSize": "8Mi"}}),
        json!({"timeouts": {"connect": "500ms", "read": "1h30m", "send": "24h"}}),
        json!({"sourceRanges": {"allow": ["192.0.2.0/24", "2001:db8::/32"], "deny": ["192.0.2.7/32"]}}),
        json!({"authentication": {"basic": {"secretName": "users", "realm": "office"},
            "external": {"url": "http://auth.example:4180/check?to=$request_uri", "signInURL": "https://$host/start",
                "responseHeaders": ["X-Auth-User"]}}}),
        json!({"rateLimits": [{"requests": 10, "per": "Minute", "key": {"type": "Header", "header": "X-Key"},
            "exempt": ["192.0.2.0/24"]}]}),
        json!({"maxConcurrentRequests": {"limit": 20, "exempt": ["192.0.2.0/24"]}}),
        json!({"requireHTTPS": true}),
        json!({"loadBalancing": {"type": "LeastRequest"}}),
        json!({"loadBalancing": {"type": "ConsistentHash", "consistentHash": {"type": "QueryParam", "name": "user"}}}),
        json!({"outlierDetection": {}}),
        json!({"slowStart": {"window": "30s"}}),
        json!({"session": {"cookie": {"name": "at", "path": "/app", "domain": "example.com", "maxAge": "8h",
            "secure": true, "sameSite": "None"}}}),
    ] {
        assert_eq!(check(&fields), "[]", "{fields}");
    }
}

#[test]
fn a_policy_has_targets_and_a_field() {
    let one_of = "spec: Required value: at least one of requestBody, timeouts, sourceRanges, authentication, rateLimits, \
         maxConcurrentRequests, requireHTTPS, loadBalancing, outlierDetection, slowStart, session";
    expect(&[
        (json!({}), one_of),
        (json!({"requireHTTPS": false, "rateLimits": []}), one_of),
        (
            json!({"targetRefs": [], "requireHTTPS": true}),
            "spec.targetRefs: Required value: at least one object of the namespace of the policy",
        ),
        (
            json!({"targetRefs": [{"kind": "Ingress", "name": "a"}], "requireHTTPS": true}),
            "spec.targetRefs[0].kind: Unsupported value: \"Ingress\": supported values: \"GRPCRoute\", \"Gateway\", \
             \"HTTPRoute\", \"ListenerSet\", \"Service\"",
        ),
        (
            json!({"targetRefs": [{"group": "apps", "kind": "Gateway", "name": "a"}], "requireHTTPS": true}),
            "spec.targetRefs[0].group: Invalid value: \"apps\": must be \"gateway.networking.k8s.io\" for a Gateway",
        ),
        (json!({"targetRefs": [{"kind": "Gateway"}], "requireHTTPS": true}), "spec.targetRefs[0].name: Required value"),
        (
            json!({"targetRefs": [{"kind": "Gateway", "name": "a", "sectionName": "l"},
                {"kind": "Gateway", "name": "a"}, {"kind": "Gateway", "name": "a", "sectionName": "l"}], "requireHTTPS": true}),
            "spec.targetRefs[2]: Duplicate value: \"Gateway/a/l\"",
        ),
    ]);
    let many: Vec<_> = (0..17).map(|n| json!({"kind": "Gateway", "name": format!("g{n}")})).collect();
    let wrong = check(&json!({"targetRefs": many, "requireHTTPS": true}));
    assert_eq!(wrong, "spec.targetRefs: Too many: 17: must have at most 16 items");
}

#[test]
fn a_policy_of_a_service_does_not_restrict_requests() {
    let service = json!([{"kind": "Service", "name": "a", "sectionName": "http"}]);
    let backends = json!({"targetRefs": service, "timeouts": {"read": "5s"}, "slowStart": {"window": "5s"}});
    assert_eq!(check(&backends), "[]");
    let wrong = check(&json!({"targetRefs": service, "requireHTTPS": true}));
    assert_eq!(
        wrong,
        "spec.requireHTTPS: Forbidden: may not be set when a target is a Service: attach it to the Gateway or to the routes"
    );
}

#[test]
fn durations_and_sizes_stay_in_their_ranges() {
    expect(&[
        (json!({"requestBody": {}}), "spec.requestBody.maxSize: Required value: the longest body, such as 8Mi"),
        (
            json!({"requestBody": {"maxSize": "0"}}),
            "spec.requestBody.maxSize: Invalid value: \"0\": must be at least 1",
        ),
        (json!({"timeouts": {}}), "spec.timeouts: Required value: at least one of connect, read, send"),
        (
            json!({"timeouts": {"read": "1.5s"}}),
            "spec.timeouts.read: Invalid value: \"1.5s\": must be a duration such as 30s, 1h30m or 500ms",
        ),
        (
            json!({"timeouts": {"read": "0s"}}),
            "spec.timeouts.read: Invalid value: \"0s\": must be longer than nothing and at most 24h",
        ),
        (
            json!({"slowStart": {"window": "25h"}}),
            "spec.slowStart.window: Invalid value: \"25h\": must be longer than nothing and at most 24h",
        ),
    ]);
}

#[test]
fn access_must_be_enforceable_as_it_is_written() {
    let external = |more: Value| {
        let mut external = json!({"url": "http://auth.example/"});
        external.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({"authentication": {"external": external}})
    };
    expect(&[
        (json!({"sourceRanges": {}}), "spec.sourceRanges: Required value: at least one of allow, deny"),
        (
            json!({"sourceRanges": {"allow": ["192.0.2.1/24"]}}),
            "spec.sourceRanges.allow[0]: Invalid value: \"192.0.2.1/24\": must not have bits set beyond the prefix length",
        ),
        (json!({"authentication": {}}), "spec.authentication: Required value: at least one of basic, external"),
        (
            json!({"authentication": {"basic": {}}}),
            "spec.authentication.basic.secretName: Required value: the Secret with the passwords",
        ),
        (
            json!({"authentication": {"basic": {"secretName": "a", "realm": "a\"b"}}}),
            "spec.authentication.basic.realm: Invalid value: \"a\\\"b\": must be printable ASCII without \" and \\",
        ),
        (
            external(json!({"url": "ftp://auth.example/"})),
            "spec.authentication.external.url: Invalid value: \"ftp://auth.example/\": must be a URL of the scheme http or https",
        ),
        (
            external(json!({"url": "http://$http_x/"})),
            "spec.authentication.external.url: Invalid value: \"http://$http_x/\": must have a host without variables and \
             without user",
        ),
        (
            external(json!({"responseHeaders": ["Content-Length"]})),
            "spec.authentication.external.responseHeaders[0]: Invalid value: \"Content-Length\": must not be a header that \
             frames a message",
        ),
        (
            external(json!({"responseHeaders": ["a b"]})),
            "spec.authentication.external.responseHeaders[0]: Invalid value: \"a b\": must be the name of a header",
        ),
    ]);
}

#[test]
fn limits_have_a_rate_a_period_and_a_key() {
    expect(&[
        (
            json!({"rateLimits": [{"requests": 0, "per": "Day"}]}),
            "[spec.rateLimits[0].requests: Invalid value: 0: must be between 1 and 1000000, inclusive, \
             spec.rateLimits[0].per: Unsupported value: \"Day\": supported values: \"Hour\", \"Minute\", \"Second\"]",
        ),
        (
            json!({"rateLimits": [{"requests": 1, "per": "Hour", "key": {"type": "Header"}}]}),
            "spec.rateLimits[0].key.header: Required value: the name of a header",
        ),
        (
            json!({"rateLimits": [{"requests": 1, "per": "Hour", "key": {"type": "Client", "header": "X"}}]}),
            "spec.rateLimits[0].key.header: Forbidden: may be set only when type is Header",
        ),
        (
            json!({"maxConcurrentRequests": {"limit": 0}}),
            "spec.maxConcurrentRequests.limit: Invalid value: 0: must be between 1 and 1000000, inclusive",
        ),
    ]);
}

#[test]
fn endpoints_are_chosen_by_what_requests_have() {
    expect(&[
        (
            json!({"loadBalancing": {"type": "Maglev"}}),
            "spec.loadBalancing.type: Unsupported value: \"Maglev\": supported values: \"ConsistentHash\", \"LeastRequest\", \
             \"Random\", \"RoundRobin\"",
        ),
        (
            json!({"loadBalancing": {"type": "ConsistentHash"}}),
            "spec.loadBalancing.consistentHash: Required value: what the endpoint depends on",
        ),
        (
            json!({"loadBalancing": {"type": "Random", "consistentHash": {"type": "Path"}}}),
            "spec.loadBalancing.consistentHash: Forbidden: may be set only when type is ConsistentHash",
        ),
        (
            json!({"loadBalancing": {"type": "ConsistentHash", "consistentHash": {"type": "Path", "name": "x"}}}),
            "spec.loadBalancing.consistentHash.name: Forbidden: may be set only when type is one of Cookie, Header, QueryParam",
        ),
        (
            json!({"outlierDetection": {"maxEjectionPercent": 101, "maxEjectionTime": "1s"}}),
            "[spec.outlierDetection.maxEjectionPercent: Invalid value: 101: must be between 1 and 100, inclusive, \
             spec.outlierDetection.maxEjectionTime: Invalid value: \"1s\": must not be shorter than baseEjectionTime]",
        ),
        (
            json!({"session": {"cookie": {"name": "a", "path": "/;x", "sameSite": "None"}}}),
            "[spec.session.cookie.path: Invalid value: \"/;x\": must be a path of at most 1024 bytes: printable ASCII \
             without ;, spec.session.cookie.sameSite: Invalid value: \"None\": may be None only when secure is true: \
             browsers refuse it otherwise]",
        ),
    ]);
}

#[test]
fn a_status_has_at_most_sixteen_ancestors() {
    let old = json!({"metadata": {"name": "a", "namespace": "b", "resourceVersion": "1"}});
    let ancestor = json!({"ancestorRef": {"name": "g"}, "controllerName": "example.com/c", "conditions": []});
    let with = |count: usize| {
        let mut new = old.clone();
        new["status"] = json!({"ancestors": vec![ancestor.clone(); count]});
        summary(|errors| TrafficPolicyRules.validate_status(&new, &old, errors))
    };
    assert_eq!(with(16), "[]");
    assert_eq!(with(17), "status.ancestors: Too many: 17: must have at most 16 items");
}

#[test]
fn a_row_shows_targets_and_whether_the_policy_has_an_effect() {
    let mut object = json!({"metadata": {"name": "a"}, "spec": {
        "targetRefs": [{"kind": "Gateway", "name": "g", "sectionName": "l"}, {"kind": "Service", "name": "s"}],
        "timeouts": {"read": "1s"}, "requireHTTPS": true,
    }});
    let row = |object: &Value| json!((TABLE.row)(object, jiff::Timestamp::UNIX_EPOCH));
    assert_eq!(row(&object), json!(["a", "Gateway/g/l,Service/s", "Unknown", "<unknown>", "timeouts,requireHTTPS"]));
    let says = |status: &str| json!({"conditions": [{"type": "Accepted", "status": status}]});
    object["status"]["ancestors"] = json!([says("True"), says("True")]);
    assert_eq!(row(&object)[2], "True");
    object["status"]["ancestors"] = json!([says("True"), says("False")]);
    assert_eq!(row(&object)[2], "False");
}
