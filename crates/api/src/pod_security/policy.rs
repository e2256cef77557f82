//! Levels, versions and the policy of a Namespace.
//!
//! In: labels `pod-security.kubernetes.io/{enforce,audit,warn}` and `…-version`. Out: a [`Policy`], and field errors for labels with bad
//! values. There is a policy in any case: a bad level means `restricted` for enforce and `privileged` for audit and warn, a bad version
//! means `latest`.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use serde_json::Value;

use crate::field::{Errors, Path};

/// Prefix of the labels, and of the keys of audit annotations.
pub const PREFIX: &str = "pod-security.kubernetes.io/";

pub(super) const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
pub(super) const ENFORCE_VERSION: &str = "pod-security.kubernetes.io/enforce-version";
pub(super) const AUDIT: &str = "pod-security.kubernetes.io/audit";
pub(super) const AUDIT_VERSION: &str = "pod-security.kubernetes.io/audit-version";
pub(super) const WARN: &str = "pod-security.kubernetes.io/warn";
pub(super) const WARN_VERSION: &str = "pod-security.kubernetes.io/warn-version";

/// A Pod Security Standard. A greater level is stricter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Level {
    /// Nothing is checked.
    #[default]
    Privileged,
    /// Known privilege escalations are forbidden.
    Baseline,
    /// Hardening is required.
    Restricted,
}

impl Display for Level {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        })
    }
}

impl FromStr for Level {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "privileged" => Ok(Self::Privileged),
            "baseline" => Ok(Self::Baseline),
            "restricted" => Ok(Self::Restricted),
            _ => Err("must be one of privileged, baseline, restricted"),
        }
    }
}

/// The release of Kubernetes whose checks apply. A greater version is newer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Version {
    /// `v1.N`; a release after the newest known one has the checks of the newest known one.
    V1(u64),
    /// `latest`
    #[default]
    Latest,
}

impl Display for Version {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::V1(minor) => write!(f, "v1.{minor}"),
            Self::Latest => f.write_str("latest"),
        }
    }
}

impl FromStr for Version {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "latest" {
            return Ok(Self::Latest);
        }
        let decimal =
            |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
        let minor = text.strip_prefix("v1.").filter(decimal).and_then(|minor| minor.parse().ok());
        // Kubernetes holds the number in a signed integer.
        let minor = minor.filter(|minor| *minor <= i64::MAX.unsigned_abs());
        minor.map(Self::V1).ok_or("must be \"latest\" or \"v1.x\"")
    }
}

/// What one mode applies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LevelVersion {
    /// The standard.
    pub level: Level,
    /// The revision of the standard.
    pub version: Version,
}

impl Display for LevelVersion {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level, self.version)
    }
}

impl LevelVersion {
    /// Whether both mean the same: all versions of `privileged` do.
    fn is_equivalent(&self, other: &Self) -> bool {
        (self.level == Level::Privileged && other.level == Level::Privileged) || self == other
    }
}

/// What applies to the Pods of a Namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// Pods that violate this are refused.
    pub enforce: LevelVersion,
    /// Objects that violate this are marked in the audit log.
    pub audit: LevelVersion,
    /// Requests with objects that violate this are answered with a warning.
    pub warn: LevelVersion,
}

impl Policy {
    /// Reads the `metadata.labels` of a Namespace. Where a label is missing the default applies, and `warn` is at least as strict as an
    /// explicit `enforce`.
    #[must_use]
    pub fn read(labels: &Value, defaults: &Self) -> (Self, Errors) {
        let mut errors = Errors::default();
        let mut policy = *defaults;
        let level = parse::<Level>(labels, ENFORCE, &mut errors);
        let enforced = level.flatten();
        if let Some(level) = level {
            policy.enforce.level = level.unwrap_or(Level::Restricted);
        }
        read_version(labels, ENFORCE_VERSION, &mut policy.enforce, &mut errors);
        if let Some(level) = parse::<Level>(labels, AUDIT, &mut errors) {
            policy.audit.level = level.unwrap_or(Level::Privileged);
        }
        read_version(labels, AUDIT_VERSION, &mut policy.audit, &mut errors);
        let warn = parse::<Level>(labels, WARN, &mut errors);
        if let Some(level) = warn {
            policy.warn.level = level.unwrap_or(Level::Privileged);
        }
        read_version(labels, WARN_VERSION, &mut policy.warn, &mut errors);
        if warn.is_none() && enforced.is_some_and(|level| level > policy.warn.level) {
            policy.warn.level = policy.enforce.level;
            if labels.get(WARN_VERSION).is_none() {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors)
    }

    /// Whether no mode checks anything.
    #[must_use]
    pub fn is_fully_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|mode| mode.level == Level::Privileged)
    }

    /// Whether both mean the same in every mode.
    #[must_use]
    pub fn is_equivalent(&self, other: &Self) -> bool {
        self.enforce.is_equivalent(&other.enforce)
            && self.audit.is_equivalent(&other.audit)
            && self.warn.is_equivalent(&other.warn)
    }
}

/// The value of a label: none without the label, none inside when it is bad.
#[expect(clippy::option_option, reason = "an absent label and a bad one have different defaults")]
fn parse<T: FromStr<Err = &'static str>>(labels: &Value, label: &str, errors: &mut Errors) -> Option<Option<T>> {
    let text = labels.get(label)?.as_str()?;
    let value = text.parse();
    if let Err(why) = value {
        errors.invalid(&Path::Root("metadata.labels").key(label), text, why);
    }
    Some(value.ok())
}

fn read_version(labels: &Value, label: &str, mode: &mut LevelVersion, errors: &mut Errors) {
    if let Some(version) = parse::<Version>(labels, label, errors) {
        mode.version = version.unwrap_or(Version::Latest);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(labels: &[(&str, &str)]) -> (String, String) {
        let labels = labels.iter().map(|(key, value)| (format!("{PREFIX}{key}"), Value::from(*value))).collect();
        let (policy, errors) = Policy::read(&Value::Object(labels), &Policy::default());
        let text = format!("{} {} {}", policy.enforce, policy.audit, policy.warn);
        (text, if errors.is_empty() { String::new() } else { errors.summary() })
    }

    #[test]
    fn labels_override_the_defaults() {
        for (labels, expected) in [
            (&[][..], "privileged:latest privileged:latest privileged:latest"),
            (&[("enforce", "baseline")], "baseline:latest privileged:latest baseline:latest"),
            (
                &[("enforce", "restricted"), ("enforce-version", "v1.22")],
                "restricted:v1.22 privileged:latest restricted:v1.22",
            ),
            (
                &[("enforce", "baseline"), ("enforce-version", "v1.22"), ("warn-version", "v1.30")],
                "baseline:v1.22 privileged:latest baseline:v1.30",
            ),
            (&[("enforce", "restricted"), ("warn", "baseline")], "restricted:latest privileged:latest baseline:latest"),
            (&[("enforce-version", "v1.0")], "privileged:v1.0 privileged:latest privileged:latest"),
            (
                &[
                    ("audit", "restricted"),
                    ("audit-version", "v1.99"),
                    ("warn", "baseline"),
                    ("warn-version", "latest"),
                ],
                "privileged:latest restricted:v1.99 baseline:latest",
            ),
        ] {
            assert_eq!(read(labels), (expected.to_owned(), String::new()), "{labels:?}");
        }
    }

    #[test]
    fn defaults_apply_without_labels() {
        let restricted = LevelVersion { level: Level::Restricted, version: Version::V1(30) };
        let defaults = Policy { warn: restricted, ..Policy::default() };
        for labels in [json!({}), Value::Null] {
            assert_eq!(Policy::read(&labels, &defaults), (defaults, Errors::default()));
        }
        // A default that is stricter than an explicit enforce stays.
        let (policy, _) = Policy::read(&json!({ENFORCE: "baseline"}), &defaults);
        assert_eq!((policy.enforce.level, policy.warn), (Level::Baseline, restricted));
    }

    #[test]
    fn bad_labels_fail_closed_for_enforce_only() {
        let (policy, errors) = read(&[("enforce", "frob"), ("audit", ""), ("warn", "x")]);
        assert_eq!(policy, "restricted:latest privileged:latest privileged:latest");
        assert_eq!(
            errors,
            "[metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"frob\": must be one of privileged, \
             baseline, restricted, metadata.labels[pod-security.kubernetes.io/audit]: Invalid value: \"\": must be one of \
             privileged, baseline, restricted, metadata.labels[pod-security.kubernetes.io/warn]: Invalid value: \"x\": must \
             be one of privileged, baseline, restricted]"
        );
        // A bad enforce has no influence on warn.
        assert_eq!(read(&[("enforce", "Baseline")]).0, "restricted:latest privileged:latest privileged:latest");
        let (policy, errors) = read(&[("enforce", "baseline"), ("enforce-version", "1.30")]);
        assert_eq!(policy, "baseline:latest privileged:latest baseline:latest");
        assert_eq!(
            errors,
            "metadata.labels[pod-security.kubernetes.io/enforce-version]: Invalid value: \"1.30\": must be \"latest\" or \
             \"v1.x\""
        );
    }

    #[test]
    fn versions() {
        for (text, expected) in [
            ("latest", Some(Version::Latest)),
            ("v1.0", Some(Version::V1(0))),
            ("v1.37", Some(Version::V1(37))),
            ("v1.9223372036854775807", Some(Version::V1(i64::MAX.unsigned_abs()))),
            ("v1.9223372036854775808", None),
            ("v1.01", None),
            ("v1.00", None),
            ("v1.", None),
            ("v1.+1", None),
            ("v1.1 ", None),
            ("v1.1.0", None),
            ("v2.0", None),
            ("V1.0", None),
            ("", None),
        ] {
            assert_eq!(text.parse().ok(), expected, "{text:?}");
        }
        assert!(Version::V1(9) < Version::V1(10) && Version::V1(u64::MAX) < Version::Latest);
    }

    proptest! {
        #[test]
        fn parsers_accept_what_they_print(text in ".*", minor in 0..u64::MAX / 2) {
            if let Ok(version) = text.parse::<Version>() {
                prop_assert_eq!(version.to_string(), text.clone());
            }
            if let Ok(level) = text.parse::<Level>() {
                prop_assert_eq!(level.to_string(), text);
            }
            prop_assert_eq!(Version::V1(minor).to_string().parse(), Ok(Version::V1(minor)));
        }
    }
}
