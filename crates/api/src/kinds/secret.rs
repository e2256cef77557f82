//! Secret: bytes under file-like keys, with checks that depend on the type.
//!
//! `stringData` is write-only: it is merged into `data` before the object is used otherwise.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::common::{immutable_text, report};
use super::configmap::{MAX_SIZE, check_frozen, decoded_len};
use crate::field::{Errors, Path};
use crate::kind::{Kind, Rules, Selectable};
use crate::meta;
use crate::names;
use crate::table::{AGE, NAME, Table, age, column, no_conditions};
use crate::value::ValueExt as _;
use crate::view::annotations::SERVICE_ACCOUNT_NAME;

/// The kind.
pub static KIND: Kind = Kind {
    kind: "Secret",
    plural: "secrets",
    singular: "secret",
    schema: "core.Secret",
    table: "secrets",
    selectable: &[Selectable { label: "type", value: |object| object.text("type").to_owned() }],
    table_view: &TABLE,
    ..Kind::common(&SecretRules)
};

static TABLE: Table = Table {
    columns: &[NAME, column("Type", "What the secret is for."), column("Data", "How many entries there are."), AGE],
    row: |object, now| {
        let entries = object.map("data").map_or(0, Map::len);
        vec![object.text("metadata.name").into(), object.text("type").into(), entries.into(), age(object, now).into()]
    },
    conditions: no_conditions,
};

struct SecretRules;

impl Rules for SecretRules {
    fn default(&self, object: &mut Value) {
        fold_string_data(object);
        if object.text("type").is_empty() {
            object.put("type", "Opaque");
        }
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, true, names::name_is_subdomain, errors);
        let path = Path::Root("data");
        let mut size = 0;
        for (key, value) in object.map("data").into_iter().flatten() {
            report(&path.key(key), key, names::config_key(key), errors);
            size += decoded_len(value);
        }
        if size > MAX_SIZE {
            errors.too_long(&path, MAX_SIZE);
        }
        validate_type(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        immutable_text(&Path::Root("type"), new.text("type"), old.text("type"), errors);
        check_frozen(new, old, &["data"], errors);
        self.validate_create(new, errors);
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>, out: &mut Vec<String>) {
        if new.text("type") == "kubernetes.io/tls" {
            out.extend(key_pair_problem(&decoded(new, "tls.crt"), &decoded(new, "tls.key")));
        }
    }
}

fn fold_string_data(object: &mut Value) {
    let Some(Value::Object(strings)) = object.drop_path("stringData") else { return };
    if strings.is_empty() {
        return;
    }
    if !object.at("data").is_object() {
        object.put("data", Value::Object(Map::new()));
    }
    let Some(data) = object.at_mut("data").and_then(Value::as_object_mut) else { return };
    for (key, value) in strings {
        data.insert(key, STANDARD.encode(value.as_str().unwrap_or_default()).into());
    }
}

/// The entry, decoded; keys may have dots, so no dotted path leads there.
fn decoded(object: &Value, key: &str) -> Vec<u8> {
    let text = object.at("data").get(key).and_then(Value::as_str).unwrap_or_default();
    STANDARD.decode(text).unwrap_or_default()
}

fn validate_type(object: &Value, errors: &mut Errors) {
    let path = Path::Root("data");
    let has = |key: &str| object.at("data").get(key).is_some();
    let mut require = |key: &str| {
        if !has(key) {
            errors.required(&path.key(key), "");
        }
    };
    match object.text("type") {
        "kubernetes.io/service-account-token" => {
            let account = object.at("metadata.annotations").get(SERVICE_ACCOUNT_NAME).and_then(Value::as_str);
            if account.unwrap_or_default().is_empty() {
                errors.required(&Path::Root("metadata.annotations").key(SERVICE_ACCOUNT_NAME), "");
            }
        }
        "kubernetes.io/dockercfg" => require_json(object, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => require_json(object, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            require("username");
            require("password");
        }
        "kubernetes.io/ssh-auth" if decoded(object, "ssh-privatekey").is_empty() => {
            errors.required(&path.key("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => {
            require("tls.crt");
            require("tls.key");
        }
        _ => {}
    }
}

fn require_json(object: &Value, key: &str, errors: &mut Errors) {
    let path = Path::Root("data");
    if object.at("data").get(key).is_none() {
        errors.required(&path.key(key), "");
    } else if let Err(error) = serde_json::from_slice::<Map<String, Value>>(&decoded(object, key)) {
        errors.invalid(&path.key(key), "<secret contents redacted>", &error.to_string());
    }
}

/// Why certificate and key cannot be a pair, as far as their PEM envelopes show.
fn key_pair_problem(certificate: &[u8], key: &[u8]) -> Option<String> {
    let found = pem_types(certificate);
    if !found.iter().any(|kind| kind == "CERTIFICATE") {
        return Some(match found.as_slice() {
            [] => "tls: failed to find any PEM data in certificate input".to_owned(),
            [only] if only.ends_with("PRIVATE KEY") => {
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs \
                 may have been switched"
                    .to_owned()
            }
            _ => format!(
                "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the \
                 following types: [{}]",
                found.join(" ")
            ),
        });
    }
    let found = pem_types(key);
    if found.iter().any(|kind| kind == "PRIVATE KEY" || kind.ends_with(" PRIVATE KEY")) {
        return None;
    }
    Some(match found.as_slice() {
        [] => "tls: failed to find any PEM data in key input".to_owned(),
        [only] if only == "CERTIFICATE" => {
            "tls: found a certificate rather than a key in the PEM for the private key".to_owned()
        }
        _ => format!(
            "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks \
             of the following types: [{}]",
            found.join(" ")
        ),
    })
}

/// The types of the PEM blocks in a text.
fn pem_types(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let mut types = Vec::new();
    let mut open: Option<&str> = None;
    for line in text.lines().map(str::trim_end) {
        let marker = |start: &str| line.strip_prefix(start).and_then(|rest| rest.strip_suffix("-----"));
        if let Some(kind) = marker("-----BEGIN ") {
            open = Some(kind);
        } else if let Some(kind) = marker("-----END ")
            && open.take() == Some(kind)
        {
            types.push(kind.to_owned());
        }
    }
    types
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::{golden, summary};

    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
    const KEY: &str = "-----BEGIN EC PRIVATE KEY-----\nAA==\n-----END EC PRIVATE KEY-----\n";

    #[test]
    fn golden_answers() {
        golden("config-lease-event", &KIND);
    }

    #[test]
    fn string_data_wins_over_data() {
        let mut object = json!({"stringData": {"a": "x"}, "data": {"a": "AAAA", "b": "AAAA"}});
        SecretRules.default(&mut object);
        assert_eq!(object, json!({"type": "Opaque", "data": {"a": "eA==", "b": "AAAA"}}));
    }

    #[test]
    fn types_need_their_keys() {
        for (kind, wrong) in [
            ("Opaque", "[]"),
            ("kubernetes.io/dockercfg", "data[.dockercfg]: Required value"),
            ("kubernetes.io/ssh-auth", "data[ssh-privatekey]: Required value"),
            ("kubernetes.io/basic-auth", "[data[username]: Required value, data[password]: Required value]"),
            (
                "kubernetes.io/service-account-token",
                "metadata.annotations[kubernetes.io/service-account.name]: Required value",
            ),
        ] {
            let object = json!({"metadata": {"name": "s", "namespace": "n"}, "type": kind});
            assert_eq!(summary(|errors| SecretRules.validate_create(&object, errors)), wrong, "{kind}");
        }
        let object = json!({
            "metadata": {"name": "s", "namespace": "n"}, "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": "W10="},
        });
        let text = summary(|errors| SecretRules.validate_create(&object, errors));
        assert!(text.contains("<secret contents redacted>"), "{text}");
    }

    #[test]
    fn pem_envelopes_are_looked_at() {
        let problem = |certificate: &str, key: &str| key_pair_problem(certificate.as_bytes(), key.as_bytes());
        assert_eq!(problem(CERTIFICATE, KEY), None);
        assert!(problem(KEY, CERTIFICATE).expect("a problem").ends_with("may have been switched"));
        assert!(problem(CERTIFICATE, CERTIFICATE).expect("a problem").contains("rather than a key"));
        assert!(problem(CERTIFICATE, "").expect("a problem").ends_with("in key input"));
    }
}
