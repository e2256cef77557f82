//! Verification of a cluster, and reuse of a join.

use serde_json::json;

use super::discover::verify;
use super::*;
use crate::pki::scratch::Scratch;
use crate::pki::{Pki, ServingNames, load_or_create};

const TOKEN: &str = "abcdef.0123456789abcdef";

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn options<'a>(dir: &'a Path, ca_hash: Option<&'a str>) -> JoinOptions<'a> {
    JoinOptions { server: "192.0.2.1:6443", node: "n1", token: Some(TOKEN), ca_hash, skip_ca_verification: false, dir }
}

fn cluster() -> (Scratch, Pki, ClusterInfo) {
    let scratch = Scratch::new();
    let pki = load_or_create(scratch.path(), &ServingNames::default(), now()).unwrap();
    let info = ClusterInfo { server: "https://somewhere:1".into(), ca_pem: pki.ca_pem().into(), agent_ca: None };
    (scratch, pki, info)
}

#[test]
fn cluster_info_is_verified_by_hash_or_signature() {
    let (scratch, _pki, info) = cluster();
    let token = Token::parse(TOKEN).unwrap();
    let text = info.render();
    let signed = json!({"data": {"kubeconfig": text, "jws-kubeconfig-abcdef": token.sign(&text)}});
    let plain = options(scratch.path(), None);
    let found = verify(&signed, &plain, &token).unwrap();
    assert_eq!(
        (found.server.as_str(), &found.ca_pem),
        ("https://192.0.2.1:6443", &info.ca_pem),
        "by the address it was found at"
    );

    let forged = json!({"data": {"kubeconfig": text, "jws-kubeconfig-abcdef": token.sign("other")}});
    assert!(matches!(verify(&forged, &plain, &token), Err(JoinError::BadSignature { .. })));
    let unsigned = json!({"data": {"kubeconfig": text}});
    let error = verify(&unsigned, &plain, &token).unwrap_err();
    assert!(error.to_string().contains("waypost token create --print-join-command"), "{error}");
    assert!(verify(&unsigned, &JoinOptions { skip_ca_verification: true, ..plain.clone() }, &token).is_ok());

    let hash = info.ca_hash().unwrap();
    assert!(
        verify(&unsigned, &options(scratch.path(), Some(&hash.to_uppercase().replace("SHA", "sha"))), &token).is_ok()
    );
    let other = format!("sha256:{}", "0".repeat(64));
    assert!(matches!(
        verify(&signed, &options(scratch.path(), Some(&other)), &token),
        Err(JoinError::CaMismatch { .. })
    ));
}

#[test]
fn further_cas_need_the_signature_of_the_token() {
    use crate::pki::rotation::{self, Target};
    let (scratch, _pki, old) = cluster();
    let token = Token::parse(TOKEN).unwrap();
    rotation::rotate(scratch.path(), &[Target::Ca], now()).unwrap();
    let pki = load_or_create(scratch.path(), &ServingNames::default(), now()).unwrap();
    let both = ClusterInfo { ca_pem: pki.ca_pem().into(), ..old.clone() };
    let text = both.render();
    let signed = json!({"data": {"kubeconfig": text, "jws-kubeconfig-abcdef": token.sign(&text)}});
    let unsigned = json!({"data": {"kubeconfig": text}});
    for hash in [old.ca_hash().unwrap(), both.ca_hash().unwrap()] {
        let options = options(scratch.path(), Some(&hash));
        assert_eq!(verify(&signed, &options, &token).unwrap().ca_pem, both.ca_pem);
        let found = verify(&unsigned, &options, &token).unwrap();
        assert_eq!((found.ca_hash().unwrap(), found.ca_pem.matches("BEGIN").count()), (hash.clone(), 1));
    }
}

#[test]
fn an_earlier_join_is_reused() {
    let (scratch, pki, info) = cluster();
    let path = scratch.path().join("kubeconfig");
    let options = options(scratch.path(), None);
    assert!(Joined::read(&path).unwrap().is_none());
    let key = OwnKey::generate().unwrap();
    let request = key.request("system:node:n1", NODES, &[], &[]).unwrap();
    let request = api::kinds::certificatesigningrequest::request::Request::parse(request.as_bytes()).unwrap();
    let pem = pki.signing().sign(&request, &["client auth"], std::time::Duration::from_secs(100), now()).unwrap();
    let here = ClusterInfo { server: "https://192.0.2.1:6443".into(), ..info };
    write(&path, &here, "n1", &key, &pem).unwrap();
    let found = Joined::read(&path).unwrap().unwrap();
    assert!(found.problem(&options, &path, now()).is_none());
    let later = Timestamp::from_second(1_800_000_100).unwrap();
    assert!(matches!(found.problem(&options, &path, later), Some(JoinError::Expired { .. })));
    for other in [JoinOptions { server: "192.0.2.2:6443", ..options.clone() }, JoinOptions { node: "n2", ..options }] {
        assert!(matches!(found.problem(&other, &path, now()), Some(JoinError::JoinedElsewhere { .. })), "{other:?}");
    }
    std::fs::write(&path, "damaged").unwrap();
    let options = JoinOptions {
        server: "192.0.2.1:6443",
        node: "n1",
        token: None,
        ca_hash: None,
        skip_ca_verification: false,
        dir: scratch.path(),
    };
    assert!(matches!(
        Joined::read(&path).unwrap().unwrap().problem(&options, &path, now()),
        Some(JoinError::Expired { .. })
    ));
}

#[test]
fn a_node_follows_the_cas_of_its_cluster() {
    use super::renewal::{Renewal, is_of_another_ca, renewal};
    use crate::pki::rotation::{self, Target};
    let (scratch, pki, own) = cluster();
    let node = pki.issue_client("system:node:n1", NODES, now()).unwrap().certificate_pem;
    let agent = pki.issue_server(&ServingNames::default(), now()).unwrap().certificate_pem;
    assert_eq!(renewal(&own, &node, &own, false), Renewal::Nothing);
    assert_eq!(renewal(&own, &node, &own, true), Renewal::Renew);
    assert!(!is_of_another_ca(&agent, Some(pki.agent_ca_key_id())) && !is_of_another_ca(&agent, None));
    let load = || load_or_create(scratch.path(), &ServingNames::default(), now()).unwrap();
    rotation::rotate(scratch.path(), &[Target::Ca, Target::AgentCa], now()).unwrap();
    let during = load();
    let both = ClusterInfo { ca_pem: during.ca_pem().into(), ..own.clone() };
    assert_eq!(renewal(&own, &node, &both, false), Renewal::Renew, "another CA signs");
    let renewed = during.issue_client("system:node:n1", NODES, now()).unwrap().certificate_pem;
    assert_eq!(renewal(&both, &renewed, &both, false), Renewal::Nothing);
    assert!(is_of_another_ca(&agent, Some(during.agent_ca_key_id())));
    rotation::finish(scratch.path(), &[Target::Ca]).unwrap();
    let new = ClusterInfo { ca_pem: load().ca_pem().into(), ..own };
    assert_eq!(renewal(&both, &renewed, &new, false), Renewal::Trust, "the old CA is not trusted any more");
}
