//! Selection of Secrets, access from other namespaces, invalid certificates.

use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use super::*;

const ARN: &str = "arn:aws:acm:us-east-1:123456789012:certificate/12345678-1234-1234-1234-123456789012";

/// Certificate and key as PEM.
fn pair() -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["web.example".to_owned()]).expect("parameters");
    (params.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
}

fn secret(name: &str, meta: &Value, certificate: &str, key: &str) -> Secret {
    let mut metadata = json!({"namespace": "shop", "name": name});
    for (member, value) in meta.as_object().into_iter().flatten() {
        metadata[member] = value.clone();
    }
    let data = json!({"tls.crt": STANDARD.encode(certificate), "tls.key": STANDARD.encode(key)});
    serde_json::from_value(json!({"metadata": metadata, "type": TYPE, "data": data})).expect("a Secret")
}

fn bare(name: &str, meta: &Value) -> Secret {
    secret(name, meta, "", "")
}

#[test]
fn certificate_references_are_parsed() {
    let named = |namespace: &str, name: &str| Ok(SecretRef::Named { namespace: namespace.into(), name: name.into() });
    assert_eq!(SecretRef::parse("secret://certs/web", "shop"), named("certs", "web"));
    assert_eq!(SecretRef::parse("secret://web", "shop"), named("shop", "web"));
    assert_eq!(
        SecretRef::parse(ARN, "shop"),
        Ok(SecretRef::Claimed { namespace: "shop".into(), arn: ARN.into(), secret: None })
    );
    for bad in ["secret://", "secret:///web", "secret://a/", "secret://a/b/c"] {
        assert!(
            SecretRef::parse(bad, "shop").is_err_and(|why| why.to_string().contains("secret://NAMESPACE/NAME")),
            "{bad}"
        );
    }
}

#[test]
fn s48_a_secret_claims_an_arn() {
    let place = SecretRef::parse(ARN, "shop").expect("a place");
    let claim = json!({"annotations": {CLAIM: ARN}});
    let all = [bare("b", &claim), bare("a", &claim), bare("other", &json!({"annotations": {CLAIM: "arn:other"}}))];
    assert_eq!(&*place.select(all.iter(), "shop").expect("a Secret").metadata.name, "a");
    let why = place.select(all[2..].iter(), "shop").expect_err("none").to_string();
    assert!(why.contains(&format!("kubectl -n shop annotate secret NAME {CLAIM}={ARN}")), "{why}");
    let told = place.with(Some("other"));
    assert!(told.select(all[2..].iter(), "shop").is_err(), "it must claim it, whoever says so");
    assert_eq!(
        SecretRef::parse("secret://web", "shop").map(|place| place.with(Some("x"))),
        SecretRef::parse("secret://web", "shop")
    );
    let short = SecretRef::parse("web-cert", "shop").expect("a place");
    assert!(short.select([bare("x", &json!({"labels": {CLAIM: "web-cert"}}))].iter(), "shop").is_ok());
}

#[test]
fn a_secret_of_another_namespace_must_allow_its_use() {
    let place = SecretRef::parse("secret://shop/web", "blog").expect("a place");
    let chosen = |meta: Value| place.select([bare("web", &meta)].iter(), "blog").map(|_| ());
    let why = chosen(json!({})).expect_err("not allowed").to_string();
    assert!(why.contains(&format!("kubectl -n shop annotate secret web {ALLOWED}=blog")), "{why}");
    assert!(chosen(json!({"annotations": {ALLOWED: "news"}})).is_err());
    assert_eq!(chosen(json!({"annotations": {ALLOWED: "news, blog"}})), Ok(()));
    assert_eq!(chosen(json!({"annotations": {ALLOWED: "*"}})), Ok(()));
    assert!(place.select([bare("web", &json!({}))].iter(), "shop").is_ok(), "its own namespace may");
}

#[test]
fn invalid_certificates_are_reported() {
    let (certificate, key) = pair();
    let now = Timestamp::now();
    let good = load(&secret("web", &json!({}), &certificate, &key), now).expect("a certificate");
    assert_eq!((good.key.cert.len(), good.warning), (1, None));
    let why = |certificate: &str, key: &str| {
        load(&secret("web", &json!({}), certificate, key), now).expect_err("no certificate").to_string()
    };
    assert!(why("", &key).contains("tls.crt of Secret shop/web"));
    assert!(why("nonsense", &key).contains("tls.crt"));
    assert!(why(&certificate, "nonsense").contains("tls.key"));
    assert!(why(&certificate, &pair().1).contains("not the key of"));
    let mut opaque = secret("web", &json!({}), &certificate, &key);
    opaque.kind = "Opaque".into();
    assert!(load(&opaque, now).expect_err("no certificate").to_string().contains("Opaque"));
    opaque.kind = TYPE.into();
    opaque.data = opaque.data.iter().filter(|(key, _)| &**key != "tls.key").cloned().collect();
    assert!(load(&opaque, now).expect_err("no certificate").to_string().contains("has no tls.key"));
}

#[test]
fn an_expired_certificate_is_served_with_a_warning() {
    let (certificate, key) = pair();
    let late = Timestamp::from_second(9_000_000_000 * 10).expect("a time");
    let loaded = load(&secret("web", &json!({}), &certificate, &key), late).expect("a certificate");
    assert!(loaded.warning.is_some_and(|why| why.contains("expired at")));
}
