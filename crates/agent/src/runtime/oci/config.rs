//! The `config.json` of a container (OCI runtime specification).

use std::path::Path;

use api::value::ValueExt as _;
use serde_json::{Value, json};

use crate::quantities;
use crate::runtime::ContainerConfig;
use crate::runtime::program::capability_names;
use crate::runtime::security::{Kernel, Security};
use crate::seccomp::Resolved;
use crate::shim::Program;

pub(super) fn config(config: &ContainerConfig<'_>, program: &Program, security: &Security, rootfs: &Path) -> Value {
    let privileged = security.privileged;
    let rights = capability_names(security.capabilities);
    let Kernel { masked, locked } = security.kernel_files();
    // Effective and permitted capabilities for root only, as other runtimes do.
    let held = if program.user.unwrap_or(0) == 0 { rights.clone() } else { Vec::new() };
    let environment: Vec<String> = program.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut document = json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": program.terminal,
            "user": {
                "uid": program.user.unwrap_or(0), "gid": program.group.unwrap_or(0),
                "additionalGids": program.groups.clone().unwrap_or_default(),
            },
            "args": program.words,
            "env": environment,
            "cwd": program.folder,
            "capabilities": {"bounding": rights, "effective": held, "permitted": held},
            "noNewPrivileges": program.no_new_privileges,
            "oomScoreAdj": quantities::oom_score(config.pod, config.container, config.machine.capacity).max(least_score()),
        },
        "root": {"path": rootfs, "readonly": config.container.flag("securityContext.readOnlyRootFilesystem")},
        "hostname": config.host_name.clone().unwrap_or_default(),
        "mounts": mounts(config, privileged),
        "linux": {
            "namespaces": namespaces(config),
            "cgroupsPath": format!("/{}", config.group),
            "resources": {"devices": devices(privileged)},
            "maskedPaths": masked,
            "readonlyPaths": locked,
        },
    });
    if let Some(profile) = security.seccomp.as_ref().map(Resolved::oci) {
        document.put("linux.seccomp", profile);
    }
    document
}

/// The lowest `oom_score_adj` that may be set without CAP_SYS_RESOURCE: the own one.
fn least_score() -> i32 {
    let may = rustix::thread::capabilities(None)
        .is_ok_and(|have| have.effective.contains(rustix::thread::CapabilitySet::SYS_RESOURCE));
    let own = || std::fs::read_to_string("/proc/self/oom_score_adj").ok()?.trim().parse().ok();
    if may { -1000 } else { own().unwrap_or(0) }
}

fn namespaces(config: &ContainerConfig<'_>) -> Value {
    let mut out =
        vec![json!({"type": "pid"}), json!({"type": "ipc"}), json!({"type": "mount"}), json!({"type": "cgroup"})];
    if let Some(path) = &config.network {
        out.push(json!({"type": "network", "path": path}));
    }
    if config.host_name.is_some() {
        out.push(json!({"type": "uts"}));
    }
    Value::Array(out)
}

/// Device cgroup rules: the standard devices, or all for a privileged container.
fn devices(privileged: bool) -> Value {
    if privileged {
        return json!([{"allow": true, "access": "rwm"}]);
    }
    let allow = |kind: &str, major: i64, minor: Option<i64>| match minor {
        Some(minor) => json!({"allow": true, "type": kind, "major": major, "minor": minor, "access": "rwm"}),
        None => json!({"allow": true, "type": kind, "major": major, "access": "rwm"}),
    };
    let known = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 1), (5, 2)];
    let mut out = vec![json!({"allow": false, "access": "rwm"})];
    out.extend(known.map(|(major, minor)| allow("c", major, Some(minor))));
    out.push(allow("c", 136, None));
    Value::Array(out)
}

fn mounts(config: &ContainerConfig<'_>, privileged: bool) -> Value {
    let kernel = |kind: &str, at: &str, options: &[&str]| json!({"type": kind, "source": kind, "destination": at, "options": options});
    let quiet = ["nosuid", "noexec", "nodev"];
    let sys = if privileged { "rw" } else { "ro" };
    let mut out = vec![
        kernel("proc", "/proc", &quiet),
        kernel("tmpfs", "/dev", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        kernel("devpts", "/dev/pts", &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
        kernel("tmpfs", "/dev/shm", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
        kernel("mqueue", "/dev/mqueue", &quiet),
        kernel("sysfs", "/sys", &["nosuid", "noexec", "nodev", sys]),
    ];
    for mount in &config.mounts {
        let access = if mount.read_only { "ro" } else { "rw" };
        out.push(json!({
            "type": "bind", "source": mount.source, "destination": mount.target, "options": ["rbind", "rprivate", access],
        }));
    }
    Value::Array(out)
}
