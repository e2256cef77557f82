//! Who looks at the page: links that let somebody in once, and the visits that come of them.
//!
//! In: a user who has shown who they are, later a word out of a link or a cookie, and the time. Out: that user, or nobody. A word is 256 bits
//! of chance; only its hash is kept, in memory alone, so that a restart ends every visit and a dump of the memory opens none.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::auth::User;

/// How long a link is good.
pub(crate) const LINK: SignedDuration = SignedDuration::from_secs(60);
/// How long a visit lasts that asks for nothing.
const IDLE: SignedDuration = SignedDuration::from_hours(12);
/// How long a visit lasts at most.
const WHOLE: SignedDuration = SignedDuration::from_hours(7 * 24);
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
    user: User,
    made: Timestamp,
    used: Timestamp,
}

impl Visits {
    /// A word that lets a user in once.
    pub(crate) fn link(&self, user: &User, now: Timestamp) -> String {
        let mut links = self.links.lock();
        links.retain(|_, pass| is_within(pass.made, LINK, now));
        admit(&mut links, user.clone(), now)
    }

    /// Takes the word of a link and begins a visit: the word of its cookie, and who it is. Whatever comes of it, the link is used.
    pub(crate) fn enter(&self, word: &str, now: Timestamp) -> Option<(String, User)> {
        let pass = self.links.lock().remove(&hash(word)?)?;
        if !is_within(pass.made, LINK, now) {
            return None;
        }
        let mut visits = self.visits.lock();
        visits.retain(|_, pass| pass.lasts(now));
        Some((admit(&mut visits, pass.user.clone(), now), pass.user))
    }

    /// The user of a visit, which goes on by being asked for.
    pub(crate) fn user(&self, word: &str, now: Timestamp) -> Option<User> {
        let key = hash(word)?;
        let mut visits = self.visits.lock();
        let pass = visits.get_mut(&key)?;
        if !pass.lasts(now) {
            visits.remove(&key);
            return None;
        }
        pass.used = pass.used.max(now);
        Some(pass.user.clone())
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
        is_within(self.used, IDLE, now) && is_within(self.made, WHOLE, now)
    }
}

/// A clock that was set back makes nothing last longer.
fn is_within(since: Timestamp, length: SignedDuration, now: Timestamp) -> bool {
    let passed = now.duration_since(since);
    -OVERLAP <= passed && passed <= length
}

/// Keeps a user under a new word; where there are too many, the oldest goes, of the same user first.
fn admit(passes: &mut HashMap<Hash, Pass>, user: User, now: Timestamp) -> String {
    let own = passes.values().filter(|pass| pass.user.name == user.name).count();
    if own >= EACH || passes.len() >= ALL {
        let meant = passes.iter().filter(|(_, pass)| own < EACH || pass.user.name == user.name);
        let oldest = meant.min_by_key(|(_, pass)| pass.used).map(|(key, _)| *key);
        oldest.map(|key| passes.remove(&key));
    }
    let word = new_word();
    if let Some(key) = hash(&word) {
        passes.insert(key, Pass { user, made: now, used: now });
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
    use super::*;

    fn user(name: &str) -> User {
        User { name: name.into(), ..User::default() }
    }

    fn after(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    #[test]
    fn a_link_lets_its_user_in_once() {
        let visits = Visits::default();
        let link = visits.link(&user("ada"), after(0));
        let (word, who) = visits.enter(&link, after(60)).expect("a visit");
        assert_eq!(who.name, "ada");
        assert_ne!(word, link);
        assert!(visits.enter(&link, after(60)).is_none(), "it is used");
        assert_eq!(visits.user(&word, after(61)).expect("ada").name, "ada");
        assert!(visits.user(&link, after(61)).is_none(), "a link is no cookie");
    }

    #[test]
    fn a_link_is_good_for_a_minute() {
        let visits = Visits::default();
        let late = visits.link(&user("ada"), after(0));
        assert!(visits.enter(&late, after(61)).is_none());
        let back = visits.link(&user("ada"), after(100));
        assert!(visits.enter(&back, after(30)).is_none(), "the clock went back");
    }

    #[test]
    fn a_visit_ends_when_idle_when_old_and_when_left() {
        let visits = Visits::default();
        let enter = || visits.enter(&visits.link(&user("ada"), after(0)), after(0)).expect("a visit").0;
        let hours = |hours: i64| after(hours * 3600);
        let (idle, busy, left) = (enter(), enter(), enter());
        assert!(visits.user(&idle, hours(13)).is_none());
        for at in 1..=16 {
            assert_eq!(visits.user(&busy, hours(at * 10)).is_some(), at * 10 <= 7 * 24, "{at}");
        }
        assert!(visits.user(&busy, hours(169)).is_none(), "a week is enough");
        visits.leave(&left);
        assert!(visits.user(&left, after(1)).is_none());
    }

    #[test]
    fn requests_that_overlap_end_no_visit() {
        let visits = Visits::default();
        let (word, _) = visits.enter(&visits.link(&user("ada"), after(0)), after(0)).expect("a visit");
        for at in [9, 8, 10, 7] {
            assert!(visits.user(&word, after(at)).is_some(), "{at}");
        }
        assert!(visits.user(&word, after(10 + 12 * 3600)).is_some(), "it was used last at ten");
    }

    #[test]
    fn forged_words_are_nobody() {
        let visits = Visits::default();
        let (word, _) = visits.enter(&visits.link(&user("ada"), after(0)), after(0)).expect("a visit");
        let other: String = word.chars().rev().collect();
        for forged in ["", "x", &other, &word[1..], &format!("{word} "), &"A".repeat(1 << 20)] {
            assert!(visits.user(forged, after(0)).is_none() && visits.enter(forged, after(0)).is_none());
        }
    }

    #[test]
    fn there_are_never_too_many_and_nobody_drives_out_others() {
        let visits = Visits::default();
        let theirs = visits.link(&user("eve"), after(0));
        let mine: Vec<String> = (1..=20).map(|at| visits.link(&user("ada"), after(at))).collect();
        assert_eq!(visits.links.lock().len(), EACH + 1);
        assert!(visits.enter(&mine[0], after(20)).is_none(), "the oldest made room");
        assert!(visits.enter(&mine[19], after(20)).is_some() && visits.enter(&theirs, after(20)).is_some());
        for at in 0..2000 {
            visits.link(&user(&format!("user-{at}")), after(30));
        }
        assert!(visits.links.lock().len() <= ALL);
    }
}
