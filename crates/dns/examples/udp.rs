//! CPU cost of a UDP query, compared with a UDP echo thread: queries per second of CPU time, so that other load hardly
//! matters (`cargo run --release -p waypost-dns --example udp -- SERVICES`).
#![expect(clippy::print_stdout, reason = "the figures are its output")]

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dns::forward::NoForwarder;
use dns::metrics::Metrics;
use dns::serve::{Options, Server};
use dns::snapshot::{Update, ZoneSnapshot};
use dns::wire::{from_text, rtype};
use dns::zone::Config;
use kernel::datagrams::{Batch, Socket};
use serde_json::json;

/// Allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Queries in flight.
const WINDOW: usize = 48;

/// CPU time of the threads with this name.
fn running(name: &str) -> Duration {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    let named = tasks.filter(|path| fs::read_to_string(path.join("comm")).is_ok_and(|text| text.trim() == name));
    let times = named.filter_map(|path| {
        let text = fs::read_to_string(path.join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    });
    times.sum()
}

/// Sends queries for two seconds; returns queries per second of the answering thread's CPU time.
fn load(to: SocketAddr, messages: &[Vec<u8>], thread: &str) -> f64 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_millis(500))).expect("patience");
    socket.connect(to).expect("a way there");
    let (start, before, mut answered, mut buffer) = (Instant::now(), running(thread), 0u32, [0; 4096]);
    while start.elapsed() < Duration::from_secs(2) {
        for window in messages.chunks(WINDOW) {
            window.iter().for_each(|message| {
                socket.send(message).expect("sent");
            });
            answered += window.iter().map(|_| u32::from(socket.recv(&mut buffer).is_ok())).sum::<u32>();
        }
    }
    f64::from(answered) / (running(thread) - before).as_secs_f64()
}

fn echo(socket: &Socket) {
    let mut batch = Batch::new();
    while let Ok(count) = socket.receive(&mut batch) {
        let mut some = false;
        for slot in 0..count {
            if let Some((bytes, _, reply)) = batch.exchange(slot) {
                reply.extend_from_slice(bytes);
                some |= !bytes.is_empty();
            }
        }
        socket.send(&mut batch);
        if !some {
            return;
        }
    }
}

fn message(name: &str, qtype: u16) -> Vec<u8> {
    let mut out = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    out.extend(from_text(name).expect("a name"));
    out.extend([qtype.to_be_bytes(), [0, 1]].concat());
    out
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let services: usize = std::env::args().nth(1).map_or(10_000, |word| word.parse().expect("a number"));
    let snapshot: Arc<ZoneSnapshot> = ZoneSnapshot::new(Config::default()).expect("zones");
    snapshot.apply(Update::Namespace("ns".into()), 1);
    for number in 0..services {
        let address = format!("10.96.{}.{}", number / 256 % 256, number % 256);
        let object = json!({"metadata": {"namespace": "ns", "name": format!("service-{number}")},
            "spec": {"clusterIPs": [address], "ports": [{"name": "http", "port": 80}]}});
        snapshot.apply(Update::Service(Box::new(serde_json::from_value(object).expect("a Service"))), 1);
    }
    snapshot.set_ready();
    let metrics = Metrics::new(&snapshot.zones, "dns://:53");
    let listen = vec!["127.0.0.1:0".parse().expect("an address")];
    let options = Options { listen, threads: Some(1), ..Options::default() };
    let server = Server::start(snapshot, Arc::new(NoForwarder), metrics, &options).await.expect("it listens");
    let to = server.addresses()[0];
    let all =
        |make: &dyn Fn(usize) -> Vec<u8>| (0..4800).map(|round| make(round * 7919 % services)).collect::<Vec<_>>();
    let hits = all(&|number| message(&format!("service-{number}.ns.svc.cluster.local"), rtype::A));
    let misses = all(&|number| message(&format!("example-{number}.com.ns.svc.cluster.local"), rtype::A));
    println!("hits: {:.0}/s", load(to, &hits, "dns"));
    println!("misses: {:.0}/s", load(to, &misses, "dns"));
    server.stop();
    let socket = Socket::bind("127.0.0.1:0".parse().expect("an address"), 4 << 20).expect("a socket");
    std::thread::scope(|scope| {
        std::thread::Builder::new().name("echo".to_owned()).spawn_scoped(scope, || echo(&socket)).expect("a thread");
        println!("echo: {:.0}/s", load(socket.local(), &hits, "echo"));
        socket.shut();
    });
}
