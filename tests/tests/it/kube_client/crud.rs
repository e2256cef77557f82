//! Typed create, read, update and delete, as a program written with kube does them.

use k8s_openapi::api::core::v1::{Endpoints, Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::discovery::{Discovery, verbs};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use testbed::Server;

use super::{client, create, listed, refusal, service, typed};

#[tokio::test]
async fn s01_a_service_is_created_read_replaced_and_deleted() {
    let server = Server::start();
    let services: Api<Service> = Api::default_namespaced(client(&server).await);
    let made = create(&services, "web").await;
    let spec = made.spec.as_ref().expect("a spec");
    assert!(spec.cluster_ip.as_deref().is_some_and(|ip| ip.starts_with("10.96.")), "{spec:?}");
    let port = &spec.ports.as_ref().expect("ports")[0];
    assert_eq!((port.protocol.as_deref(), &port.target_port), (Some("TCP"), &Some(IntOrString::Int(80))));
    assert_eq!(services.get("web").await.expect("found"), made);

    let mut wanted = made.clone();
    wanted.labels_mut().insert("tier".into(), "front".into());
    let replaced = services.replace("web", &PostParams::default(), &wanted).await.expect("replaced");
    assert_eq!(replaced.labels().get("tier").map(String::as_str), Some("front"));
    assert_ne!(replaced.resource_version(), made.resource_version());
    let stale = refusal(services.replace("web", &PostParams::default(), &made).await);
    assert_eq!((stale.code, stale.reason.as_str()), (409, "Conflict"));
    assert!(stale.message.contains("the object has been modified; please apply your changes to the latest version"));

    let twice = refusal(services.create(&PostParams::default(), &service("web")).await);
    assert_eq!((twice.code, twice.reason.as_str()), (409, "AlreadyExists"));
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    services.create(&dry, &service("dry")).await.expect("accepted");
    assert_eq!(services.get_opt("dry").await.expect("an answer"), None);

    let gone = services.delete("web", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(gone.left().expect("the Service, not a Status").uid(), made.uid());
    assert_eq!(services.get_opt("web").await.expect("an answer"), None);
    let missing = refusal(services.get("web").await);
    assert_eq!((missing.code, missing.message.as_str()), (404, "services \"web\" not found"));
}

#[tokio::test]
async fn s01_a_refused_service_names_every_wrong_field() {
    let server = Server::start();
    let services: Api<Service> = Api::default_namespaced(client(&server).await);
    let wrong = json!({"metadata": {"name": "wrong"},
        "spec": {"clusterIP": "None", "ports": [{"port": 0}, {"port": 70000, "name": "web"}], "sessionAffinity": "Sometimes"}});
    let status = refusal(services.create(&PostParams::default(), &typed(wrong)).await);
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    let details = status.details.expect("details");
    assert_eq!((details.kind.as_str(), details.name.as_str()), ("Service", "wrong"));
    let fields: Vec<&str> = details.causes.iter().map(|cause| cause.field.as_str()).collect();
    let ports = ["spec.ports[0].name", "spec.ports[0].port", "spec.ports[0].targetPort", "spec.ports[1].port"];
    assert_eq!(fields[..4], ports);
    assert_eq!(
        fields[4..],
        ["spec.ports[1].targetPort", "spec.sessionAffinity"],
        "a targetPort is its port unless it is said"
    );
}

#[tokio::test]
async fn s38_endpoints_and_slices_are_written_and_read() {
    let server = Server::start();
    let client = client(&server).await;
    let endpoints: Api<Endpoints> = Api::default_namespaced(client.clone());
    let hand_made: Endpoints = typed(json!({
        "metadata": {"name": "legacy"},
        "subsets": [{"addresses": [{"ip": "192.0.2.42"}], "ports": [{"port": 9376}]}],
    }));
    let made = endpoints.create(&PostParams::default(), &hand_made).await.expect("created");
    assert_eq!(made.subsets.as_ref().and_then(|all| all[0].ports.as_ref()).map(|all| all[0].port), Some(9376));
    let patch = json!({"subsets": [{"addresses": [{"ip": "192.0.2.43"}], "ports": [{"port": 9377}]}]});
    let patched = endpoints.patch("legacy", &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
    assert_eq!(endpoints.get("legacy").await.expect("found"), patched);
    endpoints.delete("legacy", &DeleteParams::default()).await.expect("deleted");

    let slices: Api<EndpointSlice> = Api::default_namespaced(client);
    let hand_made: EndpointSlice = typed(json!({
        "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "appProtocol": "http", "port": 9376}],
        "endpoints": [{"addresses": ["10.4.5.6"]}, {"addresses": ["10.1.2.3"], "conditions": {"ready": false}}],
    }));
    let made = slices.create(&PostParams::default(), &hand_made).await.expect("created");
    let ready = |slice: &EndpointSlice| -> Vec<(String, Option<bool>)> {
        let endpoints = slice.endpoints.as_deref().unwrap_or_default();
        endpoints
            .iter()
            .map(|one| (one.addresses[0].clone(), one.conditions.as_ref().and_then(|all| all.ready)))
            .collect()
    };
    assert_eq!(ready(&made), [("10.4.5.6".into(), None), ("10.1.2.3".into(), Some(false))]);
    assert_eq!(made.ports.as_ref().and_then(|all| all[0].protocol.as_deref()), Some("TCP"));
    let of_web = ListParams::default().labels("kubernetes.io/service-name=web");
    assert_eq!(slices.list(&of_web).await.expect("a list").items, std::slice::from_ref(&made));
    let loopback = json!({"endpoints": [{"addresses": ["127.0.0.1"]}]});
    let status = refusal(slices.patch("web-1", &PatchParams::default(), &Patch::Merge(loopback)).await);
    assert!(status.code == 422 && status.message.contains("may not be in the loopback range"), "{status:?}");
    slices.delete_collection(&DeleteParams::default(), &of_web).await.expect("deleted");
    assert!(slices.list(&of_web).await.expect("a list").items.is_empty());
}

#[tokio::test]
async fn s01_a_status_is_patched_and_leaves_the_spec_alone() {
    let server = Server::start();
    let services: Api<Service> = Api::default_namespaced(client(&server).await);
    let mut balanced = service("balanced");
    balanced.spec.as_mut().expect("a spec").type_ = Some("LoadBalancer".into());
    let made = services.create(&PostParams::default(), &balanced).await.expect("created");
    let patch =
        json!({"spec": {"selector": {"app": "z"}}, "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.127"}]}}});
    let patched =
        services.patch_status("balanced", &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
    assert_eq!(patched.spec, made.spec);
    let shown = services.get_status("balanced").await.expect("found");
    let ingress =
        shown.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.clone()).expect("ingress");
    assert_eq!((ingress[0].ip.as_deref(), ingress[0].ip_mode.as_deref()), (Some("192.0.2.127"), Some("VIP")));

    // The other way round: a write of the object leaves the status alone.
    let mut wanted = shown.clone();
    wanted.status = None;
    wanted.labels_mut().insert("a".into(), "b".into());
    let replaced = services.replace("balanced", &PostParams::default(), &wanted).await.expect("replaced");
    assert_eq!(replaced.status, shown.status);
    let provisioned = await_condition(services, "balanced", conditions::is_service_loadbalancer_provisioned());
    assert!(provisioned.await.expect("a watch").is_some());
}

#[tokio::test]
async fn s01_server_side_apply_creates_owns_conflicts_and_forces() {
    let server = Server::start();
    let services: Api<Service> = Api::default_namespaced(client(&server).await);
    let wanted = |port: i32, tier: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "applied", "labels": {"tier": tier}},
            "spec": {"ports": [{"port": port, "name": format!("p{port}")}], "selector": {"app": "x"}}})
    };
    let apply = PatchParams::apply("first");
    let made = services.patch("applied", &apply, &Patch::Apply(wanted(80, "a"))).await.expect("created");
    let owner = &made.managed_fields()[0];
    assert_eq!((owner.manager.as_deref(), owner.operation.as_deref()), (Some("first"), Some("Apply")));
    let same = services.patch("applied", &apply, &Patch::Apply(wanted(80, "a"))).await.expect("applied");
    assert_eq!(same.resource_version(), made.resource_version(), "nothing changed");

    let other = PatchParams::apply("second");
    let conflict = refusal(services.patch("applied", &other, &Patch::Apply(wanted(80, "b"))).await);
    assert_eq!((conflict.code, conflict.reason.as_str()), (409, "Conflict"));
    assert_eq!(conflict.message, "Apply failed with 1 conflict: conflict with \"first\": .metadata.labels.tier");
    let forced = services.patch("applied", &other.force(), &Patch::Apply(wanted(80, "b"))).await.expect("forced");
    assert_eq!(forced.labels().get("tier").map(String::as_str), Some("b"));

    // What its owner no longer applies is removed; what another still owns stays.
    let moved =
        services.patch("applied", &apply.clone().force(), &Patch::Apply(wanted(81, "b"))).await.expect("applied");
    let mut ports: Vec<i32> = moved.spec.expect("a spec").ports.expect("ports").iter().map(|port| port.port).collect();
    ports.sort_unstable();
    assert_eq!(ports, [80, 81], "80 is also the second's");
    let unknown = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "applied"}, "spec": {"frob": 1}});
    let status = refusal(services.patch("applied", &apply.validation_strict(), &Patch::Apply(unknown)).await);
    assert!(status.code == 400 || status.code == 500, "{status:?}");
}

#[tokio::test]
async fn s01_a_delete_holds_its_preconditions() {
    let server = Server::start();
    let services: Api<Service> = Api::default_namespaced(client(&server).await);
    let made = create(&services, "web").await;
    let when = |uid: Option<String>, resource_version: Option<String>| {
        let preconditions = Some(Preconditions { uid, resource_version });
        DeleteParams { preconditions, ..DeleteParams::default() }
    };
    let other = when(Some("11111111-2222-3333-4444-555555555555".into()), None);
    let status = refusal(services.delete("web", &other).await);
    assert!(status.code == 409 && status.message.contains("does not match the UID in record"), "{status:?}");
    let status = refusal(services.delete("web", &when(None, Some("1".into()))).await);
    assert!(
        status.code == 409 && status.message.contains("does not match the ResourceVersion in record"),
        "{status:?}"
    );
    let dry = services.delete("web", &DeleteParams::default().dry_run()).await.expect("accepted");
    assert!(dry.is_left());
    assert_eq!(services.get("web").await.expect("still there"), made);
    services.delete("web", &when(made.uid(), made.resource_version())).await.expect("deleted");
    assert_eq!(services.get_opt("web").await.expect("an answer"), None);
}

#[tokio::test]
async fn s01_a_finalizer_keeps_a_service_until_it_is_taken_off() {
    let server = Server::start();
    let services: Api<Service> = Api::default_namespaced(client(&server).await);
    let mut kept = service("kept");
    kept.finalizers_mut().push("example.com/keep".into());
    let made = services.create(&PostParams::default(), &kept).await.expect("created");
    let deleting =
        services.delete("kept", &DeleteParams::default()).await.expect("accepted").left().expect("a Service");
    assert!(deleting.metadata.deletion_timestamp.is_some());
    assert_eq!(services.get("kept").await.expect("still there"), deleting);
    let uid = made.uid().expect("a uid");
    let gone = tokio::spawn(await_condition(
        services.clone(),
        "kept",
        conditions::is_deleted(Box::leak(uid.into_boxed_str())),
    ));
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    services.patch("kept", &PatchParams::default(), &patch).await.expect("patched");
    gone.await.expect("no panic").expect("a watch");
    assert!(!listed(&services).await.contains_key("kept"));
}

#[tokio::test]
async fn s01_lists_come_in_pages_of_one_moment() {
    let server = Server::start();
    let services: Api<Service> = Api::default_namespaced(client(&server).await);
    for number in 0..9 {
        create(&services, &format!("web-{number}")).await;
    }
    let before = listed(&services).await;
    let page = ListParams::default().limit(4);
    let first = services.list(&page).await.expect("a page");
    assert_eq!((first.items.len(), first.metadata.remaining_item_count), (4, Some(6)));
    // What changes meanwhile is not seen.
    services.delete("web-8", &DeleteParams::default()).await.expect("deleted");
    create(&services, "zzz").await;
    let mut seen = first.items;
    let mut token = first.metadata.continue_.clone();
    while let Some(next) = token.filter(|token| !token.is_empty()) {
        let more = services.list(&page.clone().continue_token(&next)).await.expect("a page");
        assert_eq!(more.metadata.resource_version, first.metadata.resource_version);
        seen.extend(more.items);
        token = more.metadata.continue_;
    }
    assert_eq!(seen, before.into_values().collect::<Vec<_>>());
    let metadata = services.list_metadata(&ListParams::default().fields("metadata.name=zzz")).await.expect("a list");
    assert_eq!(metadata.items.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>(), ["zzz"]);
}

#[tokio::test]
async fn s01_discovery_finds_every_kind_and_its_verbs() {
    let server = Server::start();
    let client = client(&server).await;
    assert!(client.apiserver_version().await.expect("a version").git_version.starts_with("v1."));
    for discovery in [Discovery::new(client.clone()).run().await, Discovery::new(client.clone()).run_aggregated().await]
    {
        let discovery = discovery.expect("discovery");
        let core = discovery.get("").expect("the core group");
        let (resource, capabilities) = core.recommended_kind("Service").expect("Services");
        assert_eq!(resource.plural, "services");
        let all = [verbs::GET, verbs::LIST, verbs::WATCH, verbs::CREATE, verbs::UPDATE, verbs::PATCH, verbs::DELETE];
        assert!(all.iter().all(|verb| capabilities.supports_operation(verb)), "{capabilities:?}");
        assert!(
            capabilities.subresources.iter().any(|(sub, _)| sub.plural == "services/status" || sub.plural == "status")
        );
        for group in ["discovery.k8s.io", "networking.k8s.io", "coordination.k8s.io", "events.k8s.io"] {
            assert!(discovery.has_group(group), "{group}");
        }
    }
    let namespaces: Api<Namespace> = Api::all(client);
    let names: Vec<String> =
        namespaces.list(&ListParams::default()).await.expect("a list").iter().map(Namespace::name_any).collect();
    assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);
}
