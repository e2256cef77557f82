//! Profiles that confine a Pod: AppArmor, seccomp, SELinux.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Forbidden, Pod, containers, plural, quoted, setters};
use crate::field::quote;
use crate::value::ValueExt as _;

const APP_ARMOR_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_PREFIX: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// Types of AppArmor and seccomp profiles that confine.
const CONFINED: [&str; 2] = ["RuntimeDefault", "Localhost"];
const SE_LINUX_1_0: &[&str] = &["", "container_t", "container_init_t", "container_kvm_t"];
const SE_LINUX_1_31: &[&str] = &["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

/// The profiles of a Pod and its containers: those of other types than [`CONFINED`], and containers without one.
struct Profiles<'a> {
    pod: &'a Value,
    bad_containers: Vec<&'a str>,
    bad_types: BTreeSet<&'a str>,
    unset_containers: Vec<&'a str>,
}

impl<'a> Profiles<'a> {
    fn read(pod: &Pod<'a>, field: &'static str) -> Self {
        let (own, set) = pod.own_and_containers(field);
        let (mut bad_containers, mut unset_containers) = (Vec::new(), Vec::new());
        let mut bad_types = BTreeSet::new();
        if is_unconfined(own) {
            bad_types.insert(own.text("type"));
        }
        for (name, profile) in set {
            if profile.is_null() {
                unset_containers.push(name);
            } else if is_unconfined(profile) {
                bad_containers.push(name);
                bad_types.insert(profile.text("type"));
            }
        }
        Self { pod: own, bad_containers, bad_types, unset_containers }
    }

    fn setters(&self) -> Option<String> {
        setters(is_unconfined(self.pod), &self.bad_containers)
    }

    fn forbidden_seccomp(&self) -> Option<Forbidden> {
        let (setters, types) = (self.setters()?, quoted(&self.bad_types));
        let detail = format!("{setters} must not set securityContext.seccompProfile.type to {types}");
        Some(Forbidden { reason: "seccompProfile", detail })
    }
}

/// Whether a profile is set, and to a type that does not confine.
fn is_unconfined(profile: &Value) -> bool {
    !profile.is_null() && !CONFINED.contains(&profile.text("type"))
}

/// AppArmor may not be disabled, neither by fields nor by annotations.
pub(in super::super) fn app_armor(pod: &Pod<'_>) -> Option<Forbidden> {
    let profiles = Profiles::read(pod, "appArmorProfile");
    let confined = |value: &str| value.is_empty() || value == "runtime/default" || value.starts_with("localhost/");
    let annotations = pod.metadata.map("annotations").into_iter().flatten();
    let annotations = annotations.map(|(key, value)| (key, value.as_str().unwrap_or_default()));
    let bad = annotations.filter(|(key, value)| key.starts_with(APP_ARMOR_PREFIX) && !confined(value));
    let mut bad: Vec<String> = bad.map(|(key, value)| annotation(key, value)).collect();
    bad.sort_unstable();
    let by_annotation = (!bad.is_empty()).then(|| plural(bad.len(), "annotation", "annotations").to_owned());
    let setters: Vec<String> = profiles.setters().into_iter().chain(by_annotation).collect();
    let values: Vec<&str> = profiles.bad_types.iter().copied().chain(bad.iter().map(String::as_str)).collect();
    (!setters.is_empty()).then(|| Forbidden {
        reason: plural(values.len(), "forbidden AppArmor profile", "forbidden AppArmor profiles"),
        detail: format!("{} must not set AppArmor profile type to {}", setters.join(" and "), quoted(&values)),
    })
}

/// Seccomp may not be disabled by annotations, which the fields replaced in 1.19.
pub(in super::super) fn seccomp_annotations(pod: &Pod<'_>) -> Option<Forbidden> {
    let confined =
        |value: &str| ["runtime/default", "docker/default"].contains(&value) || value.starts_with("localhost/");
    let of_containers = pod.containers().map(|container| format!("{SECCOMP_PREFIX}{}", container.text("name")));
    let mut bad = BTreeSet::new();
    for key in std::iter::once(SECCOMP_POD.to_owned()).chain(of_containers) {
        match pod.metadata.at("annotations").get(&key).and_then(Value::as_str) {
            Some(value) if !confined(value) => bad.insert(annotation(&key, value)),
            _ => continue,
        };
    }
    let words = plural(bad.len(), "annotation", "annotations");
    let list = bad.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    (!bad.is_empty()).then(|| Forbidden { reason: "seccompProfile", detail: format!("forbidden {words} {list}") })
}

/// `key="value"`
fn annotation(key: &str, value: &str) -> String {
    format!("{key}={}", quote(value))
}

/// Seccomp may not be disabled.
pub(in super::super) fn seccomp_baseline(pod: &Pod<'_>) -> Option<Forbidden> {
    Profiles::read(pod, "seccompProfile").forbidden_seccomp()
}

/// Containers must have a seccomp profile that confines, of their own or of the Pod.
pub(in super::super) fn seccomp_restricted(pod: &Pod<'_>) -> Option<Forbidden> {
    let profiles = Profiles::read(pod, "seccompProfile");
    let unset = &profiles.unset_containers;
    let must_set = || {
        let who = containers(unset);
        let detail =
            format!("pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"");
        Forbidden { reason: "seccompProfile", detail }
    };
    let is_missing = profiles.pod.is_null() && !unset.is_empty();
    profiles.forbidden_seccomp().or_else(|| is_missing.then(must_set))
}

/// User and role of SELinux may not be set, and its type only to some.
fn se_linux(pod: &Pod<'_>, allowed: &[&str]) -> Option<Forbidden> {
    let (own, set) = pod.own_and_containers("seLinuxOptions");
    let bad_type = |options: &Value| !allowed.contains(&options.text("type"));
    let is_set = |options: &Value, field: &str| !options.text(field).is_empty();
    let is_bad = |options: &Value| bad_type(options) || is_set(options, "user") || is_set(options, "role");
    let bad: Vec<(&str, &Value)> = set.filter(|(_, options)| is_bad(options)).collect();
    let setters = setters(is_bad(own), &bad.iter().map(|(name, _)| *name).collect::<Vec<_>>())?;

    let all = || std::iter::once(own).chain(bad.iter().map(|(_, options)| *options));
    let types: BTreeSet<&str> = all().filter(|options| bad_type(options)).map(|options| options.text("type")).collect();
    let mut faults = Vec::new();
    if !types.is_empty() {
        faults.push(format!("{} {}", plural(types.len(), "type", "types"), quoted(&types)));
    }
    for field in ["user", "role"] {
        if all().any(|options| is_set(options, field)) {
            faults.push(format!("{field} may not be set"));
        }
    }
    let detail = format!("{setters} set forbidden securityContext.seLinuxOptions: {}", faults.join("; "));
    Some(Forbidden { reason: "seLinuxOptions", detail })
}

pub(in super::super) fn se_linux_1_0(pod: &Pod<'_>) -> Option<Forbidden> {
    se_linux(pod, SE_LINUX_1_0)
}

pub(in super::super) fn se_linux_1_31(pod: &Pod<'_>) -> Option<Forbidden> {
    se_linux(pod, SE_LINUX_1_31)
}

#[cfg(test)]
mod tests;
