//! A CertificateSigningRequest: its user, and the subject of the encoded request.

use api::kinds::certificatesigningrequest::request::Request;
use api::value::ValueExt as _;
use serde_json::Value;

use super::sheet::{Sheet, conditions};

pub(super) fn describe(object: &Value, sheet: &mut Sheet) {
    sheet.metadata(object);
    sheet.some("Created", object.text("metadata.creationTimestamp"));
    sheet.field("Requesting User", object.text("spec.username"));
    sheet.field("Groups", object.texts("spec.groups").join("\n"));
    sheet.field("Signer", object.text("spec.signerName"));
    sheet.field("Usages", object.texts("spec.usages").join("\n"));
    sheet.some("Requested Duration", duration(object));
    match Request::of(object) {
        Ok(request) => sheet.field("Subject", request.summary()),
        Err(why) => sheet.field("Subject", format!("unreadable: {why}")),
    }
    sheet.field("Certificate", if object.text("status.certificate").is_empty() { "" } else { "issued" });
    conditions(object, sheet);
}

fn duration(object: &Value) -> String {
    let seconds = object.at("spec.expirationSeconds").as_i64();
    seconds.map(|seconds| api::table::duration(seconds.saturating_mul(1000))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A request for `system:node:n1` of `system:nodes`, for the name `n1` and the address 192.0.2.7.
    const ASKED: &str = include_str!("../../../../api/src/kinds/certificatesigningrequest/testdata/n1.csr.b64");

    #[test]
    fn the_subject_is_decoded() {
        let object = json!({
            "metadata": {"name": "a"}, "status": {},
            "spec": {"request": ASKED.trim(), "username": "mallory", "groups": ["g"], "signerName": "s/x", "usages": ["client auth"], "expirationSeconds": 3600},
        });
        let mut sheet = Sheet::default();
        describe(&object, &mut sheet);
        let text = sheet.text();
        for part in ["O=system:nodes, CN=system:node:n1, DNS:n1, IP:192.0.2.7", "mallory", "60m", "<none>"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let mut sheet = Sheet::default();
        describe(&json!({"metadata": {"name": "a"}, "spec": {"request": "AAAA"}}), &mut sheet);
        assert!(sheet.text().contains("unreadable"), "{}", sheet.text());
    }
}
