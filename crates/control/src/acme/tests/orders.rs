//! Orders of what is wanted, with a store.

use std::future::Future;
use std::time::Duration;

use api::acme::{ANSWERS, KEY};
use api::object;
use api::value::ValueExt as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use store::allocation::Ranges;
use store::{Embedded, Key, Options, Store, Table};

use super::super::worker::Api;
use super::*;
use crate::bootstrap;
use crate::certificate_orders::{ProblemKind, Requester, Wanted};
use crate::event::Reference;
use crate::settings::Settings;

/// A store with the first objects, and a CA.
struct Bench {
    store: Arc<dyn Store>,
    settings: Settings,
    fake: Arc<Fake>,
    _home: tempfile::TempDir,
}

impl Bench {
    async fn new() -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let index = |table: &str, value: &[u8]| {
            api::kinds::by_table(table).map_or_else(Default::default, |kind| kind.facts(&object::decode_light(value)))
        };
        let store = Embedded::open(home.path().join("store"), index, Options::default()).expect("a store");
        let ranges = Ranges { addresses: vec!["10.96.0.0/16".parse().expect("a range")], ports: 30000..=32767 };
        bootstrap::run(&store, &ranges, "127.0.0.1:6443".parse().expect("an address")).await.expect("first objects");
        let fake = Arc::<Fake>::default();
        let settings = Settings { acme: Some(acme(&fake)), ..Settings::plain(ranges) };
        Self { store: Arc::new(store), settings, fake, _home: home }
    }

    fn want(&self, wanted: &[Wanted]) {
        self.settings.acme.as_ref().expect("a server").want(wanted.to_vec().into());
    }

    /// A worker that runs until it is dropped.
    fn worker(&self) -> impl Future<Output = ()> + use<> {
        run(Arc::clone(&self.store), self.settings.clone())
    }

    /// Lets workers run until this holds.
    async fn until(&self, workers: impl Future, what: &str, holds: impl Fn(&Self) -> bool) {
        let mut changes = self.store.watch(Table::named(SECRETS), "", self.store.revision()).expect("a watch");
        let mut maps = self.store.watch(Table::named("configmaps"), "", self.store.revision()).expect("a watch");
        let mut events = self.store.watch(Table::named("events"), "", self.store.revision()).expect("a watch");
        let waiting = async {
            while !holds(self) {
                tokio::select! {
                    _ = changes.next() => {}
                    _ = maps.next() => {}
                    _ = events.next() => {}
                }
            }
        };
        tokio::select! {
            () = waiting => {}
            _ = workers => panic!("a worker ended"),
            () = tokio::time::sleep(Duration::from_secs(30)) => panic!("{what}: {:?}", self.fake.orders.lock()),
        }
    }

    fn get(&self, table: &'static str, key: &str) -> Option<Value> {
        let entry = self.store.get(&Key::new(Table::named(table), key))?;
        Some(object::decode_bare(&entry.value))
    }

    fn label(&self, key: &str) -> String {
        let secret = self.get(SECRETS, key);
        secret
            .as_ref()
            .and_then(|secret| secret.at("metadata.labels").get(KEY)?.as_str())
            .unwrap_or_default()
            .to_owned()
    }

    fn chain(&self, key: &str) -> String {
        let secret = self.get(SECRETS, key).expect("a Secret");
        let text = secret.at("data").get("tls.crt").and_then(Value::as_str).expect("a chain");
        String::from_utf8(STANDARD.decode(text).expect("base64")).expect("text")
    }

    fn events(&self) -> Vec<String> {
        let found = self.store.range(Table::named("events"), "default/", None).expect("Events");
        let reason = |value: &[u8]| object::decode_bare(value).text("reason").to_owned();
        found.entries.iter().map(|entry| reason(&entry.value)).collect()
    }

    fn orders(&self) -> Vec<String> {
        self.fake.orders.lock().clone()
    }

    async fn put(&self, name: &str, labels: Value, chain: &str) {
        let api = Api::new(Arc::clone(&self.store), self.settings.clone());
        let (mut secret, modified) = api.read(SECRETS, "default", name);
        secret.put("metadata.labels", labels);
        secret.put("type", "kubernetes.io/tls");
        secret.put("data", json!({"tls.crt": STANDARD.encode(chain), "tls.key": STANDARD.encode("key")}));
        api.write(SECRETS, secret, modified).await.expect("written");
    }
}

fn wanted(secret: &str, host: &str) -> Wanted {
    let object = Reference { namespace: "default".into(), name: "web".into(), uid: "uid of web".into() };
    Wanted {
        requester: Requester { kind: "Ingress", api_version: "networking.k8s.io/v1".into(), object },
        secret: secret.into(),
        hosts: BTreeSet::from([host.into()]),
        challenge: Challenge::Http,
        gateway: ":ingress/waypost".into(),
        opens_by_certificate: false,
        is_ready: true,
    }
}

#[tokio::test]
async fn a_certificate_is_written_and_its_answers_are_removed() {
    let bench = Bench::new().await;
    let not_ready = Wanted { is_ready: false, ..wanted("later", "later.example") };
    let opens = Wanted { opens_by_certificate: true, is_ready: false, ..wanted("tls", "tls.example") };
    bench.want(&[wanted("a", "a.example"), not_ready, opens]);
    let held = bench.fake.gate.lock().await;
    let mut worker = std::pin::pin!(bench.worker());
    let answers = format!("{}/{}", ANSWERS.0, ANSWERS.1);
    let answer = |bench: &Bench| {
        let map = bench.get("configmaps", &answers)?;
        serde_json::from_str::<Value>(map.at("data").get("a-example")?.as_str()?).ok()
    };
    bench.until(worker.as_mut(), "an answer", |bench| answer(bench).is_some()).await;
    let published = answer(&bench).expect("an answer");
    assert_eq!((published.text("gateway"), published.text("host")), (":ingress/waypost", "a.example"));
    assert_eq!(published.text("keyAuthorization"), "a.example.thumb");
    drop(held);
    bench.until(worker.as_mut(), "an Event", |bench| !bench.events().is_empty()).await;
    assert_eq!(bench.events(), ["CertificateIssued"]);
    assert!(bench.chain("default/a").starts_with("a.example|") && answer(&bench).is_none());
    assert_eq!((bench.label("default/a").as_str(), bench.label("default/tls").as_str()), ("issued", "temporary"));
    assert_eq!(bench.orders(), ["account", "a.example"]);
    assert!(bench.get(SECRETS, "default/later").is_none());
}

#[tokio::test]
async fn the_answers_of_an_order_that_takes_too_long_are_removed() {
    let mut bench = Bench::new().await;
    let pauses = Pauses { propagation: Duration::ZERO, order: Duration::from_secs(2), ..Pauses::default() };
    bench.settings.acme = Some(Acme::new(Arc::clone(&bench.fake) as _, pauses));
    bench.want(&[wanted("a", "a.example")]);
    let _held = bench.fake.gate.lock().await;
    let mut worker = std::pin::pin!(bench.worker());
    bench.until(worker.as_mut(), "an Event", |bench| bench.events() == ["CertificateFailed"]).await;
    assert_eq!(bench.orders(), ["account", "a.example"]);
    let answers = bench.get("configmaps", &format!("{}/{}", ANSWERS.0, ANSWERS.1)).expect("the answers");
    assert!(!answers.at("data").has("a-example"), "{answers}");
}

#[tokio::test]
async fn secrets_of_users_are_never_overwritten() {
    let bench = Bench::new().await;
    bench.put("mine", json!({}), "mine").await;
    bench.want(&[wanted("mine", "mine.example"), wanted("a", "a.example")]);
    let held = bench.fake.gate.lock().await;
    let mut worker = std::pin::pin!(bench.worker());
    bench.until(worker.as_mut(), "an order", |bench| bench.orders().contains(&"a.example".to_owned())).await;
    // A user creates the Secret while the order runs.
    bench.put("a", json!({}), "also mine").await;
    drop(held);
    bench.until(worker.as_mut(), "an Event", |bench| !bench.events().is_empty()).await;
    assert_eq!(bench.events(), ["CertificateFailed"]);
    assert_eq!((bench.chain("default/mine").as_str(), bench.chain("default/a").as_str()), ("mine", "also mine"));
    assert!(!bench.orders().contains(&"mine.example".to_owned()));
}

#[tokio::test]
async fn two_leaders_and_two_orders_for_one_host_do_not_run_at_once() {
    let bench = Bench::new().await;
    let elsewhere = Wanted { gateway: "blog/public".into(), ..wanted("b", "a.example") };
    let mut of_another = wanted("c", "a.example");
    of_another.requester.object.namespace = "blog".into();
    bench.want(&[wanted("a", "a.example"), elsewhere, of_another]);
    let held = bench.fake.gate.lock().await;
    let mut workers = std::pin::pin!(async { tokio::join!(bench.worker(), bench.worker()) });
    bench.until(workers.as_mut(), "an order", |bench| bench.orders().contains(&"a.example".to_owned())).await;
    // Both have had time to begin when other writes are through.
    for turn in 0..20 {
        bench.put("other", json!({}), &turn.to_string()).await;
        bench.until(workers.as_mut(), "a turn", |bench| bench.chain("default/other") == turn.to_string()).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.orders().iter().filter(|order| *order == "a.example").count(), 1);
    drop(held);
    bench.until(workers.as_mut(), "a certificate", |bench| !bench.label("default/a").is_empty()).await;
}

#[tokio::test]
async fn certificates_are_ordered_again_when_they_are_due() {
    let bench = Bench::new().await;
    let issued = || json!({KEY: "issued"});
    let now = Timestamp::now().as_second();
    bench.put("young", issued(), &format!("young.example|{}|{}", now - 59, now + 31)).await;
    bench.put("old", issued(), &format!("old.example|{}|{}", now - 61, now + 29)).await;
    bench.put("hosts", issued(), &format!("x.example|{now}|{}", now + 90)).await;
    bench.put("broken", issued(), "broken").await;
    let names = ["young", "old", "hosts", "broken"];
    bench.want(&names.map(|name| wanted(name, &format!("{name}.example"))));
    let mut worker = std::pin::pin!(bench.worker());
    bench.until(worker.as_mut(), "three Events", |bench| bench.events().len() == 3).await;
    let mut orders = bench.orders();
    orders.sort();
    assert_eq!(orders, ["account", "broken.example", "hosts.example", "old.example"]);
}

#[tokio::test]
async fn a_failure_is_reported_and_an_unknown_account_is_forgotten() {
    let bench = Bench::new().await;
    let problem = Problem { message: "the account is gone".into(), kind: ProblemKind::UnknownAccount };
    *bench.fake.problem.lock() = Some(problem);
    bench.want(&[wanted("a", "a.example")]);
    let mut worker = std::pin::pin!(bench.worker());
    bench.until(worker.as_mut(), "an Event", |bench| bench.events() == ["CertificateFailed"]).await;
    let account = bench.get(SECRETS, "kube-system/waypost-acme-account").expect("a Secret");
    assert!(!account.has("data.credentials"), "another one is registered for the next order");
    let ledger = bench.get("configmaps", "kube-system/waypost-acme-orders").expect("a ledger");
    assert!(ledger.text("data.ledger").contains("the account is gone"));
    bench.want(&[wanted("a", "a.example"), wanted("b", "b.example")]);
    *bench.fake.problem.lock() = None;
    bench.until(worker.as_mut(), "a certificate", |bench| bench.label("default/b") == "issued").await;
    assert_eq!(bench.orders(), ["account", "a.example", "account", "b.example"], "the first waits after its failure");
}
