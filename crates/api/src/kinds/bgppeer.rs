//! BGPPeer: a router that nodes tell about the addresses of load balancers.
//!
//! A kind of Waypost. Defaults are written into the object, so that all readers see the same values.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Map, Value};

use super::common::report;
use super::ippool::refuse_repeated;
use super::workload::validate_labels_selector;
use crate::field::{Errors, Path};
use crate::ip;
use crate::kind::{Kind, Rules, keep_status, status_of};
use crate::meta;
use crate::names;
use crate::table::{AGE, NAME, Table, age, column, integer_column, no_conditions, wide_column};
use crate::value::ValueExt as _;

const SPEC: Path<'static> = Path::Root("spec");

/// Communities that have a name (RFC 1997, RFC 7999).
pub const KNOWN_COMMUNITIES: &[(&str, u32)] = &[
    ("no-export", 0xffff_ff01),
    ("no-advertise", 0xffff_ff02),
    ("no-export-subconfed", 0xffff_ff03),
    ("blackhole", 0xffff_029a),
];

/// Numbers that an absent field means.
const DEFAULTS: &[(&str, i64)] =
    &[("peerPort", 179), ("holdTimeSeconds", 90), ("restartTimeSeconds", 120), ("maxPrefixes", 1000)];

/// The kind.
pub static KIND: Kind = Kind {
    group: "waypost.dev",
    kind: "BGPPeer",
    plural: "bgppeers",
    singular: "bgppeer",
    namespaced: false,
    schema: "waypost.BGPPeer",
    table: "bgppeers",
    generation: true,
    subresources: &[status_of("BGPPeer")],
    table_view: &TABLE,
    ..Kind::common(&BgpPeerRules)
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        column("Peer", "The address of the router."),
        integer_column("Peer ASN", "The autonomous system of the router."),
        integer_column("My ASN", "The autonomous system of the nodes."),
        AGE,
        wide_column("Port", "The port of the router."),
        wide_column("Hold Time", "After how many seconds of silence a session is over."),
    ],
    row: |object, now| {
        vec![
            object.text("metadata.name").into(),
            object.text("spec.peerAddress").into(),
            object.int("spec.peerASN").into(),
            object.int("spec.myASN").into(),
            age(object, now).into(),
            object.int("spec.peerPort").to_string().into(),
            format!("{}s", object.int("spec.holdTimeSeconds")).into(),
        ]
    },
    conditions: no_conditions,
};

struct BgpPeerRules;

impl Rules for BgpPeerRules {
    fn default(&self, object: &mut Value) {
        for (field, number) in DEFAULTS {
            if object.at("spec").int(field) == 0 {
                object.put(&format!("spec.{field}"), *number);
            }
        }
        if !object.has("spec.gracefulRestart") {
            object.put("spec.gracefulRestart", true);
        }
        if object.has("spec.password.secretRef") && object.text("spec.password.secretRef.key").is_empty() {
            object.put("spec.password.secretRef.key", "password");
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object.put("status", Map::new());
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_status(new, old);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, false, names::name_is_subdomain, errors);
        validate_spec(object.at("spec"), errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        validate_spec(new.at("spec"), errors);
    }

    fn validate_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
    }
}

/// The value of a community: `64512:100`, or one of the well-known names.
#[must_use]
pub fn community(text: &str) -> Option<u32> {
    if let Some((_, value)) = KNOWN_COMMUNITIES.iter().find(|(name, _)| *name == text) {
        return Some(*value);
    }
    let (high, low) = text.split_once(':')?;
    let half = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u16>().ok())?;
    Some((u32::from(half(high)?) << 16) | u32::from(half(low)?))
}

fn validate_spec(spec: &Value, errors: &mut Errors) {
    for field in ["myASN", "peerASN"] {
        between(spec, field, 1, i64::from(u32::MAX), errors);
    }
    between(spec, "peerPort", 1, 65_535, errors);
    // Three seconds is the least that the protocol allows; "never" (0) is not offered: a dead node would stay a way.
    between(spec, "holdTimeSeconds", 3, 65_535, errors);
    // The field of the protocol has twelve bits.
    between(spec, "restartTimeSeconds", 1, 4095, errors);
    between(spec, "maxPrefixes", 1, i64::from(i32::MAX), errors);
    between(spec, "localPref", 0, i64::from(u32::MAX), errors);
    if spec.int("localPref") > 0 && spec.int("myASN") != spec.int("peerASN") {
        errors.invalid(
            &SPEC.child("localPref"),
            spec.int("localPref"),
            "may be set only when myASN and peerASN are equal: routers of other systems ignore it",
        );
    }
    validate_addresses(spec, errors);
    validate_password(spec, errors);
    let path = SPEC.child("communities");
    for (index, text) in spec.texts("communities").into_iter().enumerate().filter(|(_, text)| community(text).is_none())
    {
        let names: Vec<&str> = KNOWN_COMMUNITIES.iter().map(|(name, _)| *name).collect();
        let wrong = format!("must be two numbers from 0 to 65535 (64512:100), or one of {}", names.join(", "));
        errors.invalid(&path.index(index), text, &wrong);
    }
    refuse_repeated(&path, &spec.texts("communities"), errors);
    if spec.has("nodeSelector") {
        validate_labels_selector(&SPEC.child("nodeSelector"), spec.at("nodeSelector"), errors);
    }
}

fn between(spec: &Value, field: &str, least: i64, most: i64, errors: &mut Errors) {
    let value = spec.int(field);
    if value == 0 && least == 1 && !DEFAULTS.iter().any(|(name, _)| *name == field) {
        errors.required(&SPEC.child(field), "the number of an autonomous system (64512 to 65534 are for private use)");
    } else if !(least..=most).contains(&value) {
        errors.invalid(&SPEC.child(field), value, &format!("must be between {least} and {most}, inclusive"));
    }
}

fn validate_addresses(spec: &Value, errors: &mut Errors) {
    let peer = spec.text("peerAddress");
    if peer.is_empty() {
        errors.required(&SPEC.child("peerAddress"), "the address of the router");
    } else {
        ip::check_address(&SPEC.child("peerAddress"), peer, &[], errors);
    }
    let source = spec.text("sourceAddress");
    if !source.is_empty() {
        ip::check_address(&SPEC.child("sourceAddress"), source, &[], errors);
    }
    if let (Ok(peer), Ok(source)) = (peer.parse::<IpAddr>(), source.parse::<IpAddr>())
        && peer.is_ipv4() != source.is_ipv4()
    {
        errors.invalid(
            &SPEC.child("sourceAddress"),
            spec.text("sourceAddress"),
            "must be of the family of peerAddress",
        );
    }
    if let (Ok(peer), path) = (peer.parse::<IpAddr>(), SPEC.child("peerAddress"))
        && (peer.is_unspecified() || peer.is_multicast())
    {
        errors.invalid(&path, spec.text("peerAddress"), "must be the address of one router");
    }
    let id = spec.text("routerID");
    if !id.is_empty() && !id.parse::<Ipv4Addr>().is_ok_and(|id| !id.is_unspecified()) {
        errors.invalid(&SPEC.child("routerID"), id, "must have the form of an IPv4 address, and not be 0.0.0.0");
    }
}

fn validate_password(spec: &Value, errors: &mut Errors) {
    if !spec.has("password") {
        return;
    }
    let (password, secret) = (SPEC.child("password"), spec.at("password.secretRef"));
    let path = password.child("secretRef");
    for field in ["namespace", "name"] {
        if secret.text(field).is_empty() {
            errors.required(&path.child(field), "the Secret that holds the password");
        }
    }
    let (namespace, name) = (secret.text("namespace"), secret.text("name"));
    if !namespace.is_empty() {
        report(&path.child("namespace"), namespace, names::name_is_label(namespace, false), errors);
    }
    if !name.is_empty() {
        report(&path.child("name"), name, names::name_is_subdomain(name, false), errors);
    }
    report(&path.child("key"), secret.text("key"), names::config_key(secret.text("key")), errors);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::summary;

    fn check(more: &Value) -> String {
        let mut object = json!({"metadata": {"name": "a"}, "spec": {
            "myASN": 64512, "peerASN": 64513, "peerAddress": "192.0.2.1",
        }});
        for (key, value) in more.as_object().expect("an object") {
            object["spec"][key] = value.clone();
        }
        BgpPeerRules.default(&mut object);
        summary(|errors| BgpPeerRules.validate_create(&object, errors))
    }

    #[test]
    fn a_router_and_two_numbers_are_enough() {
        let mut object = json!({"spec": {"password": {"secretRef": {"namespace": "a", "name": "b"}}}});
        BgpPeerRules.default(&mut object);
        assert_eq!(
            object["spec"],
            json!({"peerPort": 179, "holdTimeSeconds": 90, "restartTimeSeconds": 120, "maxPrefixes": 1000,
                "gracefulRestart": true, "password": {"secretRef": {"namespace": "a", "name": "b", "key": "password"}}})
        );
        assert_eq!(check(&json!({})), "[]");
        assert_eq!(
            check(&json!({"peerAddress": "2001:db8::1", "sourceAddress": "2001:db8::2", "myASN": 4_200_000_000_u32})),
            "[]"
        );
    }

    #[test]
    fn numbers_stay_in_their_ranges() {
        for (field, value, wrong) in [
            ("myASN", 0, "spec.myASN: Required value: the number of an autonomous system"),
            ("peerASN", 4_294_967_296_i64, "must be between 1 and 4294967295, inclusive"),
            ("peerPort", 65_536, "must be between 1 and 65535, inclusive"),
            ("holdTimeSeconds", 2, "must be between 3 and 65535, inclusive"),
            ("restartTimeSeconds", 4096, "must be between 1 and 4095, inclusive"),
            ("maxPrefixes", -1, "must be between 1 and"),
            ("localPref", 100, "may be set only when myASN and peerASN are equal"),
        ] {
            let said = check(&json!({field: value}));
            assert!(said.contains(wrong) && said.contains(field), "{field} {value}: {said}");
        }
        assert_eq!(check(&json!({"localPref": 100, "peerASN": 64512})), "[]");
    }

    #[test]
    fn addresses_and_secrets_are_checked() {
        for (more, wrong) in [
            (json!({"peerAddress": ""}), "spec.peerAddress: Required value"),
            (json!({"peerAddress": "router"}), "spec.peerAddress: Invalid value: \"router\""),
            (json!({"peerAddress": "0.0.0.0"}), "must be the address of one router"),
            (json!({"sourceAddress": "2001:db8::1"}), "must be of the family of peerAddress"),
            (json!({"routerID": "2001:db8::1"}), "must have the form of an IPv4 address"),
            (json!({"password": {}}), "spec.password.secretRef.namespace: Required value"),
            (
                json!({"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "?"}]}}),
                "not a valid selector operator",
            ),
        ] {
            let said = check(&more);
            assert!(said.contains(wrong), "{more}: {said}");
        }
    }

    #[test]
    fn communities_are_pairs_or_names() {
        for (text, value) in [
            ("64512:100", Some(0xfc00_0064)),
            ("no-export", Some(0xffff_ff01)),
            ("65535:65535", Some(u32::MAX)),
            ("65536:1", None),
            ("1", None),
            ("1:+2", None),
            (":", None),
            ("large:1:2:3", None),
        ] {
            assert_eq!(community(text), value, "{text}");
        }
        assert_eq!(check(&json!({"communities": ["64512:100", "no-export"]})), "[]");
        assert!(check(&json!({"communities": ["x"]})).contains("must be two numbers from 0 to 65535 (64512:100)"));
        assert!(check(&json!({"communities": ["1:1", "1:1"]})).contains("Duplicate value: \"1:1\""));
    }
}
