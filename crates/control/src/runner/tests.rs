use std::collections::BTreeSet;
use std::path::Path;

use api::value::ValueExt as _;
use api::{kinds, object};
use serde_json::{Value, json};
use store::allocation::Ranges;
use store::{Embedded, Entry, Key, Options};
use tokio::task::JoinHandle;

use super::*;
use crate::bootstrap;
use crate::testing::{node, pod, service};
use crate::write::object_key;

/// The timeout of all waits.
const TIMEOUT: Duration = Duration::from_secs(60);

struct Bench {
    store: Arc<dyn Store>,
    settings: Settings,
}

impl Bench {
    async fn new(home: &Path) -> Self {
        let index = |table: &str, value: &[u8]| {
            kinds::by_table(table).map_or_else(Default::default, |kind| kind.facts(&object::decode_light(value)))
        };
        let store = Embedded::open(home.join("store"), index, Options::default()).expect("a store");
        let ranges = Ranges { addresses: vec!["10.96.0.0/16".parse().expect("a range")], ports: 30000..=32767 };
        bootstrap::run(&store, &ranges, "10.0.0.1:6443".parse().expect("an address")).await.expect("first objects");
        Self { store: Arc::new(store), settings: Settings::plain(ranges) }
    }

    /// Stores an object unconditionally.
    async fn put(&self, table: &str, mut object: Value) {
        let key = object_key(table, &object);
        if !object.has("metadata.uid") {
            object.put("metadata.uid", key.name.to_string());
        }
        let kind = kinds::by_table(table).expect("a kind");
        let txn = Txn::new().put(key, object::encode(&object), Arc::new(kind.facts(&object)));
        self.store.commit(txn).await.expect("written");
    }

    fn start(&self) -> JoinHandle<()> {
        tokio::spawn(run(self.store.clone(), self.settings.clone(), Metrics::new()))
    }

    fn slices(&self) -> Vec<Arc<Entry>> {
        let range = self.store.range(Table::named("endpointslices"), "default/", None).expect("the present");
        range.entries.into_iter().filter(|entry| &*entry.key.name != "default/kubernetes").collect()
    }

    /// The ready addresses in the slices of a Service.
    fn ready(&self, service: &str) -> BTreeSet<String> {
        let mut ready = BTreeSet::new();
        for entry in self.slices() {
            if entry.facts.label("kubernetes.io/service-name") == Some(service) {
                let slice = object::decode_light(&entry.value);
                for endpoint in slice.items("endpoints").iter().filter(|one| one.flag("conditions.ready")) {
                    ready.extend(endpoint.texts("addresses").into_iter().map(str::to_owned));
                }
            }
        }
        ready
    }

    /// Waits until the slices meet a condition.
    async fn until(&self, wish: impl Fn(&Self) -> bool) {
        let waiting = async {
            let after = self.store.revision();
            let mut watch =
                self.store.watch(Table::named("endpointslices"), "", after).expect("a watch of the present");
            while !wish(self) {
                watch.next().await.expect("history that is kept");
            }
        };
        tokio::time::timeout(TIMEOUT, waiting).await.expect("the condition holds in time");
    }
}

fn make_service(number: usize) -> Value {
    let mut service = service(&format!("s{number}"), &format!("app{number}"));
    service.put("spec.clusterIP", format!("10.96.1.{number}"));
    service.put("spec.clusterIPs", json!([format!("10.96.1.{number}")]));
    service
}

fn make_pod(service: usize, number: usize, ready: bool) -> Value {
    pod(&format!("s{service}-p{number}"), &format!("app{service}"), service * 10 + number, ready)
}

async fn ten_services(bench: &Bench) {
    bench.put("minions", node("node")).await;
    for number in 0..10 {
        for one in 0..5 {
            bench.put("pods", make_pod(number, one, true)).await;
        }
        bench.put("services/specs", make_service(number)).await;
    }
}

fn all_complete(bench: &Bench) -> bool {
    (0..10).all(|number| bench.ready(&format!("s{number}")).len() == 5)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s02_a_restart_at_any_point_converges() {
    let home = tempfile::tempdir().expect("a directory");
    let bench = Bench::new(home.path()).await;
    ten_services(&bench).await;
    // Stopped after every possible number of slices.
    for slices in 1..=10 {
        let runner = bench.start();
        bench.until(|bench| bench.slices().len() >= slices).await;
        runner.abort();
        let _ = runner.await;
    }
    let _runner = bench.start();
    // One slice each: duplicates of two overlapping runs are merged.
    bench.until(|bench| all_complete(bench) && bench.slices().len() == 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_watch_is_replaced_by_a_new_list() {
    let home = tempfile::tempdir().expect("a directory");
    let bench = Bench::new(home.path()).await;
    let mut round = ReconcileLoop::new(bench.store.clone(), bench.settings.clone(), Metrics::new());
    let mut feed = Feed::start(&bench.store);
    assert!(round.handle(FeedEvent::WatchLost(Table::named("pods")), &mut feed).is_err(), "the round ends");
    ten_services(&bench).await;
    let _runner = bench.start();
    bench.until(all_complete).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflicting_writer_loses_nothing() {
    let home = tempfile::tempdir().expect("a directory");
    let bench = Arc::new(Bench::new(home.path()).await);
    ten_services(&bench).await;
    let _runner = bench.start();
    bench.until(all_complete).await;
    // A client writes annotations on the slices while their endpoints change.
    let foreign = tokio::spawn({
        let bench = bench.clone();
        async move {
            let mut last = std::collections::BTreeMap::new();
            for count in 0..300 {
                let slices = bench.slices();
                let entry = &slices[count % slices.len()];
                let mut slice = object::decode_bare(&entry.value);
                slice.put("metadata.annotations", json!({"somebody": count.to_string()}));
                let kind = kinds::by_table("endpointslices").expect("a kind");
                let key: Key = entry.key.clone();
                let txn = Txn::new().unchanged(key.clone(), entry.modified);
                let txn = txn.put(key.clone(), object::encode(&slice), Arc::new(kind.facts(&slice)));
                if bench.store.commit(txn).await.is_ok() {
                    last.insert(key, count.to_string());
                }
            }
            last
        }
    });
    for round in 0..30 {
        for number in 0..10 {
            bench.put("pods", make_pod(number, 0, round % 2 == 1)).await;
        }
    }
    let acknowledged = foreign.await.expect("the other writer ends");
    bench.until(all_complete).await;
    assert!(!acknowledged.is_empty());
    for (key, count) in acknowledged {
        let entry = bench.store.get(&key).expect("slices are changed, not replaced");
        let slice = object::decode_light(&entry.value);
        assert_eq!(slice.text("metadata.annotations.somebody"), count, "{key}");
    }
}
