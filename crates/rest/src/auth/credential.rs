//! Credentials that can be verified again after a request, for sessions of the web UI.
//!
//! In: a request, once. Out: the user, and a [`Credential`] from which [`Authenticator::renew`] derives the user as long as the credential is
//! valid: until the token or certificate expires, its key or CA is no longer trusted, its account or bound object is deleted, or its Secret or
//! line is removed. What is stored cannot be used to authenticate: a certificate without its key, claims without their signature, the
//! hash of a token.

use std::sync::Arc;

use api::bootstrap_token::{Kept, NAME_PREFIX, NAMESPACE, Token};
use api::status::Status;
use http::HeaderMap;
use jiff::Timestamp;
use serde_json::Value;

use super::objects::Referent;
use super::token_file::{self, TokenHash};
use super::{Authenticator, User, bearer, bootstrap, certificate, impersonate};

/// A credential that was verified.
#[derive(Clone, Debug)]
pub struct Credential(Proof);

#[derive(Clone, Debug)]
enum Proof {
    Certificate(Arc<[u8]>),
    /// The claims of a ServiceAccount token, and the key that signed it.
    Account(Arc<Value>, String),
    /// A bootstrap token: its id and its hash.
    Bootstrap(String, TokenHash),
    /// A token of the token file.
    Static(TokenHash),
}

impl Authenticator {
    /// The user of a request, as [`Self::authenticate`] returns it, and the credential; `None` for anonymous requests.
    ///
    /// # Errors
    /// As [`Self::authenticate`]; 400 with `Impersonate-*` headers, because impersonation is authorized for each request.
    pub fn identify(
        &self,
        headers: &HeaderMap,
        client_cert: Option<&[u8]>,
        now: Timestamp,
    ) -> Result<(User, Option<Credential>), Status> {
        if impersonate::wanted(headers)?.is_some() {
            return Err(Status::bad_request(
                "a session cannot impersonate: repeat the request without Impersonate-* headers",
            ));
        }
        let user = self.authenticate(headers, client_cert, now)?;
        Ok((user, self.proof(headers, client_cert, now)?.map(Credential)))
    }

    /// The credential of an authenticated request; authenticators run in the same order.
    fn proof(&self, headers: &HeaderMap, client_cert: Option<&[u8]>, now: Timestamp) -> Result<Option<Proof>, Status> {
        if let Some(der) = client_cert
            && certificate::user(der, now).is_ok_and(|user| user.is_some())
        {
            return Ok(Some(Proof::Certificate(der.into())));
        }
        let Some(token) = bearer(headers)? else { return Ok(None) };
        let hash = token_file::hash(token);
        if self.tokens.user_by_hash(&hash).is_some() {
            return Ok(Some(Proof::Static(hash)));
        }
        if self.bootstrap_user(token, now).is_some() {
            return Ok(Token::parse(token).map(|token| Proof::Bootstrap(token.id().to_owned(), hash)));
        }
        let verified = self.token_user(token, &[self.accounts.issuer()], now).map_err(|_| Status::unauthorized())?;
        Ok(Some(Proof::Account(Arc::new(verified.claims), verified.key_id)))
    }

    /// The user of an earlier credential; `None` once it is invalid.
    #[must_use]
    pub fn renew(&self, credential: &Credential, now: Timestamp) -> Option<User> {
        let user = match &credential.0 {
            Proof::Certificate(der) => certificate::user(der, now).ok()?.filter(|_| self.trusts(der))?,
            Proof::Account(_, key_id) if !self.accounts.accepts_key(key_id, now) => return None,
            Proof::Account(claims, _) => self.accounts.holder(claims, now, &*self.lookup).ok()?,
            Proof::Bootstrap(id, hash) => self.bootstrap_user_by_hash(id, hash, now)?,
            Proof::Static(hash) => self.tokens.user_by_hash(hash)?.clone(),
        };
        Some(user.authenticated())
    }

    fn bootstrap_user_by_hash(&self, id: &str, hash: &TokenHash, now: Timestamp) -> Option<User> {
        let secret = (self.lookup)(Referent::Secret, NAMESPACE, &format!("{NAME_PREFIX}{id}"))?;
        let kept = Kept::read(&secret)?;
        (token_file::hash(&kept.token.text()) == *hash).then(|| bootstrap::user(&kept.token, &secret, now))?
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use parking_lot::Mutex;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    use serde_json::json;

    use super::*;
    use crate::auth::service_account::{Binding, Grant, Reference, ServiceAccounts};
    use crate::auth::token_file::TokenFile;
    use crate::pki::scratch::Scratch;
    use crate::pki::{Pki, ServingNames, load_or_create};

    const NOW: i64 = 1_800_000_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    struct Fixture {
        _scratch: Scratch,
        pki: Pki,
        authn: Authenticator,
        /// Kinds of objects that exist.
        there: Arc<Mutex<Vec<Referent>>>,
        bootstrap: Token,
    }

    fn fixture() -> Fixture {
        let scratch = Scratch::new();
        let pki = load_or_create(scratch.path(), &ServingNames::default(), at(NOW)).unwrap();
        let there = Arc::new(Mutex::new(vec![Referent::ServiceAccount, Referent::Pod, Referent::Secret]));
        let bootstrap = bootstrap::new_token();
        let mut secret = bootstrap.keep("", Some(at(NOW + 3600)));
        api::kinds::secret::KIND.rules.default(&mut secret);
        let known = there.clone();
        let lookup = Box::new(move |what: Referent, _: &str, _: &str| {
            let found = if what == Referent::Secret { secret.clone() } else { json!({"metadata": {"uid": "u"}}) };
            known.lock().contains(&what).then_some(found)
        });
        let tokens = TokenFile::parse("t,root,1,system:masters", "f").unwrap();
        let accounts = ServiceAccounts::new(pki.signing_key(), "cluster.local").unwrap();
        Fixture { authn: Authenticator::new(tokens, accounts, lookup), _scratch: scratch, pki, there, bootstrap }
    }

    impl Fixture {
        fn shown(&self, token: &str) -> Credential {
            let mut headers = HeaderMap::new();
            headers.insert("authorization", HeaderValue::from_str(&format!("Bearer {token}")).unwrap());
            let (user, credential) = self.authn.identify(&headers, None, at(NOW)).unwrap();
            let credential = credential.expect("a credential");
            assert_eq!(self.authn.renew(&credential, at(NOW)), Some(user), "it is the same user");
            credential
        }

        fn lasts(&self, credential: &Credential, second: i64) -> bool {
            self.authn.renew(credential, at(second)).is_some()
        }

        fn gone(&self, what: Referent) {
            self.there.lock().retain(|own| *own != what);
        }

        fn account_token(&self) -> String {
            let bound = Binding { pod: Some(Reference { name: "p", uid: "u" }), ..Binding::default() };
            let audiences = [self.authn.accounts().issuer()];
            let grant = Grant { namespace: "ns", name: "robot", uid: "u", audiences: &audiences, seconds: 600, bound };
            self.authn.accounts().sign(&grant, at(NOW)).unwrap()
        }
    }

    #[test]
    fn a_credential_expires() {
        let fixture = fixture();
        let account = fixture.shown(&fixture.account_token());
        assert_eq!((fixture.lasts(&account, NOW + 600), fixture.lasts(&account, NOW + 661)), (true, false));
        let bootstrap = fixture.shown(&fixture.bootstrap.text());
        assert_eq!((fixture.lasts(&bootstrap, NOW + 3599), fixture.lasts(&bootstrap, NOW + 3601)), (true, false));

        let issued = fixture.pki.issue_client("ada", "dev", at(NOW)).unwrap();
        let der = CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap();
        let (_, certificate) = fixture.authn.identify(&HeaderMap::new(), Some(&der), at(NOW)).unwrap();
        let certificate = certificate.unwrap();
        assert_eq!(fixture.authn.renew(&certificate, at(NOW)).unwrap().name, "ada");
        assert!(!fixture.lasts(&certificate, NOW + 366 * 86_400));
        assert!(fixture.authn.identify(&HeaderMap::new(), None, at(NOW)).unwrap().1.is_none(), "nothing was shown");
    }

    #[test]
    fn a_credential_ends_with_the_objects_it_depends_on() {
        let fixture = fixture();
        let (account, bootstrap) = (fixture.shown(&fixture.account_token()), fixture.shown(&fixture.bootstrap.text()));
        fixture.gone(Referent::Pod);
        assert!(!fixture.lasts(&account, NOW), "the Pod is gone");
        assert!(fixture.lasts(&bootstrap, NOW));
        fixture.gone(Referent::Secret);
        assert!(!fixture.lasts(&bootstrap, NOW), "the Secret is gone");
    }

    #[test]
    fn a_session_does_not_impersonate() {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", HeaderValue::from_static("Bearer t"));
        headers.insert("impersonate-user", HeaderValue::from_static("ada"));
        assert_eq!(fixture().authn.identify(&headers, None, at(NOW)).unwrap_err().code, 400);
    }

    #[test]
    fn removing_a_line_of_the_token_file_ends_its_credential() {
        let mut fixture = fixture();
        let root = fixture.shown("t");
        assert!(fixture.lasts(&root, NOW + 86_400));
        fixture.authn.tokens = TokenFile::parse("other,root,1,system:masters", "f").unwrap();
        assert!(!fixture.lasts(&root, NOW));
        assert!(!format!("{root:?}").contains("\"t\""), "the token is not kept");
    }
}
