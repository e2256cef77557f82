//! Complete requests: precedence and rejection.

use http::HeaderValue;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use service_account::Grant;

use super::*;
use crate::pki::scratch::Scratch;
use crate::pki::{Pki, ServingNames, load_or_create};

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn sources() -> (Scratch, Pki, Authenticator) {
    let scratch = Scratch::new();
    let pki = load_or_create(scratch.path(), &ServingNames::default(), now()).unwrap();
    let tokens = "root-token,root,1,system:masters\nalice-token,alice,2,\"dev,ops\"\n";
    let authn = Authenticator::new(
        TokenFile::parse(tokens, "tokens").unwrap(),
        ServiceAccounts::new(pki.signing_key(), "cluster.local").unwrap(),
        Box::new(|_, _, name| (name == "robot").then(|| serde_json::json!({"metadata": {"uid": "u-1"}}))),
    );
    (scratch, pki, authn)
}

fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
    let mut out = HeaderMap::new();
    for (name, value) in list {
        out.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    out
}

fn bearer_of(token: &str) -> HeaderMap {
    headers(&[("authorization", &format!("Bearer {token}"))])
}

#[test]
fn each_authenticator_returns_its_user() {
    let (_scratch, pki, authn) = sources();
    let alice = authn.authenticate(&bearer_of("alice-token"), None, now()).unwrap();
    assert_eq!((alice.name.as_str(), alice.uid.as_str()), ("alice", "2"));
    assert_eq!(alice.groups, ["dev", "ops", "system:authenticated"]);

    let der = CertificateDer::from_pem_slice(pki.admin().certificate_pem.as_bytes()).unwrap();
    let admin = authn.authenticate(&HeaderMap::new(), Some(&der), now()).unwrap();
    assert_eq!(admin.name, "waypost-admin");
    assert_eq!(admin.groups, ["system:masters", "system:authenticated"]);
    let both = authn.authenticate(&bearer_of("alice-token"), Some(&der), now()).unwrap();
    assert_eq!(both.name, "waypost-admin", "the certificate is asked first");

    let audiences = &[authn.accounts().issuer()];
    let bound = service_account::Binding::default();
    let grant = Grant { namespace: "ns", name: "robot", uid: "u-1", audiences, seconds: 600, bound };
    let token = authn.accounts().sign(&grant, now()).unwrap();
    let robot = authn.authenticate(&bearer_of(&token), None, now()).unwrap();
    assert_eq!(robot.name, "system:serviceaccount:ns:robot");
    assert_eq!(robot.groups, ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]);

    assert_eq!(authn.authenticate(&HeaderMap::new(), None, now()), Ok(User::anonymous()));
    for other in ["Basic YTpi", "bearer", "Bearer ", "Bearer  alice-token", ""] {
        let user = authn.authenticate(&headers(&[("authorization", other)]), None, now());
        assert_eq!(user, Ok(User::anonymous()), "{other:?}");
    }
    let lower = authn.authenticate(&headers(&[("authorization", "bearer alice-token")]), None, now()).unwrap();
    assert_eq!(lower.name, "alice");
}

#[test]
fn bad_and_hostile_credentials_give_401() {
    let (_scratch, pki, authn) = sources();
    let refused = Err(Status::unauthorized());
    for token in ["wrong", "alice-toke", "a.b.c", &"x".repeat(1_000_000), "{\"alg\":\"none\"}"] {
        assert_eq!(authn.authenticate(&bearer_of(token), None, now()), refused);
    }
    let mut twice = bearer_of("alice-token");
    twice.append(AUTHORIZATION, HeaderValue::from_static("Bearer alice-token"));
    assert_eq!(authn.authenticate(&twice, None, now()), refused);
    let mut binary = HeaderMap::new();
    binary.insert(AUTHORIZATION, HeaderValue::from_bytes(b"Bearer \xff\xfe").unwrap());
    let der = CertificateDer::from_pem_slice(pki.admin().certificate_pem.as_bytes()).unwrap();
    for certificate in [None, Some(&*der)] {
        assert_eq!(authn.authenticate(&binary, certificate, now()), refused);
    }
    assert_eq!(authn.authenticate(&HeaderMap::new(), Some(b"\x30\x03\x02\x01"), now()), refused);
    let late = Timestamp::from_second(1_800_000_000 + 3651 * 86_400).unwrap();
    assert_eq!(authn.authenticate(&HeaderMap::new(), Some(&der), late), refused);
}

#[test]
fn anonymous_requests_can_be_refused() {
    let (_scratch, _pki, authn) = sources();
    let authn = authn.without_anonymous();
    assert_eq!(authn.authenticate(&HeaderMap::new(), None, now()).unwrap_err().code, 401);
    assert!(authn.authenticate(&bearer_of("alice-token"), None, now()).is_ok());
}
