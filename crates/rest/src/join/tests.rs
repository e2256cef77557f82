//! Who is believed, and what an earlier start is worth.

use serde_json::json;

use super::discover::judge;
use super::*;
use crate::pki::scratch::Scratch;
use crate::pki::{Pki, ServingNames, load_or_create};

const TOKEN: &str = "abcdef.0123456789abcdef";

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn wish<'a>(folder: &'a Path, ca_hash: Option<&'a str>) -> Wish<'a> {
    Wish { server: "192.0.2.1:6443", node: "n1", token: Some(TOKEN), ca_hash, believe: false, folder }
}

fn cluster() -> (Scratch, Pki, ClusterInfo) {
    let scratch = Scratch::new();
    let pki = load_or_create(scratch.path(), &ServingNames::default(), now()).unwrap();
    let info = ClusterInfo { server: "https://somewhere:1".into(), ca_pem: pki.ca_pem().into(), agent_ca: None };
    (scratch, pki, info)
}

#[test]
fn a_cluster_is_believed_with_a_proof() {
    let (scratch, _pki, info) = cluster();
    let token = Token::parse(TOKEN).unwrap();
    let text = info.render();
    let signed = json!({"data": {"kubeconfig": text, "jws-kubeconfig-abcdef": token.sign(&text)}});
    let plain = wish(scratch.path(), None);
    let found = judge(&signed, &plain, &token).unwrap();
    assert_eq!(
        (found.server.as_str(), &found.ca_pem),
        ("https://192.0.2.1:6443", &info.ca_pem),
        "by the address it was found at"
    );

    let forged = json!({"data": {"kubeconfig": text, "jws-kubeconfig-abcdef": token.sign("other")}});
    assert!(matches!(judge(&forged, &plain, &token), Err(JoinError::Forged { .. })));
    let unsigned = json!({"data": {"kubeconfig": text}});
    let error = judge(&unsigned, &plain, &token).unwrap_err();
    assert!(error.to_string().contains("waypost token create --print-join-command"), "{error}");
    assert!(judge(&unsigned, &Wish { believe: true, ..plain.clone() }, &token).is_ok());

    let hash = info.ca_hash().unwrap();
    assert!(judge(&unsigned, &wish(scratch.path(), Some(&hash.to_uppercase().replace("SHA", "sha"))), &token).is_ok());
    let other = format!("sha256:{}", "0".repeat(64));
    assert!(matches!(
        judge(&signed, &wish(scratch.path(), Some(&other)), &token),
        Err(JoinError::OtherAuthority { .. })
    ));
}

#[test]
fn a_ca_beside_the_pinned_one_needs_the_signature_of_the_token() {
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
        let wish = wish(scratch.path(), Some(&hash));
        assert_eq!(judge(&signed, &wish, &token).unwrap().ca_pem, both.ca_pem);
        let found = judge(&unsigned, &wish, &token).unwrap();
        assert_eq!((found.ca_hash().unwrap(), found.ca_pem.matches("BEGIN").count()), (hash.clone(), 1));
    }
}

#[test]
fn an_earlier_start_is_found() {
    let (scratch, pki, info) = cluster();
    let path = scratch.path().join("kubeconfig");
    let wish = wish(scratch.path(), None);
    assert!(Joined::read(&path).unwrap().is_none());
    let key = OwnKey::generate().unwrap();
    let request = key.request("system:node:n1", NODES, &[], &[]).unwrap();
    let request = api::kinds::certificatesigningrequest::request::Request::parse(request.as_bytes()).unwrap();
    let pem = pki.signing().sign(&request, &["client auth"], std::time::Duration::from_secs(100), now()).unwrap();
    let here = ClusterInfo { server: "https://192.0.2.1:6443".into(), ..info };
    write(&path, &here, "n1", &key, &pem).unwrap();
    let found = Joined::read(&path).unwrap().unwrap();
    assert!(found.problem(&wish, &path, now()).is_none());
    let later = Timestamp::from_second(1_800_000_100).unwrap();
    assert!(matches!(found.problem(&wish, &path, later), Some(JoinError::Expired { .. })));
    for other in [Wish { server: "192.0.2.2:6443", ..wish.clone() }, Wish { node: "n2", ..wish }] {
        assert!(matches!(found.problem(&other, &path, now()), Some(JoinError::JoinedElsewhere { .. })), "{other:?}");
    }
    std::fs::write(&path, "damaged").unwrap();
    let wish = Wish {
        server: "192.0.2.1:6443",
        node: "n1",
        token: None,
        ca_hash: None,
        believe: false,
        folder: scratch.path(),
    };
    assert!(matches!(
        Joined::read(&path).unwrap().unwrap().problem(&wish, &path, now()),
        Some(JoinError::Expired { .. })
    ));
}

#[test]
fn a_node_follows_the_cas_of_its_cluster() {
    use super::keep::{Upkeep, is_of_another_ca, upkeep};
    use crate::pki::rotation::{self, Target};
    let (scratch, pki, own) = cluster();
    let node = pki.issue_client("system:node:n1", NODES, now()).unwrap().certificate_pem;
    let agent = pki.issue_server(&ServingNames::default(), now()).unwrap().certificate_pem;
    assert_eq!(upkeep(&own, &node, &own, false), Upkeep::Nothing);
    assert_eq!(upkeep(&own, &node, &own, true), Upkeep::Renew);
    assert!(!is_of_another_ca(&agent, Some(pki.agent_ca_key_id())) && !is_of_another_ca(&agent, None));
    let load = || load_or_create(scratch.path(), &ServingNames::default(), now()).unwrap();
    rotation::rotate(scratch.path(), &[Target::Ca, Target::AgentCa], now()).unwrap();
    let during = load();
    let both = ClusterInfo { ca_pem: during.ca_pem().into(), ..own.clone() };
    assert_eq!(upkeep(&own, &node, &both, false), Upkeep::Renew, "another CA signs");
    let renewed = during.issue_client("system:node:n1", NODES, now()).unwrap().certificate_pem;
    assert_eq!(upkeep(&both, &renewed, &both, false), Upkeep::Nothing);
    assert!(is_of_another_ca(&agent, Some(during.agent_ca_key_id())));
    rotation::finish(scratch.path(), &[Target::Ca]).unwrap();
    let new = ClusterInfo { ca_pem: load().ca_pem().into(), ..own };
    assert_eq!(upkeep(&both, &renewed, &new, false), Upkeep::Trust, "the old CA is not trusted any more");
}
