//! Tokens of sessions: which endpoint a session belongs to, and since when.
//!
//! In: endpoints of a Service, a scope (the rule). Out: a text for a cookie or header, and back. A token has a keyed hash of
//! the endpoint, so that it reveals no address, and a signature, so that none can be made up. It is looked up among the
//! current endpoints of the rule and nowhere else.
//!
//! The key is derived from the identity of the Service: all nodes have the same, and it survives restarts. Whoever may
//! read the Service can compute it, and then choose among the endpoints that the rule leads to, which any client reaches
//! by repeating requests.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

/// Bytes of the signed part: tag, time of issue, time of last use.
const SIGNED: usize = 16;
/// Bytes of a token.
const LENGTH: usize = SIGNED + 32;
/// Length of its text.
const TEXT: usize = LENGTH / 3 * 4;

/// The key for the tokens of a Service.
pub(crate) struct SessionKey(hmac::Key);

/// Endpoints by tag.
pub(crate) struct Tags(Box<[(u64, SocketAddr)]>);

/// What a token says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token {
    /// Keyed hash of the endpoint.
    pub(crate) tag: u64,
    /// When the session began, in seconds since 1970.
    pub(crate) issued: u32,
    /// When it was used last, to within a fraction of the idle timeout.
    pub(crate) seen: u32,
}

/// A token whose signature is not verified yet.
pub(crate) struct Sealed {
    token: Token,
    bytes: [u8; LENGTH],
}

impl SessionKey {
    /// `service` is `namespace/name`.
    pub(crate) fn of_service(service: &str, uid: &str) -> Self {
        let secret = format!("waypost session\0{service}\0{uid}");
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()))
    }

    /// The tag of an endpoint.
    pub(crate) fn tag(&self, endpoint: SocketAddr) -> u64 {
        let tag = hmac::sign(&self.0, format!("endpoint {endpoint}").as_bytes());
        tag.as_ref().first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
    }

    /// The text of a token.
    pub(crate) fn seal(&self, scope: u64, token: &Token) -> String {
        let mut bytes = [0; LENGTH];
        let (signed, signature) = bytes.split_at_mut(SIGNED);
        signed.copy_from_slice(&token.to_bytes());
        signature.copy_from_slice(hmac::sign(&self.0, &scoped(scope, signed)).as_ref());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The token, if it was sealed for this scope.
    pub(crate) fn open(&self, scope: u64, sealed: &Sealed) -> Option<Token> {
        let (signed, signature) = sealed.bytes.split_at(SIGNED);
        hmac::verify(&self.0, &scoped(scope, signed), signature).ok()?;
        Some(sealed.token)
    }
}

/// What is signed. Its length differs from what is signed for tags.
fn scoped(scope: u64, signed: &[u8]) -> [u8; 8 + SIGNED] {
    let mut text = [0; 8 + SIGNED];
    text.iter_mut().zip(scope.to_be_bytes().iter().chain(signed)).for_each(|(to, from)| *to = *from);
    text
}

impl Token {
    fn to_bytes(self) -> [u8; SIGNED] {
        let times = u64::from(self.issued) << 32 | u64::from(self.seen);
        (u128::from(self.tag) << 64 | u128::from(times)).to_be_bytes()
    }

    fn of_bytes(bytes: [u8; SIGNED]) -> Self {
        let all = u128::from_be_bytes(bytes);
        // Each is the low part of what is left after the shift.
        Self { tag: (all >> 64) as u64, issued: (all >> 32) as u32, seen: all as u32 }
    }
}

impl Sealed {
    /// None if the text is not a token.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; LENGTH];
        let length = (text.len() == TEXT).then(|| URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok())??;
        let token = Token::of_bytes(*bytes.first_chunk()?);
        (length == LENGTH).then_some(Self { token, bytes })
    }

    /// The tag, which is not verified.
    pub(crate) const fn tag(&self) -> u64 {
        self.token.tag
    }
}

impl Tags {
    pub(crate) fn new(key: Option<&SessionKey>, endpoints: impl Iterator<Item = SocketAddr>) -> Self {
        let tagged = |key: &SessionKey| endpoints.map(|endpoint| (key.tag(endpoint), endpoint)).collect();
        let mut all: Vec<_> = key.map(tagged).unwrap_or_default();
        all.sort_unstable();
        Self(all.into())
    }

    /// The endpoint with this tag.
    pub(crate) fn find(&self, tag: u64) -> Option<SocketAddr> {
        let found = self.0.binary_search_by_key(&tag, |(known, _)| *known).ok()?;
        self.0.get(found).map(|(_, endpoint)| *endpoint)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn endpoint(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 8080))
    }

    fn key(uid: &str) -> SessionKey {
        SessionKey::of_service("shop/web", uid)
    }

    #[test]
    fn endpoints_are_found_by_tag_under_one_key_only() {
        let tags = Tags::new(Some(&key("a")), (0..50).map(endpoint));
        for last in 0..50 {
            assert_eq!(tags.find(key("a").tag(endpoint(last))), Some(endpoint(last)));
            assert_eq!(tags.find(key("b").tag(endpoint(last))), None);
        }
        assert_eq!(tags.find(key("a").tag(endpoint(77))), None);
        assert_eq!(Tags::new(None, [endpoint(1)].into_iter()).find(0), None);
    }

    #[test]
    fn tokens_are_valid_in_their_scope_and_unchanged() {
        let token = Token { tag: key("a").tag(endpoint(1)), issued: 1_800_000_000, seen: u32::MAX };
        let text = key("a").seal(7, &token);
        assert!(text.len() == TEXT && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
        let sealed = Sealed::parse(text.as_bytes()).unwrap();
        assert_eq!(key("a").open(7, &sealed), Some(token));
        assert_eq!((key("a").open(8, &sealed), key("b").open(7, &sealed)), (None, None));
    }

    proptest! {
        #[test]
        fn a_changed_token_is_none(at in 0..TEXT, with in "[A-Za-z0-9_-]") {
            let token = Token { tag: 42, issued: 1, seen: 2 };
            let mut text = key("a").seal(7, &token);
            prop_assume!(text[at..=at] != with);
            text.replace_range(at..=at, &with);
            let opened = Sealed::parse(text.as_bytes()).and_then(|sealed| key("a").open(7, &sealed));
            prop_assert_eq!(opened, None);
        }

        #[test]
        fn any_text_can_be_parsed(text in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Some(sealed) = Sealed::parse(&text) {
                prop_assert_eq!(key("a").open(7, &sealed), None);
            }
        }
    }
}
