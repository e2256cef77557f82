//! Queries per second of one thread, and memory use of the snapshot: 10 000 Services with 10 endpoints each by default
//! (`cargo run --release -p waypost-dns --example rate -- SERVICES ENDPOINTS`). Without sockets, so that only our own
//! code is measured.
#![expect(clippy::print_stdout, reason = "the figures are its output")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use dns::answer::{Outcome, Scratch};
use dns::forward::Transport;
use dns::snapshot::{Update, ZoneSnapshot};
use dns::wire::{from_text, rtype};
use dns::zone::Config;
use serde_json::{Value, json};

/// Allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUND: usize = 4096;

/// Resident memory in kB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).unwrap_or(0)
}

fn service(number: usize) -> Value {
    let headless = number % 10 == 9;
    let address = format!("10.{}.{}.{}", 96 + number / 65536, number / 256 % 256, number % 256);
    let address = if headless { "None".to_owned() } else { address };
    json!({"metadata": {"namespace": format!("team-{}", number % 50), "name": format!("service-{number}")},
        "spec": {"type": "ClusterIP", "clusterIPs": [address], "ports": [{"name": "http", "port": 80, "protocol": "TCP"},
            {"name": "metrics", "port": 9100, "protocol": "TCP"}]}})
}

fn slice(number: usize, endpoints: usize, change: usize) -> Value {
    let headless = number % 10 == 9;
    let endpoint = |place: usize| {
        let all = number * endpoints + place;
        let address = format!("10.{}.{}.{}", 128 + all / 65536 % 100, all / 256 % 256, all % 256);
        let hostname = if headless { format!("pod-{place}") } else { String::new() };
        json!({"addresses": [address], "conditions": {"ready": place != change}, "hostname": hostname})
    };
    let items: Vec<Value> = (0..endpoints).map(endpoint).collect();
    json!({"metadata": {"namespace": format!("team-{}", number % 50), "name": format!("service-{number}-abcde"),
            "labels": {"kubernetes.io/service-name": format!("service-{number}")}},
        "addressType": "IPv4", "endpoints": items,
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}, {"name": "metrics", "port": 9100, "protocol": "TCP"}]})
}

fn message(name: &str, qtype: u16) -> Vec<u8> {
    let mut out = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    out.extend(from_text(name).expect("a name"));
    out.extend([qtype.to_be_bytes(), [0, 1]].concat());
    out.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    out
}

/// CPU time of this thread.
fn running() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0))
}

/// Queries per second of CPU time, cycling through `messages`.
fn rate(snapshot: &ZoneSnapshot, messages: &[Vec<u8>]) -> f64 {
    let (mut scratch, mut out, mut count) = (Scratch::new(7), Vec::with_capacity(4096), 0u32);
    let (start, before) = (Instant::now(), running());
    while start.elapsed() < Duration::from_millis(700) {
        for message in messages {
            assert!(matches!(snapshot.answer(message, Transport::Udp, &mut scratch, &mut out), Outcome::Reply));
        }
        count += u32::try_from(messages.len()).expect("a few");
    }
    f64::from(count) / (running() - before).as_secs_f64()
}

fn main() {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<usize>().expect("a number"));
    let (services, endpoints) = (words.next().unwrap_or(10_000), words.next().unwrap_or(10));
    let before = resident();
    let start = Instant::now();
    let snapshot: Arc<ZoneSnapshot> = ZoneSnapshot::new(Config::default()).expect("zones");
    for namespace in 0..50 {
        snapshot.apply(Update::Namespace(format!("team-{namespace}").into()), 1);
    }
    for number in 0..services {
        let read = |value: Value| serde_json::from_value(value).expect("an object");
        snapshot.apply(Update::Service(Box::new(read(service(number)))), 1);
        let read = |value: Value| serde_json::from_value(value).expect("an object");
        snapshot.apply(Update::Slice(Box::new(read(slice(number, endpoints, usize::MAX)))), 1);
    }
    snapshot.set_ready();
    println!(
        "{services} Services x {endpoints} endpoints in {:?}, {} kB resident (from {before})",
        start.elapsed(),
        resident()
    );
    let mut random = fastrand::Rng::with_seed(1);
    let mut names = |make: &dyn Fn(usize) -> (String, u16)| -> Vec<Vec<u8>> {
        let ask = |number| {
            let (name, qtype) = make(number);
            message(&name, qtype)
        };
        (0..ROUND).map(|_| ask(random.usize(0..services))).collect()
    };
    let zone = "svc.cluster.local";
    let cluster = |number: usize| number - usize::from(number % 10 == 9);
    let of = |number: usize| format!("service-{number}.team-{}.{zone}", number % 50);
    let mixes: [(&str, Vec<Vec<u8>>); 7] = [
        ("A of an address", names(&|number| (of(cluster(number)), rtype::A))),
        ("AAAA, nothing", names(&|number| (of(cluster(number)), rtype::AAAA))),
        ("NXDOMAIN", names(&|number| (format!("example.com.team-{}.{zone}", number % 50), rtype::A))),
        ("NXDOMAIN in mixed case", names(&|number| (format!("ExAmple.COM.Team-{}.{zone}", number % 50), rtype::A))),
        ("A of endpoints", names(&|number| (of(number / 10 * 10 + 9), rtype::A))),
        ("SRV of a port", names(&|number| (format!("_http._tcp.{}", of(cluster(number))), rtype::SRV))),
        (
            "PTR of an address",
            names(&|number| {
                let number = cluster(number);
                let (a, b, c) = (number % 256, number / 256 % 256, 96 + number / 65536);
                (format!("{a}.{b}.{c}.10.in-addr.arpa"), rtype::PTR)
            }),
        ),
    ];
    for (what, messages) in &mixes {
        println!("{what}: {:.0}/s", rate(&snapshot, messages));
    }
    let start = Instant::now();
    for change in 0..1000 {
        let value = slice(change * 7 % services, endpoints, change % endpoints);
        snapshot.apply(Update::Slice(Box::new(serde_json::from_value(value).expect("an object"))), 2);
    }
    println!("a change of a slice, with reading it: {:?}; {} kB resident", start.elapsed() / 1000, resident());
}
