//! Who looks at the page: links that let somebody in once, and the visits that come of them.
//!
//! In: the credential of a user who has shown it, later a word out of a link or a cookie, and the time. Out: that credential, which is checked
//! again at each request: no visit outlives what it began with. A word is 256 bits of chance; only its hash is kept, in memory alone, so
//! that a restart ends every visit and a dump of the memory opens none.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::auth::{Credential, User};

/// How long a link is good.
pub(crate) const LINK: SignedDuration = SignedDuration::from_secs(60);
/// How long a visit lasts at most.
const WHOLE: SignedDuration = SignedDuration::from_hours(12);
/// Of requests that are answered at once, one may have come before another that has been counted already.
const OVERLAP: SignedDuration = SignedDuration::from_secs(60);
/// How many links, and how many visits, one user may have at once; the oldest make room.
const EACH: usize = 16;
/// How many all may have.
const ALL: usize = 1024;
/// The bytes of a word, and its letters.
const BYTES: usize = 32;
const LETTERS: usize = 43;

type Hash = [u8; BYTES];

/// Links and visits.
#[derive(Default)]
pub(crate) struct Visits {
    links: Mutex<HashMap<Hash, Pass>>,
    visits: Mutex<HashMap<Hash, Pass>>,
}

/// A user who was let in.
struct Pass {
    name: String,
    credential: Credential,
    made: Timestamp,
}

impl Visits {
    /// A word that lets a user in once.
    pub(crate) fn link(&self, name: &str, credential: Credential, now: Timestamp) -> String {
        let mut links = self.links.lock();
        links.retain(|_, pass| is_within(pass.made, LINK, now));
        admit(&mut links, Pass { name: name.to_owned(), credential, made: now })
    }

    /// Takes the word of a link and begins a visit, if `renew` still knows the user: the word of its cookie, and who it is. Whatever comes of
    /// it, the link is used.
    pub(crate) fn enter(
        &self,
        word: &str,
        renew: impl FnOnce(&Credential) -> Option<User>,
        now: Timestamp,
    ) -> Option<(String, User)> {
        let pass = self.links.lock().remove(&hash(word)?)?;
        if !is_within(pass.made, LINK, now) {
            return None;
        }
        let user = renew(&pass.credential)?;
        let mut visits = self.visits.lock();
        visits.retain(|_, pass| pass.lasts(now));
        Some((admit(&mut visits, Pass { made: now, ..pass }), user))
    }

    /// The credential that a visit began with.
    pub(crate) fn credential(&self, word: &str, now: Timestamp) -> Option<Credential> {
        let key = hash(word)?;
        let mut visits = self.visits.lock();
        let pass = visits.get(&key)?;
        if pass.lasts(now) {
            return Some(pass.credential.clone());
        }
        visits.remove(&key);
        None
    }

    /// Ends a visit.
    pub(crate) fn leave(&self, word: &str) {
        if let Some(key) = hash(word) {
            self.visits.lock().remove(&key);
        }
    }
}

impl Pass {
    fn lasts(&self, now: Timestamp) -> bool {
        is_within(self.made, WHOLE, now)
    }
}

/// A clock that was set back makes nothing last longer.
fn is_within(since: Timestamp, length: SignedDuration, now: Timestamp) -> bool {
    let passed = now.duration_since(since);
    -OVERLAP <= passed && passed <= length
}

/// Keeps a user under a new word; where there are too many, the oldest goes, of the same user first.
fn admit(passes: &mut HashMap<Hash, Pass>, new: Pass) -> String {
    let own = passes.values().filter(|pass| pass.name == new.name).count();
    if own >= EACH || passes.len() >= ALL {
        let meant = passes.iter().filter(|(_, pass)| own < EACH || pass.name == new.name);
        let oldest = meant.min_by_key(|(_, pass)| pass.made).map(|(key, _)| *key);
        oldest.map(|key| passes.remove(&key));
    }
    let word = new_word();
    if let Some(key) = hash(&word) {
        passes.insert(key, new);
    }
    word
}

fn new_word() -> String {
    use ring::rand::SecureRandom as _;
    let mut bytes = [0; BYTES];
    ring::rand::SystemRandom::new().fill(&mut bytes).expect("a kernel with a source of random bytes");
    URL_SAFE_NO_PAD.encode(bytes)
}

/// What is kept of a word; nothing when it cannot be one of ours, however long it is.
fn hash(word: &str) -> Option<Hash> {
    let digest = (word.len() == LETTERS).then(|| ring::digest::digest(&ring::digest::SHA256, word.as_bytes()))?;
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

    /// The credential of somebody; which is of no concern here.
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

    fn link(visits: &Visits, name: &str, at: i64) -> String {
        visits.link(name, credential(), after(at))
    }

    fn enter(visits: &Visits, word: &str, at: i64) -> Option<(String, User)> {
        visits.enter(word, |_| Some(user("ada")), after(at))
    }

    #[test]
    fn a_link_lets_its_user_in_once() {
        let visits = Visits::default();
        let link = link(&visits, "ada", 0);
        let (word, who) = enter(&visits, &link, 60).expect("a visit");
        assert_eq!(who.name, "ada");
        assert_ne!(word, link);
        assert!(enter(&visits, &link, 60).is_none(), "it is used");
        assert!(visits.credential(&word, after(61)).is_some());
        assert!(visits.credential(&link, after(61)).is_none(), "a link is no cookie");
    }

    #[test]
    fn a_link_is_good_for_a_minute_and_for_as_long_as_its_user() {
        let visits = Visits::default();
        let late = link(&visits, "ada", 0);
        assert!(enter(&visits, &late, 61).is_none());
        let back = link(&visits, "ada", 100);
        assert!(enter(&visits, &back, 30).is_none(), "the clock went back");
        let gone = link(&visits, "ada", 0);
        assert!(visits.enter(&gone, |_| None, after(1)).is_none());
        assert!(enter(&visits, &gone, 1).is_none(), "it is used all the same");
    }

    #[test]
    fn a_visit_ends_when_old_and_when_left() {
        let visits = Visits::default();
        let begin = || enter(&visits, &link(&visits, "ada", 0), 0).expect("a visit").0;
        let (old, left) = (begin(), begin());
        for hour in 1..=12 {
            assert!(visits.credential(&old, after(hour * 3600)).is_some(), "{hour}");
        }
        assert!(visits.credential(&old, after(12 * 3600 + 1)).is_none(), "however much it was used");
        visits.leave(&left);
        assert!(visits.credential(&left, after(1)).is_none());
    }

    #[test]
    fn requests_that_overlap_end_no_visit() {
        let visits = Visits::default();
        let (word, _) = enter(&visits, &link(&visits, "ada", 0), 0).expect("a visit");
        for at in [9, 8, 10, 7, -3] {
            assert!(visits.credential(&word, after(at)).is_some(), "{at}");
        }
    }

    #[test]
    fn forged_words_are_nobody() {
        let visits = Visits::default();
        let (word, _) = enter(&visits, &link(&visits, "ada", 0), 0).expect("a visit");
        let other: String = word.chars().rev().collect();
        for forged in ["", "x", &other, &word[1..], &format!("{word} "), &"A".repeat(1 << 20)] {
            assert!(visits.credential(forged, after(0)).is_none() && enter(&visits, forged, 0).is_none());
        }
    }

    #[test]
    fn there_are_never_too_many_and_nobody_drives_out_others() {
        let visits = Visits::default();
        let theirs = link(&visits, "eve", 0);
        let mine: Vec<String> = (1..=20).map(|at| link(&visits, "ada", at)).collect();
        assert_eq!(visits.links.lock().len(), EACH + 1);
        assert!(enter(&visits, &mine[0], 20).is_none(), "the oldest made room");
        assert!(enter(&visits, &mine[19], 20).is_some() && enter(&visits, &theirs, 20).is_some());
        let one = credential();
        for at in 0..2000 {
            visits.link(&format!("user-{at}"), one.clone(), after(30));
        }
        assert!(visits.links.lock().len() <= ALL);
    }
}
