//! What a user sees who waits for an address with kubectl: why there is none, soon; and the address, as soon as there is one.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use super::desk::{Desk, balancer, pool};
use crate::kubectl::words;

/// The maximum wait for output, on a machine that is busy with other tests.
const SOON: Duration = Duration::from_secs(5);

/// A kubectl that keeps printing. Dropping it ends it.
struct Watch {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Watch {
    fn new(desk: &Desk, line: &str) -> Self {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(desk.server.kubeconfig());
        command.arg("--cache-dir").arg(desk.server.home().join("kubectl-cache"));
        // It gives up by itself if what is waited for never comes.
        command.args(words(line)).arg("--request-timeout=120s").stdout(Stdio::piped());
        let mut child = command.spawn().expect("kubectl is needed for this test");
        let lines = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, lines }
    }

    /// Reads until a line has all of these, and answers it.
    #[track_caller]
    fn until(&mut self, parts: &[&str]) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line).expect("its output");
            assert!(read > 0, "kubectl ended, and {parts:?} had not come:\n{all}");
            if parts.iter().all(|part| line.contains(part)) {
                return line;
            }
            all.push_str(&line);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn s43_who_gets_no_address_is_told_why_soon() {
    let desk = Desk::new();
    let mut events = Watch::new(&desk, "get events --watch --no-headers");
    let pools = pool("tiny", "192.0.2.1/32", "") + &pool("named", "198.51.100.0/28", "autoAssign: false");
    // Without a pool, with one that is full, with one that does not exist, with an address that no pool has.
    let cases = [
        ("", "lonely", "", "NoPool", "there is no pool of addresses"),
        (&*pools, "full", "", "Exhausted", "no IPv4 address is free in pool tiny"),
        ("", "lost", "waypost.dev/pool: nowhere", "NoPool", "names pool \"nowhere\", which does not exist"),
        ("", "far", "waypost.dev/load-balancer-ips: 203.0.113.9", "AddressRefused", "203.0.113.9 is not in"),
    ];
    for (before, name, annotations, code, why) in cases {
        if !before.is_empty() {
            desk.ok_with("apply -f -", before);
            // The first who waited has the only address now.
            events.until(&["EnsuredLoadBalancer", "service/lonely"]);
        }
        desk.ok_with("create -f -", &balancer(name, annotations, ""));
        let made = Instant::now();
        let line = events.until(&[code, &format!("service/{name}"), why]);
        let took = made.elapsed();
        eprintln!("{name}: the Event was seen {took:?} after `kubectl create` had ended: {}", line.trim());
        assert!(took < SOON, "{name}: {took:?}");
        let row = desk.ok(&format!("get service {name} --no-headers"));
        assert!(row.contains("<pending>"), "{row}");
        let described = desk.ok(&format!("describe service {name}"));
        assert!(described.contains(code) && described.contains(why), "{described}");
    }
}

#[test]
fn s43_a_watch_sees_pending_turn_into_an_address() {
    let desk = Desk::new();
    desk.balancer("web", "", "");
    let mut rows = Watch::new(&desk, "get services --watch --no-headers");
    rows.until(&["web ", "LoadBalancer", "<pending>"]);
    desk.ok_with("apply -f -", &pool("late", "192.0.2.7/32", ""));
    let made = Instant::now();
    rows.until(&["web ", "LoadBalancer", "192.0.2.7"]);
    let took = made.elapsed();
    eprintln!("the address was seen {took:?} after `kubectl apply` of the pool had ended");
    assert!(took < SOON, "{took:?}");
    // And one that is created when there is room for it gets its address without further action.
    desk.ok("delete service web --timeout=30s");
    desk.balancer("next", "", "");
    rows.until(&["next ", "LoadBalancer", "192.0.2.7"]);
}
