//! What is left of a cluster when it is gone: nothing, however it went. And clusters beside it notice nothing.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use testbed::net::Protocol::Tcp;
use testbed::net::{Cluster, Host};

use super::TIMEOUT;

/// The interfaces of a machine.
fn links(host: &Host) -> Vec<String> {
    let text = host.run("ip -o link").success();
    text.lines().filter_map(|line| Some(line.split_whitespace().nth(1)?.to_owned())).collect()
}

/// The namespaces that `ip netns` would list.
fn named_namespaces() -> Vec<u64> {
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    // Other hands may remove theirs meanwhile.
    entries.filter_map(|entry| Some(std::fs::metadata(entry.path()).ok()?.ino())).collect()
}

/// Waits until a descriptor has something to say.
fn wait(fd: &OwnedFd, deadline: Instant, what: &str) {
    let left = deadline.saturating_duration_since(Instant::now());
    let limit = Timespec { tv_sec: left.as_secs().try_into().expect("seconds"), tv_nsec: left.subsec_nanos().into() };
    let ready = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&limit)).expect("waiting");
    assert!(ready > 0, "still there after {TIMEOUT:?}: {what}");
}

/// A subscription to changes of the links of a machine.
fn link_changes(host: &Host) -> OwnedFd {
    // Protocol 0, the one without a name, is that of links and routes; group 1 hears of links.
    const LINKS: u32 = 1;
    host.in_namespace(|| {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None).expect("netlink");
        bind(&socket, &SocketAddrNetlink::new(0, LINKS)).expect("a subscription");
        socket
    })
}

/// Waits until the kernel has removed a link, with the namespace at its other end.
fn wait_until_gone(host: &Host, changes: &OwnedFd, link: &str) {
    let deadline = Instant::now() + TIMEOUT;
    while links(host).iter().any(|name| name.starts_with(link)) {
        wait(changes, deadline, link);
        let mut buffer = [0; 8192];
        while recv(changes, &mut buffer, RecvFlags::empty()).is_ok() {}
    }
}

#[test]
fn a_cluster_leaves_nothing_on_the_machine_it_is_built_on() {
    let outer = Cluster::new();
    let machine = outer.outside("machine");
    let links_before = links(&machine);
    // The namespaces are made by a thread that is itself on the machine.
    machine.in_namespace(|| {
        let inner = Cluster::new();
        let pod = inner.node("n1").pod("web-1");
        pod.echo(8080);
        assert_eq!(inner.node("n2").ask(Tcp, pod.v4(), 8080).expect("an answer").name, "web-1");
        assert_eq!(links(&machine), links_before, "nor is anything there while it stands");
        let namespace = pod.in_namespace(|| std::fs::metadata("/proc/thread-self/ns/net").expect("a namespace").ino());
        assert!(!named_namespaces().contains(&namespace), "it has no name, so none can be left");
    });
    assert_eq!(links(&machine), links_before);
}

#[test]
fn namespaces_go_with_their_cluster() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let pod = node.pod("web-1");
    pod.echo(8080);
    let changes = link_changes(&node);
    assert!(links(&node).iter().any(|name| name.starts_with("web-1@")), "{:?}", links(&node));
    drop((cluster, pod));
    wait_until_gone(&node, &changes, "web-1@");
    wait_until_gone(&node, &changes, "eth0@");
}

#[test]
fn a_panic_takes_the_cluster_along() {
    let kept = catch_unwind(AssertUnwindSafe(|| {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        let pod = node.pod("web-1");
        let sleeper = pod.spawn("sleep 1000");
        pod.echo(8080);
        let _hammer = node.hammer(Tcp, pod.v4(), 8080);
        let sleeping = handle_of(sleeper.pid());
        std::panic::panic_any((node.clone(), link_changes(&node), sleeping));
    }))
    .expect_err("it panicked");
    let (node, changes, sleeping) = *kept.downcast::<(testbed::net::Node, OwnedFd, OwnedFd)>().expect("what was kept");
    wait_until_gone(&node, &changes, "web-1@");
    wait_until_gone(&node, &changes, "eth0@");
    wait(&sleeping, Instant::now() + TIMEOUT, "a program of the cluster");
}

/// A handle that can be waited on until the process has ended.
fn handle_of(pid: u32) -> OwnedFd {
    let pid = Pid::from_raw(pid.try_into().expect("a process number")).expect("a process");
    pidfd_open(pid, PidfdFlags::empty()).expect("a running process")
}

/// Not a test: [`killed_tests_leave_no_program_behind`] runs it and kills it.
#[test]
#[ignore = "runs as a child process of the test beside it, which kills it"]
fn waits_to_be_killed() {
    let cluster = Cluster::new();
    let sleeper = cluster.node("n1").pod("web-1").spawn("sleep 1000");
    eprintln!("sleeper {}", sleeper.pid());
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).expect("an input that stays open");
}

#[test]
fn killed_tests_leave_no_program_behind() {
    use std::io::{BufRead as _, BufReader};
    let mut tests = Command::new(std::env::current_exe().expect("these tests"))
        .args(["--exact", "net::traces::waits_to_be_killed", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("these tests run");
    let stderr = BufReader::new(tests.stderr.take().expect("its words"));
    let sleeper = stderr.lines().find_map(|line| line.ok()?.strip_prefix("sleeper ")?.parse().ok());
    let sleeping = sleeper.map(handle_of);
    tests.kill().expect("killed");
    tests.wait().expect("ended");
    wait(&sleeping.expect("the number of the program"), Instant::now() + TIMEOUT, "a program of killed tests");
}

#[test]
fn programs_run_inside_and_end_when_told() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "trap 'echo bye; exit 3' TERM; ip -o addr show dev eth0; echo $WORD; while :; do sleep 0.01; done",
    ]);
    let mut process = node.spawn({
        shell.env("WORD", "ready");
        shell
    });
    assert_eq!(process.wait_for_line("ready", TIMEOUT), "ready");
    assert!(process.log().contains("192.0.2.11/24"), "{}", process.log());
    assert!(process.is_running());
    assert_eq!(process.terminate().code(), Some(3));
    assert!(!process.is_running() && process.log().ends_with("bye"), "{}", process.log());
    assert_eq!(node.run_with("cat", "in and out").success(), "in and out");
    assert!(node.run("ip link show none").failure().contains("none"));
}

#[test]
fn clusters_side_by_side_do_not_meet() {
    let clusters = ["one", "two", "three", "four"];
    std::thread::scope(|scope| {
        for name in clusters {
            scope.spawn(move || {
                let cluster = Cluster::new();
                let pod = cluster.node("n1").pod(name);
                let client = cluster.node("n2").pod("client");
                pod.echo(8080);
                let tally = client.ask_many(50, Tcp, pod.v4(), 8080).all_answered();
                assert_eq!(tally.names(), [name], "the same addresses, another cluster");
            });
        }
    });
}
