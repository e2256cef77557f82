//! BackendTLSPolicy: how a Gateway connects to the backends of a Service with TLS.

use serde_json::{Value, json};

use super::Channel;
use super::definition::{Names, Version, age, definition as define, root};
use super::references::{equal, local, policy_section_target};
use super::route::policy_status;
use super::schema::{Schema, choice, list, map_of, object, optional, required, string};
use super::shapes::{certificate_set, hostname, long_value, precise_hostname};

pub(super) fn definition(channel: Channel) -> Value {
    let validation = validation(channel.is_experimental());
    let spec = object([
        optional("options", "Settings of the implementation.", map_of(long_value()).max_keys(16)),
        required("targetRefs", "The Services that the policy applies to.", targets()),
        required("validation", "How the certificates of backends are verified.", validation),
    ]);
    let schema = root("BackendTLSPolicy configures TLS to backends.", spec, Some(policy_status()));
    let v1 = Version::stored("v1", json!([age()]), schema);
    let is_served = channel.is_experimental();
    let v1alpha3 = Version { is_served, is_deprecated: true, columns: Value::Null, ..v1.also("v1alpha3") };
    let names = Names {
        short: Some("btlspolicy"),
        is_policy: true,
        ..Names::namespaced("BackendTLSPolicy", "backendtlspolicies")
    };
    define(channel, &names, [v1, v1alpha3])
}

/// Whether two targetRefs, `a` and `b`, name the same object.
const SAME_TARGET: &str = "a.group == b.group && a.kind == b.kind && a.name == b.name";

fn targets() -> Schema {
    let when = "when targetRefs includes 2 or more references to the same target";
    list(policy_section_target())
        .items(1..=16)
        .rule(
            &format!("sectionName must be specified {when}"),
            &format!(
                "self.all(a, self.all(b, {SAME_TARGET} ? \
                 (a.?sectionName.orValue('') == '') == (b.?sectionName.orValue('') == '') : true))"
            ),
        )
        .rule(
            &format!("sectionName must be unique {when}"),
            &format!("self.all(a, self.exists_one(b, {SAME_TARGET} && {}))", equal("sectionName")),
        )
}

/// How certificates of backends are verified. `is_union`: exactly one source of authorities is set, even an empty one counts.
pub(super) fn validation(is_union: bool) -> Schema {
    let authorities = list(local()).max_items(8);
    let authorities = if is_union { authorities.with("minItems", 1) } else { authorities };
    let schema = object([
        optional("caCertificateRefs", "ConfigMaps with the certificate authorities.", authorities),
        required("hostname", "The server name, which the certificate must be valid for.", precise_hostname()),
        optional("subjectAltNames", "Names of the certificate that are accepted instead.", alternative_names()),
        optional("wellKnownCACertificates", "The name of a set of authorities, like System.", certificate_set()),
    ]);
    if is_union {
        return schema.rule(
            "exactly one of the fields in [caCertificateRefs wellKnownCACertificates] must be set",
            "has(self.caCertificateRefs) != has(self.wellKnownCACertificates)",
        );
    }
    let listed = "size(self.?caCertificateRefs.orValue([])) > 0";
    let named = "self.?wellKnownCACertificates.orValue('') != ''";
    schema
        .rule("must not contain both CACertificateRefs and WellKnownCACertificates", &format!("!({listed} && {named})"))
        .rule("must specify either CACertificateRefs or WellKnownCACertificates", &format!("{listed} || {named}"))
}

fn alternative_names() -> Schema {
    let uri = r"^(([^:/?#]+):)(//([^/?#]*))([^?#]*)(\?([^#]*))?(#(.*))?";
    let rules = [("Hostname", "hostname"), ("URI", "uri")].map(|(kind, field)| {
        let value = format!("self.?{field}.orValue('')");
        [
            (
                format!("SubjectAltName element must contain {kind}, if Type is set to {kind}"),
                format!("self.type != '{kind}' || {value} != ''"),
            ),
            (
                format!("SubjectAltName element must not contain {kind}, if Type is not set to {kind}"),
                format!("self.type == '{kind}' || {value} == ''"),
            ),
        ]
    });
    let name = object([
        optional("hostname", "The DNS name, for the type Hostname.", hostname()),
        required("type", "The kind of name.", choice(&["Hostname", "URI"])),
        optional("uri", "The URI, for the type URI.", string().length(1..=253).pattern(uri)),
    ])
    .rules(rules.into_iter().flatten());
    list(name).max_items(5)
}
