//! Requests, not connections, are balanced.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use testbed::net::{Family, Pod, eventually};

use super::super::stage::Over;
use super::grpc::Grpc;
use super::stage::{Connection, Mesh, Spoken};

/// The Pods of the Service.
const PODS: usize = 10;
/// Calls on one connection: one after the other, and several at once, when chance has a part in it.
const CALLS: [(usize, usize); 2] = [(1, 1000), (16, 5000)];
/// How far the share of a Pod may be from an equal share, in percent of it.
const TOLERANCE: usize = 5;

fn backends(mesh: &Mesh, spoken: Spoken) -> Vec<Pod> {
    (0..PODS).map(|number| mesh.backend(&format!("web-{number}"), spoken)).collect()
}

#[test]
fn s54_one_grpc_connection_reaches_ten_pods_equally() {
    let mesh = Mesh::new();
    mesh.opted_in("web", "grpc");
    mesh.endpoints("web", &backends(&mesh, Spoken::Http2));
    let client = mesh.client("client", "default");
    mesh.until_balanced(&client, "web", Spoken::Http2);
    for family in Family::BOTH {
        let grpc = Grpc::connect(&client, mesh.address("web", family));
        for (at_once, calls) in CALLS {
            let pods = grpc.calls(calls, at_once).expect("every call succeeds");
            assert_eq!(pods.len(), PODS, "{pods:?}");
            let share = calls / PODS;
            let tolerated = share * TOLERANCE / 100;
            for (pod, count) in &pods {
                assert!(count.abs_diff(share) <= tolerated, "{pod} got {count} of {calls} calls: {pods:?}");
            }
        }
    }
}

/// The requests of all clients so far, and how many each Pod answered since the counters were last cleared.
#[derive(Default)]
struct Count {
    all: AtomicUsize,
    pods: Mutex<BTreeMap<String, usize>>,
}

impl Count {
    fn add(&self, pods: &BTreeMap<String, usize>) {
        let mut counted = self.pods.lock();
        for (pod, count) in pods {
            *counted.entry(pod.clone()).or_default() += count;
            self.all.fetch_add(*count, Relaxed);
        }
    }

    /// Waits until the clients have got these many responses, none of them from this Pod.
    #[track_caller]
    fn until_unused(&self, pod: &str, responses: usize) {
        eventually(&format!("{pod} gets no requests"), || {
            let mut counted = self.pods.lock();
            if counted.contains_key(pod) {
                counted.clear();
            }
            counted.values().sum::<usize>() >= responses
        });
    }

    #[track_caller]
    fn until_used(&self, pod: &str) {
        eventually(&format!("{pod} gets requests"), || self.pods.lock().contains_key(pod));
    }
}

/// Replaces the Pods of a Service one by one while requests go on.
fn replace_pods(mesh: &Mesh, (name, spoken): (&str, Spoken), count: &Count, pods: &mut Vec<Pod>) {
    for turn in 4..10 {
        let gone = pods.remove(0);
        pods.push(mesh.backend(&format!("{name}-{turn}"), spoken));
        mesh.endpoints(name, pods);
        count.until_used(&format!("{name}-{turn}"));
        // A Pod that ends is no endpoint first, and serves what has been sent to it.
        count.until_unused(gone.name(), 200);
        gone.delete();
    }
    assert!(count.all.load(Relaxed) > 1000, "there was load");
}

fn four(mesh: &Mesh, name: &str, spoken: Spoken) -> Vec<Pod> {
    let pods: Vec<Pod> = (0..4).map(|number| mesh.backend(&format!("{name}-{number}"), spoken)).collect();
    mesh.endpoints(name, &pods);
    pods
}

#[test]
fn s54_endpoints_that_come_and_go_cost_no_call() {
    let mesh = Mesh::new();
    mesh.opted_in("grpc", "grpc");
    let mut pods = four(&mesh, "grpc", Spoken::Http2);
    let client = mesh.client("client", "default");
    mesh.until_balanced(&client, "grpc", Spoken::Http2);
    let (is_over, count) = (AtomicBool::new(false), Count::default());
    let calling = Grpc::connect(&client, mesh.address("grpc", Family::V4));
    std::thread::scope(|scope| {
        let calls = scope.spawn(|| {
            while !is_over.load(Relaxed) {
                count.add(&calling.calls(40, 8).expect("every call succeeds"));
            }
        });
        let over = Over(&is_over);
        replace_pods(&mesh, ("grpc", Spoken::Http2), &count, &mut pods);
        drop(over);
        calls.join().expect("no call failed");
    });
}

#[test]
fn s54_endpoints_that_come_and_go_cost_no_request() {
    let mesh = Mesh::new();
    mesh.opted_in("web", "http");
    let mut pods = four(&mesh, "web", Spoken::Http1);
    let client = mesh.client("client", "default");
    mesh.until_balanced(&client, "web", Spoken::Http1);
    let (is_over, count) = (AtomicBool::new(false), Count::default());
    let mut asking = Connection::open(&client, mesh.address("web", Family::V4)).expect("a connection");
    std::thread::scope(|scope| {
        let requests = scope.spawn(|| {
            while !is_over.load(Relaxed) {
                let page = asking.exchange("/").expect("the connection stays open");
                assert_eq!(page.code, 200, "{page:?}");
                count.add(&BTreeMap::from([(page.pod().expect("a Pod").to_owned(), 1)]));
            }
        });
        let over = Over(&is_over);
        replace_pods(&mesh, ("web", Spoken::Http1), &count, &mut pods);
        drop(over);
        requests.join().expect("no request failed");
    });
}
