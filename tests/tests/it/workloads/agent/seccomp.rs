//! What containers of both runtimes may ask of the kernel: system calls, capabilities, files below `/proc` and `/sys`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::net::eventually;

use super::machine::{Machine, container};
use super::oci;

/// A static program that makes calls and prints the error of each, 0 for none; with an argument it ends, without one it waits.
const SOURCE: &str = r#"
    #define _GNU_SOURCE
    #include <dirent.h>
    #include <errno.h>
    #include <fcntl.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/stat.h>
    #include <sys/syscall.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void call(const char *name, long number, long a, long b, long c) {
        // In a separate process: some of these change the caller when they succeed.
        fflush(stdout);
        int child = fork();
        if (child == 0) _exit(syscall(number, a, b, c, 0L, 0L) < 0 ? errno : 0);
        int status;
        waitpid(child, &status, 0);
        printf("%s %d\n", name, WEXITSTATUS(status));
    }
    static void writable(const char *path) {
        int fd = open(path, O_WRONLY);
        printf("write:%s %d\n", path, fd < 0 ? errno : 0);
    }
    static void contents(const char *path) {
        struct stat s;
        char byte;
        int many = 0;
        if (stat(path, &s)) return;
        if (S_ISDIR(s.st_mode)) {
            DIR *d = opendir(path);
            for (struct dirent *e; d && (e = readdir(d));) many += e->d_name[0] != '.';
        } else {
            int fd = open(path, O_RDONLY | O_NONBLOCK);
            many = fd >= 0 && read(fd, &byte, 1) > 0;
        }
        printf("seen:%s %d\n", path, many > 0);
    }
    int main(int argc, char **argv) {
        char line[4096];
        call("unshare", SYS_unshare, 0x10000000, 0, 0);
        call("clone", SYS_clone, 0x10000000 | 17, 0, 0);
        call("clone3", SYS_clone3, 0, 0, 0);
        call("mount", SYS_mount, (long)"none", (long)"/nowhere", (long)"tmpfs");
        call("keyctl", SYS_keyctl, 0, -3, 0);
        call("bpf", SYS_bpf, 0, 0, 0);
        call("perf", SYS_perf_event_open, 0, 0, 0);
        call("crypto", SYS_socket, 38, 5, 0);
        call("hypervisor", SYS_socket, 40, 1, 0);
        call("inet", SYS_socket, 2, 1, 0);
        call("personality", SYS_personality, 0x0040000, 0, 0);
        call("getpid", SYS_getpid, 0, 0, 0);
        call("mkdir", SYS_mkdirat, -100, (long)"/tmp", 0700);
        const char *kernel[] = {"/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/interrupts", "/proc/scsi", "/sys/firmware", 0};
        for (const char **path = kernel; *path; path++) contents(*path);
        const char *files[] = {"/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/mm/transparent_hugepage/enabled", 0};
        for (const char **path = files; *path; path++) writable(*path);
        FILE *f = fopen("/proc/self/status", "r");
        while (f && fgets(line, sizeof line, f))
            if (!strncmp(line, "Seccomp:", 8) || !strncmp(line, "CapBnd:", 7) || !strncmp(line, "CapEff:", 7)
                || !strncmp(line, "NoNewPrivs:", 11)) fputs(line, stdout);
        printf("that is all\n");
        fflush(stdout);
        for (; argc < 2;) pause();
    }"#;

const EPERM: i64 = 1;
const ENOENT: i64 = 2;
const EROFS: i64 = 30;
const ENOSYS: i64 = 38;

/// The default capabilities of containers of images; processes of the machine have all of them but `MKNOD`.
const DEFAULT_CAPABILITIES: u64 = 0xa804_05fb;
const MKNOD: u64 = 1 << 27;

/// A machine with an image `probe:v1`, and its program in a folder.
struct Bed {
    machine: Machine,
    folder: TempDir,
}

impl Bed {
    fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        let root = folder.path().join("root");
        for name in ["bin", "proc", "dev", "sys", "etc", "tmp"] {
            std::fs::create_dir_all(root.join(name)).expect("made");
        }
        let source = folder.path().join("probe.c");
        std::fs::write(&source, SOURCE).expect("written");
        let mut command = Command::new("musl-gcc");
        command.args(["-static", "-o"]).arg(root.join("bin/probe")).arg(&source);
        let _ = testbed::run(&mut command, "").success();
        // Every user that a container runs as must be able to access it.
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("opened");
        let machine = Machine::new();
        oci::import(&machine, &root, "probe:v1");
        Self { machine, folder }
    }

    fn program(&self, kind: &str) -> String {
        match kind {
            "host" => self.folder.path().join("root/bin/probe").display().to_string(),
            _ => "/bin/probe".to_owned(),
        }
    }

    fn begin(&mut self, kind: &str, name: &str, context: &Value) {
        let image = if kind == "host" { "host" } else { "probe:v1" };
        let own = json!({"name": "c", "image": image, "command": [self.program(kind)], "securityContext": context});
        self.machine.pod(name, json!({"containers": [own], "terminationGracePeriodSeconds": 0}));
    }

    /// What the program of a Pod found.
    fn found(&mut self, name: &str) -> BTreeMap<String, String> {
        self.machine.until_ready(name);
        eventually("it has said all", || self.machine.log(name, "c", 0).contains("that is all\n"));
        parsed(&self.machine.log(name, "c", 0))
    }

    /// Why the container of a Pod does not start.
    fn refused(&mut self, name: &str) -> (String, String) {
        let waits = |pod: &Value| {
            container(pod, "c")["state"]["waiting"]["reason"].as_str().is_some_and(|why| why.contains("Create"))
        };
        let waits =
            move |pod: &Value| waits(pod) && container(pod, "c")["state"]["waiting"]["reason"] != "ContainerCreating";
        let pod = self.machine.until(name, "refused", waits);
        let waiting = &container(&pod, "c")["state"]["waiting"];
        let text = |field: &str| waiting[field].as_str().expect("a text").to_owned();
        (text("reason"), text("message"))
    }
}

fn parsed(text: &str) -> BTreeMap<String, String> {
    let pair =
        |line: &str| line.split_once([' ', '\t']).map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    text.lines().filter_map(pair).collect()
}

#[track_caller]
fn error(found: &BTreeMap<String, String>, call: &str) -> i64 {
    found.get(call).unwrap_or_else(|| panic!("{call}: {found:?}")).parse().expect("a number")
}

/// The calls that the default profile refuses and the kernel would allow, or refuse with another error.
#[track_caller]
fn is_confined(found: &BTreeMap<String, String>, what: &str) {
    for call in ["unshare", "clone", "mount", "keyctl", "bpf", "perf", "crypto", "hypervisor", "personality"] {
        assert_eq!(error(found, call), EPERM, "{what}: {call}");
    }
    assert_eq!(error(found, "clone3"), ENOSYS, "{what}");
    assert_eq!((error(found, "inet"), error(found, "getpid")), (0, 0), "{what}");
    assert_eq!(found["Seccomp:"], "2", "{what}");
}

#[track_caller]
fn is_unconfined(found: &BTreeMap<String, String>, what: &str) {
    assert_eq!(found["Seccomp:"], "0", "{what}");
    assert_eq!((error(found, "unshare"), error(found, "personality")), (0, 0), "{what}");
    assert!(![EPERM, ENOSYS].contains(&error(found, "clone3")), "{what}: {found:?}");
}

#[test]
fn b04_containers_make_the_calls_of_the_default_profile_unless_they_say_otherwise() {
    let mut bed = Bed::new();
    let profile = |kind: &str| json!({"seccompProfile": {"type": kind}});
    let confined = [
        ("unset", json!({})),
        ("default", profile("RuntimeDefault")),
        ("nnp", json!({"allowPrivilegeEscalation": false})),
        ("user", json!({"runAsUser": 1234, "runAsGroup": 1234})),
        ("usernnp", json!({"runAsUser": 1234, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})),
    ];
    let unconfined = [("open", profile("Unconfined")), ("priv", json!({"privileged": true}))];
    for kind in ["host", "image"] {
        for (name, context) in confined.iter().chain(&unconfined) {
            bed.begin(kind, &format!("{kind}-{name}"), context);
        }
        for (name, _) in &confined {
            let name = format!("{kind}-{name}");
            is_confined(&bed.found(&name), &name);
            // Commands that are run beside it have the same limits.
            let program = bed.program(kind);
            let beside = parsed(&bed.machine.exec_program(&name, "c", &[&program, "once"]));
            is_confined(&beside, &format!("exec in {name}"));
            let own = bed.found(&name);
            for set in ["CapBnd:", "CapEff:", "NoNewPrivs:"] {
                assert_eq!(beside[set], own[set], "exec in {name}: {set}");
            }
            assert_eq!(own["NoNewPrivs:"], if name.ends_with("nnp") { "1" } else { "0" }, "{name}");
        }
        for (name, _) in &unconfined {
            let name = format!("{kind}-{name}");
            is_unconfined(&bed.found(&name), &name);
            let program = bed.program(kind);
            is_unconfined(&parsed(&bed.machine.exec_program(&name, "c", &[&program, "once"])), &name);
        }
    }
}

#[test]
fn b04_capabilities_and_files_of_the_kernel_are_those_of_kubernetes_in_both_runtimes() {
    let mut bed = Bed::new();
    let status = std::fs::read_to_string("/proc/self/status").expect("this process");
    let ours = u64::from_str_radix(&parsed(&status)["CapBnd:"], 16).expect("bits");
    for (kind, wanted) in [("host", DEFAULT_CAPABILITIES & !MKNOD), ("image", DEFAULT_CAPABILITIES)] {
        bed.begin(kind, &format!("{kind}-usual"), &json!({}));
        bed.begin(kind, &format!("{kind}-admin"), &json!({"capabilities": {"add": ["SYS_ADMIN"]}}));
        bed.begin(kind, &format!("{kind}-all"), &json!({"privileged": true}));
        let usual = bed.found(&format!("{kind}-usual"));
        assert_eq!(u64::from_str_radix(&usual["CapBnd:"], 16), Ok(wanted & ours), "{kind}");
        let masked: Vec<&String> = usual.keys().filter(|name| name.starts_with("seen:")).collect();
        assert!(masked.len() >= 3, "{kind}: {usual:?}");
        for path in masked {
            assert_eq!(usual[path], "0", "{kind}: {path}");
        }
        // Not every kernel has all of them; the first is everywhere.
        assert_eq!(error(&usual, "write:/proc/sys/kernel/core_pattern"), EROFS, "{kind}");
        for path in ["/proc/sysrq-trigger", "/sys/kernel/mm/transparent_hugepage/enabled"] {
            let wanted = if Path::new(path).exists() { EROFS } else { ENOENT };
            assert_eq!(error(&usual, &format!("write:{path}")), wanted, "{kind}: {path}");
        }
        // With the capability come its calls.
        let admin = bed.found(&format!("{kind}-admin"));
        assert_eq!((error(&admin, "unshare"), error(&admin, "keyctl")), (0, EPERM), "{kind}");
        assert_eq!(admin["Seccomp:"], "2", "{kind}");
        let all = bed.found(&format!("{kind}-all"));
        assert_eq!(u64::from_str_radix(&all["CapBnd:"], 16), Ok(0x1ff_ffff_ffff & ours), "{kind}");
        assert_eq!(error(&all, "write:/proc/sys/kernel/core_pattern"), 0, "{kind}");
    }
}

#[test]
fn b04_profiles_of_the_node_are_applied_and_bad_ones_are_refused_with_the_reason() {
    let mut bed = Bed::new();
    let profiles = bed.machine.data_dir().join("agent/seccomp");
    std::fs::create_dir_all(profiles.join("team")).expect("made");
    let deny = json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
        {"names": ["mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 95},
        {"names": ["personality"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 0, "value": 262_144, "op": "SCMP_CMP_EQ"}]},
    ]});
    std::fs::write(profiles.join("team/deny.json"), deny.to_string()).expect("written");
    std::fs::write(profiles.join("text.json"), "no profile").expect("written");
    std::fs::write(bed.folder.path().join("outside.json"), deny.to_string()).expect("written");
    std::os::unix::fs::symlink(bed.folder.path().join("outside.json"), profiles.join("link.json")).expect("linked");
    let file = |name: &str| json!({"seccompProfile": {"type": "Localhost", "localhostProfile": name}});
    for kind in ["host", "image"] {
        bed.begin(kind, &format!("{kind}-good"), &file("team/deny.json"));
        for (name, path) in
            [("missing", "none.json"), ("text", "text.json"), ("link", "link.json"), ("dots", "../oci/x.json")]
        {
            bed.begin(kind, &format!("{kind}-{name}"), &file(path));
        }
        let good = bed.found(&format!("{kind}-good"));
        assert_eq!(
            (error(&good, "mkdir"), error(&good, "personality"), error(&good, "unshare")),
            (95, EPERM, 0),
            "{kind}"
        );
        assert_eq!(good["Seccomp:"], "2", "{kind}");
        for (name, reason, message) in [
            ("missing", "CreateContainerError", "agent/seccomp/none.json\": no such file"),
            ("text", "CreateContainerError", "not a seccomp profile"),
            ("link", "CreateContainerError", "leads out of the directory of profiles"),
            ("dots", "CreateContainerConfigError", "must be a relative path without `..`"),
        ] {
            let (why, said) = bed.refused(&format!("{kind}-{name}"));
            assert!(why == reason && said.contains(message), "{kind}-{name}: {why}: {said}");
        }
    }
}
