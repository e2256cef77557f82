use jiff::Timestamp;

use super::request::Request;
use super::*;
use crate::kinds::testing::summary;

/// A request for `system:node:n1` of `system:nodes`, for the name `n1` and the address 192.0.2.7, in base64.
const ASKED: &str = include_str!("testdata/n1.csr.b64");

fn object() -> Value {
    json!({
        "metadata": {"name": "a", "uid": "u", "resourceVersion": "1"},
        "spec": {"request": ASKED.trim(), "signerName": NODE_SERVING, "usages": ["digital signature", "server auth"]},
        "status": {},
    })
}

#[track_caller]
fn wrong(change: impl FnOnce(&mut Value), expected: &str) {
    let mut object = object();
    change(&mut object);
    assert_eq!(summary(|errors| RequestRules.validate_create(&object, errors)), expected);
}

#[test]
fn a_request_is_read() {
    let request = Request::of(&object()).expect("a request");
    assert_eq!(
        (request.common_name.as_str(), &request.organizations[..]),
        ("system:node:n1", &["system:nodes".into()][..])
    );
    assert_eq!(
        (&request.dns[..], &request.ips[..]),
        (&["n1".into()][..], &["192.0.2.7".parse().expect("an address")][..])
    );
    assert!(!request.other_names && !request.public_key.is_empty());
}

#[test]
fn what_is_wrong_is_said() {
    wrong(|_| {}, "[]");
    wrong(
        |object| object.put("spec.request", "AAAA"),
        "spec.request: Invalid value: \"AAAA\": PEM block type must be CERTIFICATE REQUEST",
    );
    wrong(|object| object.put("spec.usages", json!([])), "spec.usages: Required value");
    wrong(|object| object.put("spec.usages", json!(["any", "any"])), "spec.usages[1]: Duplicate value: \"any\"");
    wrong(|object| object.put("spec.signerName", ""), "spec.signerName: Required value");
    wrong(
        |object| object.put("spec.signerName", "kubernetes.io/legacy-unknown"),
        "spec.signerName: Invalid value: \"kubernetes.io/legacy-unknown\": the legacy signerName is not allowed via this API version",
    );
    wrong(
        |object| object.put("spec.signerName", "signer"),
        "spec.signerName: Invalid value: \"signer\": must be a fully qualified domain and path of the form 'example.com/signer-name'",
    );
    wrong(
        |object| object.put("spec.signerName", "example/signer"),
        "spec.signerName: Invalid value: \"example\": should be a domain with at least two segments separated by dots",
    );
    wrong(
        |object| object.put("spec.expirationSeconds", 599),
        "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)",
    );
}

#[test]
fn a_request_that_was_changed_on_the_way_is_refused() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let pem = String::from_utf8(STANDARD.decode(ASKED.trim()).expect("base64")).expect("text");
    let body: String = pem.lines().filter(|line| !line.starts_with("---")).collect();
    let mut der = STANDARD.decode(body).expect("base64");
    let at = der.windows(2).position(|two| two == b"n1").expect("the name");
    der[at + 1] = b'2';
    let forged =
        format!("-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n", STANDARD.encode(der));
    let error = Request::parse(forged.as_bytes()).expect_err("a forgery");
    assert_eq!(error, "the signature of the certificate request does not fit its key");
}

#[test]
fn each_part_changes_its_own() {
    let old = object();
    let approved = with_condition(&old, APPROVED, "r", "m", "2026-01-01T00:00:00Z");
    let check = |part: &str, new: &Value, old: &Value| {
        let mut new = new.clone();
        match part {
            "" => RequestRules.prepare_update(&mut new, old),
            part => RequestRules.prepare_part(part, &mut new, old),
        }
        let said = match part {
            "" => summary(|errors| RequestRules.validate_update(&new, old, errors)),
            part => summary(|errors| RequestRules.validate_part(part, &new, old, errors)),
        };
        (said, has_condition(&new, APPROVED), new)
    };
    assert!(!check("", &approved, &old).1, "the object itself does not change its status");
    assert!(!check("status", &approved, &old).1, "what was decided is not changed by who signs");
    let (said, has, _) = check(APPROVAL, &approved, &old);
    assert_eq!((said.as_str(), has), ("[]", true));
    assert_eq!(
        check(APPROVAL, &old, &approved).0,
        "status.conditions: Forbidden: updates may not remove a condition of type \"Approved\""
    );
    let both = with_condition(&approved, DENIED, "r", "m", "2026-01-01T00:00:00Z");
    assert_eq!(
        check(APPROVAL, &both, &approved).0,
        "status.conditions[1].type: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive"
    );
    let mut other = approved;
    other.put("spec.signerName", "example.com/other");
    assert_eq!(check(APPROVAL, &other, &old).2.text("spec.signerName"), NODE_SERVING);
}

#[test]
fn the_table_says_how_far_it_is() {
    let cell = |object: &Value| (TABLE.row)(object, Timestamp::UNIX_EPOCH)[5].clone();
    assert_eq!(cell(&object()), "Pending");
    let mut approved = with_condition(&object(), APPROVED, "", "", "");
    assert_eq!(cell(&approved), "Approved");
    approved.put("status.certificate", "AAAA");
    assert_eq!(cell(&approved), "Approved,Issued");
    assert_eq!(cell(&with_condition(&object(), DENIED, "", "", "")), "Denied");
}

#[test]
fn conditions_get_the_times_that_were_left_out() {
    let mut old = object();
    old.put(
        "status.conditions",
        json!([{"type": "Approved", "status": "True", "lastUpdateTime": "a", "lastTransitionTime": "a"}]),
    );
    let mut new = old.clone();
    new.put("status.conditions", json!([{"type": "Approved", "status": "True"}, {"type": "Failed", "status": "True"}]));
    stamp_conditions(&mut new, &old, "b");
    assert_eq!(
        new.at("status.conditions"),
        &json!([
            {"type": "Approved", "status": "True", "lastUpdateTime": "b", "lastTransitionTime": "a"},
            {"type": "Failed", "status": "True", "lastUpdateTime": "b", "lastTransitionTime": "b"},
        ])
    );
    let mut none = object();
    stamp_conditions(&mut none, &old, "b");
    assert_eq!(none, object());
    // What was there before stays as it was, whatever it lacks.
    let bare = json!({"status": {"conditions": [{"type": "Approved", "status": "True"}]}});
    let mut same = bare.clone();
    stamp_conditions(&mut same, &bare, "b");
    assert_eq!(same, bare);
}
