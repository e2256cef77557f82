//! Privileges of the processes of a Pod: privileged containers, capabilities, privilege escalation, Windows HostProcess.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Forbidden, Pod, containers, quoted, setters};
use crate::value::ValueExt as _;

/// The capabilities that container runtimes grant by default.
const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// No container may be privileged.
pub(in super::super) fn privileged(pod: &Pod<'_>) -> Option<Forbidden> {
    let bad = pod.containers_that(|container| container.flag("securityContext.privileged"));
    (!bad.is_empty()).then(|| Forbidden {
        reason: "privileged",
        detail: format!("{} must not set securityContext.privileged=true", containers(&bad)),
    })
}

/// Containers must set `allowPrivilegeEscalation: false`.
pub(in super::super) fn escalation(pod: &Pod<'_>) -> Option<Forbidden> {
    let field = "securityContext.allowPrivilegeEscalation";
    let bad = pod.containers_that(|container| container.at(field) != &Value::Bool(false));
    (!bad.is_empty()).then(|| Forbidden {
        reason: "allowPrivilegeEscalation != false",
        detail: format!("{} must set {field}=false", containers(&bad)),
    })
}

/// Neither the Pod nor a container may be a HostProcess of Windows.
pub(in super::super) fn windows_host_process(pod: &Pod<'_>) -> Option<Forbidden> {
    let field = "securityContext.windowsOptions.hostProcess";
    let bad = pod.containers_that(|container| container.flag(field));
    let setters = setters(pod.spec.flag(field), &bad)?;
    Some(Forbidden { reason: "hostProcess", detail: format!("{setters} must not set {field}=true") })
}

/// Only default capabilities may be added.
pub(in super::super) fn added_capabilities(pod: &Pod<'_>) -> Option<Forbidden> {
    let detail = added_beyond(pod, &DEFAULT_CAPABILITIES)?;
    Some(Forbidden { reason: "non-default capabilities", detail })
}

/// All capabilities must be dropped, and only `NET_BIND_SERVICE` may be added.
pub(in super::super) fn capabilities(pod: &Pod<'_>) -> Option<Forbidden> {
    let drops_all = |container: &Value| container.texts("securityContext.capabilities.drop").contains(&"ALL");
    let keeping = pod.containers_that(|container| !drops_all(container));
    let must_drop = || format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", containers(&keeping));
    let details = [(!keeping.is_empty()).then(must_drop), added_beyond(pod, &["NET_BIND_SERVICE"])];
    let details: Vec<String> = details.into_iter().flatten().collect();
    (!details.is_empty()).then(|| Forbidden { reason: "unrestricted capabilities", detail: details.join("; ") })
}

/// Which containers add other capabilities than these.
fn added_beyond(pod: &Pod<'_>, allowed: &[&str]) -> Option<String> {
    let mut names = Vec::new();
    let mut forbidden = BTreeSet::new();
    for container in pod.containers() {
        let mut added = container.texts("securityContext.capabilities.add");
        added.retain(|capability| !allowed.contains(capability));
        if !added.is_empty() {
            names.push(container.text("name"));
            forbidden.extend(added);
        }
    }
    (!names.is_empty()).then(|| {
        format!("{} must not include {} in securityContext.capabilities.add", containers(&names), quoted(&forbidden))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::pod_security::evaluate::found;

    fn containers(contexts: &[Value]) -> Value {
        let names = ["a", "b", "c"];
        let list = contexts.iter().zip(names).map(|(context, name)| json!({"name": name, "securityContext": context}));
        json!({"containers": list.collect::<Vec<_>>()})
    }

    #[test]
    fn privileged() {
        for (spec, expected) in [
            (containers(&[Value::Null, json!({}), json!({"privileged": false})]), ""),
            (
                containers(&[json!({"privileged": true}), json!({"privileged": null})]),
                "privileged (container \"a\" must not set securityContext.privileged=true)",
            ),
            (
                containers(&[json!({"privileged": true}), Value::Null, json!({"privileged": true})]),
                "privileged (containers \"a\", \"c\" must not set securityContext.privileged=true)",
            ),
        ] {
            for minor in [0, 37] {
                assert_eq!(found("privileged", minor, &Value::Null, &spec), expected, "{spec}");
            }
        }
    }

    #[test]
    fn escalation() {
        let good = containers(&[json!({"allowPrivilegeEscalation": false})]);
        let bad = containers(&[Value::Null, json!({"allowPrivilegeEscalation": true})]);
        let text = "allowPrivilegeEscalation != false (containers \"a\", \"b\" must set \
                    securityContext.allowPrivilegeEscalation=false)";
        let mut windows = bad.clone();
        windows["os"] = json!({"name": "windows"});
        for (minor, spec, expected) in [
            (7, &bad, ""),
            (8, &bad, text),
            (24, &windows, text),
            (25, &windows, ""),
            (25, &bad, text),
            (37, &bad, text),
            (37, &good, ""),
        ] {
            assert_eq!(found("allowPrivilegeEscalation", minor, &Value::Null, spec), expected, "{minor} {spec}");
        }
    }

    #[test]
    fn windows_host_process() {
        let process = |on: bool| json!({"windowsOptions": {"hostProcess": on}});
        let mut both = containers(&[process(true), process(false), process(true)]);
        both["securityContext"] = process(true);
        for (spec, expected) in [
            (containers(&[process(false), json!({"windowsOptions": {}})]), ""),
            (containers(&[process(true)]), "container \"a\""),
            (json!({"securityContext": process(true)}), "pod"),
            (both, "pod and containers \"a\", \"c\""),
        ] {
            let expected = match expected {
                "" => String::new(),
                who => format!("hostProcess ({who} must not set securityContext.windowsOptions.hostProcess=true)"),
            };
            assert_eq!(found("windowsHostProcess", 0, &Value::Null, &spec), expected, "{spec}");
        }
    }

    #[test]
    fn added_capabilities() {
        let add = |list: &[&str]| json!({"capabilities": {"add": list}});
        for (spec, expected) in [
            (containers(&[add(&["CHOWN", "NET_BIND_SERVICE", "SYS_CHROOT"]), add(&[]), Value::Null]), ""),
            (
                containers(&[add(&["NET_RAW", "CHOWN", "CAP_CHOWN"])]),
                "non-default capabilities (container \"a\" must not include \"CAP_CHOWN\", \"NET_RAW\" in \
                 securityContext.capabilities.add)",
            ),
            (
                containers(&[add(&["b"]), add(&["KILL"]), add(&["a", "b"])]),
                "non-default capabilities (containers \"a\", \"c\" must not include \"a\", \"b\" in \
                 securityContext.capabilities.add)",
            ),
        ] {
            for minor in [0, 37] {
                assert_eq!(found("capabilities_baseline", minor, &Value::Null, &spec), expected, "{spec}");
            }
        }
    }

    #[test]
    fn capabilities() {
        let set = |drop: &[&str], add: &[&str]| json!({"capabilities": {"drop": drop, "add": add}});
        let good = containers(&[set(&["ALL"], &[]), set(&["KILL", "ALL"], &["NET_BIND_SERVICE"])]);
        let kept = containers(&[Value::Null, set(&["all"], &[]), set(&["ALL"], &[])]);
        let added = containers(&[set(&["ALL"], &["NET_BIND_SERVICE", "KILL"])]);
        let both = containers(&[set(&[], &["B"]), set(&["ALL"], &["A"])]);
        let mut windows = kept.clone();
        windows["os"] = json!({"name": "windows"});
        let dropped =
            "unrestricted capabilities (containers \"a\", \"b\" must set securityContext.capabilities.drop=[\"ALL\"])";
        for (minor, spec, expected) in [
            (21, &kept, ""),
            (22, &good, ""),
            (22, &kept, dropped),
            (24, &windows, dropped),
            (25, &windows, ""),
            (
                37,
                &added,
                "unrestricted capabilities (container \"a\" must not include \"KILL\" in securityContext.capabilities.add)",
            ),
            (
                37,
                &both,
                "unrestricted capabilities (container \"a\" must set securityContext.capabilities.drop=[\"ALL\"]; \
                 containers \"a\", \"b\" must not include \"A\", \"B\" in securityContext.capabilities.add)",
            ),
        ] {
            assert_eq!(found("capabilities_restricted", minor, &Value::Null, spec), expected, "{minor} {spec}");
        }
    }
}
