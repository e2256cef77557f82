//! A network namespace for one test, deleted when the test ends.

use std::fs::File;
use std::net::IpAddr;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::fd::AsFd;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A namespace with only loopback in it, which is up.
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    /// Creates a namespace.
    pub(crate) fn new() -> Self {
        let name = format!("wpk-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let made = run("ip", &["netns", "add", &name]);
        assert!(made.status.success(), "ip netns add (root?): {}", text(&made.stderr));
        let namespace = Self { name };
        namespace.tool("ip", &["link", "set", "lo", "up"]);
        namespace
    }

    /// Runs a closure inside, on its own thread. Sockets that it opens stay inside.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.name);
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let file = File::open(&path).expect("the namespace");
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may move");
                work()
            });
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Adds an address to loopback.
    pub(crate) fn add_address(&self, address: IpAddr) {
        let whole = format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 });
        let arguments = ["address", "add", &whole, "dev", "lo"];
        let at_once = if address.is_ipv4() { &[][..] } else { &["nodad"] };
        self.tool("ip", &[&arguments, at_once].concat());
    }

    /// Loads the output of `nft list ruleset` into an empty namespace.
    pub(crate) fn reload(&self) {
        let empty = Self::new();
        let pipe = format!("ip netns exec {} nft list ruleset | ip netns exec {} nft -f -", self.name, empty.name);
        let output = run("sh", &["-c", &pipe]);
        assert!(output.status.success(), "the listing cannot be loaded: {}", text(&output.stderr));
    }

    /// Runs a program of the host inside, which must succeed; returns its output.
    pub(crate) fn tool(&self, program: &str, arguments: &[&str]) -> String {
        let whole: Vec<&str> =
            ["netns", "exec", &self.name, program].into_iter().chain(arguments.iter().copied()).collect();
        let output = run("ip", &whole);
        let (printed, complaint) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{program} {arguments:?}: {}\n{printed}\n{complaint}", output.status);
        printed
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        run("ip", &["netns", "del", &self.name]);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Debian keeps these programs in sbin.
#[expect(clippy::disallowed_methods, reason = "namespaces are made, and rulesets judged, by the host's own programs")]
fn run(program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.output().unwrap_or_else(|error| panic!("{program}: {error}; install nftables and iproute2"))
}
