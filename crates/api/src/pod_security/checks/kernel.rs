//! Kernel interfaces of a Pod: `/proc` without masks, and sysctls.

use std::collections::BTreeSet;

use super::{Forbidden, Pod, containers, quoted};
use crate::value::ValueExt as _;

/// Sysctls that belong to a namespace of the Pod and have no effect on others, in the order of the releases that added them.
const SAFE_SYSCTLS: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_notsent_lowat",
];

/// `/proc` must keep its masks.
pub(in super::super) fn proc_mount(pod: &Pod<'_>) -> Option<Forbidden> {
    let (_, mounts) = pod.own_and_containers("procMount");
    let bad = mounts.filter(|(_, mount)| !mount.is_null() && *mount != "Default");
    let (names, values): (Vec<&str>, BTreeSet<&str>) =
        bad.map(|(name, mount)| (name, mount.as_str().unwrap_or_default())).unzip();
    (!names.is_empty()).then(|| Forbidden {
        reason: "procMount",
        detail: format!("{} must not set securityContext.procMount to {}", containers(&names), quoted(&values)),
    })
}

/// Only the first `safe` of [`SAFE_SYSCTLS`] may be set.
fn sysctls(pod: &Pod<'_>, safe: usize) -> Option<Forbidden> {
    let names = pod.spec.items("securityContext.sysctls").iter().map(|sysctl| sysctl.text("name"));
    let bad: Vec<&str> = names.filter(|name| !SAFE_SYSCTLS.iter().take(safe).any(|own| own == name)).collect();
    (!bad.is_empty()).then(|| Forbidden { reason: "forbidden sysctls", detail: bad.join(", ") })
}

pub(in super::super) fn sysctls_1_0(pod: &Pod<'_>) -> Option<Forbidden> {
    sysctls(pod, 5)
}

pub(in super::super) fn sysctls_1_27(pod: &Pod<'_>) -> Option<Forbidden> {
    sysctls(pod, 6)
}

pub(in super::super) fn sysctls_1_29(pod: &Pod<'_>) -> Option<Forbidden> {
    sysctls(pod, 10)
}

pub(in super::super) fn sysctls_1_32(pod: &Pod<'_>) -> Option<Forbidden> {
    sysctls(pod, 12)
}

pub(in super::super) fn sysctls_1_37(pod: &Pod<'_>) -> Option<Forbidden> {
    sysctls(pod, SAFE_SYSCTLS.len())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::pod_security::evaluate::found;

    #[test]
    fn proc_mount() {
        let unmasked = json!({"containers": [{"name": "c", "securityContext": {"procMount": "Unmasked"}}]});
        let text = "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")";
        let mut in_user_namespace = unmasked.clone();
        in_user_namespace["hostUsers"] = json!(false);
        let mut on_host_users = unmasked.clone();
        on_host_users["hostUsers"] = json!(true);
        for (id, minor, spec, expected) in [
            ("procMount", 0, &unmasked, text),
            ("procMount", 34, &in_user_namespace, text),
            ("procMount", 35, &in_user_namespace, ""),
            ("procMount", 35, &on_host_users, text),
            ("procMount", 37, &unmasked, text),
            ("procMount_restricted", 34, &unmasked, ""),
            ("procMount_restricted", 35, &in_user_namespace, text),
        ] {
            assert_eq!(found(id, minor, &Value::Null, spec), expected, "{id} {minor} {spec}");
        }
        let spec = json!({"containers": [
            {"name": "a", "securityContext": {"procMount": "Default"}},
            {"name": "b", "securityContext": {"procMount": "x"}},
            {"name": "c", "securityContext": {"procMount": "Unmasked"}},
            {"name": "d", "securityContext": {"procMount": null}},
        ]});
        assert_eq!(
            found("procMount", 37, &Value::Null, &spec),
            "procMount (containers \"b\", \"c\" must not set securityContext.procMount to \"Unmasked\", \"x\")"
        );
    }

    #[test]
    fn sysctls() {
        for (name, since) in [
            ("kernel.shm_rmid_forced", 0),
            ("net.ipv4.ip_unprivileged_port_start", 0),
            ("net.ipv4.ip_local_reserved_ports", 27),
            ("net.ipv4.tcp_keepalive_time", 29),
            ("net.ipv4.tcp_keepalive_probes", 29),
            ("net.ipv4.tcp_rmem", 32),
            ("net.ipv4.tcp_wmem", 32),
            ("net.ipv4.tcp_slow_start_after_idle", 37),
            ("net.ipv4.tcp_notsent_lowat", 37),
        ] {
            let spec = json!({"securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
            assert_eq!(found("sysctls", since, &Value::Null, &spec), "", "{name}");
            if since > 0 {
                let expected = format!("forbidden sysctls ({name})");
                assert_eq!(found("sysctls", since - 1, &Value::Null, &spec), expected, "{name}");
            }
        }
        let names = ["kernel.sem", "net.ipv4.tcp_syncookies", "a"].map(|name| json!({"name": name, "value": "1"}));
        let spec = json!({"securityContext": {"sysctls": names}});
        assert_eq!(found("sysctls", 37, &Value::Null, &spec), "forbidden sysctls (kernel.sem, a)");
    }
}
