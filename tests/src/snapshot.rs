//! A machine of a test's own, and all that can be seen of it: taken before and after something that is to leave nothing, and compared.
//!
//! In: nothing. Out: a [`Sealed`] machine, which has namespaces of its own (network, mounts, processes), control groups of its own, and its own
//! `/etc`, `/run`, `/tmp` and `/var/lib`; and [`Snapshot`]s of it. On the machine of the tests something comes and goes all the time; in
//! here, only what the test does.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use crate::{Run, run};

/// Seals the machine, reports it, and reaps orphaned processes, as PID 1 of a machine does.
const SEAL: &str = r#"
set -e
for root in /sys/fs/cgroup $(find /sys/fs/cgroup -mindepth 1 -maxdepth 1 -type d); do
    case $(stat -f -c %T "$root") in cgroup*) mkdir -p "$root/$1"; mount --bind "$root/$1" "$root" ;; esac
done
mount --bind "$2" /mnt
mount -t tmpfs tmpfs /tmp
cp -a /etc /tmp/etc
mount --bind /tmp/etc /etc
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib
# The program under test, if it was below one of these.
[ -d "$2" ] || { mkdir -p "$2"; mount --bind /mnt "$2"; }
umount /mnt
ip link set lo up
ip link add uplink type bridge
ip address add 198.51.100.7/24 dev uplink
ip link set uplink addrgenmode none
ip link set uplink up
ip route add default via 198.51.100.1
sleep infinity &
# Who looks at the processes from here on sees this one by its own name.
until [ "$(cat /proc/$!/comm)" = sleep ]; do :; done
echo sealed
wait
"#;

/// Everything that is to be as it was, by sections.
const LOOK: &str = r#"
section() { echo "== $1"; }
section namespaces; lsns --noheadings --output TYPE,NS
section 'named namespaces'; ip netns list
section links; ip -o link
section addresses; ip -o address
section routes; ip route show table all; ip -6 route show table all; ip rule; ip -6 rule
section nftables; nft list ruleset
section iptables; (iptables-save; ip6tables-save) | grep -v '^#' | sed 's/\[[0-9:]*\]//'
section 'control groups'; find /sys/fs/cgroup -type d
section mounts; cut -d' ' -f3- /proc/self/mountinfo
section files; find /run /tmp /var/lib /etc -xdev ! -type d -printf '%p %y %m %U:%G %s %T@ %l\n'
section folders; find /run /tmp /var/lib /etc -xdev -type d -printf '%p %m %U:%G\n'
section settings; grep -rs . /proc/sys/net/ipv4/conf /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf
section processes; ps -e -o comm=
"#;

/// A machine of a test's own. Dropping it ends it, with all that runs on it.
pub struct Sealed {
    first: Child,
    group: String,
}

impl Sealed {
    /// Makes one.
    #[must_use]
    pub fn new() -> Self {
        let group = format!("waypost-sealed-{}-{}", std::process::id(), fastrand::u32(..));
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"]);
        let program = crate::binary();
        let folder = program.parent().expect("a folder");
        command.args(["bash", "-c", SEAL, "seal", &group]).arg(folder).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut first = command.spawn().expect("unshare, of util-linux");
        let mut said = String::new();
        BufReader::new(first.stdout.take().expect("its output")).read_line(&mut said).expect("a line");
        assert_eq!(said, "sealed\n", "no machine could be made; this test needs root");
        Self { first, group }
    }

    /// A command that runs a program on this machine.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        // The first process is the child of the one that we began.
        let children = format!("/proc/{0}/task/{0}/children", self.first.id());
        let children = std::fs::read_to_string(children).expect("processes");
        let target = children.split_whitespace().next().expect("the first process of the machine");
        let mut command = Command::new("nsenter");
        command.args(["--target", target, "--net", "--mount", "--pid", "--ipc", program]);
        command
    }

    /// Runs a program on this machine, to its end; the arguments are split at spaces.
    pub fn run(&self, line: &str) -> Run {
        let mut words = line.split_whitespace();
        run(self.command(words.next().expect("a program")).args(words), "")
    }

    /// Runs lines of a shell on this machine.
    pub fn shell(&self, script: &str) -> Run {
        run(self.command("bash").args(["-c", script]), "")
    }

    /// All that can be seen of this machine now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::read(&self.shell(LOOK).success())
    }
}

impl Default for Sealed {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        // The first process is killed with the one that we began, and everything else with it.
        let _ = self.first.kill();
        let _ = self.first.wait();
        let script = format!(
            "for i in $(seq 1200); do find /sys/fs/cgroup -depth -type d -path '*/{0}*' -exec rmdir {{}} + 2>/dev/null; \
             [ -z \"$(find /sys/fs/cgroup -type d -name {0})\" ] && exit; sleep 0.05; done",
            self.group
        );
        let gone = run(Command::new("bash").args(["-c", &script]), "");
        assert!(gone.ok || std::thread::panicking(), "the control groups of a machine are left: {}", gone.err);
    }
}

/// All that can be seen of a machine, by sections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<String, BTreeSet<String>>);

impl Snapshot {
    fn read(text: &str) -> Self {
        let (mut all, mut section) = (BTreeMap::new(), String::new());
        for line in text.lines() {
            match line.strip_prefix("== ") {
                Some(name) => section = name.to_owned(),
                None => {
                    all.entry(section.clone()).or_insert_with(BTreeSet::new).insert(line.to_owned());
                }
            }
        }
        Self(all)
    }

    /// The lines of a section, such as `links` or `control groups`.
    #[must_use]
    pub fn section(&self, name: &str) -> BTreeSet<String> {
        self.0.get(name).cloned().unwrap_or_default()
    }

    /// Without these sections.
    #[must_use]
    pub fn without(mut self, sections: &[&str]) -> Self {
        self.0.retain(|name, _| !sections.contains(&name.as_str()));
        self
    }

    /// The difference: `-` for what was removed, `+` for what was added.
    #[must_use]
    pub fn differences(&self, later: &Self) -> Vec<String> {
        let names: BTreeSet<&String> = self.0.keys().chain(later.0.keys()).collect();
        let mut out = Vec::new();
        for name in names {
            let (before, after) = (self.section(name), later.section(name));
            out.extend(before.difference(&after).map(|line| format!("{name}: -{line}")));
            out.extend(after.difference(&before).map(|line| format!("{name}: +{line}")));
        }
        out
    }

    /// Fails unless the later one shows the same.
    #[track_caller]
    pub fn assert_same(&self, later: &Self) {
        let differences = self.differences(later);
        assert!(differences.is_empty(), "the machine is not as it was:\n{}", differences.join("\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_comes_is_seen() {
        let machine = Sealed::new();
        let before = machine.snapshot();
        for section in ["namespaces", "links", "addresses", "routes", "control groups", "mounts", "files", "processes"]
        {
            assert!(!before.section(section).is_empty(), "{section} is empty");
        }
        before.assert_same(&machine.snapshot());
        let changes =
            "set -e; ip netns add left; ip link add left type bridge; ip route add 203.0.113.0/24 via 198.51.100.9
            nft add table ip left; mkdir -p /tmp/left; mount -t tmpfs tmpfs /tmp/left; echo x > /etc/left
            mkdir $(dirname $(find /sys/fs/cgroup -name cgroup.procs | head -1))/left";
        let _ = machine.shell(changes).success();
        let differences = before.differences(&machine.snapshot()).join("\n");
        for (section, what) in [
            ("named namespaces", "left"),
            ("links", "left"),
            ("routes", "203.0.113.0/24"),
            ("nftables", "left"),
            ("mounts", "/tmp/left"),
            ("files", "/etc/left"),
            ("folders", "/tmp/left"),
            ("control groups", "left"),
        ] {
            let is_told =
                differences.lines().any(|line| line.starts_with(&format!("{section}: +")) && line.contains(what));
            assert!(is_told, "{section}:\n{differences}");
        }
    }
}
