//! Containers of the real podman, from a local root, on the bridge that podman makes on the machine.
//!
//! Everything of it is in a folder of the test: its storage, its networks, its socket; and what it can put nowhere else is in a `/run` of its own. Where
//! the machine has both kinds of control groups, its runtime refuses to run; so in its view of files the newer kind is not to be seen.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use testbed::Run;
use testbed::net::Protocol::Tcp;
use testbed::net::{Cluster, Node, Process, eventually};

use super::machine::{Machine, ips, is_ready};

/// A server that returns its name, and is healthy unless there is a file `/tmp/sick`.
const TOOL: &str = r#"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
static void words(char *out, struct sockaddr_in *a) {
    char ip[64];
    sprintf(out, "%s:%d", inet_ntop(AF_INET, &a->sin_addr, ip, sizeof ip), ntohs(a->sin_port));
}
int main(int count, char **arguments) {
    struct stat about;
    if (count > 1 && !strcmp(arguments[1], "check")) return stat("/tmp/sick", &about) == 0;
    int listening = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(8080)};
    if (bind(listening, (void *)&here, sizeof here) || listen(listening, 16)) return 2;
    for (;;) {
        struct sockaddr_in client, server;
        socklen_t length = sizeof client, other = sizeof server;
        int stream = accept(listening, (void *)&client, &length);
        char question[512], seen[100], own[100], answer[400];
        getsockname(stream, (void *)&server, &other);
        words(seen, &client);
        words(own, &server);
        sprintf(answer, "name=container client=%s server=%s\n", seen, own);
        if (read(stream, question, sizeof question) > 0) write(stream, answer, strlen(answer));
        close(stream);
    }
}
"#;

/// A separate podman, on a node.
struct Podman {
    node: Node,
    folder: TempDir,
    /// Holds the mount namespace in which all of it runs.
    view: Process,
    service: Option<Process>,
}

impl Podman {
    fn new(node: Node) -> Self {
        let folder = testbed::folder();
        for name in ["bin", "proc", "dev", "sys", "etc", "tmp", "run"] {
            std::fs::create_dir_all(folder.path().join("rootfs").join(name)).expect("made");
        }
        // Its usual locks are one file for the whole machine.
        std::fs::write(folder.path().join("containers.conf"), "[engine]\nlock_type = \"file\"\n").expect("written");
        let source = folder.path().join("tool.c");
        std::fs::write(&source, TOOL).expect("written");
        let mut command = Command::new("musl-gcc");
        command.args(["-static", "-w", "-o"]).arg(folder.path().join("rootfs/bin/tool")).arg(&source);
        let _ = testbed::run(&mut command, "").success();
        let mut command = Command::new("unshare");
        let view =
            "umount /sys/fs/cgroup/unified 2>/dev/null; mount -t tmpfs none /run && echo begun && exec sleep infinity";
        command.args(["--mount", "--propagation", "private", "sh", "-c", view]);
        let view = node.spawn(command);
        view.wait_for_line("begun", Duration::from_secs(10));
        let mut podman = Self { node, folder, view, service: None };
        podman.serve();
        podman
    }

    fn socket(&self) -> String {
        self.folder.path().join("socket").display().to_string()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &self.view.pid().to_string(), "podman"]);
        command.env("CONTAINERS_CONF", self.folder.path().join("containers.conf"));
        for (flag, name) in
            [("--root", "root"), ("--runroot", "run"), ("--tmpdir", "tmp"), ("--network-config-dir", "net")]
        {
            command.arg(flag).arg(self.folder.path().join(name));
        }
        command.args(["--cgroup-manager", "cgroupfs", "--runtime", "crun", "--network-backend", "netavark"]);
        command.args(["--events-backend", "file", "--storage-driver", "vfs"]).args(words);
        command
    }

    fn run(&self, line: &str) -> Run {
        self.node.run(self.command(&line.split_whitespace().collect::<Vec<_>>()))
    }

    /// Serves its socket.
    fn serve(&mut self) {
        let _ = std::fs::remove_file(self.socket());
        let place = format!("unix://{}", self.socket());
        self.service = Some(self.node.spawn(self.command(&["system", "service", "--time=0", &place])));
        eventually("podman serves", || Path::new(&self.socket()).exists());
    }

    /// Ends the service; containers go on.
    fn leave(&mut self) {
        self.service = None;
    }

    /// Runs a container that serves port 8080.
    fn container(&self, name: &str, flags: &str) {
        let root = self.folder.path().join("rootfs").display().to_string();
        let line = format!(
            "run --detach --name {name} --cgroups=disabled --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 {flags} --rootfs {root} /bin/tool"
        );
        let _ = self.run(&line).success();
    }

    /// Whether the program of the containers is healthy.
    fn set_sick(&self, sick: bool) {
        let file = self.folder.path().join("rootfs/tmp/sick");
        match sick {
            true => std::fs::write(file, "").expect("written"),
            false => std::fs::remove_file(file).expect("removed"),
        }
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        self.leave();
        let run = self.run("rm --all --force --time 0");
        assert!(run.ok || std::thread::panicking(), "podman rm: {}", run.err);
    }
}

/// A machine beside a podman; the containers go first.
struct Stage {
    podman: Podman,
    machine: Machine,
}

impl Stage {
    /// The flag leads to the socket.
    fn new(flag: &str, before: impl FnOnce(&Podman)) -> Self {
        let cluster = Cluster::new();
        let podman = Podman::new(cluster.node("n1"));
        before(&podman);
        let machine = Machine::on(cluster, &[&format!("{flag}={}", podman.socket())]);
        Self { podman, machine }
    }
}

const HEALTH: &str = r#"--health-cmd ["/bin/tool","check"] --health-interval disable --health-retries 1"#;

#[test]
fn containers_of_podman_are_endpoints_while_they_are_well() {
    let flags = format!("--label app=web --label waypost.dev/port.http=8080 --expose 8080 {HEALTH}");
    let mut stage = Stage::new("--podman", |podman| podman.container("web", &flags));
    let Stage { podman, machine } = &mut stage;
    let address = machine.service("web", &json!("http"));
    let own = podman.run("inspect web --format {{.NetworkSettings.IPAddress}}").success().trim().to_owned();
    let pod = machine.until("web", "there", |pod| !ips(pod).is_empty());
    assert_eq!(ips(&pod), std::slice::from_ref(&own));
    assert!(!is_ready(&pod), "nobody has looked at its health yet");
    assert_eq!((&pod["metadata"]["labels"]["app"], &pod["spec"]["nodeName"]), (&json!("web"), &json!("n1")));
    assert_eq!(pod["metadata"]["annotations"]["waypost.dev/adopted"], "podman");
    assert_eq!(
        pod["spec"]["containers"][0]["ports"],
        json!([{"name": "http", "containerPort": 8080, "protocol": "TCP"}])
    );

    let _ = podman.run("healthcheck run web").success();
    let pod = machine.until_ready("web", true);
    let id = pod["status"]["containerStatuses"][0]["containerID"].as_str().expect("an id").to_owned();
    assert!(id.starts_with("podman://") && id.len() > 70, "{id}");
    let outside = machine.outside();
    for client in [&*machine.node, &*outside] {
        eventually("the Service leads to the container", || {
            let answer = client.ask(Tcp, &address, 80);
            answer.is_ok_and(|answer| answer.name == "container" && answer.server.ip().to_string() == own)
        });
    }

    podman.set_sick(true);
    assert!(!podman.run("healthcheck run web").ok);
    machine.until_ready("web", false);
    eventually("it gets no work", || machine.node.ask(Tcp, &address, 80).is_err());
    podman.set_sick(false);
    let _ = podman.run("healthcheck run web").success();
    machine.until_ready("web", true);

    // After a restart it learns of what happened meanwhile.
    podman.leave();
    podman.container("second", "--label app=web --label waypost.dev/port.http=8080");
    podman.serve();
    machine.until_ready("second", true);
    let _ = podman.run("rm --force --time 0 web").success();
    machine.until_gone("web");
    eventually("the other answers", || {
        machine.node.ask(Tcp, &address, 80).is_ok_and(|answer| answer.name == "container")
    });

    // A Pod that is deleted is recreated while its container runs, and is removed with it.
    let uid = machine.pod("second")["metadata"]["uid"].clone();
    let _ = machine.kubectl("delete pod second").success();
    machine.until("second", "another", |pod| pod["metadata"]["uid"] != uid && is_ready(pod));
    machine.kill();
    let _ = podman.run("rm --force --time 0 second").success();
    machine.start();
    machine.until_gone("second");
}

#[test]
fn docker_is_spoken_to_in_the_same_way_and_containers_on_the_machines_network_are_at_its_address() {
    let mut stage = Stage::new("--docker", |_| ());
    let Stage { podman, machine } = &mut stage;
    let address = machine.service("box", &json!(8080));
    podman.container("My_Box", "--network host --label app=box --label waypost.dev/port.http=8080");
    let pod = machine.until_ready("my-box", true);
    assert_eq!(pod["metadata"]["annotations"]["waypost.dev/adopted"], "docker");
    assert_eq!(pod["spec"]["hostNetwork"], true);
    assert_eq!(pod["status"]["podIP"], machine.node.v4().to_string());
    eventually("the Service leads to it", || machine.node.ask(Tcp, &address, 80).is_ok());
    let logs = machine.kubectl("logs my-box").failure();
    assert!(logs.contains("docker logs My_Box"), "{logs}");
    let _ = podman.run("rm --force --time 0 My_Box").success();
    machine.until_gone("my-box");
}
