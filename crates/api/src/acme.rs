//! Certificates by ACME (RFC 8555): how an object requests them, which Secrets hold them, and how the server publishes the
//! answers to challenges.
//!
//! ```text
//! annotation ──▶ controllers, ACME server ──▶ ConfigMap of answers ──watch──▶ gateways of the nodes ◀── validation
//!                          └──▶ Secret with the certificate
//! ```
//! The server writes, the gateways read; what an answer proves is public once it was requested, so it is no secret.

use serde::{Deserialize, Serialize};

use crate::view::StringMap;

/// On a Gateway, a ListenerSet or an Ingress: request certificates, by this challenge. On a Secret, as a label: ACME wrote it
/// and may replace it.
pub const KEY: &str = "waypost.dev/acme";
/// Value of the label of a Secret with a certificate of the CA.
pub const ISSUED: &str = "issued";
/// Value of the label of a Secret with a self-signed certificate, which opens the port until there is a certificate of the CA.
pub const TEMPORARY: &str = "temporary";
/// Namespace and name of the ConfigMap with answers to challenges.
pub const ANSWERS: (&str, &str) = ("kube-system", "waypost-acme-challenges");
/// Where answers to HTTP-01 challenges are, without the `/` before the token.
pub const PATH: &str = "/.well-known/acme-challenge";
/// The ALPN protocol of TLS-ALPN-01 challenges (RFC 8737).
pub const ALPN: &[u8] = b"acme-tls/1";
/// Longest token, in bytes; that of public CAs has 43.
const MAX_TOKEN: usize = 128;

/// How the control of a host is proved.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Challenge {
    /// By a resource at port 80.
    #[serde(rename = "http-01")]
    Http,
    /// By a certificate at port 443.
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn,
}

impl Challenge {
    /// The challenge of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Http, Self::TlsAlpn].into_iter().find(|challenge| challenge.name() == name)
    }

    /// Its name, in annotations and in the protocol.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http-01",
            Self::TlsAlpn => "tls-alpn-01",
        }
    }
}

/// The answer to a challenge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The challenge.
    pub challenge: Challenge,
    /// The only gateway that may give it: `namespace/name` of a Gateway, or the key of the gateway of an IngressClass.
    pub gateway: Box<str>,
    /// The host that is validated, in lower case.
    pub host: Box<str>,
    /// The token with the thumbprint of the account key.
    pub key_authorization: Box<str>,
    /// When it was published, in seconds since 1970.
    pub published: i64,
}

/// Whether a text is a token as RFC 8555 defines it: base64url. Anything else could be a path, or break a key of the ConfigMap.
#[must_use]
pub fn is_token(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=MAX_TOKEN).contains(&text.len()) && text.bytes().all(is_plain)
}

/// The answers in the data of the ConfigMap, by token. What is not an answer is left out.
pub fn answers(data: &StringMap) -> impl Iterator<Item = (&str, Answer)> {
    let valid = data.iter().filter(|(token, _)| is_token(token));
    valid.filter_map(|(token, text)| Some((&**token, serde_json::from_str(text).ok()?)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn challenges_have_the_names_of_the_protocol() {
        for challenge in [Challenge::Http, Challenge::TlsAlpn] {
            assert_eq!(Challenge::named(challenge.name()), Some(challenge));
            assert_eq!(json!(challenge), json!(challenge.name()));
        }
        assert_eq!(Challenge::named("dns-01"), None);
    }

    #[test]
    fn only_tokens_and_answers_are_read() {
        assert!(is_token("evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr_oA"));
        let long = "a".repeat(MAX_TOKEN + 1);
        for wrong in ["", "a/b", "..", "a.b", "ä", &long] {
            assert!(!is_token(wrong), "{wrong}");
        }
        let answer = Answer {
            challenge: Challenge::TlsAlpn,
            gateway: "shop/public".into(),
            host: "a.example".into(),
            key_authorization: "t.x".into(),
            published: 0,
        };
        let text = serde_json::to_string(&answer).unwrap();
        let data: StringMap = serde_json::from_value(json!({"t": text, "a.b": text, "u": "{}"})).unwrap();
        assert_eq!(answers(&data).collect::<Vec<_>>(), [("t", answer)]);
    }
}
