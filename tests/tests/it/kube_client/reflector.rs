//! Reflectors: a store in another program that is, in the end, what the server has.

use std::collections::BTreeMap;
use std::pin::Pin;

use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use testbed::Server;
use testbed::session::TIMEOUT;

use super::{client, create, listed, service};

/// The changes a reflector saw, and the store it keeps.
pub(super) struct Reflection {
    pub(super) store: Store<Service>,
    events: Pin<Box<dyn Stream<Item = watcher::Result<Event<Service>>> + Send>>,
    /// The newest revision seen of each Service: what a watch shows never goes back.
    newest: BTreeMap<String, u64>,
    /// How often it had to relist.
    pub(super) begun: usize,
}

impl Reflection {
    pub(super) fn of(services: Api<Service>, config: watcher::Config) -> Self {
        let (store, writer) = reflector::store();
        let events = watcher(services, config).default_backoff().reflect(writer).boxed();
        Self { store, events, newest: BTreeMap::new(), begun: 0 }
    }

    /// Reads events until the initial list is complete.
    pub(super) async fn ready(&mut self) {
        self.until(|event| matches!(event, Event::InitDone)).await;
    }

    /// Reads events until this Service is there.
    pub(super) async fn sees(&mut self, name: &str) {
        self.until(|event| matches!(event, Event::Apply(one) | Event::InitApply(one) if one.name_any() == name)).await;
        if !self.stored().contains_key(name) {
            // It came with a list; that is in the store when the list is complete.
            self.ready().await;
        }
    }

    async fn until(&mut self, wanted: impl Fn(&Event<Service>) -> bool) {
        // More events than any of these tests makes.
        for _ in 0..10_000 {
            let event = tokio::time::timeout(TIMEOUT, self.events.next()).await.expect("an event in time");
            // An error is a watch that broke: what counts is that the reflector finds its way back.
            let Ok(event) = event.expect("a reflector never ends") else { continue };
            self.check(&event);
            if wanted(&event) {
                return;
            }
        }
        panic!("the event does not come");
    }

    /// Nothing is seen twice, and nothing older after something newer.
    fn check(&mut self, event: &Event<Service>) {
        let (Event::Apply(one) | Event::Delete(one)) = event else {
            self.begun += usize::from(matches!(event, Event::Init));
            return;
        };
        let version = one.resource_version().and_then(|text| text.parse().ok()).expect("a revision");
        let before = self.newest.insert(one.name_any(), version);
        assert!(before < Some(version), "{} was seen at {before:?} and now at {version}", one.name_any());
    }

    /// The store by name.
    pub(super) fn stored(&self) -> BTreeMap<String, Service> {
        self.store.state().iter().map(|service| (service.name_any(), Service::clone(service))).collect()
    }
}

/// Some changes at random, all of them answered.
pub(super) async fn change(services: &Api<Service>, random: &mut fastrand::Rng, times: usize) {
    let mut there = listed(services).await;
    there.remove("kubernetes");
    for _ in 0..times {
        let name = format!("web-{}", random.u32(..24));
        match (there.contains_key(&name), random.u32(..4)) {
            (false, _) => {
                there.insert(name.clone(), create(services, &name).await);
            }
            (true, 0) => {
                services.delete(&name, &DeleteParams::default()).await.expect("deleted");
                there.remove(&name);
            }
            (true, 1) => {
                let mut wanted = service(&name);
                wanted.labels_mut().insert("tier".into(), random.u32(..3).to_string());
                services.replace(&name, &PostParams::default(), &wanted).await.expect("replaced");
            }
            (true, _) => {
                let patch =
                    Patch::Strategic(json!({"spec": {"ports": [{"name": "more", "port": random.u32(81..90)}]}}));
                // A port name is unique: a patch that repeats it is refused, and that is no change.
                let _ = services.patch(&name, &PatchParams::default(), &patch).await;
            }
        }
    }
}

/// A reflector that starts in the middle of changes ends with what a list shows.
async fn follows(config: watcher::Config) {
    let server = Server::start();
    let services: Api<Service> = Api::default_namespaced(client(&server).await);
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    change(&services, &mut random, 40).await;

    // The other client writes all the time; its last write is the Service `last`.
    let writer = services.clone();
    let writing = tokio::spawn(async move {
        change(&writer, &mut random, 150).await;
        create(&writer, "last").await;
    });
    let mut reflection = Reflection::of(Api::default_namespaced(client(&server).await), config);
    reflection.sees("last").await;
    writing.await.expect("no panic");
    assert_eq!(reflection.stored(), listed(&services).await, "seed {seed}");
    assert_eq!(reflection.begun, 1, "it never had to begin anew");
}

#[tokio::test]
async fn s38_a_reflector_that_lists_in_pages_and_watches_follows_random_changes() {
    follows(watcher::Config::default().page_size(7)).await;
}

#[tokio::test]
async fn s38_a_reflector_that_streams_its_list_follows_random_changes() {
    follows(watcher::Config::default().streaming_lists()).await;
}

#[tokio::test]
async fn s38_a_reflector_whose_watches_are_short_follows_random_changes() {
    // Each watch ends after a second; the next continues at the revision where it ended.
    follows(watcher::Config::default().any_semantic().timeout(1)).await;
}

#[tokio::test]
async fn s38_a_reflector_with_selectors_keeps_what_they_select() {
    let server = Server::start();
    let services: Api<Service> = Api::default_namespaced(client(&server).await);
    let mut random = fastrand::Rng::with_seed(7);
    let strategies = [watcher::Config::default(), watcher::Config::default().streaming_lists()];
    let mut reflections: Vec<Reflection> = strategies
        .into_iter()
        .map(|config| Reflection::of(services.clone(), config.labels("tier in (0, 2)").fields("metadata.name!=web-3")))
        .collect();
    change(&services, &mut random, 200).await;
    let mut last = service("last");
    last.labels_mut().insert("tier".into(), "2".into());
    services.create(&PostParams::default(), &last).await.expect("created");
    let mut expected = listed(&services).await;
    expected
        .retain(|name, one| name != "web-3" && matches!(one.labels().get("tier").map(String::as_str), Some("0" | "2")));
    for reflection in &mut reflections {
        reflection.sees("last").await;
        assert_eq!(reflection.stored(), expected);
    }
}

#[tokio::test]
async fn s38_a_watcher_of_metadata_alone_sees_the_same_changes() {
    let server = Server::start();
    let services: Api<Service> = Api::default_namespaced(client(&server).await);
    create(&services, "a").await;
    let metadata: Api<PartialObjectMeta<Service>> = Api::default_namespaced(client(&server).await);
    let mut events = Box::pin(watcher(metadata, watcher::Config::default().streaming_lists()));
    let mut seen = Vec::new();
    while !seen.contains(&"done".to_owned()) {
        let event = tokio::time::timeout(TIMEOUT, events.next()).await.expect("an event in time").expect("no end");
        match event.expect("no error") {
            Event::Init => {}
            Event::InitApply(one) => seen.push(format!("init {}", one.name_any())),
            Event::InitDone => {
                create(&services, "b").await;
                services.delete("a", &DeleteParams::default()).await.expect("deleted");
            }
            Event::Apply(one) => seen.push(format!("apply {}", one.name_any())),
            Event::Delete(one) => seen.extend([format!("delete {}", one.name_any()), "done".to_owned()]),
        }
    }
    assert_eq!(seen, ["init a", "init kubernetes", "apply b", "delete a", "done"]);
}
