//! The first commands of a newcomer: `up`, `down`, and the short ways into them.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use testbed::net::{Cluster, Node, Process, eventually};
use testbed::snapshot::Sealed;

/// How long something may take on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A machine, and the home directory of a user on it.
struct Machine {
    node: Node,
    home: TempDir,
    _cluster: Cluster,
}

impl Machine {
    fn new() -> Self {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        Self { node, home: testbed::folder(), _cluster: cluster }
    }

    /// A command of the binary, run by a user with only this home directory.
    fn command(&self, before: &[&str], words: &str) -> Command {
        let mut all = before.iter().map(PathBuf::from).chain([testbed::binary()]);
        let mut command = Command::new(all.next().expect("a program"));
        command.args(all).args(words.split_whitespace());
        command.env("HOME", self.home.path()).env("TMPDIR", self.home.path());
        command.env_remove("KUBECONFIG").env_remove("XDG_DATA_HOME");
        command
    }

    fn up(&self, before: &[&str], words: &str) -> Process {
        let process = self.node.spawn(self.command(before, &format!("up --node-name n1 {words}")));
        // The lines and the log come by two pipes.
        process.wait_for_line("page     ", TIMEOUT);
        process.wait_for_line(" ready ", TIMEOUT);
        process
    }

    fn data_dir(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// The output of a command.
    fn say(&self, words: &str) -> String {
        self.node.run(self.command(&[], words)).success()
    }

    /// Links, rules and routes, as displayed to users.
    fn network(&self) -> [String; 3] {
        ["ip -o link", "nft list ruleset", "ip route"].map(|command| self.node.run(command).success())
    }

    fn files(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.home.path()).expect("a folder").filter_map(Result::ok);
        names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }
}

/// The line of the output of `up` with this prefix.
fn line(said: &str, begin: &str) -> String {
    let found = said.lines().find(|line| line.starts_with(begin));
    found.unwrap_or_else(|| panic!("no {begin}: {said}")).to_owned()
}

#[test]
fn s01_up_says_in_five_lines_where_things_are_and_down_leaves_nothing() {
    let machine = Machine::new();
    let before = machine.network();
    let data = machine.data_dir();
    let data = data.to_str().expect("a name");
    let mut up = machine.up(&[], &format!("--data-dir {data} --add-context"));
    let said = up.log();
    assert!(line(&said, "API ").contains("https://127.0.0.1:6443"));
    assert!(line(&said, "kubectl ").contains("kubectl --context waypost get services"));
    assert!(line(&said, "DNS ").contains("cluster.local at 10.96.0.10"));
    assert!(line(&said, "proxy ").contains("nftables: available"));
    assert!(line(&said, "page ").contains("https://127.0.0.1:6443/page/"));
    let kubectl = |words: &str| {
        let mut command = Command::new("kubectl");
        command.args(words.split_whitespace()).env("HOME", machine.home.path()).env_remove("KUBECONFIG");
        machine.node.run(command).success()
    };
    kubectl("--context waypost run sleeper --image=host -- sleep 3600");
    kubectl("wait --for=condition=Ready pod/sleeper --timeout=60s");
    assert_ne!(machine.network(), before, "something was made");
    let down = machine.say(&format!("down --data-dir {data}"));
    assert!(down.contains("waypost has stopped; nothing of it is left"), "{down}");
    assert!(up.wait().success(), "{}", up.log());
    assert_eq!(machine.network(), before);
    assert!(!Path::new(data).exists());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    assert!(!mounts.contains(data), "{mounts}");
    assert!(!machine.home.path().join(".kube/config").exists(), "nobody else had a context there");
    let again = machine.say(&format!("down --data-dir {data}"));
    assert!(again.contains("nothing was up"), "{again}");
}

#[test]
fn s01_a_log_that_is_not_on_a_terminal_has_no_ansi_escapes() {
    let machine = Machine::new();
    let mut command = machine.command(&[], "up --node-name n1 --dev --log debug");
    command.env_remove("NO_COLOR").env("TERM", "xterm-256color");
    let up = machine.node.spawn(command);
    // Of both processes: the readiness of one was reported by the other.
    up.wait_for_line(" ready ", TIMEOUT);
    let log = up.log();
    assert!(log.contains(" DEBUG ") && !log.contains('\u{1b}'), "{log:?}");
}

#[test]
fn s01_down_leaves_a_machine_as_it_was_before_up() {
    let machine = Sealed::new();
    let _ = machine.shell("mkdir -p /var/lib/home").success();
    let before = machine.snapshot();
    let program = testbed::binary().display().to_string();
    let say = |words: &str| machine.shell(&format!("export HOME=/var/lib/home; {program} {words}")).success();
    let _ = say("up --add-context > /tmp/up 2>&1 < /dev/null &");
    eventually("it is up", || machine.shell("grep -q ' ready ' /tmp/up").ok);
    let _ = say("run web --port 8080 --expose -- sleep 3600");
    // One that ignores SIGTERM.
    let _ = say("run stubborn -- sh -c 'trap : TERM; while :; do sleep 1; done'");
    let _ = say("wait pod/web pod/stubborn --for=condition=Ready --timeout=60s");
    let during = machine.snapshot();
    for section in ["links", "nftables", "control groups", "mounts", "files", "processes", "namespaces"] {
        assert_ne!(during.section(section), before.section(section), "something was made: {section}");
    }
    let down = say("down");
    assert!(down.contains("waypost has stopped; nothing of it is left"), "{down}");
    let _ = machine.shell("rm /tmp/up").success();
    before.assert_same(&machine.snapshot());
}

#[test]
fn s01_down_ends_pods_also_where_there_are_no_control_groups() {
    let machine = Sealed::new();
    let _ = machine.shell("umount -R /sys/fs/cgroup; mkdir -p /var/lib/home").success();
    let before = machine.snapshot();
    let program = testbed::binary().display().to_string();
    let say = |words: &str| machine.shell(&format!("export HOME=/var/lib/home; {program} {words}")).success();
    let _ = say("up > /tmp/up 2>&1 < /dev/null &");
    eventually("it is up", || machine.shell("grep -q ' ready ' /tmp/up").ok);
    let _ = say("run quiet -- sleep 3600");
    let _ = say("run stubborn -- sh -c 'trap : TERM; while :; do sleep 1; done'");
    let _ = say("wait pod/quiet pod/stubborn --for=condition=Ready --timeout=60s");
    assert_ne!(machine.snapshot().section("processes"), before.section("processes"), "Pods run");
    let down = say("down");
    assert!(down.contains("nothing of it is left"), "{down}");
    let _ = machine.shell("rm /tmp/up").success();
    before.assert_same(&machine.snapshot());
}

#[test]
fn s01_down_keeps_data_when_it_is_told_to_and_the_next_up_has_it() {
    let machine = Machine::new();
    let data = machine.data_dir();
    let words = format!("--data-dir {} --workloads=false", data.display());
    let mut up = machine.up(&[], &words);
    let kubectl = |words: &str| {
        let mut command = Command::new("kubectl");
        machine.node.run({
            command.args(words.split_whitespace()).env("KUBECONFIG", data.join("kubeconfig"));
            command
        })
    };
    assert!(kubectl("create service clusterip kept --tcp=80").ok);
    let down = machine.say(&format!("down --keep-data --data-dir {}", data.display()));
    assert!(down.contains("data stays in"), "{down}");
    assert!(up.wait().success());
    assert_eq!(machine.node.ruleset(), "");
    let _up = machine.up(&[], &words);
    assert!(kubectl("get service kept").ok);
}

#[test]
fn s01_dev_lives_in_a_temporary_directory_and_takes_everything_with_it() {
    let machine = Machine::new();
    let before = machine.network();
    let mut up = machine.up(&[], "--dev");
    let said = up.log();
    assert!(!line(&said, "API ").ends_with(":6443"), "a port of its own: {said}");
    assert_eq!(machine.files().len(), 1, "its directory");
    assert!(up.terminate().success(), "{}", up.log());
    assert_eq!(machine.files(), Vec::<String>::new());
    assert_eq!(machine.network(), before);
}

#[test]
fn s21_rootless_needs_no_right_and_lives_in_the_home_directory() {
    let machine = Machine::new();
    let powerless = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--no-new-privs"];
    let mut up = machine.up(&powerless, "--rootless");
    let said = up.log();
    let home = machine.home.path().join(".local/share/waypost");
    assert!(line(&said, "kubectl ").contains(&format!("KUBECONFIG={}/kubeconfig", home.display())), "{said}");
    assert!(line(&said, "proxy ").contains("userspace: Services have loopback addresses"), "{said}");
    assert_eq!(machine.node.ruleset(), "");
    let down = machine.node.run(machine.command(&powerless, "down --rootless")).success();
    assert!(down.contains("nothing of it is left"), "{down}");
    assert!(up.wait().success());
    assert!(!home.exists());
}

#[test]
fn a_service_manager_hears_that_it_is_ready_alive_and_about_to_end() {
    let machine = Machine::new();
    let path = machine.home.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_read_timeout(Some(TIMEOUT)).expect("set");
    let mut command = machine.command(&[], "up --node-name n1 --workloads=false --data-dir");
    command.arg(machine.data_dir()).env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "400000");
    let mut up = machine.node.spawn(command);
    let hear = || {
        let mut buffer = [0; 200];
        let length = manager.recv(&mut buffer).expect("a word");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let ready = hear();
    assert!(ready.starts_with("READY=1\nSTATUS=the API is at https://127.0.0.1:6443"), "{ready}");
    assert_eq!((hear(), hear()), ("WATCHDOG=1".to_owned(), "WATCHDOG=1".to_owned()));
    up.ask_to_end();
    let last = std::iter::repeat_with(hear).find(|word| word != "WATCHDOG=1").expect("a word");
    assert_eq!(last, "STOPPING=1");
    assert!(up.wait().success(), "{}", up.log());
}

#[test]
fn what_units_start_is_understood() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging");
    let mut seen = 0;
    for unit in std::fs::read_dir(folder).expect("units").filter_map(Result::ok) {
        let text = std::fs::read_to_string(unit.path()).expect("a unit");
        let Some(words) = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/waypost ")) else {
            continue;
        };
        seen += 1;
        assert!(text.contains("Type=notify") && text.contains("WatchdogSec="), "{text}");
        let help = testbed::run(
            Command::new(testbed::binary()).args([words.split_whitespace().next().expect("a command"), "--help"]),
            "",
        );
        let help = help.success();
        for flag in words.split_whitespace().filter(|word| word.starts_with("--")) {
            assert!(help.contains(flag), "{flag} of {:?}", unit.path());
        }
    }
    assert_eq!(seen, 3);
}
