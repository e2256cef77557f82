//! The hostnames of TLS routes, with rules that the pattern alone does not express.

use super::schema::{Schema, list};
use super::shapes::{EXACT_HOSTNAME, hostname};

/// Hostnames without rules, as in the oldest version.
pub(super) fn unchecked() -> Schema {
    list(hostname()).max_items(1024)
}

/// At least one hostname; none is an IP address.
pub(super) fn checked() -> Schema {
    let pattern = EXACT_HOSTNAME.replace('\\', "\\\\");
    unchecked()
        .with("minItems", 1)
        .rule("Hostnames cannot contain an IP", "!self.exists(name, isIP(name))")
        .rule(
            "Hostnames must be valid based on RFC-1123",
            &format!("self.all(name, name.contains('*') || name.matches('{pattern}'))"),
        )
        .rule(
            "Wildcards on hostnames must be the first label, and the rest of hostname must be valid based on RFC-1123",
            &format!(
                "self.all(name, !name.contains('*') || \
                 (name.startsWith('*.') && name.substring(2).matches('{pattern}')))"
            ),
        )
}
