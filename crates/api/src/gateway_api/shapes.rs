//! The shapes of names and other strings that the kinds share.

use super::Channel;
use super::schema::{Schema, int32, string};

/// Text of a pattern, for [`concat!`].
macro_rules! label {
    () => {
        "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    };
}
macro_rules! subdomain {
    () => {
        concat!(label!(), r"(\.", label!(), ")*")
    };
}
macro_rules! domain_path {
    () => {
        concat!(subdomain!(), r"\/[A-Za-z0-9\/\-._~%!$&'()*+,;=:]+")
    };
}

/// A hostname whose first label may be a wildcard.
pub(super) const HOSTNAME: &str = concat!(r"^(\*\.)?", subdomain!(), "$");
/// A hostname without a wildcard, in a group.
pub(super) const EXACT_HOSTNAME: &str = concat!("^(", subdomain!(), ")$");
/// A key of a label or an annotation.
pub(super) const METADATA_KEY: &str = concat!("^(", subdomain!(), "/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$");
/// The paths of requests.
pub(super) const PATH: &str = "^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})+$";

pub(super) fn hostname() -> Schema {
    string().length(1..=253).pattern(HOSTNAME)
}

pub(super) fn precise_hostname() -> Schema {
    string().length(1..=253).pattern(concat!("^", subdomain!(), "$"))
}

pub(super) fn group() -> Schema {
    string().max_length(253).pattern(concat!("^$|^", subdomain!(), "$"))
}

pub(super) fn kind() -> Schema {
    string().length(1..=63).pattern("^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$")
}

pub(super) fn object_name() -> Schema {
    string().length(1..=253)
}

pub(super) fn namespace() -> Schema {
    string().length(1..=63).pattern(concat!("^", label!(), "$"))
}

/// The name of a listener, a Service port or a rule.
pub(super) fn section_name() -> Schema {
    string().length(1..=253).pattern(concat!("^", subdomain!(), "$"))
}

pub(super) fn controller_name() -> Schema {
    string().length(1..=253).pattern(concat!("^", domain_path!(), "$"))
}

/// The type of an address. The alternatives of the pattern are not grouped, as upstream: the anchors bind to the outer ones only.
pub(super) fn address_type() -> Schema {
    let pattern = concat!("^Hostname|IPAddress|NamedAddress|", domain_path!(), "$");
    string().length(1..=253).pattern(pattern).default("IPAddress")
}

/// The protocol of a listener.
pub(super) fn protocol() -> Schema {
    let pattern = concat!(r"^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$|", subdomain!(), r"\/[A-Za-z0-9]+$");
    string().length(1..=255).pattern(pattern)
}

/// `System`, or a name with a domain.
pub(super) fn certificate_set() -> Schema {
    let pattern = concat!("^(System|(", subdomain!(), "/([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]))$");
    string().length(1..=253).pattern(pattern)
}

pub(super) fn port() -> Schema {
    int32().range(1..=65535)
}

pub(super) fn header_name() -> Schema {
    string().length(1..=256).pattern(r"^[A-Za-z0-9!#$%&'*+\-.^_\x60|~]+$")
}

pub(super) fn header_value(channel: Channel) -> Schema {
    let visible = |schema: Schema| schema.pattern(r"^[!-~]+([\t ]?[!-~]+)*$");
    string().length(1..=4096).experimental(channel, visible)
}

pub(super) fn duration() -> Schema {
    string().pattern("^([0-9]{1,5}(h|m|s|ms)){1,4}$")
}

pub(super) fn label_value() -> Schema {
    string().length(0..=63).pattern("^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
}

/// Annotations, and options of implementations.
pub(super) fn long_value() -> Schema {
    string().length(0..=4096)
}
