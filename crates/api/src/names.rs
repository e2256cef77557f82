//! The syntax of names: labels, subdomains, qualified names, port names.
//!
//! In: a string. Out: what is wrong with it, as Kubernetes messages; an empty list (which allocates nothing) when it
//! is valid. The patterns are small enough to be matched byte by byte, so no regular expressions are compiled; the
//! messages still quote them, because clients see them.

/// Checks a name; `prefix` is set for `generateName`, where a trailing dash is fine.
pub trait NameRule: Fn(&str, bool) -> Vec<String> {}

impl<F: Fn(&str, bool) -> Vec<String>> NameRule for F {}

const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;
const PORT_NAME_MAX: usize = 15;

const BAD_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const BAD_1035_LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
     alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
     validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const BAD_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
     '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const BAD_WILDCARD: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which \
     must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. \
     '*.example.com', regex used for validation is \
     '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const BAD_QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const BAD_LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
     '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
     used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const BAD_CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. \
     'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// RFC 1123 label.
#[must_use]
pub fn dns_label(value: &str) -> Vec<String> {
    let mut wrong = too_many_characters(value, LABEL_MAX);
    if !is_label(value.as_bytes()) {
        wrong.push(if is_subdomain(value) { "must not contain dots".to_owned() } else { BAD_LABEL.to_owned() });
    }
    wrong
}

/// RFC 1035 label.
#[must_use]
pub fn dns_1035_label(value: &str) -> Vec<String> {
    let mut wrong = too_many_characters(value, LABEL_MAX);
    if !(is_label(value.as_bytes()) && value.as_bytes()[0].is_ascii_lowercase()) {
        wrong.push(BAD_1035_LABEL.to_owned());
    }
    wrong
}

/// RFC 1123 subdomain.
#[must_use]
pub fn dns_subdomain(value: &str) -> Vec<String> {
    let mut wrong = too_many_characters(value, SUBDOMAIN_MAX);
    if !is_subdomain(value) {
        wrong.push(BAD_SUBDOMAIN.to_owned());
    }
    wrong
}

/// `*.` and an RFC 1123 subdomain.
#[must_use]
pub fn wildcard_subdomain(value: &str) -> Vec<String> {
    let mut wrong = too_many_characters(value, SUBDOMAIN_MAX);
    if !value.strip_prefix("*.").is_some_and(is_subdomain) {
        wrong.push(BAD_WILDCARD.to_owned());
    }
    wrong
}

/// Qualified name (label key, appProtocol, loadBalancerClass …).
#[must_use]
pub fn qualified_name(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let name = match value.split_once('/') {
        None => value,
        Some((_, rest)) if rest.contains('/') => {
            let suffix = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {BAD_QUALIFIED}{suffix}")];
        }
        Some(("", name)) => {
            wrong.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            if prefix.len() > SUBDOMAIN_MAX {
                wrong.push(format!("prefix part must be no more than {SUBDOMAIN_MAX} bytes"));
            }
            if !is_subdomain(prefix) {
                wrong.push(format!("prefix part {BAD_SUBDOMAIN}"));
            }
            name
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        wrong.push(format!("name part must be no more than {LABEL_MAX} bytes"));
    }
    if !is_label_word(name) {
        wrong.push(format!("name part {BAD_QUALIFIED}"));
    }
    wrong
}

/// Label value.
#[must_use]
pub fn label_value(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if value.len() > LABEL_MAX {
        wrong.push(format!("must be no more than {LABEL_MAX} bytes"));
    }
    if !value.is_empty() && !is_label_word(value) {
        wrong.push(BAD_LABEL_VALUE.to_owned());
    }
    wrong
}

/// Key of a ConfigMap or Secret.
#[must_use]
pub fn config_key(value: &str) -> Vec<String> {
    let mut wrong = too_many_characters(value, SUBDOMAIN_MAX);
    if value.is_empty() || !value.bytes().all(is_word_byte) {
        wrong.push(BAD_CONFIG_KEY.to_owned());
    }
    match value {
        "." => wrong.push("must not be '.'".to_owned()),
        ".." => wrong.push("must not be '..'".to_owned()),
        _ if value.starts_with("..") => wrong.push("must not start with '..'".to_owned()),
        _ => {}
    }
    wrong
}

/// Container port name (targetPort).
#[must_use]
pub fn port_name(value: &str) -> Vec<String> {
    let mut wrong = too_many_characters(value, PORT_NAME_MAX);
    if value.is_empty() || !value.bytes().all(is_label_byte) {
        wrong.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !value.bytes().any(|byte| byte.is_ascii_lowercase()) {
        wrong.push("must contain at least one letter (a-z)".to_owned());
    }
    if value.contains("--") {
        wrong.push("must not contain consecutive hyphens".to_owned());
    }
    if value.starts_with('-') || value.ends_with('-') {
        wrong.push("must not begin or end with a hyphen".to_owned());
    }
    wrong
}

/// Port number.
#[must_use]
pub fn port_number(value: i64) -> Vec<String> {
    if (1..=65535).contains(&value) { Vec::new() } else { vec!["must be between 1 and 65535, inclusive".to_owned()] }
}

/// Object name: RFC 1123 label.
#[must_use]
pub fn name_is_label(name: &str, prefix: bool) -> Vec<String> {
    dns_label(&mask_trailing_dash(name, prefix))
}

/// Object name: RFC 1123 subdomain.
#[must_use]
pub fn name_is_subdomain(name: &str, prefix: bool) -> Vec<String> {
    dns_subdomain(&mask_trailing_dash(name, prefix))
}

/// Object name: anything that is valid in a path.
#[must_use]
pub fn name_is_path_segment(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"].iter().filter(|part| name.contains(**part)).map(|part| format!("may not contain '{part}'")).collect()
}

fn too_many_characters(value: &str, max: usize) -> Vec<String> {
    if value.len() > max { vec![format!("must be no more than {max} characters")] } else { Vec::new() }
}

/// A prefix may end in a dash, since more follows. Kubernetes validates the name with its last two characters replaced
/// by an `a`, so the character before the dash escapes the check; clients see that, so it is kept.
fn mask_trailing_dash(name: &str, prefix: bool) -> std::borrow::Cow<'_, str> {
    if prefix && name.len() > 1 && name.ends_with('-') && name.is_char_boundary(name.len() - 2) {
        return format!("{}a", &name[..name.len() - 2]).into();
    }
    name.into()
}

fn is_label_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
}

/// `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
fn is_label(value: &[u8]) -> bool {
    let (Some(first), Some(last)) = (value.first(), value.last()) else { return false };
    *first != b'-' && *last != b'-' && value.iter().all(|byte| is_label_byte(*byte))
}

fn is_subdomain(value: &str) -> bool {
    value.split('.').all(|label| is_label(label.as_bytes()))
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`
fn is_label_word(value: &str) -> bool {
    let bytes = value.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() && bytes.iter().all(|byte| is_word_byte(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_lower_case_and_short() {
        assert!(dns_label("123-abc").is_empty());
        assert_eq!(dns_label("my.web"), ["must not contain dots"]);
        assert_eq!(dns_label("Web"), [BAD_LABEL]);
        assert_eq!(dns_label("-web"), [BAD_LABEL]);
        assert_eq!(dns_label(""), [BAD_LABEL]);
        assert_eq!(dns_label(&"a".repeat(64)), ["must be no more than 63 characters"]);
        assert_eq!(dns_1035_label("123-abc"), [BAD_1035_LABEL]);
        assert_eq!(dns_1035_label(""), [BAD_1035_LABEL]);
        assert!(dns_1035_label("abc-123").is_empty());
    }

    #[test]
    fn subdomains_are_labels_with_dots() {
        assert!(dns_subdomain("a.b-c.1").is_empty());
        assert_eq!(dns_subdomain("a..b"), [BAD_SUBDOMAIN]);
        assert_eq!(dns_subdomain(&"a".repeat(254)), ["must be no more than 253 characters"]);
        assert!(wildcard_subdomain("*.example.com").is_empty());
        assert_eq!(wildcard_subdomain("*.*.example.com"), [BAD_WILDCARD]);
    }

    #[test]
    fn qualified_names_complain_about_each_part() {
        assert!(qualified_name("example.com/My_Name.1").is_empty());
        assert_eq!(qualified_name("").len(), 2);
        assert_eq!(qualified_name("")[0], "name part must be non-empty");
        assert_eq!(qualified_name("/a"), ["prefix part must be non-empty"]);
        assert_eq!(qualified_name("Bad_Prefix/a"), [format!("prefix part {BAD_SUBDOMAIN}")]);
        assert_eq!(qualified_name("bad key!"), [format!("name part {BAD_QUALIFIED}")]);
        assert!(qualified_name("a/b/c")[0].ends_with("(e.g. 'example.com/MyName')"));
        assert_eq!(qualified_name(&"x".repeat(64)), ["name part must be no more than 63 bytes"]);
    }

    #[test]
    fn label_values_may_be_empty() {
        assert!(label_value("").is_empty());
        assert_eq!(label_value(&"x".repeat(64)), ["must be no more than 63 bytes"]);
        assert_eq!(label_value("a b"), [BAD_LABEL_VALUE]);
        assert_eq!(label_value("-a").len(), 1);
    }

    #[test]
    fn port_names_need_a_letter_and_no_double_dash() {
        assert!(port_name("http-1").is_empty());
        assert_eq!(port_name("80"), ["must contain at least one letter (a-z)"]);
        assert_eq!(port_name("a--b"), ["must not contain consecutive hyphens"]);
        assert_eq!(port_name("-a"), ["must not begin or end with a hyphen"]);
        assert_eq!(port_name("Http").len(), 1);
        assert_eq!(port_name(&"a".repeat(16)), ["must be no more than 15 characters"]);
    }

    #[test]
    fn config_keys_stay_in_their_directory() {
        assert!(config_key("a_b.c-D").is_empty());
        assert_eq!(config_key(".."), ["must not be '..'"]);
        assert_eq!(config_key("..a"), ["must not start with '..'"]);
        assert_eq!(config_key(""), [BAD_CONFIG_KEY]);
    }

    #[test]
    fn prefixes_may_end_in_a_dash() {
        assert!(name_is_label("web-", true).is_empty());
        assert!(!name_is_label("web-", false).is_empty());
        assert!(!name_is_label("-", true).is_empty());
        assert!(!name_is_label("Web_", true).is_empty());
        assert!(!name_is_label("aé-", true).is_empty());
        assert_eq!(name_is_path_segment("..", false), ["may not be '..'"]);
        assert!(name_is_path_segment("..", true).is_empty());
        assert_eq!(name_is_path_segment("a/b%", false), ["may not contain '/'", "may not contain '%'"]);
    }

    #[test]
    fn port_numbers_are_sixteen_bits() {
        assert!(port_number(1).is_empty() && port_number(65535).is_empty());
        assert_eq!(port_number(0), ["must be between 1 and 65535, inclusive"]);
        assert_eq!(port_number(65536).len(), 1);
    }
}
