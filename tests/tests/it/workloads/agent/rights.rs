//! What containers may, and what they do not see: rights, users, other Pods' processes, files and secrets.

use serde_json::{Value, json};
use testbed::net::{Family, eventually};

use super::machine::{Machine, script};
use super::oci;

/// Waits until a container has printed everything, and returns it.
fn said(machine: &mut Machine, pod: &str) -> String {
    machine.until_ready(pod);
    eventually("it has said all", || machine.log(pod, "c", 0).contains("that is all\n"));
    machine.log(pod, "c", 0)
}

fn with(mut container: Value, context: Value) -> Value {
    container["securityContext"] = context;
    container
}

/// The capabilities that a process holds, as reported by itself.
fn rights(log: &str) -> u64 {
    let line = log.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("its rights");
    u64::from_str_radix(line.trim(), 16).expect("bits")
}

const BIND: u64 = 1 << 10;
const CHOWN: u64 = 1;
const ADMIN: u64 = 1 << 21;
const NET_ADMIN: u64 = 1 << 12;
const NET_RAW: u64 = 1 << 13;
const ALL: u64 = 0x1ff_ffff_ffff;

#[test]
fn rights_are_those_of_containers_and_what_was_added_and_dropped() {
    let mut machine = Machine::new();
    let folder = testbed::folder();
    oci::root(folder.path());
    oci::import(&machine, &folder.path().join("root"), "tool:v1");
    let own = std::fs::read_to_string("/proc/self/status").expect("this process");
    let ours = rights(&own);
    let host = || script("c", "grep CapEff /proc/self/status; echo that is all; exec sleep 1000");
    let image = || json!({"name": "c", "image": "tool:v1", "command": ["/bin/tool", "cat", "/proc/self/status"]});
    let none = json!({"capabilities": {"drop": ["ALL"]}});
    let one = json!({"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}});
    let more = json!({"capabilities": {"add": ["NET_ADMIN"], "drop": ["CHOWN"]}});
    for (kind, make) in [("host", &host as &dyn Fn() -> Value), ("image", &image)] {
        for (name, context) in [
            ("usual", json!({})),
            ("none", none.clone()),
            ("one", one.clone()),
            ("more", more.clone()),
            ("raw", json!({"capabilities": {"add": ["NET_RAW"]}})),
            ("all", json!({"privileged": true})),
        ] {
            machine.pod(
                &format!("{kind}-{name}"),
                json!({"containers": [with(make(), context)], "terminationGracePeriodSeconds": 0}),
            );
        }
        let mut held = |name: &str| rights(&said(&mut machine, &format!("{kind}-{name}")));
        let usual = held("usual");
        assert!(
            usual & BIND != 0 && usual & CHOWN != 0 && usual & (ADMIN | NET_ADMIN | NET_RAW) == 0,
            "{kind}: {usual:x}"
        );
        assert_eq!(held("raw"), usual | NET_RAW, "{kind}");
        assert_eq!((held("none"), held("one")), (0, BIND), "{kind}");
        let more = held("more");
        assert_eq!(more, (usual & !CHOWN) | (NET_ADMIN & ours), "{kind}: {more:x}");
        assert_eq!(held("all"), ALL & ours, "{kind}");
    }
}

#[test]
fn packets_of_any_kind_need_a_right_but_an_echo_does_not() {
    let mut machine = Machine::new();
    // As root and as another user: a raw socket, and an echo to the machine through a ping socket.
    let look = r#"exec python3 -c '
import os, socket, struct, time
def attempt(name, work):
    try:
        print(name, work(), flush=True)
    except OSError as error:
        print(name, error.strerror, flush=True)
def raw():
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    return "open"
def echo(family, protocol, kind, to):
    s = socket.socket(family, socket.SOCK_DGRAM, protocol)
    s.settimeout(10)
    s.sendto(struct.pack("!BBHHH", kind, 0, 0, 0, 1) + b"hello", (to, 0))
    return s.recv(100)[8:].decode()
attempt("raw", raw)
for user in [0, 1234]:
    os.setresuid(user, user, user)
    attempt("v4", lambda: echo(socket.AF_INET, socket.IPPROTO_ICMP, 8, "@FOUR@"))
    attempt("v6", lambda: echo(socket.AF_INET6, socket.IPPROTO_ICMPV6, 128, "@SIX@"))
print("that is all", flush=True)
time.sleep(1000)'"#;
    let [v4, v6] = [Family::V4, Family::V6].map(|family| machine.node.address(family).to_string());
    let look = look.replace("@FOUR@", &v4).replace("@SIX@", &v6);
    machine.pod("usual", json!({"containers": [script("c", &look)]}));
    let raw = with(script("c", &look), json!({"capabilities": {"add": ["NET_RAW"]}}));
    machine.pod("raw", json!({"containers": [raw]}));
    let echoes = "v4 hello\nv6 hello\nv4 hello\nv6 hello\nthat is all\n";
    assert_eq!(said(&mut machine, "usual"), format!("raw Operation not permitted\n{echoes}"));
    assert_eq!(said(&mut machine, "raw"), format!("raw open\n{echoes}"));
}

#[test]
fn users_and_groups_are_those_that_were_asked_for_and_roots_can_be_read_only() {
    let mut machine = Machine::new();
    let look = "id -u; id -g; id -G; touch /data/x && stat -c '%u %g' /data/x; cat /sec/pw; echo; \
                touch /usr/new 2>/dev/null || echo no; touch /data/y && echo yes; echo that is all; exec sleep 1000";
    let mut c = script("c", look);
    c["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}, {"name": "sec", "mountPath": "/sec"}]);
    c["securityContext"] = json!({"runAsUser": 1234, "runAsGroup": 2345, "readOnlyRootFilesystem": true});
    machine.post(
        "/api/v1/namespaces/default/secrets",
        &json!({"metadata": {"name": "s"}, "stringData": {"pw": "hunter"}}),
    );
    machine.pod("p", json!({
        "securityContext": {"fsGroup": 3456, "supplementalGroups": [4567]}, "containers": [c],
        "volumes": [{"name": "data", "emptyDir": {}}, {"name": "sec", "secret": {"secretName": "s", "defaultMode": 256}}],
    }));
    let log = said(&mut machine, "p");
    let lines: Vec<&str> = log.lines().collect();
    let mut groups: Vec<&str> = lines[2].split(' ').collect();
    groups.sort_unstable();
    assert_eq!((lines[0], lines[1], groups), ("1234", "2345", vec!["2345", "3456", "4567"]));
    assert_eq!(lines[3..], ["1234 3456", "hunter", "no", "yes", "that is all"]);
}

#[test]
fn containers_of_images_see_neither_processes_nor_files_of_others() {
    let mut machine = Machine::new();
    let folder = testbed::folder();
    oci::root(folder.path());
    oci::import(&machine, &folder.path().join("root"), "tool:v1");
    let writes = json!({"name": "c", "image": "tool:v1", "command": ["/bin/tool"]});
    machine.pod("writer", json!({"containers": [writes]}));
    machine.until_ready("writer");
    eventually("it has written", || machine.log("writer", "c", 0).contains("write=1"));
    let data = machine.data_dir().display().to_string();
    let looks =
        json!({"name": "c", "image": "tool:v1", "command": ["/bin/tool", "look", "/own", "/usr", "/bin/tool", data]});
    machine.pod("reader", json!({"containers": [looks]}));
    assert_eq!(
        said(&mut machine, "reader"),
        format!("/own 0\n/usr 0\n/bin/tool 1\n{data} 0\nprocesses 1\nthat is all\n")
    );
}

#[test]
fn a_program_of_the_machine_does_not_come_by_the_secrets_of_another_pod() {
    let mut machine = Machine::new();
    let secret = format!("hunter-{}", std::process::id());
    machine.post(
        "/api/v1/namespaces/default/secrets",
        &json!({"metadata": {"name": "s"}, "stringData": {"treasure": secret}}),
    );
    let mut owner = script("c", "cat /sec/treasure; echo; echo that is all; exec sleep 1000");
    owner["volumeMounts"] = json!([{"name": "sec", "mountPath": "/sec"}]);
    owner["env"] = json!([{"name": "TREASURE", "valueFrom": {"secretKeyRef": {"name": "s", "key": "treasure"}}}]);
    machine.pod("owner", json!({"containers": [owner], "volumes": [{"name": "sec", "secret": {"secretName": "s"}}]}));
    assert!(said(&mut machine, "owner").starts_with(&secret));
    let uid = machine.get("owner")["metadata"]["uid"].as_str().expect("a uid").to_owned();
    let data = machine.data_dir().display().to_string();
    // As root: by its path, past what hides it, by processes, by mounts.
    let spy = format!(
        "ls /sec {data} {data}/agent/pods/{uid}/volumes/sec /proc/1/root{data} /proc/1/root/sec 2>/dev/null; \
         umount {data} 2>/dev/null; umount -l {data} 2>/dev/null; mount --bind / /mnt 2>/dev/null; ls -A {data} /mnt{data} 2>/dev/null; \
         for p in /proc/[0-9]*; do cat $p/root/sec/treasure; tr '\\0' '\\n' < $p/environ | grep TREASURE; done 2>/dev/null; \
         mknod /tmp/disk-{uid} b 8 0 2>/dev/null && echo made a device && rm /tmp/disk-{uid}; \
         grep -c {uid} /proc/self/mountinfo; echo that is all; exec sleep 1000"
    );
    machine.pod("spy", json!({"containers": [script("c", &spy)]}));
    let log = said(&mut machine, "spy");
    let other: Vec<&str> = log.lines().filter(|line| !line.is_empty() && !line.ends_with(':')).collect();
    assert_eq!(other, ["0", "that is all"], "{log}");
}
