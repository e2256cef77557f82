//! `waypost demo` on a machine of the test's own: completed, failing, interrupted, killed; each time nothing is left.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Stdio};

use serde_json::Value;
use testbed::binary;
use testbed::net::eventually;
use testbed::snapshot::Sealed;

/// What the acts are called.
const TITLES: [&str; 11] = [
    " 1. A backend that makes thumbnails, three times",
    " 2. One address for all of them: ClusterIP",
    " 3. From outside: NodePort",
    " 4. No address of its own: headless",
    " 5. A name for something elsewhere: ExternalName",
    " 6. How a program finds a Service",
    " 7. One client stays with one Pod: affinity",
    " 8. A rolling update without failed requests",
    " 9. A backend is killed",
    "10. A canary by weight",
    "11. The end",
];

fn demo(arguments: &str) -> String {
    format!("{} demo {arguments}", binary().display())
}

/// Starts a demo and reads its output until this act begins. Its number on that machine is in a file.
fn begin_until(machine: &Sealed, title: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = machine.command("bash");
    command.args(["-c", "echo $$ > /tmp/demo; exec \"$0\" demo"]).arg(binary());
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it begins");
    let mut told = BufReader::new(child.stdout.take().expect("its output"));
    let mut all = String::new();
    while !all.contains(title) {
        assert!(told.read_line(&mut all).expect("lines") > 0, "it ended before {title}:\n{all}");
    }
    (child, told)
}

#[test]
fn s01_the_demo_shows_services_with_addresses_and_leaves_nothing_behind() {
    let machine = Sealed::new();
    let before = machine.snapshot();
    let out = machine.run(&demo("")).success();
    eprintln!("{out}");
    let mut rest = out.as_str();
    for title in TITLES {
        let (_, after) =
            rest.split_once(title).unwrap_or_else(|| panic!("{title} is missing, or not in its place:\n{out}"));
        rest = after;
    }
    for wanted in [
        "10.96.",
        "10.244.0.",
        "192.0.2.1:3",
        "CNAME archive.example.com.",
        "IMAGES_SERVICE_HOST=10.96.",
        ", 0 failed; ",
        " to the canary",
    ] {
        assert!(out.contains(wanted), "{wanted} is missing:\n{out}");
    }
    assert_eq!(out.matches('✓').count(), 14, "three acts have two lines:\n{out}");
    assert!(out.contains("All eleven acts were seen") && !out.contains('✗') && !out.contains('\x1b'), "{out}");
    before.assert_same(&machine.snapshot());
}

#[test]
fn s01_the_demo_needs_no_root_where_users_may_create_namespaces() {
    let machine = Sealed::new();
    // The repository may be out of reach for other users.
    let _ = machine.shell(&format!("install -m 755 {} /tmp/waypost", binary().display())).success();
    let before = machine.snapshot();
    let told = machine.run("setpriv --reuid 1000 --regid 1000 --clear-groups -- /tmp/waypost demo -o json").success();
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((&told["ok"], told["acts"].as_array().map(Vec::len)), (&Value::from(true), Some(11)), "{told}");
    before.assert_same(&machine.snapshot());
    // The limit of a user namespace, in which the demo has no capabilities either.
    let limited =
        "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all -- /tmp/waypost demo";
    let refused = machine.shell(&format!("unshare --user --map-root-user bash -c '{limited}'")).failure();
    assert!(refused.contains("sudo waypost demo") && refused.contains("user.max_user_namespaces"), "{refused}");
}

#[test]
fn a_demo_runs_beside_a_cluster_and_tells_programs() {
    let machine = Sealed::new();
    let up = format!("{} up --listen 127.0.0.1:0 > /tmp/up 2>&1 < /dev/null & echo $! > /tmp/pid", binary().display());
    let _ = machine.shell(&up).success();
    eventually("the cluster is ready", || machine.shell("grep -q ready /tmp/up").ok);
    // Its own files change all the time.
    let sections = ["files", "folders", "processes"];
    let before = machine.snapshot().without(&sections);
    let told: Value = serde_json::from_str(&machine.run(&demo("-o json")).success()).expect("JSON");
    assert_eq!((&told["ok"], told["acts"].as_array().map(Vec::len)), (&Value::from(true), Some(11)), "{told}");
    assert!(
        told["acts"]
            .as_array()
            .into_iter()
            .flatten()
            .all(|act| act["ok"] == true && act["seconds"].as_f64() > Some(0.0))
    );
    before.assert_same(&machine.snapshot().without(&sections));
    assert!(machine.shell("kill -0 $(cat /tmp/pid)").ok, "the cluster goes on");
}

#[test]
fn an_act_that_is_not_seen_is_named_and_nothing_is_left() {
    let machine = Sealed::new();
    let before = machine.snapshot();
    let run = machine.run(&demo("--patience 0"));
    assert_eq!(run.code, Some(1), "{}\n{}", run.out, run.err);
    assert!(run.out.contains(TITLES[0]) && run.out.contains('✗') && !run.out.contains(TITLES[1]), "{}", run.out);
    assert!(run.err.contains("act 1 of 11") && run.err.contains("of 3 Pods are ready"), "{}", run.err);
    before.assert_same(&machine.snapshot());
    let quiet = machine.run(&demo("--patience 0 --quiet"));
    assert_eq!((quiet.code, quiet.out.as_str()), (Some(1), ""), "{}", quiet.err);
}

#[test]
fn a_demo_that_is_interrupted_leaves_nothing() {
    let machine = Sealed::new();
    let _ = machine.shell("touch /tmp/demo").success();
    let before = machine.snapshot();
    let (mut child, mut told) = begin_until(&machine, TITLES[2]);
    let _ = machine.shell("kill -INT $(cat /tmp/demo); : > /tmp/demo").success();
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
    let (mut rest, mut complaint) = (String::new(), String::new());
    told.read_to_string(&mut rest).expect("its output");
    child.stderr.take().expect("its errors").read_to_string(&mut complaint).expect("read");
    assert!(complaint.contains("stopped before its end"), "{complaint}");
    assert!(!rest.contains("All eleven acts"), "{rest}");
    before.without(&["files"]).assert_same(&machine.snapshot().without(&["files"]));
    assert!(machine.shell("test $(find /run /tmp -xdev -type f ! -path '/tmp/etc*' | wc -l) = 1").ok, "files are left");
}

#[test]
fn what_a_killed_demo_leaves_is_taken_away_by_cleanup_and_by_the_next_demo() {
    let machine = Sealed::new();
    let _ = machine.shell("touch /tmp/demo").success();
    let before = machine.snapshot().without(&["files"]);
    for sweeper in ["cleanup", "demo --patience 0 --quiet"] {
        let (mut child, _told) = begin_until(&machine, TITLES[1]);
        let seen = || before.differences(&machine.snapshot().without(&["files"]));
        let is_group = |line: &String| line.starts_with("control groups: +") && line.contains("waypost-demo-");
        assert!(seen().iter().any(is_group), "a demo has a control group while it runs, or there is nothing to leave");
        let _ = machine.shell("kill -KILL $(cat /tmp/demo)").success();
        let _ = child.wait();
        // Its processes go by themselves, and with them all but control groups.
        eventually("only control groups are left", || seen().iter().all(is_group));
        assert_ne!(seen(), Vec::<String>::new(), "nobody but the sweeper takes the control group away");
        let _ = machine.run(&format!("{} {sweeper}", binary().display()));
        assert_eq!(seen(), Vec::<String>::new(), "after `waypost {sweeper}`");
    }
}
