//! Endpoints that change a thousand times a second while names are queried at maximum rate: every answer was correct at that time,
//! every query is answered, and memory stays constant.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::http::Client;
use serde_json::{Value, json};
use testbed::net::Served;
use testbed::session::{SERVICES, Session};

use super::{Block, ZONES, wire};

/// Changes in a second, of all Services together.
const RATE: u32 = 1000;
/// How many Services change, each by its own writer.
const SERVICES_CHANGED: usize = 4;
/// How many clients there are, and how many outstanding queries each has.
const CLIENTS: usize = 2;
const UNDER_WAY: usize = 16;
/// How many endpoints a Service has at a time.
const ENDPOINTS: u8 = 3;
/// A query without a response after this time is lost; a change that is not visible after it is, too.
const TIMEOUT: Duration = Duration::from_secs(1);
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5301);
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// The duration: ten seconds, or `WAYPOST_STORM_SECONDS`.
fn seconds() -> u32 {
    std::env::var("WAYPOST_STORM_SECONDS").ok().map_or(10, |text| text.parse().expect("a number of seconds"))
}

/// What is known of one Service. States are numbered; a number is in every address of its state.
#[derive(Default)]
struct Written {
    /// The last state that a writer began to write.
    begun: AtomicU32,
    /// When each state had been written, in order: `(state, when)`, and the newest that all must have seen by now.
    done: parking_lot::Mutex<(VecDeque<(u32, Instant)>, u32)>,
}

impl Written {
    /// The oldest state that may still be returned to a query now.
    fn oldest(&self) -> u32 {
        let mut done = self.done.lock();
        while let Some((state, _)) = done.0.front().copied().filter(|(_, when)| when.elapsed() > TIMEOUT) {
            done.0.pop_front();
            done.1 = state;
        }
        done.1
    }
}

fn name(service: usize) -> String {
    format!("storm-{service}")
}

fn endpoints(state: u32) -> Vec<Ipv4Addr> {
    let [_, _, high, low] = state.to_be_bytes();
    (1..=ENDPOINTS).map(|number| Ipv4Addr::new(10, number, high, low)).collect()
}

/// Which state an answer shows; nothing when it is none that ever was.
fn state_of(mut answer: Vec<Ipv4Addr>) -> Option<u32> {
    answer.sort_unstable();
    let [_, _, high, low] = answer.first()?.octets();
    let state = u32::from(u16::from_be_bytes([high, low]));
    (endpoints(state) == answer).then_some(state)
}

fn slice(service: usize, state: u32) -> Value {
    let service = name(service);
    let endpoints: Vec<Value> = endpoints(state).iter().map(|address| json!({"addresses": [address]})).collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": format!("{service}-made"), "labels": {"kubernetes.io/service-name": service}},
        "endpoints": endpoints, "ports": [{"name": "p", "port": 80, "protocol": "TCP"}],
    })
}

/// Changes a Service until all its changes are made, each at its time or as soon after it as can be.
fn write(session: &mut Session, service: usize, written: &Written, changes: u32) {
    let begun = Instant::now();
    let gap = Duration::from_secs(1) / RATE * u32::try_from(SERVICES_CHANGED).expect("few");
    for state in 1..=changes {
        std::thread::sleep((begun + gap * state).saturating_duration_since(Instant::now()));
        written.begun.store(state, Ordering::SeqCst);
        let _ = session.put(&format!("{SLICES}/{}-made", name(service)), &slice(service, state)).success();
        written.done.lock().0.push_back((state, Instant::now()));
    }
}

/// An outstanding query.
struct Asked {
    message: Vec<u8>,
    service: usize,
    /// The oldest state that could be right when it was sent.
    oldest: u32,
    sent: Instant,
}

/// Sends queries until stopped; returns how many answers there were.
fn ask(all: &[Written], stop: &AtomicBool, seed: u64) -> u64 {
    // Full rate is what the others leave: changes come at their rate, and are answered for first.
    rustix::process::nice(10).expect("a lower priority for this thread");
    let mut random = fastrand::Rng::with_seed(seed);
    let socket = wire::socket(SERVER, TIMEOUT);
    let (mut under_way, mut shown) = (VecDeque::<Asked>::new(), [0; SERVICES_CHANGED]);
    let (mut id, mut answers, mut buffer) = (0_u16, 0, [0; 4096]);
    loop {
        let stopping = stop.load(Ordering::Relaxed);
        while !stopping && under_way.len() < UNDER_WAY {
            id = id.wrapping_add(1);
            let service = random.usize(..SERVICES_CHANGED);
            let message = wire::question(id, &format!("{}.default.svc.cluster.local", name(service)));
            let oldest = all[service].oldest().max(shown[service]);
            under_way.push_back(Asked { message, service, oldest, sent: Instant::now() });
            socket.send(&under_way[under_way.len() - 1].message).expect("sent");
        }
        let Some(first) = under_way.front() else { return answers };
        let late = first.sent.elapsed();
        let length = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("a question was lost, {late:?}: {error}"));
        // One socket is served by one thread, in order. How long this thread itself had to wait for a processor does not count.
        let Asked { message, service, oldest, .. } = under_way.pop_front().expect("a question");
        let found = wire::addresses(&message, &buffer[..length]);
        let state = found.clone().and_then(state_of);
        let newest = all[service].begun.load(Ordering::SeqCst);
        let Some(state) = state.filter(|state| (oldest..=newest).contains(state)) else {
            panic!("{} was never {found:?}, or not then: states {oldest} to {newest} were right", name(service))
        };
        shown[service] = shown[service].max(state);
        answers += 1;
    }
}

/// How much memory a process has, in kilobytes.
fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn session(served: &Served) -> Session {
    Session::new(Client::from_kubeconfig(&served.kubeconfig()).expect("a kubeconfig that can be used"))
}

#[test]
#[expect(clippy::print_stdout, reason = "figures for whoever runs it with --nocapture")]
fn s34_in_a_storm_of_changes_every_answer_is_right_and_none_is_lost() {
    let served = Served::new();
    let node = served.node("n1");
    for service in 0..SERVICES_CHANGED {
        let made = testbed::session::service(
            &name(service),
            json!({"clusterIP": "None", "ports": [{"name": "p", "port": 80}]}),
        );
        served.session(|session| {
            let _ = session.post(SERVICES, &made).success();
            let _ = session.post(SLICES, &slice(service, 0)).success();
        });
    }
    let block = Block { port: SERVER.port(), zones: ZONES, kubernetes: &["ttl 30"], rest: &[] };
    let names = block.start(&served, &node);
    let (all, stop, answers) =
        ([(); SERVICES_CHANGED].map(|()| Written::default()), AtomicBool::new(false), AtomicU64::new(0));
    let changes = seconds() * RATE / u32::try_from(SERVICES_CHANGED).expect("few");
    let begun = Instant::now();
    let (third, end) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..SERVICES_CHANGED)
            .map(|service| (service, &all[service]))
            .map(|(service, written)| {
                let served = &served;
                scope
                    .spawn(move || served.api().in_namespace(|| write(&mut session(served), service, written, changes)))
            })
            .collect();
        for seed in 0..CLIENTS as u64 {
            let (node, all, stop, answers) = (&node, &all, &stop, &answers);
            scope.spawn(move || answers.fetch_add(node.in_namespace(|| ask(all, stop, seed)), Ordering::SeqCst));
        }
        let is_third = || all.iter().all(|written| written.begun.load(Ordering::SeqCst) >= changes / 3);
        while !is_third() && !writers.iter().any(std::thread::ScopedJoinHandle::is_finished) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let third = memory(names.process.pid());
        let ended: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::SeqCst);
        assert!(ended.iter().all(Result::is_ok), "a writer failed");
        (third, memory(names.process.pid()))
    });
    let (took, answers) = (begun.elapsed(), answers.load(Ordering::SeqCst));
    let made = changes * u32::try_from(SERVICES_CHANGED).expect("few");
    println!("{made} changes and {answers} answers in {took:?}; {third} kB after a third, {end} kB at the end");
    assert!(
        took < Duration::from_secs(seconds().into()) * 6,
        "changes were not made at their rate: {made} in {took:?}"
    );
    assert!(answers > u64::from(made), "{answers} answers");
    assert!(end * 10 <= third * 13, "memory grows: {third} kB after a third, {end} kB at the end");
}
