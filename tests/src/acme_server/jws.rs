//! Signed requests: JWS with ES256, nonces that are used once, accounts by key.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::Value;

use super::{ORIGIN, State};

/// An account.
pub(super) struct Account {
    /// The point of its public key, uncompressed.
    point: Vec<u8>,
    /// The thumbprint of the key (RFC 7638).
    pub(super) thumbprint: String,
}

/// A request whose signature is valid.
pub(super) struct Signed {
    /// None for a key without an account.
    pub(super) account: Option<usize>,
    pub(super) payload: Value,
    point: Vec<u8>,
    thumbprint: String,
}

/// Why a request is refused.
pub(super) struct Refusal {
    pub(super) kind: &'static str,
    pub(super) detail: String,
}

impl Refusal {
    pub(super) fn new(kind: &'static str, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}

fn decode(text: &Value) -> Result<Vec<u8>, Refusal> {
    let text = text.as_str().ok_or_else(|| Refusal::new("malformed", "a member is missing"))?;
    URL_SAFE_NO_PAD.decode(text).map_err(|error| Refusal::new("malformed", error.to_string()))
}

fn parse(bytes: &[u8]) -> Result<Value, Refusal> {
    serde_json::from_slice(bytes).map_err(|error| Refusal::new("malformed", error.to_string()))
}

impl State {
    /// Verifies a request for a path.
    pub(super) fn verify(&mut self, path: &str, body: &[u8]) -> Result<Signed, Refusal> {
        let body = parse(body)?;
        let protected = parse(&decode(&body["protected"])?)?;
        if protected["alg"] != "ES256" || protected["url"] != format!("{ORIGIN}{path}") {
            return Err(Refusal::new("malformed", format!("algorithm or URL: {protected}")));
        }
        if !self.nonces.remove(protected["nonce"].as_str().unwrap_or_default()) {
            return Err(Refusal::new("badNonce", "the nonce is unknown, or was used"));
        }
        let (account, point, thumbprint) = match protected["kid"].as_str() {
            Some(kid) => {
                let index = kid.strip_prefix(&format!("{ORIGIN}/account/")).and_then(|text| text.parse().ok());
                let found = index.and_then(|index: usize| Some((index, self.accounts.get(index)?)));
                let (index, account) = found.ok_or_else(|| Refusal::new("accountDoesNotExist", "no such account"))?;
                (Some(index), account.point.clone(), account.thumbprint.clone())
            }
            None => {
                let jwk = &protected["jwk"];
                let (x, y) = (decode(&jwk["x"])?, decode(&jwk["y"])?);
                let text = |member: &str| jwk[member].as_str().unwrap_or_default().to_owned();
                let canonical = format!(r#"{{"crv":"P-256","kty":"EC","x":"{}","y":"{}"}}"#, text("x"), text("y"));
                let thumbprint = URL_SAFE_NO_PAD.encode(digest(&SHA256, canonical.as_bytes()));
                (None, [&[4][..], &x, &y].concat(), thumbprint)
            }
        };
        let text = |member: &str| body[member].as_str().unwrap_or_default();
        let message = format!("{}.{}", text("protected"), text("payload"));
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &point);
        let is_valid = key.verify(message.as_bytes(), &decode(&body["signature"])?).is_ok();
        if !is_valid {
            return Err(Refusal::new("unauthorized", "the signature is not valid"));
        }
        let payload = decode(&body["payload"])?;
        let payload = if payload.is_empty() { Value::Null } else { parse(&payload)? };
        Ok(Signed { account, payload, point, thumbprint })
    }

    /// The account of a key, which is registered if it is new.
    pub(super) fn register(&mut self, signed: &Signed) -> usize {
        assert_eq!(signed.payload["termsOfServiceAgreed"], true, "an account agrees to the terms");
        let known = self.accounts.iter().position(|account| account.thumbprint == signed.thumbprint);
        known.unwrap_or_else(|| {
            self.log.push("account".to_owned());
            let (point, thumbprint) = (signed.point.clone(), signed.thumbprint.clone());
            self.accounts.push(Account { point, thumbprint });
            self.accounts.len() - 1
        })
    }
}
