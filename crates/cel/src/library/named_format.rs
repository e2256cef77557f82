//! Named formats of strings: `format.dns1123Label().validate('a-b')`.

use super::{any, text, url};
use crate::budget::{Budget, Stop};
use crate::declare::{Functions, Native, global, member};
use crate::types::Type;
use crate::value::{Timestamp, Value};

const NAME: &str = "kubernetes.NamedFormat";

/// A named format.
#[derive(Debug)]
pub struct NamedFormat {
    /// Its name in comparisons.
    pub(crate) name: &'static str,
    /// Length of the pattern, on which the cost of a check depends.
    pub(crate) pattern: u64,
    check: fn(&str) -> Vec<String>,
}

macro_rules! formats {
    ($($key:literal $name:literal $pattern:literal $check:expr;)*) => {
        /// Names of the functions, the formats, and the functions.
        static FORMATS: &[(&str, &str, &NamedFormat, Native)] = &[$({
            static FORMAT: NamedFormat = NamedFormat { name: $name, pattern: $pattern, check: $check };
            ($key, concat!("format.", $key), &FORMAT, |_, _| Ok(Value::Format(&FORMAT)))
        }),*];
    };
}

formats! {
    "dns1123Label" "DNS1123Label" 30 dns1123_label;
    "dns1123Subdomain" "DNS1123Subdomain" 60 |text| dns1123_subdomain(text, "characters");
    "dns1035Label" "DNS1035Label" 30 dns1035_label;
    "qualifiedName" "QualifiedName" 60 qualified_name;
    "dns1123LabelPrefix" "DNS1123LabelPrefix" 30 |text| dns1123_label(&mask_dash(text));
    "dns1123SubdomainPrefix" "DNS1123SubdomainPrefix" 60 |text| dns1123_subdomain(&mask_dash(text), "characters");
    "dns1035LabelPrefix" "DNS1035LabelPrefix" 30 |text| dns1035_label(&mask_dash(text));
    "labelValue" "LabelValue" 40 label_value;
    "uri" "URI" 1103 |text| url::check_request(text).err().into_iter().collect();
    "uuid" "uuid" 70 |text| refuse_unless(is_uuid(text), "does not match the UUID format");
    "byte" "byte" 84 |text| refuse_unless(is_base64(text), "invalid base64");
    "date" "date" 71 |text| refuse_unless(Timestamp::parse_date(text).is_some(), "invalid date");
    "datetime" "datetime" 71 |text| refuse_unless(is_date_time(text), "invalid datetime");
}

pub(super) fn add(all: &mut Functions) {
    let format = || Type::object(NAME);
    let messages = Type::optional(Type::list(Type::String));
    all.add("validate", [member("format-validate", &[format(), Type::String], messages, validate)]);
    all.add("format.named", [global("format-named", &[Type::String], Type::optional(format()), named)]);
    for (_, function, _, code) in FORMATS {
        all.add(function, [global(function, &[], format(), *code)]);
    }
}

fn named<'a>(_: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let wanted = text(args, 0)?;
    let found = FORMATS.iter().find(|(key, ..)| *key == wanted);
    Ok(found.map_or(Value::Optional(None), |(_, _, format, _)| Value::some(Value::Format(format))))
}

fn validate<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let Value::Format(format) = any(args, 0)? else { return Err(Stop::no_such_overload()) };
    let value = text(args, 1)?;
    budget.bytes(value.len().saturating_mul(4))?;
    let wrong = (format.check)(value);
    Ok(if wrong.is_empty() { Value::Optional(None) } else { Value::some(Value::strings(wrong)) })
}

fn refuse_unless(fits: bool, message: &str) -> Vec<String> {
    if fits { Vec::new() } else { vec![message.to_owned()] }
}

fn too_long(text: &str, most: usize, unit: &str) -> Option<String> {
    (text.len() > most).then(|| format!("must be no more than {most} {unit}"))
}

fn alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Starts and ends with characters of one kind, and has characters of another in between.
fn is_framed(text: &str, first: fn(u8) -> bool, inner: fn(u8) -> bool, last: fn(u8) -> bool) -> bool {
    match text.as_bytes() {
        [] => false,
        [only] => first(*only),
        [start, middle @ .., end] => first(*start) && middle.iter().all(|byte| inner(*byte)) && last(*end),
    }
}

fn is_label(text: &str) -> bool {
    is_framed(text, alphanumeric, |byte| alphanumeric(byte) || byte == b'-', alphanumeric)
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";

fn dns1123_label(text: &str) -> Vec<String> {
    let mut wrong: Vec<String> = too_long(text, 63, "characters").into_iter().collect();
    if !is_label(text) {
        wrong.push(if is_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            format!(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL}')"
            )
        });
    }
    wrong
}

/// Checks a DNS subdomain; two libraries disagree about the unit of its length.
fn dns1123_subdomain(text: &str, unit: &str) -> Vec<String> {
    let mut wrong: Vec<String> = too_long(text, 253, unit).into_iter().collect();
    if !is_subdomain(text) {
        wrong.push(format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{LABEL}(\\.{LABEL})*')"
        ));
    }
    wrong
}

fn dns1035_label(text: &str) -> Vec<String> {
    let mut wrong: Vec<String> = too_long(text, 63, "characters").into_iter().collect();
    let letter: fn(u8) -> bool = |byte| byte.is_ascii_lowercase();
    if !is_framed(text, letter, |byte| alphanumeric(byte) || byte == b'-', alphanumeric) {
        wrong.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')".to_owned(),
        );
    }
    wrong
}

const KEY: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

fn is_key(text: &str) -> bool {
    let end: fn(u8) -> bool = |byte| byte.is_ascii_alphanumeric();
    is_framed(text, end, |byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte), end)
}

fn qualified_name(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".to_owned());
            } else {
                wrong.extend(
                    dns1123_subdomain(prefix, "bytes").into_iter().map(|message| format!("prefix part {message}")),
                );
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if let Some(message) = too_long(name, 63, "bytes") {
        wrong.push(format!("name part {message}"));
    }
    if !is_key(name) {
        wrong.push(format!("name part {KEY}"));
    }
    wrong
}

fn label_value(text: &str) -> Vec<String> {
    let mut wrong: Vec<String> = too_long(text, 63, "bytes").into_iter().collect();
    if !text.is_empty() && !is_key(text) {
        wrong.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')".to_owned(),
        );
    }
    wrong
}

/// A prefix may end in a dash: what is generated follows it.
fn mask_dash(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut chars = rest.chars();
            chars.next_back();
            format!("{}a", chars.as_str())
        }
        _ => text.to_owned(),
    }
}

/// Checks for authorization checks of service accounts.
pub(super) fn is_service_account(namespace: &str, name: &str) -> Result<(), &'static str> {
    if !dns1123_subdomain(name, "").is_empty() {
        return Err("Invalid service account name");
    }
    if !dns1123_label(namespace).is_empty() {
        return Err("Invalid service account namespace");
    }
    Ok(())
}

fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (nth, len) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if nth > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((group, tail)) = rest.split_at_checked(len) else { return false };
        if !group.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return false;
        }
        rest = tail;
    }
    rest.is_empty()
}

fn is_base64(text: &str) -> bool {
    let plain = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    let letters = plain.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
    letters && !text.is_empty() && text.len().is_multiple_of(4)
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    if text.len() < 4 || Timestamp::parse_date(date).is_none() {
        return false;
    }
    let two = |text: &str, at: usize, most: &str| {
        text.get(at..at + 2).is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()) && digits <= most)
    };
    let clock = two(time, 0, "23") && two(time, 3, "59") && two(time, 6, "59");
    let colons = time.get(2..3) == Some(":") && time.get(5..6) == Some(":");
    let Some(rest) = time.get(8..) else { return false };
    // Any character may separate the fraction.
    let zone = match rest.chars().next() {
        Some(c) if c.len_utf8() < rest.len() => {
            let digits = rest.get(c.len_utf8()..).unwrap_or_default();
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            if end > 0 && !is_zone(rest) { digits.get(end..).unwrap_or_default() } else { rest }
        }
        _ => rest,
    };
    clock && colons && is_zone(zone)
}

fn is_zone(text: &str) -> bool {
    text == "z"
        || text.strip_prefix(['+', '-']).is_some_and(|zone| {
            zone.len() == 5
                && zone.bytes().enumerate().all(|(at, byte)| if at == 2 { byte == b':' } else { byte.is_ascii_digit() })
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(name: &str, text: &str) -> Vec<String> {
        FORMATS.iter().find(|(key, ..)| *key == name).map(|(_, _, format, _)| (format.check)(text)).expect("a format")
    }

    #[test]
    fn formats_accept_and_refuse() {
        let cases = [
            ("dns1123Label", "a-b", true),
            ("dns1123Label", "a.b", false),
            ("dns1123Label", "-a", false),
            ("dns1123Subdomain", "a.b-c", true),
            ("dns1123Subdomain", "a..b", false),
            ("dns1035Label", "1a", false),
            ("dns1123LabelPrefix", "a-", true),
            ("dns1123LabelPrefix", "-", false),
            ("qualifiedName", "example.com/My_Name", true),
            ("qualifiedName", "a/b/c", false),
            ("labelValue", "", true),
            ("labelValue", "a b", false),
            ("uri", "https://a/b", true),
            ("uri", "b", false),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", true),
            ("uuid", "123e4567e89b12d3a456426614174000", true),
            ("uuid", "123e4567", false),
            ("byte", "aGVsbG8=", true),
            ("byte", "aGVsbG8", false),
            ("byte", "", false),
            ("date", "2021-02-28", true),
            ("date", "2021-02-29", false),
            ("datetime", "2021-01-01T00:00:00Z", true),
            ("datetime", "2021-01-01t00:00:00.123+01:00", true),
            ("datetime", "2021-01-01T24:00:00Z", false),
            ("datetime", "2021-01-01", false),
        ];
        for (name, text, wanted) in cases {
            assert_eq!(check(name, text).is_empty(), wanted, "{name} {text}");
        }
        assert_eq!(check("dns1123Label", "a.b"), ["must not contain dots"]);
        assert_eq!(check("dns1123Label", &"a".repeat(64)), ["must be no more than 63 characters"]);
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in ".{0,40}") {
            for (_, _, format, _) in FORMATS {
                let _ = (format.check)(&text);
            }
        }
    }
}
