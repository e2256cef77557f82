//! The default profile, profile selection, and invalid files.

use std::os::unix::fs::symlink;

use kernel::seccomp::{Action, Architecture, Condition, Rule};
use serde_json::json;

use super::profile::resolve;
use super::*;

fn host(capabilities: &[&str]) -> Host {
    let capabilities = capabilities.iter().map(|name| format!("CAP_{name}")).collect();
    Host { architecture: Architecture::X86_64, kernel: (6, 1), capabilities }
}

/// The rules that a profile has for a call.
fn rules(resolved: &Resolved, call: &str) -> Vec<Rule> {
    resolved.policy().rules.iter().filter(|rule| rule.call == call).cloned().collect()
}

/// The rules of the default profile for a call.
fn of(call: &str, host: &Host) -> Vec<(usize, Action)> {
    let resolved = default(host).expect("the default profile");
    rules(&resolved, call).iter().map(|rule| (rule.conditions.len(), rule.action)).collect()
}

const PLAIN: [(usize, Action); 1] = [(0, Action::Allow)];

#[test]
fn the_default_profile_denies_administrative_calls() {
    let usual = host(&["CHOWN", "SYS_CHROOT"]);
    assert_eq!(default(&usual).expect("read").policy().default, Action::Errno(1));
    for call in ["read", "execve", "futex", "openat2", "landlock_create_ruleset", "seccomp", "chroot", "ptrace"] {
        assert_eq!(of(call, &usual), PLAIN, "{call}");
    }
    let refused = [
        "mount",
        "umount2",
        "unshare",
        "setns",
        "keyctl",
        "add_key",
        "request_key",
        "bpf",
        "perf_event_open",
        "reboot",
        "kexec_load",
        "init_module",
        "open_by_handle_at",
        "clock_settime",
        "userfaultfd",
        "io_uring_setup",
        "iopl",
        "swapon",
        "pivot_root",
        "syslog",
        "acct",
        "fsopen",
        "move_mount",
        "quotactl",
        "vhangup",
        "mbind",
        "process_madvise",
    ];
    for call in refused {
        assert_eq!(of(call, &usual), [], "{call}");
    }
}

#[test]
fn capabilities_enable_calls() {
    for (capability, call) in [
        ("SYS_ADMIN", "mount"),
        ("SYS_ADMIN", "unshare"),
        ("SYS_ADMIN", "setns"),
        ("SYS_ADMIN", "bpf"),
        ("BPF", "bpf"),
        ("PERFMON", "perf_event_open"),
        ("SYS_TIME", "clock_settime"),
        ("SYS_BOOT", "reboot"),
        ("SYS_MODULE", "init_module"),
        ("SYSLOG", "syslog"),
        ("SYS_PTRACE", "process_madvise"),
        ("SYS_NICE", "mbind"),
        ("SYS_RAWIO", "iopl"),
        ("DAC_READ_SEARCH", "open_by_handle_at"),
        ("SYS_PACCT", "acct"),
        ("SYS_TTY_CONFIG", "vhangup"),
        ("SYS_CHROOT", "chroot"),
    ] {
        assert_eq!((of(call, &host(&[])), of(call, &host(&[capability]))), (vec![], PLAIN.to_vec()), "{call}");
    }
    // NET_ADMIN uses netlink, which needs no further calls.
    assert_eq!(of("sendmsg", &host(&["NET_ADMIN"])), PLAIN);
}

#[test]
fn clone_cannot_create_namespaces() {
    assert_eq!(of("clone", &host(&[])), [(1, Action::Allow)]);
    assert_eq!(of("clone3", &host(&[])), [(0, Action::Errno(38))]);
    for call in ["clone", "clone3"] {
        assert_eq!(of(call, &host(&["SYS_ADMIN"])), PLAIN, "{call}");
    }
    let resolved = default(&host(&[])).expect("read");
    let mask = 0x0002_0000 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000;
    let compare = kernel::seccomp::Compare::Masked { mask, value: 0 };
    assert_eq!(rules(&resolved, "clone")[0].conditions, [Condition { argument: 0, compare }]);
}

#[test]
fn kernel_version_and_architecture_are_conditions() {
    let old = Host { kernel: (4, 7), ..host(&[]) };
    assert_eq!(of("ptrace", &old), []);
    assert_eq!(of("ptrace", &Host { kernel: (4, 8), ..host(&[]) }), PLAIN);
    let arm = Host { architecture: Architecture::Aarch64, ..host(&[]) };
    assert_eq!((of("arch_prctl", &arm), of("arch_prctl", &host(&[]))), (vec![], PLAIN.to_vec()));
    assert_eq!((of("set_tls", &arm), of("set_tls", &host(&[]))), (PLAIN.to_vec(), vec![]));
    let listed = |host: &Host| default(host).expect("read").oci()["architectures"].clone();
    assert_eq!(listed(&arm), json!(["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"]));
    assert_eq!(listed(&host(&[])), json!(["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"]));
}

#[test]
fn the_default_profile_fits_into_a_filter() {
    for host in [host(&[]), Host { architecture: Architecture::Aarch64, ..host(&["SYS_ADMIN"]) }] {
        let resolved = default(&host).expect("read");
        let (program, flags) = resolved.filter().expect("short enough");
        assert!((200..1500).contains(&program.len()) && flags == 0, "{} instructions", program.len());
        let oci = resolved.oci();
        let calls = oci["syscalls"].as_array().expect("calls");
        assert!(calls.iter().all(|call| call.get("includes").is_none() && call.get("comment").is_none()));
    }
}

#[test]
fn profile_types_are_those_of_kubernetes() {
    fn of(profile: &Value, privileged: bool) -> Result<Choice<'_>, &'static str> {
        choose(profile, privileged).map_err(|refused| refused.reason)
    }
    let choose = |profile: Value| of(&profile, false).map(|choice| format!("{choice:?}"));
    assert_eq!(choose(Value::Null).as_deref(), Ok("Unset"));
    assert_eq!(choose(json!({"type": "RuntimeDefault"})).as_deref(), Ok("RuntimeDefault"));
    assert_eq!(choose(json!({"type": "Unconfined"})).as_deref(), Ok("Unconfined"));
    let file = json!({"type": "Localhost", "localhostProfile": "a.json"});
    assert_eq!(choose(file.clone()).as_deref(), Ok("Localhost(\"a.json\")"));
    assert_eq!(of(&file, true), Ok(Choice::Unconfined));
    for wrong in [json!({"type": "Localhost"}), json!({"type": "unconfined"})] {
        assert_eq!(choose(wrong), Err("CreateContainerConfigError"));
    }
}

#[test]
fn localhost_profiles_must_be_inside_the_profile_directory() {
    let home = tempfile::tempdir().expect("a folder");
    let profiles = home.path().join("seccomp");
    std::fs::create_dir_all(profiles.join("team")).expect("made");
    let profile =
        r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir"], "action": "SCMP_ACT_KILL_PROCESS"}]}"#;
    std::fs::write(profiles.join("team/a.json"), profile).expect("written");
    std::fs::write(home.path().join("outside.json"), profile).expect("written");
    symlink("team/a.json", profiles.join("inside.json")).expect("linked");
    symlink("../outside.json", profiles.join("relative.json")).expect("linked");
    symlink(home.path().join("outside.json"), profiles.join("absolute.json")).expect("linked");
    symlink("/", profiles.join("root")).expect("linked");
    rustix::fs::mknodat(rustix::fs::CWD, profiles.join("fifo"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .expect("made");
    std::fs::File::create(profiles.join("long.json")).and_then(|file| file.set_len(1 << 30)).expect("made");
    std::fs::write(profiles.join("text.json"), "hello").expect("written");
    let read = |name: &str| localhost(&profiles, name, &host(&[]));
    for name in ["team/a.json", "inside.json"] {
        assert_eq!(rules(&read(name).expect("a profile"), "mkdir").len(), 1, "{name}");
    }
    for (name, why) in [
        ("missing.json", "no such file"),
        ("relative.json", "leads out of the directory"),
        ("absolute.json", "leads out of the directory"),
        ("root/etc/passwd", "leads out of the directory"),
        ("fifo", "not a regular file"),
        ("long.json", "longer than"),
        ("text.json", "not a seccomp profile"),
        ("team", "not a regular file"),
    ] {
        let refused = read(name).expect_err("refused");
        assert_eq!(refused.reason, "CreateContainerError", "{name}");
        assert!(refused.message.contains(why) && refused.message.contains(name), "{name}: {refused}");
    }
    for name in ["../outside.json", "team/../../outside.json", "/etc/passwd", "./team/a.json"] {
        assert_eq!(read(name).expect_err("refused").reason, "CreateContainerConfigError", "{name}");
    }
}

#[test]
fn unsupported_fields_are_reported_with_their_path() {
    let refused =
        |profile: Value| resolve(profile.to_string().as_bytes(), &host(&[])).expect_err("refused").to_string();
    let call = |call: Value| json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["read"], "action": "SCMP_ACT_ALLOW"}, call]});
    let notify = call(json!({"names": ["mount"], "action": "SCMP_ACT_NOTIFY"}));
    assert!(refused(notify).starts_with("syscalls[1].action \"SCMP_ACT_NOTIFY\" is not supported"));
    let operator = json!({"names": ["mount"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 1, "op": "SCMP_CMP_LIKE"}]});
    assert!(refused(call(operator)).starts_with("syscalls[1].args \"SCMP_CMP_LIKE\""));
    let index = json!({"names": ["mount"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 6, "value": 1, "op": "SCMP_CMP_EQ"}]});
    assert!(refused(call(index)).contains("arguments 0 to 5"));
    assert!(refused(json!({"defaultAction": "allow"})).starts_with("defaultAction \"allow\""));
    assert!(refused(json!({"syscalls": []})).contains("defaultAction"));
    assert!(refused(json!({"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 70_000})).contains("4095"));
    let listens = json!({"defaultAction": "SCMP_ACT_ERRNO", "listenerPath": "/run/agent"});
    assert!(refused(listens).starts_with("listenerPath"));
    let flags = json!({"defaultAction": "SCMP_ACT_ERRNO", "flags": ["SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"]});
    assert!(refused(flags).starts_with("flags"));
}

#[test]
fn repeated_conditions_on_one_argument_are_alternatives() {
    let arg = |index: u32, value: u32| json!({"index": index, "value": value, "op": "SCMP_CMP_EQ"});
    let profile = json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
        {"name": "personality", "action": "SCMP_ACT_ALLOW", "args": [arg(0, 0), arg(0, 8)]},
        {"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": [arg(0, 1), arg(1, 2)]},
    ]});
    let resolved = resolve(profile.to_string().as_bytes(), &host(&[])).expect("a profile");
    let counts = |call: &str| rules(&resolved, call).iter().map(|rule| rule.conditions.len()).collect::<Vec<_>>();
    assert_eq!((counts("personality"), counts("socket")), (vec![1, 1], vec![2]));
}
