//! Bootstrap tokens: short credentials with which a new machine joins, and verifies the cluster's identity.
//!
//! A token is `id.secret`. It is stored as the Secret `bootstrap-token-ID` in `kube-system`, in the format of kubeadm and
//! kube-apiserver. In: the text of a token, or such a Secret. Out: the parts of the one, what the other allows, and signatures of
//! texts that only holders of the token can make or verify.

use std::fmt::{self, Debug, Formatter};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use ring::hmac;
use serde_json::{Value, json};

use crate::value::ValueExt as _;

/// The type of the Secrets.
pub const TYPE: &str = "bootstrap.kubernetes.io/token";
/// Where the Secrets are.
pub const NAMESPACE: &str = "kube-system";
/// The prefix of their names.
pub const NAME_PREFIX: &str = "bootstrap-token-";
/// The group of all clients that authenticate with a token.
pub const GROUP: &str = "system:bootstrappers";
/// The group in which kubeadm lets nodes join.
pub const NODE_GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";
/// Where the cluster describes itself to clients that cannot authenticate yet: namespace and name of a ConfigMap.
pub const CLUSTER_INFO: (&str, &str) = ("kube-public", "cluster-info");
/// The entry of that ConfigMap with the cluster's address and CA.
pub const KUBECONFIG: &str = "kubeconfig";
/// The prefix of the names of the entries with its signatures; the id of the token follows.
pub const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";

const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
/// The letters of a token.
const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
/// Random bytes from here on are not used: they would make some letters likelier than others.
const FAIR: u8 = 252;

/// A token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    id: String,
    secret: String,
}

impl Debug for Token {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.id)
    }
}

impl Token {
    /// Reads a token; nothing when the text is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.split_once('.')?;
        let good = |text: &str, length: usize| text.len() == length && text.bytes().all(|byte| LETTERS.contains(&byte));
        (good(id, ID_LENGTH) && good(secret, SECRET_LENGTH)).then(|| Self { id: id.into(), secret: secret.into() })
    }

    /// A token from random bytes; nothing when there are too few of them.
    #[must_use]
    pub fn from_random(bytes: &[u8]) -> Option<Self> {
        let letters = bytes.iter().filter(|byte| **byte < FAIR).map(|byte| LETTERS[usize::from(*byte) % LETTERS.len()]);
        let text: String = letters.take(ID_LENGTH + SECRET_LENGTH).map(char::from).collect();
        if text.len() < ID_LENGTH + SECRET_LENGTH {
            return None;
        }
        let (id, secret) = text.split_at(ID_LENGTH);
        Some(Self { id: id.into(), secret: secret.into() })
    }

    /// The part that is no secret.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// All of it.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }

    /// The Secret that keeps it.
    #[must_use]
    pub fn keep(&self, description: &str, until: Option<Timestamp>) -> Value {
        let mut data = json!({
            "token-id": self.id, "token-secret": self.secret, "auth-extra-groups": NODE_GROUP,
            "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
        });
        if !description.is_empty() {
            data["description"] = description.into();
        }
        if let Some(until) = until {
            data["expiration"] = crate::lifecycle::seconds(until).into();
        }
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": TYPE,
            "metadata": {"name": format!("{NAME_PREFIX}{}", self.id), "namespace": NAMESPACE},
            "stringData": data,
        })
    }

    /// The detached signature of a text, as kubeadm makes it (JWS, HS256).
    #[must_use]
    pub fn sign(&self, text: &str) -> String {
        let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{}"}}"#, self.id));
        let tag = hmac::sign(&self.key(), format!("{header}.{}", URL_SAFE_NO_PAD.encode(text)).as_bytes());
        format!("{header}..{}", URL_SAFE_NO_PAD.encode(tag))
    }

    /// Whether a signature of a text was made with this token.
    #[must_use]
    pub fn signed(&self, text: &str, signature: &str) -> bool {
        // Both have the same length and are compared in constant time.
        let key = self.key();
        hmac::verify(&key, signature.as_bytes(), hmac::sign(&key, self.sign(text).as_bytes()).as_ref()).is_ok()
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.secret.as_bytes())
    }
}

/// A token as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The token.
    pub token: Token,
    /// Its purpose.
    pub description: String,
    /// Until when it is good.
    pub until: Until,
    /// Whether it is valid for authentication.
    pub authenticates: bool,
    /// Whether it signs the cluster information.
    pub signs: bool,
    /// The groups of clients that authenticate with it, besides [`GROUP`].
    pub groups: Vec<String>,
}

/// Until when a token is good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// For ever.
    Removed,
    /// Until then.
    Time(Timestamp),
    /// What is written there is no time: it is not good any more.
    Unreadable,
}

impl Until {
    /// Whether it is over.
    #[must_use]
    pub fn is_over(self, now: Timestamp) -> bool {
        match self {
            Self::Removed => false,
            Self::Time(time) => time <= now,
            Self::Unreadable => true,
        }
    }
}

impl Kept {
    /// Reads a Secret; nothing when it keeps no token that could be used.
    #[must_use]
    pub fn read(secret: &Value) -> Option<Self> {
        if secret.text("type") != TYPE || secret.has("metadata.deletionTimestamp") {
            return None;
        }
        let entry = |key: &str| entry(secret, key);
        let token = Token::parse(&format!("{}.{}", entry("token-id"), entry("token-secret")))?;
        if secret.text("metadata.name").strip_prefix(NAME_PREFIX) != Some(token.id()) {
            return None;
        }
        let groups = entry("auth-extra-groups");
        let groups: Vec<String> = groups.split(',').filter(|group| !group.is_empty()).map(str::to_owned).collect();
        Some(Self {
            token,
            description: entry("description"),
            until: until(secret),
            // Groups outside of the bootstrappers prefix could grant any right: such a token does not authenticate.
            authenticates: entry("usage-bootstrap-authentication") == "true"
                && groups.iter().all(|group| is_bootstrap_group(group)),
            signs: entry("usage-bootstrap-signing") == "true",
            groups,
        })
    }

    /// Whether this token authenticates. The secrets are compared in constant time.
    #[must_use]
    pub fn admits(&self, shown: &Token, now: Timestamp) -> bool {
        let key = shown.key();
        let tag = hmac::sign(&key, self.token.text().as_bytes());
        let same = hmac::verify(&key, shown.text().as_bytes(), tag.as_ref()).is_ok();
        same && self.authenticates && !self.until.is_over(now)
    }
}

/// Until when the token in a Secret is good, whatever else is wrong with it.
#[must_use]
pub fn until(secret: &Value) -> Until {
    match entry(secret, "expiration").as_str() {
        "" => Until::Removed,
        text => text.parse().map_or(Until::Unreadable, Until::Time),
    }
}

/// An entry of a Secret as text; keys may have dots, so no dotted path leads there.
fn entry(secret: &Value, key: &str) -> String {
    let encoded = secret.at("data").get(key).and_then(Value::as_str).unwrap_or_default();
    String::from_utf8(STANDARD.decode(encoded).unwrap_or_default()).unwrap_or_default()
}

fn is_bootstrap_group(group: &str) -> bool {
    let Some(rest) = group.strip_prefix("system:bootstrappers:") else { return false };
    let letters = rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b":-".contains(&byte));
    letters && rest.len() <= 256 && rest.ends_with(|last: char| last.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        Token::parse("abcdef.0123456789abcdef").expect("a token")
    }

    /// A Secret as it is stored.
    fn stored(change: impl FnOnce(&mut Value)) -> Value {
        let mut secret = token().keep("for a test", Timestamp::from_second(2_000_000_000).ok());
        change(&mut secret);
        crate::kinds::secret::KIND.rules.default(&mut secret);
        secret
    }

    #[test]
    fn tokens_have_one_form() {
        assert_eq!(token().text(), "abcdef.0123456789abcdef");
        for wrong in [
            "",
            "abcdef",
            "abcde.0123456789abcdef",
            "abcdef.0123456789abcdeF",
            "abcdef.0123456789abcdef.",
            "abc/ef.0123456789abcdef",
        ] {
            assert!(Token::parse(wrong).is_none(), "{wrong}");
        }
        assert_eq!(format!("{:?}", token()), "Token(abcdef)");
        let made = Token::from_random(&[255, 0, 35, 36, 251, 254].repeat(8)).expect("enough of them");
        assert_eq!(made.text(), "a9a9a9.a9a9a9a9a9a9a9a9");
        assert!(Token::from_random(&[255; 100]).is_none());
    }

    #[test]
    fn a_kept_token_admits_itself_until_its_time() {
        let kept = Kept::read(&stored(|_| {})).expect("a token");
        assert_eq!(
            (kept.description.as_str(), kept.signs, &kept.groups[..]),
            ("for a test", true, &[NODE_GROUP.into()][..])
        );
        let at = |second| Timestamp::from_second(second).expect("a time");
        assert!(kept.admits(&token(), at(1_999_999_999)));
        assert!(!kept.admits(&token(), at(2_000_000_000)));
        let other = Token::parse("abcdef.0123456789abcdeg").expect("a token");
        assert!(!kept.admits(&other, at(0)));
    }

    #[test]
    fn what_is_not_as_it_should_be_admits_nobody() {
        let at = Timestamp::UNIX_EPOCH;
        let admits = |secret: &Value| Kept::read(secret).is_some_and(|kept| kept.admits(&token(), at));
        assert!(admits(&stored(|_| {})));
        assert!(!admits(&stored(|secret| secret.put("type", "Opaque"))));
        assert!(!admits(&stored(|secret| secret.put("metadata.name", "bootstrap-token-abcdeg"))));
        assert!(!admits(&stored(|secret| secret.put("metadata.deletionTimestamp", "2026-01-01T00:00:00Z"))));
        assert!(!admits(&stored(|secret| secret["stringData"]["expiration"] = "soon".into())));
        assert!(!admits(&stored(|secret| secret["stringData"]["usage-bootstrap-authentication"] = "false".into())));
        assert!(!admits(&stored(|secret| secret["stringData"]["auth-extra-groups"] = "system:masters".into())));
        assert!(admits(&stored(|secret| secret["stringData"]["auth-extra-groups"] = "".into())));
    }

    #[test]
    fn signatures_are_of_one_text_and_one_token() {
        let signature = token().sign("text");
        // {"alg":"HS256","kid":"abcdef"}
        assert!(signature.starts_with("eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9.."), "{signature}");
        assert!(token().signed("text", &signature));
        assert!(!token().signed("texT", &signature) && !token().signed("text", "") && !token().signed("text", "a..b"));
        let other = Token::parse("abcdef.0123456789abcdeg").expect("a token");
        assert!(!other.signed("text", &signature));
    }
}
