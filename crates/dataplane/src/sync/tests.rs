//! The loop over a kernel in memory: when it writes, when not, and how it recovers from failures.

use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use kernel::Family;
use kernel::conntrack::{Direction, Flow, UDP, fake::Fake as Flows};
use kernel::nft::fake::Fake;
use kernel::nft::{Batch, Change};
use parking_lot::Mutex;
use plan::Options;
use serde_json::{Value, json};

use super::*;
use crate::nft::TABLE;
use crate::nftables::Nftables;

/// Upper bound for waits that normally end at once.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A loop on a thread, with its dependencies.
struct Running {
    kernel: Fake,
    flows: Flows,
    reported: Arc<Mutex<Vec<Problem>>>,
    out: Sender<Message>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(kernel: &Fake) -> Self {
        let (out, messages) = channel();
        let (flows, reported) = (Flows::default(), Arc::new(Mutex::new(Vec::new())));
        let deps = Dependencies {
            active: ActiveBackend {
                backend: Box::new(Nftables::new(kernel.clone())),
                conntrack: Some(Box::new(flows.clone())),
                on_active: Box::new(|| {}),
                has_open_connections: Box::new(|| false),
                on_drained: Box::new(|| {}),
            },
            health: Arc::default(),
            metrics: Metrics::new(),
            leases: watch::Sender::default(),
            report_problem: {
                let reported = reported.clone();
                Box::new(move |problem| reported.lock().push(problem.clone()))
            },
        };
        let options = Options { node_name: "n1".to_owned(), ..Options::default() };
        let proxy = SyncLoop::new(Planner::new(options), deps, out.clone());
        let thread = Some(std::thread::spawn(move || proxy.run(&messages)));
        Self { kernel: kernel.clone(), flows, reported, out, thread }
    }

    fn send(&self, update: Update) {
        self.out.send(Message::Update(Box::new(update))).expect("the loop runs");
    }

    fn ready(&self) {
        self.out.send(Message::Ready).expect("the loop runs");
    }

    /// Whether the map of frontends has this many elements.
    fn has_frontends(&self, count: usize) -> bool {
        let table = self.kernel.table(Family::Ip, TABLE);
        table.is_some_and(|table| table.sets["frontends"].elements.len() == count)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.out.send(Message::Stop);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Polls until a condition holds; the fake kernel has no notifications.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} does not come");
        std::thread::yield_now();
    }
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object of ours")
}

fn service(name: &str, ip: &str, protocol: &str) -> Update {
    Update::Service(Box::new(read(json!({
        "metadata": {"namespace": "default", "name": name},
        "spec": {"type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "ipFamilies": ["IPv4"],
                 "ports": [{"port": 80, "protocol": protocol}]},
    }))))
}

fn slice(name: &str, protocol: &str, endpoints: &[&str]) -> Update {
    let endpoints: Vec<Value> = endpoints.iter().map(|ip| json!({"addresses": [ip]})).collect();
    Update::Slice(read(json!({
        "metadata": {"namespace": "default", "name": format!("{name}-1"),
                     "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "", "port": 8080, "protocol": protocol}],
    })))
}

#[test]
fn nothing_is_written_before_the_lists_are_complete() {
    let kernel = Fake::default();
    let mut running = Running::start(&kernel);
    running.send(service("a", "10.96.0.1", "TCP"));
    running.send(slice("a", "TCP", &["10.244.0.2"]));
    running.out.send(Message::Stop).expect("the loop runs");
    running.thread.take().expect("a thread").join().expect("the loop ends");
    assert_eq!(kernel.batches(), 0, "it has taken all that and written nothing");
    let running = Running::start(&kernel);
    running.send(service("a", "10.96.0.1", "TCP"));
    running.send(slice("a", "TCP", &["10.244.0.2"]));
    running.send(service("b", "10.96.0.2", "TCP"));
    running.send(slice("b", "TCP", &["10.244.0.3"]));
    running.ready();
    until("the rules", || running.has_frontends(2));
    assert_eq!(kernel.batches(), 1, "all at once");
}

#[test]
fn a_start_with_unchanged_objects_writes_nothing() {
    let kernel = Fake::default();
    let begin = || {
        let running = Running::start(&kernel);
        running.send(service("a", "10.96.0.1", "TCP"));
        running.send(slice("a", "TCP", &["10.244.0.2", "10.244.0.3"]));
        running.ready();
        running
    };
    let first = begin();
    until("the rules", || first.has_frontends(1));
    drop(first);
    let (batches, changes) = (kernel.batches(), kernel.changes());
    let second = begin();
    // Flows are read after the rules.
    until("the first sync", || second.flows.lists() > 0);
    assert_eq!((kernel.batches(), kernel.changes()), (batches, changes));
}

#[test]
fn a_failed_sync_is_retried_and_reported() {
    let kernel = Fake::default();
    let running = Running::start(&kernel);
    running.ready();
    until("the table", || kernel.table(Family::Ip, TABLE).is_some());
    kernel.fail_next(kernel::Errno::NOBUFS);
    running.send(service("a", "10.96.0.1", "TCP"));
    running.send(slice("a", "TCP", &["10.244.0.2"]));
    until("the rules, after a failure", || running.has_frontends(1));
}

#[test]
fn changes_by_others_are_undone() {
    let kernel = Fake::default();
    let running = Running::start(&kernel);
    running.send(service("a", "10.96.0.1", "TCP"));
    running.send(slice("a", "TCP", &["10.244.0.2"]));
    running.ready();
    until("the rules", || running.has_frontends(1));
    until("the tamper watcher", || running.kernel.is_watched(TABLE));
    let before = kernel.table(Family::Ip, TABLE);
    kernel.flush_ruleset();
    until("all of it", || kernel.table(Family::Ip, TABLE) == before && kernel.table(Family::Ip6, TABLE).is_some());
    let flush = Change::FlushChain(Family::Ip, TABLE.into(), "services".into());
    kernel.foreign(&Batch { changes: vec![flush] }).expect("somebody flushes a chain");
    until("its rules", || kernel.table(Family::Ip, TABLE) == before);
}

#[test]
fn stale_flows_go_and_others_stay() {
    let kernel = Fake::default();
    let running = Running::start(&kernel);
    let address = |text: &str| -> SocketAddr { text.parse().expect("an address") };
    let flow = |to: &str, answered_by: &str| Flow {
        family: Family::Ip,
        protocol: UDP,
        zone: 0,
        original: Direction { source: address("10.244.0.9:5000"), destination: address(to) },
        reply: Direction { source: address(answered_by), destination: address("10.244.0.9:5000") },
        translated: to != answered_by,
    };
    let (stale, good) = (flow("10.96.0.1:80", "10.244.0.7:8080"), flow("10.96.0.1:80", "10.244.0.2:8080"));
    let (never, foreign) = (flow("10.96.0.1:80", "10.96.0.1:80"), flow("198.51.100.1:53", "10.244.0.7:8080"));
    let of_ipvs = Flow { translated: false, ..good };
    for one in [&stale, &good, &never, &foreign, &of_ipvs] {
        running.flows.insert(*one);
    }
    running.send(service("a", "10.96.0.1", "UDP"));
    running.send(slice("a", "UDP", &["10.244.0.2"]));
    running.ready();
    until("the stale ones to go", || running.flows.flows().len() == 2);
    assert!(running.flows.flows().contains(&good) && running.flows.flows().contains(&foreign));
    running.send(Update::ServiceGone("default/a".to_owned()));
    until("the flow of a Service that is gone", || running.flows.flows() == [foreign]);
}

/// A snapshot of a Service.
fn snapshot(running: &Running, service: Option<&str>) -> crate::report::Snapshot {
    let (sender, receiver) = channel();
    let reply = Box::new(move |snapshot| sender.send(snapshot).expect("a receiver"));
    let request = SnapshotRequest { service: service.map(str::to_owned), rules: true, reply };
    running.out.send(Message::Snapshot(request)).expect("the loop runs");
    receiver.recv_timeout(TIMEOUT).expect("a snapshot")
}

#[test]
fn a_snapshot_tells_programmed_ports_from_pending_ones() {
    let kernel = Fake::default();
    let running = Running::start(&kernel);
    running.send(service("a", "10.96.0.1", "TCP"));
    running.send(slice("a", "TCP", &["10.244.0.2"]));
    let status = snapshot(&running, None);
    assert_eq!((status.ports.len(), status.synced), (1, false));
    assert!(!status.ports[0].programmed, "nothing is written before everything was read");
    running.ready();
    until("the rules", || running.has_frontends(1));
    until("the tamper watcher", || running.kernel.is_watched(TABLE));
    let status = snapshot(&running, None);
    assert!(status.synced && status.ports[0].programmed);
    running.send(service("b", "10.96.0.2", "TCP"));
    running.send(slice("b", "TCP", &["10.244.0.3"]));
    until("the rules", || running.has_frontends(2));
    let status = snapshot(&running, Some("default/b"));
    assert_eq!(status.ports.len(), 1);
    assert_eq!(&*status.ports[0].port.key.service, "default/b");
    assert!(status.ports[0].rules.contains("10.96.0.2"), "{}", status.ports[0].rules);
    assert!(snapshot(&running, Some("default/c")).ports.is_empty());
}

#[test]
fn each_problem_is_reported_once() {
    let kernel = Fake::default();
    let running = Running::start(&kernel);
    running.send(service("a", "10.96.0.1", "TCP"));
    // The cluster IP of one Service as an endpoint of another.
    running.send(service("b", "10.96.0.2", "TCP"));
    running.send(slice("b", "TCP", &["10.96.0.1", "10.244.0.3"]));
    running.ready();
    until("the problem", || !running.reported.lock().is_empty());
    running.send(slice("b", "TCP", &["10.96.0.1", "10.244.0.3", "10.244.0.4"]));
    running.send(service("c", "10.96.0.3", "TCP"));
    running.send(slice("c", "TCP", &["10.244.0.5"]));
    until("the rules", || running.has_frontends(2));
    let reported = running.reported.lock();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].what.contains("10.96.0.1") && &*reported[0].service == "default/b", "{reported:?}");
}

#[test]
fn a_new_backend_syncs_before_the_old_one_drains() {
    let (kernel, next) = (Fake::default(), Fake::default());
    let running = Running::start(&kernel);
    running.send(service("a", "10.96.0.1", "TCP"));
    running.send(slice("a", "TCP", &["10.244.0.2"]));
    running.ready();
    until("the tamper watcher", || running.kernel.is_watched(TABLE));
    let seen = Arc::new(Mutex::new(None));
    let on_active = {
        let (seen, kernel, next) = (seen.clone(), kernel.clone(), next.clone());
        let frontends = |kernel: &Fake| kernel.table(Family::Ip, TABLE).map(|it| it.sets["frontends"].elements.len());
        move || *seen.lock() = Some((frontends(&kernel), frontends(&next)))
    };
    next.fail_next(kernel::Errno::NOBUFS);
    let backend = Box::new(Nftables::new(next.clone()));
    // The old backend has open connections at the first query.
    let (asked, drained) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let active = ActiveBackend {
        backend,
        conntrack: None,
        on_active: Box::new(on_active),
        has_open_connections: Box::new({
            let asked = asked.clone();
            move || asked.fetch_add(1, Ordering::Relaxed) == 0
        }),
        on_drained: Box::new({
            let drained = drained.clone();
            move || drained.store(asked.load(Ordering::Relaxed), Ordering::Relaxed)
        }),
    };
    running.out.send(Message::SwitchBackend(Box::new(active))).expect("the loop runs");
    until("the new backend", || seen.lock().is_some());
    assert_eq!(*seen.lock(), Some((Some(1), Some(1))), "the old rules exist until then");
    // The rules of the old backend are no longer watched.
    let batches = next.batches();
    kernel.flush_ruleset();
    running.send(service("b", "10.96.0.2", "TCP"));
    running.send(slice("b", "TCP", &["10.244.0.3"]));
    let has_both = || next.table(Family::Ip, TABLE).is_some_and(|it| it.sets["frontends"].elements.len() == 2);
    until("a change", has_both);
    assert!(kernel.table(Family::Ip, TABLE).is_none());
    assert!(next.batches() <= batches + 2, "changes were written, and nothing else");
    until("the old backend to drain", || drained.load(Ordering::Relaxed) > 0);
    assert_eq!(drained.load(Ordering::Relaxed), 2, "it was waited for once");
}

/// A Service with the policy `leader`, and two endpoints.
fn led() -> [Update; 2] {
    let service = Update::Service(Box::new(read(json!({
        "metadata": {"namespace": "default", "name": "a", "annotations": {
            "waypost.dev/traffic-policy": "leader", "waypost.dev/leader-lease": "lock"}},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ports": [{"port": 80}]},
    }))));
    let endpoint = |number: u8| json!({"addresses": [format!("10.244.0.{number}")], "targetRef": {"kind": "Pod", "name": format!("p{number}")}});
    let slice = Update::Slice(read(json!({
        "metadata": {"namespace": "default", "name": "a-1", "labels": {"kubernetes.io/service-name": "a"}},
        "addressType": "IPv4", "endpoints": [endpoint(2), endpoint(3)], "ports": [{"name": "", "port": 8080}],
    })));
    [service, slice]
}

#[test]
fn s53_the_first_write_waits_for_leases_and_connections_to_a_former_leader_are_cut() {
    let kernel = Fake::default();
    let running = Running::start(&kernel);
    let holder = |pod: Option<&str>| running.send(Update::Leader("default/lock".into(), pod.map(Into::into)));
    let flow = |client: u8, endpoint: u8| {
        let end = |text: [u8; 4], port| (std::net::IpAddr::from(text), port);
        let client = end([10, 244, 1, client], 40_000);
        let original = Direction::new(client, end([10, 96, 0, 1], 80));
        let reply = Direction::new(end([10, 244, 0, endpoint], 8080), client);
        Flow { family: Family::Ip, protocol: 6, zone: 0, original, reply, translated: true }
    };
    // Of another Service, and of no Service.
    let other = Flow {
        original: Direction { destination: SocketAddr::from(([10, 96, 0, 9], 80)), ..flow(9, 2).original },
        ..flow(9, 2)
    };
    running.flows.insert(other);
    running.flows.insert(flow(1, 2));
    led().into_iter().for_each(|update| running.send(update));
    running.ready();
    // The answer comes when the loop has nothing else to do.
    let is_synced = || {
        let (asked, answer) = channel();
        let reply = Box::new(move |snapshot| drop(asked.send(snapshot)));
        let request = SnapshotRequest { service: None, rules: false, reply };
        running.out.send(Message::Snapshot(request)).expect("the loop runs");
        answer.recv().expect("a snapshot").synced
    };
    assert!(!is_synced());
    assert_eq!((kernel.batches(), running.flows.flows().len()), (0, 2), "the leader is not known yet");
    holder(Some("p2"));
    until("the rules", || running.has_frontends(1));
    assert!(is_synced());
    assert_eq!(running.flows.flows(), [flow(1, 2), other], "the leader keeps its connections");
    running.flows.insert(flow(2, 2));
    running.flows.insert(flow(4, 3));
    holder(Some("p3_x"));
    until("the cut", || running.flows.flows() == [flow(4, 3), other]);
    holder(None);
    until("nobody leads", || running.flows.flows() == [other] && running.has_frontends(0));
}
