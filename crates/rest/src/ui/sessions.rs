//! Sessions of the web UI: login links that are valid once, and the sessions that they start.
//!
//! In: the credential of an authenticated user, later the token of a link or a cookie, and the time. Out: that credential, which is verified
//! again at each request: no session outlives it. A token is 256 random bits; only its hash is kept, in memory, so that a restart ends every
//! session and a memory dump contains no usable token.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::auth::{Credential, User};

/// How long a link is valid.
pub(crate) const LINK_LIFETIME: SignedDuration = SignedDuration::from_secs(60);
/// The longest lifetime of a session.
const SESSION_LIFETIME: SignedDuration = SignedDuration::from_hours(12);
/// Timestamps of concurrent requests may be out of order by this much.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(60);
/// How many links, and how many sessions, one user may have; beyond it the oldest is removed.
const MAX_PER_USER: usize = 16;
/// How many all users may have.
const MAX_TOTAL: usize = 1024;
/// The length of a token in bytes, and of its text.
const BYTES: usize = 32;
const TEXT_LENGTH: usize = 43;

type Hash = [u8; BYTES];

/// Links and sessions.
#[derive(Default)]
pub(crate) struct Sessions {
    links: Mutex<HashMap<Hash, Grant>>,
    sessions: Mutex<HashMap<Hash, Grant>>,
}

/// The user of a link or a session.
struct Grant {
    name: String,
    credential: Credential,
    made: Timestamp,
}

impl Sessions {
    /// Creates a link; returns its token.
    pub(crate) fn link(&self, name: &str, credential: Credential, now: Timestamp) -> String {
        let mut links = self.links.lock();
        links.retain(|_, grant| is_within(grant.made, LINK_LIFETIME, now));
        insert(&mut links, Grant { name: name.to_owned(), credential, made: now })
    }

    /// Starts a session with the token of a link, if `renew` still accepts the credential: the token of the cookie, and the user. The link is
    /// used up in any case.
    pub(crate) fn login(
        &self,
        token: &str,
        renew: impl FnOnce(&Credential) -> Option<User>,
        now: Timestamp,
    ) -> Option<(String, User)> {
        let grant = self.links.lock().remove(&hash(token)?)?;
        if !is_within(grant.made, LINK_LIFETIME, now) {
            return None;
        }
        let user = renew(&grant.credential)?;
        let mut sessions = self.sessions.lock();
        sessions.retain(|_, grant| grant.is_valid(now));
        Some((insert(&mut sessions, Grant { made: now, ..grant }), user))
    }

    /// The credential that a session was started with.
    pub(crate) fn credential(&self, token: &str, now: Timestamp) -> Option<Credential> {
        let key = hash(token)?;
        let mut sessions = self.sessions.lock();
        let grant = sessions.get(&key)?;
        if grant.is_valid(now) {
            return Some(grant.credential.clone());
        }
        sessions.remove(&key);
        None
    }

    /// Ends a session.
    pub(crate) fn logout(&self, token: &str) {
        if let Some(key) = hash(token) {
            self.sessions.lock().remove(&key);
        }
    }
}

impl Grant {
    fn is_valid(&self, now: Timestamp) -> bool {
        is_within(self.made, SESSION_LIFETIME, now)
    }
}

/// A clock that was set back extends nothing.
fn is_within(since: Timestamp, length: SignedDuration, now: Timestamp) -> bool {
    let passed = now.duration_since(since);
    -CLOCK_TOLERANCE <= passed && passed <= length
}

/// Inserts a grant under a new token; above the limits the oldest is removed, of the same user first.
fn insert(grants: &mut HashMap<Hash, Grant>, new: Grant) -> String {
    let own = grants.values().filter(|grant| grant.name == new.name).count();
    if own >= MAX_PER_USER || grants.len() >= MAX_TOTAL {
        let meant = grants.iter().filter(|(_, grant)| own < MAX_PER_USER || grant.name == new.name);
        let oldest = meant.min_by_key(|(_, grant)| grant.made).map(|(key, _)| *key);
        oldest.map(|key| grants.remove(&key));
    }
    let token = new_token();
    if let Some(key) = hash(&token) {
        grants.insert(key, new);
    }
    token
}

fn new_token() -> String {
    use ring::rand::SecureRandom as _;
    let mut bytes = [0; BYTES];
    ring::rand::SystemRandom::new().fill(&mut bytes).expect("a kernel with a source of random bytes");
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The hash of a token; none for text that cannot be one.
fn hash(token: &str) -> Option<Hash> {
    let digest = (token.len() == TEXT_LENGTH).then(|| ring::digest::digest(&ring::digest::SHA256, token.as_bytes()))?;
    digest.as_ref().try_into().ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;
    use crate::auth::Authenticator;
    use crate::auth::service_account::ServiceAccounts;
    use crate::auth::token_file::TokenFile;

    fn user(name: &str) -> User {
        User { name: name.into(), ..User::default() }
    }

    /// Any credential.
    fn credential() -> Credential {
        let key = rcgen::KeyPair::generate().unwrap().serialize_der();
        let accounts = ServiceAccounts::new(&key, "cluster.local").unwrap();
        let authn = Authenticator::new(TokenFile::parse("t,ada,1", "f").unwrap(), accounts, Box::new(|_, _, _| None));
        let headers: HeaderMap = [(http::header::AUTHORIZATION, "Bearer t".parse().unwrap())].into_iter().collect();
        authn.identify(&headers, None, after(0)).unwrap().1.unwrap()
    }

    fn after(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn link(sessions: &Sessions, name: &str, at: i64) -> String {
        sessions.link(name, credential(), after(at))
    }

    fn login(sessions: &Sessions, token: &str, at: i64) -> Option<(String, User)> {
        sessions.login(token, |_| Some(user("ada")), after(at))
    }

    #[test]
    fn a_link_is_valid_once() {
        let sessions = Sessions::default();
        let link = link(&sessions, "ada", 0);
        let (token, who) = login(&sessions, &link, 60).expect("a session");
        assert_eq!(who.name, "ada");
        assert_ne!(token, link);
        assert!(login(&sessions, &link, 60).is_none(), "it is used up");
        assert!(sessions.credential(&token, after(61)).is_some());
        assert!(sessions.credential(&link, after(61)).is_none(), "a link is no cookie");
    }

    #[test]
    fn a_link_is_valid_for_a_minute_and_while_its_credential_is() {
        let sessions = Sessions::default();
        let late = link(&sessions, "ada", 0);
        assert!(login(&sessions, &late, 61).is_none());
        let back = link(&sessions, "ada", 100);
        assert!(login(&sessions, &back, 30).is_none(), "the clock went back");
        let gone = link(&sessions, "ada", 0);
        assert!(sessions.login(&gone, |_| None, after(1)).is_none());
        assert!(login(&sessions, &gone, 1).is_none(), "it is used up all the same");
    }

    #[test]
    fn a_session_ends_by_its_lifetime_and_by_logout() {
        let sessions = Sessions::default();
        let begin = || login(&sessions, &link(&sessions, "ada", 0), 0).expect("a session").0;
        let (old, left) = (begin(), begin());
        for hour in 1..=12 {
            assert!(sessions.credential(&old, after(hour * 3600)).is_some(), "{hour}");
        }
        assert!(sessions.credential(&old, after(12 * 3600 + 1)).is_none(), "however much it was used");
        sessions.logout(&left);
        assert!(sessions.credential(&left, after(1)).is_none());
    }

    #[test]
    fn concurrent_requests_end_no_session() {
        let sessions = Sessions::default();
        let (token, _) = login(&sessions, &link(&sessions, "ada", 0), 0).expect("a session");
        for at in [9, 8, 10, 7, -3] {
            assert!(sessions.credential(&token, after(at)).is_some(), "{at}");
        }
    }

    #[test]
    fn forged_tokens_are_rejected() {
        let sessions = Sessions::default();
        let (token, _) = login(&sessions, &link(&sessions, "ada", 0), 0).expect("a session");
        let other: String = token.chars().rev().collect();
        for forged in ["", "x", &other, &token[1..], &format!("{token} "), &"A".repeat(1 << 20)] {
            assert!(sessions.credential(forged, after(0)).is_none() && login(&sessions, forged, 0).is_none());
        }
    }

    #[test]
    fn links_are_limited_per_user_and_in_total() {
        let sessions = Sessions::default();
        let theirs = link(&sessions, "eve", 0);
        let mine: Vec<String> = (1..=20).map(|at| link(&sessions, "ada", at)).collect();
        assert_eq!(sessions.links.lock().len(), MAX_PER_USER + 1);
        assert!(login(&sessions, &mine[0], 20).is_none(), "the oldest made room");
        assert!(login(&sessions, &mine[19], 20).is_some() && login(&sessions, &theirs, 20).is_some());
        let one = credential();
        for at in 0..2000 {
            sessions.link(&format!("user-{at}"), one.clone(), after(30));
        }
        assert!(sessions.links.lock().len() <= MAX_TOTAL);
    }
}
