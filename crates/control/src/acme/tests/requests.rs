//! Which certificates objects request.

#![expect(clippy::needless_pass_by_value, reason = "objects are written where they are used")]

use api::gateway_api::{Channel, builders, install};
use api::kinds::customresourcedefinition;
use api::value::ValueExt as _;
use serde_json::{Value, json};

use super::*;
use crate::cache::INGRESSES;
use crate::certificate_orders::Wanted;
use crate::controller::SINGLETON_KEY;
use crate::objects::gateway_api::{CLASSES as GATEWAY_CLASSES, GATEWAYS, LISTENER_SETS};
use crate::settings::{CertificateChecks, ClassCreation, LoadBalancing};
use crate::testing::{Cluster, Good};
use crate::{gateways, ingresses, load_balancer};

/// A cluster with the definitions of the Gateway API, both classes, a pool of addresses and an ACME server.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new(&[
        &gateways::class::CONTROLLER,
        &gateways::gateway::CONTROLLER,
        &gateways::listener_set::CONTROLLER,
        &ingresses::class::CONTROLLER,
        &ingresses::ingress::CONTROLLER,
        &load_balancer::CONTROLLER,
        &CONTROLLER,
    ]);
    cluster.settings.load_balancer = LoadBalancing { enabled: true, ..LoadBalancing::default() };
    cluster.settings.certificate_checks = CertificateChecks(Some(Arc::new(Good)));
    cluster.settings.gateway_class = true;
    cluster.settings.ingress_class = ClassCreation::On;
    cluster.settings.acme = Some(acme(&Arc::default()));
    cluster.restart();
    for namespace in ["shop", "blog"] {
        let metadata = json!({"name": namespace});
        cluster.put("namespaces", json!({"metadata": metadata, "spec": {"finalizers": ["kubernetes"]}}));
    }
    let cidrs = json!({"cidrs": ["10.96.0.0/16", "fd00:10:96::/112"]});
    cluster.put("servicecidrs", json!({"metadata": {"name": "kubernetes"}, "spec": cidrs}));
    cluster.put("ippools", json!({"metadata": {"name": "lan"}, "spec": {"addresses": ["192.0.2.0/28"]}}));
    let mut definitions: Vec<Value> = Vec::new();
    for builder in builders(Channel::Standard) {
        let others: Vec<&Value> = definitions.iter().collect();
        let object = install::object(builder, Channel::Standard, None, &others, Timestamp::UNIX_EPOCH, builder.name);
        cluster.put(customresourcedefinition::KIND.table, object.clone());
        definitions.push(object);
    }
    cluster.deliver_all();
    settle(&mut cluster);
    assert!(cluster.get(GATEWAY_CLASSES, "waypost").is_some());
    cluster
}

fn settle(cluster: &mut Cluster) {
    for _ in 0..3 {
        cluster.converge();
        cluster.wait();
    }
    cluster.converge();
}

/// Stores an object with the annotation; an empty one is none.
fn put(cluster: &mut Cluster, table: &'static str, key: &str, annotation: &str, spec: Value) {
    let kind = cluster.cache.kinds.kinds().by_table(table).expect("a kind");
    let (namespace, name) = key.split_once('/').expect("a key");
    let before = cluster.get(table, key);
    let generation = before.as_ref().map_or(0, |before| before.int("metadata.generation")) + 1;
    let mut object = before.unwrap_or_else(|| json!({"metadata": {"name": name, "namespace": namespace}}));
    object.put("kind", kind.kind);
    object.put("apiVersion", kind.api_version());
    object.put("metadata.generation", generation);
    if !annotation.is_empty() {
        object.put("metadata.annotations", json!({"waypost.dev/acme": annotation}));
    }
    object.put("spec", spec);
    kind.rules.default(&mut object);
    cluster.put(table, object);
    settle(cluster);
}

fn secret(cluster: &mut Cluster, key: &str, labels: Value) {
    let (namespace, name) = key.split_once('/').expect("a key");
    let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
    let data = json!({"tls.crt": "good", "tls.key": ""});
    cluster.put("secrets", json!({"metadata": metadata, "type": "kubernetes.io/tls", "data": data}));
    settle(cluster);
}

fn wanted(cluster: &Cluster) -> Vec<Wanted> {
    cluster.reconcile(&CONTROLLER, SINGLETON_KEY).certificates.expect("certificates").to_vec()
}

/// `SECRET HOSTS GATEWAY`, with `!` for those that are not ready.
fn told(cluster: &Cluster) -> Vec<String> {
    let one = |one: &Wanted| {
        format!("{}{} {} {}", if one.is_ready { "" } else { "!" }, one.secret_key(), text(&one.hosts), one.gateway)
    };
    wanted(cluster).iter().map(one).collect()
}

#[track_caller]
fn assert_event(cluster: &Cluster, reason: &str, words: &str) {
    let found = cluster.events.iter().any(|(of, message)| of == reason && message.contains(words));
    assert!(found, "{reason} {words}: {:#?}", cluster.events);
}

fn listener(name: &str, port: u16, protocol: &str, host: &str, secret: &str) -> Value {
    let mut listener = json!({"name": name, "port": port, "protocol": protocol});
    if !host.is_empty() {
        listener.put("hostname", host);
    }
    if !secret.is_empty() {
        listener.put("tls", json!({"certificateRefs": [{"name": secret}]}));
    }
    listener
}

fn gateway(listeners: &[Value]) -> Value {
    json!({
        "gatewayClassName": "waypost", "listeners": listeners, "allowedListeners": {"namespaces": {"from": "All"}},
    })
}

fn ingress(host: &str, secret: &str) -> Value {
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
    json!({
        "ingressClassName": "waypost", "rules": [{"host": host, "http": {"paths": paths}}],
        "tls": [{"hosts": [host], "secretName": secret}],
    })
}

#[test]
fn listeners_of_a_gateway_request_certificates_by_secret() {
    let mut cluster = cluster();
    let mut foreign = listener("foreign", 443, "HTTPS", "f.example", "f");
    foreign.put("tls.certificateRefs", json!([{"name": "f", "namespace": "blog"}]));
    let listeners = [
        listener("http", 80, "HTTP", "", ""),
        listener("a", 443, "HTTPS", "A.example", "one"),
        listener("b", 8443, "HTTPS", "b.example", "one"),
        listener("c", 443, "HTTPS", "c.example", "two"),
        listener("wild", 443, "HTTPS", "*.d.example", "wild"),
        listener("any", 443, "HTTPS", "", "any"),
        listener("users", 443, "HTTPS", "users.example", "users"),
        listener("name", 443, "HTTPS", "name.example", "Not/A name"),
        foreign,
    ];
    secret(&mut cluster, "shop/users", json!({}));
    secret(&mut cluster, "shop/two", json!({"waypost.dev/acme": "issued"}));
    put(&mut cluster, GATEWAYS, "shop/public", "", gateway(&listeners));
    assert_eq!(told(&cluster), Vec::<String>::new(), "without the annotation");
    put(&mut cluster, GATEWAYS, "shop/public", "dns-01", gateway(&listeners));
    assert_eq!(told(&cluster), Vec::<String>::new());
    assert_event(&cluster, "CertificateRefused", "`dns-01` is neither");
    put(&mut cluster, GATEWAYS, "shop/public", "http-01", gateway(&listeners));
    assert_eq!(told(&cluster), ["shop/one a.example,b.example shop/public", "shop/two c.example shop/public"]);
    assert_event(&cluster, "CertificateRefused", "listener wild: *.d.example is a wildcard");
    assert_event(&cluster, "CertificateRefused", "listener any: it has no hostname");
    assert_event(
        &cluster,
        "CertificateRefused",
        "listener foreign: the first of tls.certificateRefs must be a Secret of namespace shop",
    );
    assert_event(&cluster, "CertificateRefused", "Secret shop/users exists");
    assert_event(&cluster, "CertificateRefused", "listener name: Not/A name cannot be the name of a Secret");
}

#[test]
fn a_validation_needs_a_listener_of_the_same_namespace() {
    let mut cluster = cluster();
    let https = listener("a", 443, "HTTPS", "a.example", "a");
    put(&mut cluster, GATEWAYS, "shop/public", "http-01", gateway(std::slice::from_ref(&https)));
    assert_eq!(told(&cluster), ["!shop/a a.example shop/public"]);
    put(
        &mut cluster,
        GATEWAYS,
        "shop/public",
        "http-01",
        gateway(&[https.clone(), listener("tcp", 81, "HTTP", "", "")]),
    );
    assert_event(&cluster, "CertificatePending", "no HTTP listener on port 80 takes a.example");
    put(&mut cluster, GATEWAYS, "shop/public", "tls-alpn-01", gateway(&[https, listener("http", 80, "HTTP", "", "")]));
    assert_eq!(told(&cluster), ["!shop/a a.example shop/public"], "the listener opens with a certificate");
    assert!(wanted(&cluster)[0].opens_by_certificate);
    secret(&mut cluster, "shop/a", json!({"waypost.dev/acme": "temporary"}));
    assert_eq!(told(&cluster), ["shop/a a.example shop/public"]);
    // Another tenant attaches listeners to the Gateway.
    let set =
        |listeners: &[Value]| json!({"parentRef": {"name": "public", "namespace": "shop"}, "listeners": listeners});
    put(&mut cluster, LISTENER_SETS, "blog/more", "http-01", set(&[listener("b", 443, "HTTPS", "b.example", "b")]));
    assert_eq!(told(&cluster)[1..], ["!blog/b b.example shop/public"]);
    assert_event(
        &cluster,
        "CertificatePending",
        "listener http of shop/public takes b.example on port 80; http-01 needs one of namespace blog",
    );
    let own = [listener("b", 443, "HTTPS", "b.example", "b"), listener("h", 80, "HTTP", "b.example", "")];
    put(&mut cluster, LISTENER_SETS, "blog/more", "http-01", set(&own));
    assert_eq!(told(&cluster)[1..], ["blog/b b.example shop/public"]);
    put(
        &mut cluster,
        LISTENER_SETS,
        "blog/more",
        "tls-alpn-01",
        set(&[listener("a", 443, "HTTPS", "a.example", "stolen")]),
    );
    assert_eq!(told(&cluster), ["shop/a a.example shop/public"], "a listener in conflict is not served");
    assert_event(&cluster, "CertificateRefused", "listener a is not served");
}

#[test]
fn a_host_belongs_to_the_first_namespace_that_has_it_on_either_port() {
    let mut cluster = cluster();
    secret(&mut cluster, "shop/a", json!({"waypost.dev/acme": "issued"}));
    let own = [listener("http", 80, "HTTP", "", ""), listener("a", 443, "HTTPS", "a.example", "a")];
    put(&mut cluster, GATEWAYS, "shop/public", "http-01", gateway(&own));
    let set = |listeners: &[Value]| {
        let parent = json!({"name": "public", "namespace": "shop"});
        json!({"parentRef": parent, "listeners": listeners})
    };
    // Another tenant has the host on port 80, and no conflict, because its HTTPS listener has another port.
    let thief = [listener("h", 80, "HTTP", "a.example", ""), listener("a", 8443, "HTTPS", "a.example", "stolen")];
    put(&mut cluster, LISTENER_SETS, "blog/more", "http-01", set(&thief));
    assert_eq!(told(&cluster), ["shop/a a.example shop/public", "!blog/stolen a.example shop/public"]);
    assert_event(&cluster, "CertificatePending", "listener a of shop/public takes a.example on port 443");
    // The same with the ports exchanged.
    secret(&mut cluster, "blog/stolen", json!({"waypost.dev/acme": "temporary"}));
    put(&mut cluster, GATEWAYS, "shop/public", "http-01", gateway(&[listener("b", 80, "HTTP", "b.example", "")]));
    let thief = [listener("b", 443, "HTTPS", "b.example", "stolen")];
    put(&mut cluster, LISTENER_SETS, "blog/more", "tls-alpn-01", set(&thief));
    assert_eq!(told(&cluster), ["!blog/stolen b.example shop/public"]);
    assert_event(&cluster, "CertificatePending", "listener b of shop/public takes b.example on port 80");
}

#[test]
fn a_namespace_requests_a_limited_number_of_certificates_and_an_object_has_few_findings() {
    let mut cluster = cluster();
    let with = |host: &str, secrets: usize| {
        let mut spec = ingress(host, "");
        let tls = |number| json!({"hosts": [host], "secretName": format!("s{number}")});
        spec.put("tls", (0..secrets).map(tls).collect::<Vec<_>>());
        spec
    };
    put(&mut cluster, INGRESSES, "blog/few", "http-01", with("b.example", 3));
    put(&mut cluster, INGRESSES, "shop/many", "http-01", with("a.example", 1100));
    let wanted = wanted(&cluster);
    let of = |namespace: &str| wanted.iter().filter(|one| one.requester.object.namespace == namespace).count();
    assert_eq!((of("shop"), of("blog")), (1000, 3));
    let messages: BTreeSet<&String> = cluster.events.iter().map(|(_, message)| message).collect();
    let refused = messages.iter().filter(|message| message.contains("requests more than 1000"));
    assert_eq!(refused.count(), 20);
}

#[test]
fn ingresses_request_certificates_for_hosts_of_their_namespace() {
    let mut cluster = cluster();
    put(&mut cluster, INGRESSES, "shop/web", "http-01", ingress("a.example", "a"));
    assert_eq!(told(&cluster), ["shop/a a.example :ingress/waypost"]);
    put(&mut cluster, INGRESSES, "shop/zweb", "http-01", ingress("a.example", "a"));
    assert_eq!(told(&cluster).len(), 1, "the same certificate");
    put(&mut cluster, INGRESSES, "shop/zzz", "http-01", ingress("z.example", "a"));
    assert_event(&cluster, "CertificateRefused", "Secret shop/a is requested for other hosts by Ingress web");
    put(&mut cluster, INGRESSES, "zoo/thief", "http-01", ingress("a.example", "stolen"));
    put(
        &mut cluster,
        INGRESSES,
        "shop/other",
        "http-01",
        json!({
            "ingressClassName": "waypost", "rules": ingress("c.example", "").at("rules"),
            "tls": [{"hosts": ["norule.example"], "secretName": "n"}, {"secretName": "all"}, {"hosts": ["*.w.example"], "secretName": "w"}],
        }),
    );
    assert_eq!(told(&cluster), ["shop/all c.example :ingress/waypost", "shop/a a.example :ingress/waypost"]);
    assert_event(&cluster, "CertificateRefused", "a.example belongs to the namespace of Ingress shop/");
    assert_event(&cluster, "CertificateRefused", "no rule of an Ingress of class waypost is for norule.example");
    assert_event(&cluster, "CertificateRefused", "*.w.example is a wildcard");
    assert_eq!(cluster.writes_to("secrets"), 0);
}
