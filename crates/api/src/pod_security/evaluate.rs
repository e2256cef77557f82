//! Evaluation: a Pod against the checks of a level and version.
//!
//! In: a level, a version, metadata and spec of a Pod or of a Pod template. Out: its violations, with the texts of Kubernetes. Which check
//! exists since which release is in [`CHECKS`].

use serde_json::Value;

use super::checks::{CheckFn, Forbidden, Pod, host, kernel, privileges, profiles, users, volumes};
use super::policy::{Level, LevelVersion, Version};
use crate::value::ValueExt as _;

/// A check that a Pod violates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The id of the check, as in Kubernetes.
    pub check: &'static str,
    /// What is forbidden, in short.
    pub reason: &'static str,
    /// Which parts of the Pod violate the check.
    pub detail: String,
}

/// The violations of a Pod: first those of baseline, then those of restricted, each by the id of the check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Violations(pub Vec<Violation>);

impl Violations {
    /// Whether the Pod is allowed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `hostPort, privileged`: equal for all Pods that violate the same checks.
    #[must_use]
    pub fn reason(&self) -> String {
        self.0.iter().map(|violation| violation.reason).collect::<Vec<_>>().join(", ")
    }

    /// `hostPort (container "c" uses hostPort 80), privileged (…)`.
    #[must_use]
    pub fn detail(&self) -> String {
        let one = |violation: &Violation| format!("{} ({})", violation.reason, violation.detail);
        self.0.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

struct Check {
    id: &'static str,
    level: Level,
    /// The check of baseline that is left out where this one runs.
    overrides: Option<&'static str>,
    /// Minor releases of Kubernetes 1 in rising order, and what is checked from then on.
    revisions: &'static [(u64, CheckFn)],
}

const fn baseline(id: &'static str, revisions: &'static [(u64, CheckFn)]) -> Check {
    Check { id, level: Level::Baseline, overrides: None, revisions }
}

const fn restricted(id: &'static str, revisions: &'static [(u64, CheckFn)]) -> Check {
    Check { id, level: Level::Restricted, overrides: None, revisions }
}

impl Check {
    const fn overriding(self, baseline: &'static str) -> Self {
        Self { overrides: Some(baseline), ..self }
    }
}

/// All checks in the order of their violations.
static CHECKS: &[Check] = &[
    baseline("appArmorProfile", &[(0, profiles::app_armor)]),
    baseline("capabilities_baseline", &[(0, privileges::added_capabilities)]),
    // Specific to Waypost: a container of this image is a process on the file system of the host.
    baseline("hostImage", &[(0, host::image)]),
    baseline("hostNamespaces", &[(0, host::namespaces)]),
    baseline("hostPathVolumes", &[(0, volumes::host_path)]),
    baseline("hostPorts", &[(0, host::ports)]),
    baseline("hostProbesAndHostLifecycle", &[(34, host::probes_and_lifecycle)]),
    baseline("privileged", &[(0, privileges::privileged)]),
    baseline("procMount", &[(0, kernel::proc_mount), (35, |pod| on_host_users(pod, kernel::proc_mount))]),
    baseline("seLinuxOptions", &[(0, profiles::se_linux_1_0), (31, profiles::se_linux_1_31)]),
    baseline("seccompProfile_baseline", &[(0, profiles::seccomp_annotations), (19, profiles::seccomp_baseline)]),
    baseline(
        "sysctls",
        &[
            (0, kernel::sysctls_1_0),
            (27, kernel::sysctls_1_27),
            (29, kernel::sysctls_1_29),
            (32, kernel::sysctls_1_32),
            (37, kernel::sysctls_1_37),
        ],
    ),
    baseline("windowsHostProcess", &[(0, privileges::windows_host_process)]),
    restricted(
        "allowPrivilegeEscalation",
        &[(8, privileges::escalation), (25, |pod| on_linux(pod, privileges::escalation))],
    ),
    restricted(
        "capabilities_restricted",
        &[(22, privileges::capabilities), (25, |pod| on_linux(pod, privileges::capabilities))],
    )
    .overriding("capabilities_baseline"),
    restricted("procMount_restricted", &[(35, kernel::proc_mount)]).overriding("procMount"),
    restricted("restrictedVolumes", &[(0, volumes::types)]).overriding("hostPathVolumes"),
    restricted("runAsNonRoot", &[(0, users::non_root), (35, |pod| on_host_users(pod, users::non_root))]),
    restricted("runAsUser", &[(23, users::user_id), (35, |pod| on_host_users(pod, users::user_id))]),
    restricted(
        "seccompProfile_restricted",
        &[(19, profiles::seccomp_restricted), (25, |pod| on_linux(pod, profiles::seccomp_restricted))],
    )
    .overriding("seccompProfile_baseline"),
];

/// Evaluates a Pod, or a Pod template, against a level and version.
#[must_use]
pub fn evaluate(policy: LevelVersion, metadata: &Value, spec: &Value) -> Violations {
    if policy.level == Level::Privileged {
        return Violations::default();
    }
    let pod = Pod { metadata, spec };
    let find = |(id, check): (&'static str, CheckFn)| {
        check(&pod).map(|found| Violation { check: id, reason: found.reason, detail: found.detail })
    };
    Violations(checks_of(policy).into_iter().filter_map(find).collect())
}

/// The checks of a level and version, with their ids.
fn checks_of(policy: LevelVersion) -> Vec<(&'static str, CheckFn)> {
    let active: Vec<&Check> = CHECKS.iter().filter(|check| check.level <= policy.level).collect();
    let revision = |check: &Check| revision_of(check, policy.version);
    let overridden = |id: &str| active.iter().any(|other| other.overrides == Some(id) && revision(other).is_some());
    let kept = active.iter().filter(|check| !overridden(check.id));
    kept.filter_map(|check| Some((check.id, revision(check)?))).collect()
}

/// What a check checks in a version; none where the check is newer.
fn revision_of(check: &Check, version: Version) -> Option<CheckFn> {
    let applies = |since: u64| Version::V1(since) <= version;
    check.revisions.iter().rev().find(|(since, _)| applies(*since)).map(|(_, check)| *check)
}

/// Runs a check unless the Pod is one for Windows, where its fields do not exist.
fn on_linux(pod: &Pod<'_>, check: CheckFn) -> Option<Forbidden> {
    if pod.spec.text("os.name") == "windows" { None } else { check(pod) }
}

/// Runs a check unless the Pod has a user namespace, where root is not root of the host.
fn on_host_users(pod: &Pod<'_>, check: CheckFn) -> Option<Forbidden> {
    if pod.spec.at("hostUsers") == &Value::Bool(false) { None } else { check(pod) }
}

/// What one check finds at `v1.{minor}`, written out; nothing when the Pod passes or the check is newer.
#[cfg(test)]
pub(super) fn found(id: &str, minor: u64, metadata: &Value, spec: &Value) -> String {
    let check = CHECKS.iter().find(|check| check.id == id).expect("a check of this id");
    let violation = revision_of(check, Version::V1(minor)).and_then(|run| run(&Pod { metadata, spec }));
    violation.map(|found| format!("{} ({})", found.reason, found.detail)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn ids(level: Level, version: Version) -> Vec<&'static str> {
        checks_of(LevelVersion { level, version }).into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn checks_are_ordered_by_level_and_id() {
        let keys: Vec<_> = CHECKS.iter().map(|check| (check.level, check.id)).collect();
        assert!(keys.is_sorted());
        for check in CHECKS {
            assert!(check.revisions.is_sorted_by(|one, other| one.0 < other.0), "{}", check.id);
        }
    }

    #[test]
    fn versions_have_the_checks_of_their_release() {
        let first = [
            "appArmorProfile",
            "capabilities_baseline",
            "hostImage",
            "hostNamespaces",
            "hostPathVolumes",
            "hostPorts",
            "privileged",
            "procMount",
            "seLinuxOptions",
            "seccompProfile_baseline",
            "sysctls",
            "windowsHostProcess",
        ];
        assert_eq!(ids(Level::Baseline, Version::V1(0)), first);
        assert_eq!(ids(Level::Baseline, Version::V1(33)), first);
        assert!(ids(Level::Baseline, Version::V1(34)).contains(&"hostProbesAndHostLifecycle"));
        assert_eq!(ids(Level::Privileged, Version::Latest), Vec::<&str>::new());
        let newest = [
            "appArmorProfile",
            "hostImage",
            "hostNamespaces",
            "hostPorts",
            "hostProbesAndHostLifecycle",
            "privileged",
            "seLinuxOptions",
            "sysctls",
            "windowsHostProcess",
            "allowPrivilegeEscalation",
            "capabilities_restricted",
            "procMount_restricted",
            "restrictedVolumes",
            "runAsNonRoot",
            "runAsUser",
            "seccompProfile_restricted",
        ];
        for version in [Version::V1(37), Version::V1(99), Version::Latest] {
            assert_eq!(ids(Level::Restricted, version), newest, "{version}");
        }
    }

    #[test]
    fn restricted_checks_replace_those_of_baseline_from_their_release_on() {
        for (minor, baseline, restricted) in [
            (21, "capabilities_baseline", "capabilities_restricted"),
            (34, "procMount", "procMount_restricted"),
            (18, "seccompProfile_baseline", "seccompProfile_restricted"),
        ] {
            let before = ids(Level::Restricted, Version::V1(minor));
            assert!(before.contains(&baseline) && !before.contains(&restricted), "{minor}");
            let after = ids(Level::Restricted, Version::V1(minor + 1));
            assert!(!after.contains(&baseline) && after.contains(&restricted), "{minor}");
        }
        assert!(!ids(Level::Restricted, Version::V1(0)).contains(&"hostPathVolumes"));
    }

    #[test]
    fn violations_are_joined() {
        let spec = json!({
            "hostNetwork": true,
            "containers": [{"name": "c", "image": "i", "securityContext": {"privileged": true}}],
        });
        let baseline = LevelVersion { level: Level::Baseline, version: Version::Latest };
        let violations = evaluate(baseline, &Value::Null, &spec);
        assert_eq!(violations.reason(), "host namespaces, privileged");
        assert_eq!(
            violations.detail(),
            "host namespaces (hostNetwork=true), privileged (container \"c\" must not set \
             securityContext.privileged=true)"
        );
        let ids: Vec<_> = violations.0.iter().map(|violation| violation.check).collect();
        assert_eq!(ids, ["hostNamespaces", "privileged"]);
        assert!(evaluate(LevelVersion::default(), &Value::Null, &spec).is_empty());
    }

    fn arbitrary_value() -> impl Strategy<Value = Value> {
        let names = [
            "containers",
            "name",
            "image",
            "securityContext",
            "capabilities",
            "add",
            "drop",
            "volumes",
            "hostPath",
            "os",
            "sysctls",
            "seccompProfile",
            "type",
            "ports",
            "hostPort",
            "lifecycle",
            "preStop",
            "httpGet",
            "host",
            "annotations",
            "runAsUser",
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from)
        ];
        leaf.prop_recursive(6, 64, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((prop::sample::select(names.to_vec()), inner), 0..5)
                    .prop_map(|pairs| pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn values_of_any_shape_are_evaluated(metadata in arbitrary_value(), spec in arbitrary_value(), minor in 0..40_u64) {
            for level in [Level::Baseline, Level::Restricted] {
                let violations = evaluate(LevelVersion { level, version: Version::V1(minor) }, &metadata, &spec);
                prop_assert_eq!(violations.is_empty(), violations.detail().is_empty());
                prop_assert!(violations.0.iter().all(|violation| !violation.detail.is_empty()));
            }
        }
    }
}
