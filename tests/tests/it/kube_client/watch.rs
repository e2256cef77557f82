//! Watches with kube: from an old revision, with selectors, with bookmarks, and past the end of history.

use std::pin::Pin;

use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use testbed::Server;
use testbed::session::TIMEOUT;

use super::{client, create, refusal, typed};

type Events<K> = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<K>>> + Send>>;

/// Starts a watch after a revision.
async fn watch<K>(api: &Api<K>, params: &WatchParams, version: &str) -> Events<K>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug + 'static,
{
    Box::pin(api.watch(params, version).await.expect("a watch"))
}

/// The next event; `None` when the watch has ended.
async fn next<K>(events: &mut Events<K>) -> Option<WatchEvent<K>> {
    let event = tokio::time::timeout(TIMEOUT, events.next()).await.expect("an event in time");
    event.map(|event| event.expect("an event"))
}

/// An event: its type, the name and the revision.
fn said<K: ResourceExt>(event: WatchEvent<K>) -> (&'static str, String, String) {
    let (kind, object) = match event {
        WatchEvent::Added(object) => ("ADDED", object),
        WatchEvent::Modified(object) => ("MODIFIED", object),
        WatchEvent::Deleted(object) => ("DELETED", object),
        WatchEvent::Bookmark(mark) => return ("BOOKMARK", String::new(), mark.metadata.resource_version),
        WatchEvent::Error(status) => panic!("an error: {status:?}"),
    };
    (kind, object.name_any(), object.resource_version().expect("a revision"))
}

async fn next_of<K: ResourceExt>(events: &mut Events<K>) -> (&'static str, String) {
    let (kind, name, _) = said(next(events).await.expect("no end yet"));
    (kind, name)
}

/// A watch without bookmarks: only changes.
fn quiet() -> WatchParams {
    WatchParams::default().disable_bookmarks()
}

async fn relabel(services: &Api<Service>, name: &str, tier: &str) -> Service {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"tier": tier}}}));
    services.patch(name, &PatchParams::default(), &patch).await.expect("patched")
}

#[tokio::test]
async fn s38_a_watch_from_an_old_revision_sees_everything_since_in_order() {
    let server = Server::start();
    let services: Api<Service> = Api::default_namespaced(client(&server).await);
    create(&services, "before").await;
    let list = services.list(&ListParams::default()).await.expect("a list");
    let start = list.metadata.resource_version.expect("a revision");

    let mut expected = Vec::new();
    let version = |service: &Service| service.resource_version().expect("a revision");
    for number in 0..20 {
        let name = format!("web-{number}");
        expected.push(("ADDED", name.clone(), version(&create(&services, &name).await)));
        expected.push(("MODIFIED", name.clone(), version(&relabel(&services, &name, "a").await)));
        // A write that changes nothing is no event.
        relabel(&services, &name, "a").await;
        if number % 2 == 0 {
            let gone = services.delete(&name, &DeleteParams::default()).await.expect("deleted").left().expect("it");
            expected.push(("DELETED", name, version(&gone)));
        }
    }
    for begin in [0, 7, expected.len() - 1] {
        let from = if begin == 0 { start.clone() } else { expected[begin - 1].2.clone() };
        let mut events = watch(&services, &WatchParams::default(), &from).await;
        for one in &expected[begin..] {
            assert_eq!(&said(next(&mut events).await.expect("no end yet")), one);
        }
    }
}

#[tokio::test]
async fn s38_label_selectors_turn_changes_into_comings_and_goings() {
    let server = Server::start();
    let services: Api<Service> = Api::default_namespaced(client(&server).await);
    create(&services, "one").await;
    relabel(&services, "one", "front").await;
    create(&services, "two").await;
    let mut front = watch(&services, &quiet().labels("tier=front"), "0").await;
    let mut others = watch(&services, &quiet().labels("tier notin (front),component!=apiserver"), "0").await;
    assert_eq!(next_of(&mut front).await, ("ADDED", "one".into()));
    assert_eq!(next_of(&mut others).await, ("ADDED", "two".into()));

    relabel(&services, "two", "front").await;
    relabel(&services, "one", "back").await;
    services.delete("two", &DeleteParams::default()).await.expect("deleted");
    services.delete("one", &DeleteParams::default()).await.expect("deleted");
    create(&services, "end").await;
    relabel(&services, "end", "front").await;
    for expected in [("ADDED", "two"), ("DELETED", "one"), ("DELETED", "two"), ("ADDED", "end")] {
        assert_eq!(next_of(&mut front).await, (expected.0, expected.1.into()));
    }
    for expected in [("DELETED", "two"), ("ADDED", "one"), ("DELETED", "one"), ("ADDED", "end"), ("DELETED", "end")] {
        assert_eq!(next_of(&mut others).await, (expected.0, expected.1.into()));
    }
}

#[tokio::test]
async fn s38_field_selectors_work_on_watches() {
    let server = Server::start();
    let services: Api<Service> = Api::default_namespaced(client(&server).await);
    let mut by_name = watch(&services, &quiet().fields("metadata.name=mine"), "0").await;
    let mut by_type = watch(&services, &quiet().fields("spec.type=NodePort"), "0").await;
    let mut not_internal = watch(&services, &quiet().fields("spec.type!=ClusterIP"), "0").await;
    create(&services, "other").await;
    create(&services, "mine").await;
    let retype = |name: &'static str, kind: &'static str| {
        let services = services.clone();
        let patch = Patch::Merge(json!({"spec": {"type": kind}}));
        async move { services.patch(name, &PatchParams::default(), &patch).await.expect("patched") }
    };
    retype("mine", "NodePort").await;
    retype("other", "LoadBalancer").await;
    retype("mine", "ClusterIP").await;
    services.delete("mine", &DeleteParams::default()).await.expect("deleted");
    services.delete("other", &DeleteParams::default()).await.expect("deleted");
    for kind in ["ADDED", "MODIFIED", "MODIFIED", "DELETED"] {
        assert_eq!(next_of(&mut by_name).await, (kind, "mine".into()));
    }
    for kind in ["ADDED", "DELETED"] {
        assert_eq!(next_of(&mut by_type).await, (kind, "mine".into()));
    }
    for expected in [("ADDED", "mine"), ("ADDED", "other"), ("DELETED", "mine"), ("DELETED", "other")] {
        assert_eq!(next_of(&mut not_internal).await, (expected.0, expected.1.into()));
    }
    let refused = refusal(services.watch(&quiet().fields("spec.frob=1"), "0").await);
    assert!(refused.code == 400 && refused.message.contains("field label not supported: spec.frob"), "{refused:?}");
}

#[tokio::test]
async fn s38_bookmarks_say_how_far_a_quiet_watch_has_come() {
    let server = Server::start();
    let client = client(&server).await;
    let services: Api<Service> = Api::default_namespaced(client.clone());
    let slices: Api<EndpointSlice> = Api::default_namespaced(client);
    let list = slices.list(&ListParams::default().labels("none=here")).await.expect("a list");
    let start = list.metadata.resource_version.expect("a revision");
    // It is notified shortly before its end.
    let mut events = watch(&slices, &WatchParams::default().labels("none=here").timeout(4), &start).await;
    let made = create(&services, "elsewhere").await;
    let (kind, _, reached) = said(next(&mut events).await.expect("a bookmark"));
    let number = |text: &str| text.parse::<u64>().expect("a revision");
    assert_eq!(kind, "BOOKMARK");
    assert!(number(&reached) >= number(&made.resource_version().expect("a revision")), "{reached}");
    assert!(next(&mut events).await.is_none(), "a clean end");
}

#[tokio::test]
async fn s38_initial_events_end_with_a_mark() {
    let server = Server::start();
    let services: Api<Service> = Api::default_namespaced(client(&server).await);
    for name in ["a", "b"] {
        create(&services, name).await;
    }
    let list = services.list(&ListParams::default()).await.expect("a list");
    let mut events = watch(&services, &WatchParams::streaming_lists(), "0").await;
    for name in ["a", "b", "kubernetes"] {
        assert_eq!(next_of(&mut events).await, ("ADDED", name.into()));
    }
    let Some(WatchEvent::Bookmark(mark)) = next(&mut events).await else { panic!("no mark") };
    assert_eq!(mark.metadata.annotations.get("k8s.io/initial-events-end").map(String::as_str), Some("true"));
    let number = |text: &str| text.parse::<u64>().expect("a revision");
    assert!(number(&mark.metadata.resource_version) >= number(&list.metadata.resource_version.expect("a revision")));
    create(&services, "c").await;
    assert_eq!(next_of(&mut events).await, ("ADDED", "c".into()));
}

#[tokio::test]
async fn s38_a_revision_older_than_the_history_is_expired() {
    let server = Server::start();
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server).await);
    let map = |name: &str, number: usize| -> ConfigMap {
        typed(json!({"metadata": {"name": name}, "data": {"n": number.to_string(), "text": "x".repeat(900_000)}}))
    };
    for name in ["a", "b", "c"] {
        maps.create(&PostParams::default(), &map(name, 0)).await.expect("created");
    }
    let first = maps.list(&ListParams::default().limit(1)).await.expect("a page");
    let (start, token) =
        (first.metadata.resource_version.expect("a revision"), first.metadata.continue_.expect("a token"));
    // More bytes of replaced objects than a server keeps.
    for number in 1..50 {
        maps.replace("c", &PostParams::default(), &map("c", number)).await.expect("replaced");
    }
    let mut events = watch(&maps, &WatchParams::default(), &start).await;
    let Some(WatchEvent::Error(status)) = next(&mut events).await else { panic!("it should be too late") };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    assert!(status.message.starts_with(&format!("too old resource version: {start} (")), "{status:?}");
    assert!(next(&mut events).await.is_none(), "nothing comes after that");

    let expired = refusal(maps.list(&ListParams::default().limit(1).continue_token(&token)).await);
    assert_eq!((expired.code, expired.reason.as_str()), (410, "Expired"));
    // The answer holds a way on, for those who can do with a list of two moments.
    let token = expired.metadata.and_then(|meta| meta.continue_).expect("another token");
    let rest = maps.list(&ListParams::default().continue_token(&token)).await.expect("the rest");
    assert_eq!(rest.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["b", "c", "kube-root-ca.crt"]);
    // The list at that revision is gone as well; the present is not.
    let exact = ListParams::default().at(&start).matching(kube::api::VersionMatch::Exact);
    assert_eq!(refusal(maps.list(&exact).await).code, 410);
    assert_eq!(maps.list(&ListParams::default()).await.expect("a list").items.len(), 4);
}
