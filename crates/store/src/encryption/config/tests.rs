use proptest::prelude::*;

use super::*;
use crate::Table;

const GOOD: &str = r"
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets, configmaps, pandas.awesome.bears.example]
  providers:
  - aesgcm:
      keys:
      - {name: key2, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}
      - {name: key1, secret: c2VjcmV0IGlzIHNlY3VyZQ==}
  - identity: {}
- resources: ['*.apps']
  providers:
  - identity: {}
  - aesgcm:
      keys: [{name: key1, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]
";

#[test]
fn the_first_key_of_the_first_provider_encrypts_and_all_decrypt() {
    let encryption = parse(GOOD.as_bytes()).expect("a good configuration");
    let names: Vec<_> = encryption.keys.iter().map(SecretKey::name).collect();
    assert_eq!(names, ["key2", "key1"]);
    let secrets = encryption.writing_key(Table::named("secrets"));
    assert_eq!(secrets, Some(encryption.keys[0].id()));
    assert_eq!(encryption.writing_key(Table::named("deployments")), None);
    assert_eq!(encryption, parse(GOOD.as_bytes()).expect("the same"));
    assert_ne!(encryption, parse(GOOD.replace("key2", "key3").as_bytes()).expect("another"));
}

/// The error for one element of `resources`, written as JSON.
fn refusal(rule: &str) -> String {
    let text = format!(r#"{{"apiVersion":"{API_VERSION}","kind":"{KIND}","resources":[{rule}]}}"#);
    parse(text.as_bytes()).expect_err("refused").to_string()
}

fn refusal_of_resources(list: &str) -> String {
    refusal(&format!(r#"{{"resources":{list},"providers":[{{"identity":{{}}}}]}}"#))
}

fn refusal_of_provider(provider: &str) -> String {
    refusal(&format!(r#"{{"resources":["secrets"],"providers":[{provider}]}}"#))
}

#[test]
fn resources_are_refused_in_the_words_of_kube_apiserver() {
    for (list, words) in [
        ("[]", "resources[0].resources: Required value: at least one resources[0].resources is required"),
        (
            r#"["Secrets"]"#,
            r#"resources[0].resources[0]: Invalid value: "Secrets": resource name should not contain capital letters"#,
        ),
        (
            r#"["*"]"#,
            r#"resources[0].resources[0]: Invalid value: "*": use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"#,
        ),
        (
            r#"["pods", "events.events.k8s.io"]"#,
            r#"resources[0].resources[1]: Invalid value: "events.events.k8s.io": '*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file"#,
        ),
        (
            r#"["apiserveripinfo"]"#,
            r#"resources[0].resources[0]: Invalid value: "apiserveripinfo": resources which do not have REST API/s cannot be encrypted"#,
        ),
        (
            r#"["ingresses.extensions"]"#,
            r#"resources[0].resources[0]: Invalid value: "ingresses.extensions": 'extensions' group has been removed and cannot be used for encryption"#,
        ),
        (
            r#"["secrets.*"]"#,
            r#"resources[0].resources[0]: Invalid value: "secrets.*": encrypting the same resource across groups is not supported"#,
        ),
        (
            r#"["secrets", "secrets"]"#,
            r#"resources[0].resources: Invalid value: ["secrets","secrets"]: the same resource cannot be specified multiple times"#,
        ),
        (
            r#"["secrets", "*."]"#,
            r#"resources[0].resources: Invalid value: ["secrets","*."]: using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked"#,
        ),
    ] {
        assert_eq!(refusal_of_resources(list), words, "{list}");
    }
    assert!(refusal_of_resources(r#"["pods", "*.*"]"#).contains("will be masked"));
}

#[test]
fn providers_and_keys_are_refused_without_showing_a_secret() {
    let key = |fields: &str| format!(r#"{{"aesgcm":{{"keys":[{{{fields}}}]}}}}"#);
    let place = "resources[0].providers[0]";
    for (provider, words) in [
        (
            r#"{"kms":{"name":"vault","endpoint":"unix:///s"}}"#.to_owned(),
            format!("{place}.kms: Forbidden: provider kms is not supported; use aesgcm"),
        ),
        (
            r#"{"secretbox":{"keys":[]}}"#.to_owned(),
            format!("{place}.secretbox: Forbidden: provider secretbox is not supported; use aesgcm"),
        ),
        (
            "{}".to_owned(),
            format!(
                "{place}: Invalid value: {{}}: provider does not contain any of the expected providers: AESGCM, Identity"
            ),
        ),
        (
            r#"{"aesgcm":{"keys":[]}}"#.to_owned(),
            format!("{place}.aesgcm.keys: Required value: at least one keys is required"),
        ),
        (
            key(r#""secret":"c2VjcmV0IGlzIHNlY3VyZQ==""#),
            format!("{place}.aesgcm.keys[0].name: Required value: name is a mandatory field for a key"),
        ),
        (
            key(r#""name":"a""#),
            format!("{place}.aesgcm.keys[0].secret: Required value: secret is a mandatory field for a key"),
        ),
        (
            key(r#""name":"a","secret":"c2VjcmV0*""#),
            format!(r#"{place}.aesgcm.keys[0].secret: Invalid value: "REDACTED": secrets must be base64 encoded"#),
        ),
        (
            key(r#""name":"a","secret":"c2VjcmV0""#),
            format!(
                r#"{place}.aesgcm.keys[0].secret: Invalid value: "REDACTED": secret is not of the expected length, got 6, expected one of [16 24 32]"#
            ),
        ),
        (
            key(r#""name":"a","key":"c2VjcmV0""#),
            format!(r#"strict decoding error: unknown field "{place}.aesgcm.keys[0].key""#),
        ),
    ] {
        let refusal = refusal_of_provider(&provider);
        assert_eq!(refusal, words, "{provider}");
        assert!(!refusal.contains("c2VjcmV0"));
    }
    let two = refusal_of_provider(r#"{"identity":{},"aesgcm":{"keys":[{"name":"a","secret":"c2VjcmV0"}]}}"#);
    assert!(two.contains("more than one provider specified in a single element") && !two.contains("c2VjcmV0"), "{two}");
    let long =
        refusal_of_provider(&key(&format!(r#""name":"{}","secret":"c2VjcmV0IGlzIHNlY3VyZQ==""#, "n".repeat(256))));
    assert!(long.ends_with(".name: Too long: may not be more than 255 bytes"), "{long}");
}

#[test]
fn other_kinds_and_malformed_files_are_refused() {
    for (text, words) in [
        ("", "expected an object"),
        ("kind: Pod\napiVersion: v1", "no kind \"Pod\" is registered for version \"v1\""),
        ("- 1", "expected an object"),
        ("a: b: c", "yaml"),
    ] {
        let refusal = parse(text.as_bytes()).expect_err("refused").to_string();
        assert!(refusal.contains(words), "{text}: {refusal}");
    }
    let twice = GOOD.replace("kind:", "kind: EncryptionConfiguration\nkind:");
    assert!(parse(twice.as_bytes()).expect_err("refused").to_string().starts_with("strict decoding error"));
    let none = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration";
    assert_eq!(
        parse(none.as_bytes()).expect_err("refused").to_string(),
        "resources: Required value: at least one resources is required"
    );
}

proptest! {
    #[test]
    fn arbitrary_text_does_not_panic(text in "\\PC{0,200}") {
        let _ = parse(text.as_bytes());
    }

    #[test]
    fn arbitrary_values_do_not_panic(rule in any_json()) {
        let parsed = parse(format!(r#"{{"apiVersion":"{API_VERSION}","kind":"{KIND}","resources":{rule}}}"#).as_bytes());
        prop_assert!(parsed.is_err() || parsed.is_ok_and(|encryption| encryption.keys.is_empty()), "{rule}");
    }

    #[test]
    fn flipped_bytes_do_not_panic(place in 0..GOOD.len(), byte: u8) {
        let mut text = GOOD.as_bytes().to_vec();
        text[place] = byte;
        let _ = parse(&text);
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf =
        prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), "[a-z*.]{0,8}".prop_map(Value::from)];
    let name = prop::sample::select(vec!["resources", "providers", "aesgcm", "identity", "keys", "name", "secret"]);
    leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.clone().prop_map(str::to_owned), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}
