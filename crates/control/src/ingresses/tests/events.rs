//! Events of Ingresses, and what is not read.

use std::time::Duration;

use api::view::Secret;

use super::*;
use crate::controller::Outcome;
use crate::settings::CheckCertificates;
use crate::write::Write;

fn outcome(cluster: &Cluster, name: &str) -> Outcome {
    cluster.reconcile(&ingress::CONTROLLER, &format!("default/{name}"))
}

fn event(write: &Write) -> Value {
    match write {
        Write::Object { object, .. } => (**object).clone(),
        other => panic!("an Event: {other:?}"),
    }
}

fn has_event(cluster: &Cluster, reason: &str, part: &str) -> bool {
    cluster.events.iter().any(|(have, message)| have == reason && message.contains(part))
}

#[test]
fn s51_what_is_not_honoured_is_an_event_once() {
    let mut cluster = cluster();
    put_backend(&mut cluster);
    let mut ingress = with_class("shop", "waypost");
    let snippet = "nginx.ingress.kubernetes.io/configuration-snippet";
    ingress.put("metadata.annotations", json!({snippet: "more_set_headers X;"}));
    ingress.put("spec.tls", json!([{"secretName": "cert"}]));
    put(&mut cluster, ingress);
    cluster.deliver_all();
    let events: Vec<Value> = outcome(&cluster, "shop").events.iter().map(event).collect();
    let reasons: Vec<&str> = events.iter().map(|event| event.text("reason")).collect();
    assert_eq!(reasons, ["AnnotationNotHonoured", "CertificateInvalid"]);
    for event in events {
        assert_eq!((event.text("type"), event.text("involvedObject.kind")), ("Warning", "Ingress"));
        assert_eq!(event.text("metadata.namespace"), "default");
        cluster.put("events", event);
    }
    // Events that exist are not repeated: not by the next change, nor after a restart.
    let same = cluster.get(INGRESSES, "default/shop").expect("an Ingress");
    put(&mut cluster, same);
    cluster.restart();
    assert_eq!(outcome(&cluster, "shop").events, []);
    converge(&mut cluster);
    for reason in ["AnnotationNotHonoured", "CertificateInvalid"] {
        assert!(!has_event(&cluster, reason, ""), "{:?}", cluster.events);
    }
    // A certificate that has become invalid is another finding.
    cluster.put("secrets", json!({"metadata": {"name": "cert", "namespace": "default"}, "data": {"tls.crt": "bad"}}));
    converge(&mut cluster);
    assert!(has_event(&cluster, "CertificateInvalid", "good certificate"), "{:?}", cluster.events);
    assert!(!has_event(&cluster, "AnnotationNotHonoured", ""), "{:?}", cluster.events);
}

#[test]
fn s51_what_may_only_be_late_is_reported_after_a_while() {
    let mut cluster = cluster();
    let mut ingress = with_class("shop", "waypost");
    ingress.put("metadata.creationTimestamp", "1969-12-31T23:59:58Z");
    put(&mut cluster, ingress.clone());
    cluster.deliver_all();
    let early = outcome(&cluster, "shop");
    assert_eq!((early.events.len(), early.requeue_after), (0, Some(Duration::from_secs(3))));
    put_backend(&mut cluster);
    cluster.deliver_all();
    let complete = outcome(&cluster, "shop");
    assert_eq!((complete.events.len(), complete.requeue_after), (0, None));
    cluster.remove(SERVICES, "default/web");
    ingress.put("metadata.creationTimestamp", "1969-12-31T23:59:55Z");
    put(&mut cluster, ingress);
    converge(&mut cluster);
    assert!(has_event(&cluster, "BackendInvalid", "default/web"), "{:?}", cluster.events);
}

#[test]
fn s51_an_ingress_has_few_events_with_short_messages() {
    let mut cluster = cluster();
    let mut ingress = with_class("shop", "waypost");
    ingress.put("metadata.annotations", json!({"nginx.ingress.kubernetes.io/proxy-body-size": "é".repeat(1000)}));
    let path = |number: usize| {
        let backend = json!({"service": {"name": format!("missing-{number}"), "port": {"number": 80}}});
        json!({"path": format!("/{number}"), "pathType": "Prefix", "backend": backend})
    };
    let paths: Vec<Value> = (0..40).map(path).collect();
    ingress.put("spec.rules", json!([{"http": {"paths": paths}}]));
    put(&mut cluster, ingress);
    cluster.deliver_all();
    let events: Vec<Value> = outcome(&cluster, "shop").events.iter().map(event).collect();
    assert_eq!(events.len(), 16);
    assert!(events.iter().all(|event| event.text("message").len() <= 1024));
    let last = events.last().expect("an Event");
    assert_eq!((last.text("reason"), last.text("message")), ("MoreFindings", "26 more findings are not listed"));
}

#[test]
fn s51_without_a_pool_an_event_says_what_to_do() {
    let mut cluster = without_pool();
    put_backend(&mut cluster);
    put(&mut cluster, with_class("shop", "waypost"));
    converge(&mut cluster);
    assert!(has_event(&cluster, "AddressNotAssigned", "IPPool"), "{:?}", cluster.events);
}

#[test]
fn s51_a_service_of_others_is_not_taken_over() {
    let mut cluster = cluster();
    put_backend(&mut cluster);
    cluster.put("namespaces", json!({"metadata": {"name": "waypost-system"}, "spec": {"finalizers": ["kubernetes"]}}));
    let foreign = json!({
        "metadata": {"name": "ingress-waypost", "namespace": "waypost-system"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}},
    });
    cluster.put(SERVICES, foreign);
    put(&mut cluster, with_class("shop", "waypost"));
    converge(&mut cluster);
    assert!(!service(&cluster).has("metadata.ownerReferences"));
    assert!(addresses(&cluster, "shop").is_null());
    let fix = "kubectl delete service -n waypost-system ingress-waypost";
    assert!(has_event(&cluster, "AddressNotAssigned", fix), "{:?}", cluster.events);
    cluster.remove(SERVICES, SERVICE);
    converge(&mut cluster);
    let own = service(&cluster).items("status.loadBalancer.ingress")[0].text("ip").to_owned();
    assert_eq!(addresses(&cluster, "shop"), at(&own));
}

/// Fails when it is used.
struct Never;

impl CheckCertificates for Never {
    fn certificate(&self, secret: &Secret) -> Result<(), String> {
        panic!("{secret:?} was read")
    }

    fn authorities(&self, pem: &str) -> Result<(), String> {
        panic!("{pem} was read")
    }
}

#[test]
fn s51_what_no_ingress_refers_to_is_not_read() {
    let mut cluster = without_pool();
    cluster.settings.certificate_checks = CertificateChecks(Some(Arc::new(Never)));
    cluster.restart();
    let fill = |cluster: &mut Cluster| {
        cluster.put("secrets", json!({"metadata": {"name": "cert", "namespace": "default"}, "data": {"tls.crt": "x"}}));
        cluster.put(SERVICES, crate::testing::service("other", "web"));
        cluster.deliver_all();
    };
    fill(&mut cluster);
    assert!(!format!("{:?}", cluster.cache.ingresses).contains("default/other"), "an idle cluster keeps nothing");
    put(&mut cluster, with_class("shop", "waypost"));
    fill(&mut cluster);
    let kept = format!("{:?}", cluster.cache.ingresses);
    assert!(kept.contains("default/web") && !kept.contains("default/other"), "only what is referred to is kept");
    cluster.remove(INGRESSES, "default/shop");
    cluster.deliver_all();
    let kept = format!("{:?}", cluster.cache.ingresses);
    assert!(!kept.contains("default/"), "{kept}");
}
