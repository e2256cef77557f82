//! Semantic versions, read as Kubernetes' library does.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::format_string::go_quote;
use super::{any, text};
use crate::budget::{Budget, Stop};
use crate::declare::{Functions, Native, global, member};
use crate::types::Type;
use crate::value::Value;

const NAME: &str = "kubernetes.Semver";

/// A semantic version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Version {
    numbers: [u64; 3],
    pre: Vec<Pre>,
    build: Vec<String>,
}

/// A part of a pre-release. Numbers sort before text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Pre {
    Number(u64),
    Word(String),
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        for (nth, pre) in self.pre.iter().enumerate() {
            f.write_str(if nth == 0 { "-" } else { "." })?;
            match pre {
                Pre::Number(number) => write!(f, "{number}")?,
                Pre::Word(word) => f.write_str(word)?,
            }
        }
        for (nth, build) in self.build.iter().enumerate() {
            write!(f, "{}{build}", if nth == 0 { "+" } else { "." })?;
        }
        Ok(())
    }
}

impl Version {
    /// The order of two versions; build metadata does not count.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            _ => self.pre.cmp(&other.pre),
        })
    }

    /// # Errors
    /// What is wrong with the version.
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let major = number(major, "Major", "major")?;
        let minor = number(minor, "Minor", "minor")?;
        let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
        let (patch, pre) = rest.split_once('-').map_or((rest, None), |(patch, pre)| (patch, Some(pre)));
        let patch = number(patch, "Patch", "patch")?;
        let pre = pre.into_iter().flat_map(|pre| pre.split('.')).map(Pre::parse).collect::<Result<_, _>>()?;
        let build = build.into_iter().flat_map(|build| build.split('.')).map(|part| match part {
            "" => Err("Build meta data is empty".to_owned()),
            part if is_word(part) => Ok(part.to_owned()),
            part => Err(format!("Invalid character(s) found in build meta data {}", go_quote(part))),
        });
        Ok(Self { numbers: [major, minor, patch], pre, build: build.collect::<Result<_, _>>()? })
    }

    /// Removes a leading `v` and leading zeros, and completes short versions.
    fn parse_normalized(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
        if parts.len() < 3 {
            if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
                return Err("short version cannot contain PreRelease/Build meta data".to_owned());
            }
            parts.resize(3, "0".to_owned());
        }
        Self::parse(&parts.join("."))
    }
}

fn without_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let trimmed = part.trim_start_matches('0');
    if trimmed.starts_with(|c: char| c.is_ascii_digit()) { trimmed.to_owned() } else { format!("0{trimmed}") }
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn number(text: &str, upper: &str, lower: &str) -> Result<u64, String> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {lower} number {}", go_quote(text)));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{upper} number must not contain leading zeroes {}", go_quote(text)));
    }
    parse_uint(text)
}

fn parse_uint(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        let why = if text.is_empty() { "invalid syntax" } else { "value out of range" };
        format!("strconv.ParseUint: parsing {}: {why}", go_quote(text))
    })
}

impl Pre {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Prerelease is empty".to_owned());
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            if text.len() > 1 && text.starts_with('0') {
                let shown = go_quote(text);
                return Err(format!("Numeric PreRelease version must not contain leading zeroes {shown}"));
            }
            return parse_uint(text).map(Self::Number);
        }
        if is_word(text) {
            return Ok(Self::Word(text.to_owned()));
        }
        Err(format!("Invalid character(s) found in prerelease {}", go_quote(text)))
    }
}

pub(super) fn add(all: &mut Functions) {
    let version = || Type::object(NAME);
    all.add(
        "semver",
        [
            global("string_to_semver", &[Type::String], version(), semver),
            global("string_bool_to_semver", &[Type::String, Type::Bool], version(), semver),
        ],
    );
    all.add(
        "isSemver",
        [
            global("is_semver_string", &[Type::String], Type::Bool, is_semver),
            global("is_semver_string_bool", &[Type::String, Type::Bool], Type::Bool, is_semver),
        ],
    );
    let pair = [version(), version()];
    let comparisons: [(&str, &str, Type, Native); 3] = [
        ("isGreaterThan", "semver_is_greater_than", Type::Bool, |_, args| Ok(Value::Bool(order(args)?.is_gt()))),
        ("isLessThan", "semver_is_less_than", Type::Bool, |_, args| Ok(Value::Bool(order(args)?.is_lt()))),
        ("compareTo", "semver_compare_to", Type::Int, |_, args| Ok(Value::Int(order(args)? as i64))),
    ];
    for (name, id, result, code) in comparisons {
        all.add(name, [member(id, &pair, result, code)]);
    }
    let parts: [(&str, &str, Native); 3] = [
        ("major", "semver_major", |_, args| part(args, 0)),
        ("minor", "semver_minor", |_, args| part(args, 1)),
        ("patch", "semver_patch", |_, args| part(args, 2)),
    ];
    for (name, id, code) in parts {
        all.add(name, [member(id, &[version()], Type::Int, code)]);
    }
}

fn read(args: &[Value<'_>]) -> Result<Result<Version, String>, Stop> {
    let written = text(args, 0)?;
    let normalize = args.get(1).and_then(Value::as_bool).unwrap_or(false);
    Ok(if normalize { Version::parse_normalized(written) } else { Version::parse(written) })
}

fn semver<'a>(_: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    Ok(Value::Semver(Arc::new(read(args)??)))
}

fn is_semver<'a>(_: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    Ok(Value::Bool(read(args)?.is_ok()))
}

fn of<'v>(args: &'v [Value<'_>], index: usize) -> Result<&'v Version, Stop> {
    match any(args, index)? {
        Value::Semver(version) => Ok(version),
        _ => Err(Stop::no_such_overload()),
    }
}

fn order(args: &[Value<'_>]) -> Result<Ordering, Stop> {
    Ok(of(args, 0)?.order(of(args, 1)?))
}

fn part<'a>(args: &[Value<'a>], index: usize) -> Result<Value<'a>, Stop> {
    let number = of(args, 0)?.numbers.get(index).copied().unwrap_or(0);
    Ok(Value::Int(number.cast_signed()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn versions_are_read_and_ordered() {
        let sorted = [
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0",
            "1.0.1",
            "2.0.0",
        ];
        let versions: Vec<Version> = sorted.iter().map(|text| Version::parse(text).expect("a version")).collect();
        for pair in versions.windows(2) {
            assert_eq!(pair[0].order(&pair[1]), Ordering::Less, "{} {}", pair[0], pair[1]);
        }
        assert_eq!(
            Version::parse("1.2.3+a").map(|v| v.order(&Version::parse("1.2.3+b").expect("a version"))),
            Ok(Ordering::Equal)
        );
        assert_eq!(Version::parse_normalized("v01.2").map(|version| version.to_string()).as_deref(), Ok("1.2.0"));
        assert!(Version::parse_normalized("1-a").is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in "[v0-9.+a-c-]{0,16}") {
            if let Ok(version) = Version::parse(&text) {
                prop_assert_eq!(version.to_string(), text.clone());
            }
            let _ = Version::parse_normalized(&text);
        }
    }
}
