//! Annotations of an Ingress as typed values. A value that cannot be read is a finding, and counts as absent.

use std::net::IpAddr;
use std::time::Duration;

use api::view::StringMap;
use api::view::ingress::setting;
use ipnet::IpNet;

use super::{Finding, Reason};
use crate::policy::source_range;

/// Reads annotations, and collects what is wrong with them.
pub(super) struct Reader<'a> {
    pub(super) annotations: &'a StringMap,
    /// What is wrong so far.
    pub(super) findings: Vec<Finding>,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(annotations: &'a StringMap) -> Self {
        Self { annotations, findings: Vec::new() }
    }

    /// The value with one of both prefixes, without the spaces around it; none when it is empty.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        setting(self.annotations, key)
    }

    /// The value of the first key that is present.
    pub(super) fn any<'k>(&self, keys: &[&'k str]) -> Option<(&'k str, &'a str)> {
        keys.iter().find_map(|key| self.text(key).map(|text| (*key, text)))
    }

    /// Notes a value that is not what it should be.
    pub(super) fn reject(&mut self, key: &str, what: impl std::fmt::Display) {
        let value = self.text(key).unwrap_or_default();
        self.find(Reason::AnnotationInvalid, format!("annotation {key}: {what}, not `{value}`; it is ignored"));
    }

    /// Notes a finding.
    pub(super) fn find(&mut self, reason: Reason, message: String) {
        self.findings.push(Finding { reason, message });
    }

    /// The value, parsed.
    pub(super) fn parse<T>(&mut self, key: &str, what: &str, parse: impl FnOnce(&'a str) -> Option<T>) -> Option<T> {
        let text = self.text(key)?;
        let value = parse(text);
        if value.is_none() {
            self.reject(key, format_args!("the value must be {what}"));
        }
        value
    }

    /// A boolean, in the forms that Go accepts.
    pub(super) fn flag(&mut self, key: &str) -> Option<bool> {
        self.parse(key, "true or false", |text| match text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
            _ => None,
        })
    }

    /// A number of at least 0.
    pub(super) fn number(&mut self, key: &str) -> Option<u32> {
        self.parse(key, "a number of at least 0", |text| text.parse().ok())
    }

    /// A number of seconds of at least 1.
    pub(super) fn seconds(&mut self, key: &str) -> Option<Duration> {
        let parse = |text: &str| text.parse().ok().filter(|seconds| *seconds > 0).map(Duration::from_secs);
        self.parse(key, "a number of seconds of at least 1", parse)
    }

    /// A number of bytes, with `k`, `m` or `g` after it.
    pub(super) fn size(&mut self, key: &str) -> Option<u64> {
        self.parse(key, "a size such as 1048576, 1024k, 8m or 1g", size)
    }

    /// Values that commas separate, without the spaces around them.
    pub(super) fn list(&self, key: &str) -> Option<Vec<Box<str>>> {
        self.text(key).map(|text| parts(text).map(Into::into).collect())
    }
}

/// The parts of a list that commas separate.
pub(super) fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// Address ranges that commas separate; none when one of them is malformed, or when there is no range at all.
pub(super) fn ranges(text: &str) -> Option<Vec<IpNet>> {
    let range = |part: &str| {
        let address = |part: &str| part.parse::<IpAddr>().ok().map(IpNet::from);
        part.parse::<IpNet>().ok().or_else(|| address(part)).and_then(source_range)
    };
    parts(text).map(range).collect::<Option<Vec<_>>>().filter(|ranges| !ranges.is_empty())
}

fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..)?.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let cases = [
            ("0", Some(0)),
            ("1000", Some(1000)),
            ("8k", Some(8192)),
            ("1M", Some(1 << 20)),
            ("2g", Some(2 << 30)),
            ("", None),
            ("m", None),
            ("1mb", None),
            ("-1", None),
            ("99999999999999999g", None),
        ];
        for (text, want) in cases {
            assert_eq!(size(text), want, "{text}");
        }
    }

    #[test]
    fn address_ranges() {
        let texts = |text| ranges(text).map(|ranges| ranges.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(
            texts("10.0.0.9/8, 192.0.2.1 ,2001:db8::/32").unwrap(),
            ["10.0.0.0/8", "192.0.2.1/32", "2001:db8::/32"]
        );
        assert_eq!(
            texts("::ffff:192.0.2.9/120,::ffff:192.0.2.1,::/0").unwrap(),
            ["192.0.2.0/24", "192.0.2.1/32", "::/0"]
        );
        for text in ["", ",", " , ", "10.0.0.0/33", "::ffff:192.0.2.0/95"] {
            assert_eq!(texts(text), None, "{text}");
        }
        assert_eq!(texts("10.0.0.0/8,x"), None);
    }

    #[test]
    fn our_prefix_wins_and_invalid_values_are_findings() {
        let annotations = StringMap::from_iter([
            ("nginx.ingress.kubernetes.io/a", "1"),
            ("waypost.dev/a", "2"),
            ("nginx.ingress.kubernetes.io/b", " yes "),
            ("nginx.ingress.kubernetes.io/c", ""),
        ]);
        let mut reader = Reader::new(&annotations);
        assert_eq!(reader.number("a"), Some(2));
        assert_eq!((reader.flag("b"), reader.flag("c")), (None, None));
        assert_eq!(reader.findings.len(), 1);
        assert_eq!(
            reader.findings[0].message,
            "annotation b: the value must be true or false, not `yes`; it is ignored"
        );
    }
}
