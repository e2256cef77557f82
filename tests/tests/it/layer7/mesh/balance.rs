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
/// Calls on one connection.
const CALLS: usize = 5000;
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
        for at_once in [1, 16] {
            let pods = grpc.calls(CALLS, at_once).expect("every call succeeds");
            assert_eq!(pods.len(), PODS, "{pods:?}");
            let share = CALLS / PODS;
            let tolerated = share * TOLERANCE / 100;
            for (pod, count) in &pods {
                assert!(count.abs_diff(share) <= tolerated, "{pod} got {count} of {CALLS} calls: {pods:?}");
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

#[test]
fn s54_endpoints_that_come_and_go_cost_no_request() {
    let mesh = Mesh::new();
    mesh.opted_in("grpc", "grpc");
    mesh.opted_in("web", "http");
    let [mut grpc, mut web] = [Spoken::Http2, Spoken::Http1].map(|spoken| {
        let prefix = if spoken == Spoken::Http2 { "grpc" } else { "web" };
        (0..4).map(|number| mesh.backend(&format!("{prefix}-{number}"), spoken)).collect::<Vec<_>>()
    });
    mesh.endpoints("grpc", &grpc);
    mesh.endpoints("web", &web);
    let client = mesh.client("client", "default");
    mesh.until_balanced(&client, "grpc", Spoken::Http2);
    mesh.until_balanced(&client, "web", Spoken::Http1);
    let (is_over, count) = (AtomicBool::new(false), Count::default());
    let calling = Grpc::connect(&client, mesh.address("grpc", Family::V4));
    let mut asking = Connection::open(&client, mesh.address("web", Family::V6)).expect("a connection");
    std::thread::scope(|scope| {
        let calls = scope.spawn(|| {
            while !is_over.load(Relaxed) {
                count.add(&calling.calls(40, 8).expect("every call succeeds"));
            }
        });
        let requests = scope.spawn(|| {
            while !is_over.load(Relaxed) {
                let page = asking.exchange("/").expect("the connection stays open");
                assert_eq!(page.code, 200, "{page:?}");
                count.add(&BTreeMap::from([(page.pod().expect("a Pod").to_owned(), 1)]));
            }
        });
        let over = Over(&is_over);
        for turn in 4..10 {
            for (name, pods, spoken) in [("grpc", &mut grpc, Spoken::Http2), ("web", &mut web, Spoken::Http1)] {
                let gone = pods.remove(0);
                pods.push(mesh.backend(&format!("{name}-{turn}"), spoken));
                mesh.endpoints(name, pods);
                count.until_used(&format!("{name}-{turn}"));
                // A Pod that ends is no endpoint first, and serves what has been sent to it.
                count.until_unused(gone.name(), 200);
                gone.delete();
            }
        }
        drop(over);
        calls.join().expect("no call failed");
        requests.join().expect("no request failed");
    });
    assert!(count.all.load(Relaxed) > 1000, "there was load");
}
