//! User names and passwords of Secrets.
//!
//! In: Secrets as they change. Out: for each Secret and format that a rule uses one pointer, behind which the passwords
//! change without the rule. Values of Secrets are in no message.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use api::view::Secret;
use arc_swap::ArcSwapOption;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::{digest, hmac};
use routing::policy::PasswordFormat;
use tokio::sync::Semaphore;

use super::hashes::PasswordHash;

/// The key of a Secret that has a file of htpasswd.
const FILE: &str = "auth";
/// The type of Secrets with certificates, which have no passwords.
const CERTIFICATE: &str = "kubernetes.io/tls";
/// Credentials of a Secret that are known to be right.
const MAX_VERIFIED: usize = 1024;
/// Requests that wait for the verification of a password of one Secret.
const MAX_WAITING: usize = 64;

/// The passwords of a Secret; none while there is no Secret with passwords.
pub(super) type Current = Arc<ArcSwapOption<Passwords>>;

/// Passwords of all Secrets that are known, by `namespace/name` and whether keys are users.
#[derive(Default)]
pub(crate) struct PasswordStore(Mutex<HashMap<(Arc<str>, bool), Current>>);

/// Users and their hashes.
pub(crate) struct Passwords {
    /// None for those whose hash cannot be used: they have no password.
    users: HashMap<Box<str>, Option<PasswordHash>>,
    /// The user whose hash is computed for users that do not exist, so that these take as long.
    decoy: Option<Box<str>>,
    /// Of the data that was read.
    digest: digest::Digest,
    /// None if the machine has no random numbers: then nothing is remembered.
    key: Option<hmac::Key>,
    verified: Mutex<Verified>,
    /// Turns to verify passwords of this Secret, so that none takes all turns of the node.
    pub(super) turns: Arc<Semaphore>,
    /// Places to wait for a turn.
    pub(super) places: Arc<Semaphore>,
}

/// Credentials that were right, as keyed hashes, in the order in which they came.
#[derive(Default)]
struct Verified {
    known: HashSet<Token>,
    order: VecDeque<Token>,
}

/// The keyed hash of credentials.
pub(super) type Token = [u8; digest::SHA256_OUTPUT_LEN];

impl PasswordStore {
    /// The passwords of a Secret, as they change.
    pub(super) fn of(&self, secret: &Arc<str>, format: PasswordFormat) -> Current {
        let mut known = self.0.lock();
        if known.len() == known.capacity() {
            known.retain(|_, current| Arc::strong_count(current) > 1 || current.load().is_some());
        }
        Arc::clone(known.entry((Arc::clone(secret), format == PasswordFormat::Map)).or_default())
    }

    /// Applies a Secret, or that there is none any longer.
    pub(crate) fn apply(&self, key: &Arc<str>, secret: Option<&Secret>) {
        let secret = secret.filter(|secret| *secret.kind != *CERTIFICATE);
        let mut known = self.0.lock();
        for is_map in [false, true] {
            let id = (Arc::clone(key), is_map);
            let read = secret.and_then(|secret| users(secret, is_map));
            match (read, known.get(&id)) {
                (Some(text), Some(current)) => replace(current, &text, key),
                (Some(text), None) => replace(known.entry(id).or_default(), &text, key),
                (None, Some(current)) if Arc::strong_count(current) > 1 => current.store(None),
                (None, _) => drop(known.remove(&id)),
            }
        }
    }
}

/// Lines `user:hash` of a Secret; none if it has no passwords.
fn users(secret: &Secret, is_map: bool) -> Option<String> {
    let decode = |value: &str| STANDARD.decode(value).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    if !is_map {
        return decode(secret.data.get(FILE)?);
    }
    let hash = |value: &str| Some(decode(value)?.lines().next()?.trim().to_owned());
    let lines = secret.data.iter().filter_map(|(user, value)| Some(format!("{user}:{}\n", hash(value)?)));
    Some(lines.collect::<String>()).filter(|text| !text.is_empty())
}

/// Replaces passwords unless they are the same: what is known of them stays.
fn replace(current: &Current, text: &str, secret: &str) {
    let digest = digest::digest(&digest::SHA256, text.as_bytes());
    let is_same = current.load().as_ref().is_some_and(|known| known.digest.as_ref() == digest.as_ref());
    if !is_same {
        current.store(Some(Arc::new(Passwords::read(text, digest, secret))));
    }
}

impl Passwords {
    /// Reads lines `user:hash`, of which further fields do not count; the first of a user does.
    fn read(text: &str, digest: digest::Digest, secret: &str) -> Self {
        let mut users = HashMap::new();
        for line in text.lines().map(str::trim_end).filter(|line| !line.starts_with('#')) {
            let Some((user, rest)) = line.split_once(':') else { continue };
            if users.contains_key(user) {
                continue;
            }
            // A plain password may have colons, a hash may not.
            let hash = if rest.starts_with('{') { rest } else { rest.split(':').next().unwrap_or_default() };
            let hash = PasswordHash::parse(hash);
            let hash = hash.map_err(|error| tracing::warn!(secret, user, %error, "cannot use password"));
            users.insert(user.into(), hash.ok());
        }
        let is_slow = |hash: &Option<PasswordHash>| hash.as_ref().is_some_and(PasswordHash::is_slow);
        let decoy = users.iter().find(|(_, hash)| is_slow(hash)).map(|(user, _)| Box::clone(user));
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).ok();
        let turns = std::thread::available_parallelism().map_or(1, usize::from).div_ceil(4);
        Self {
            users,
            decoy,
            digest,
            key,
            verified: Mutex::default(),
            turns: Arc::new(Semaphore::new(turns)),
            places: Arc::new(Semaphore::new(MAX_WAITING)),
        }
    }

    /// Whether verification is slow; also for users that do not exist, if it is for others.
    pub(super) fn is_slow(&self, user: &str) -> bool {
        self.hash(user).map_or(self.decoy.is_some(), PasswordHash::is_slow)
    }

    /// Whether this is the password of a user.
    pub(super) fn verify(&self, user: &str, password: &[u8]) -> bool {
        if let Some(hash) = self.hash(user) {
            return hash.verify(password);
        }
        if let Some(hash) = self.decoy.as_ref().and_then(|decoy| self.hash(decoy)) {
            std::hint::black_box(hash.verify(password));
        }
        false
    }

    fn hash(&self, user: &str) -> Option<&PasswordHash> {
        self.users.get(user)?.as_ref()
    }

    /// What credentials are remembered as.
    pub(super) fn token(&self, user: &str, password: &[u8]) -> Option<Token> {
        let mut context = hmac::Context::with_key(self.key.as_ref()?);
        // User names have no colon.
        for part in [user.as_bytes(), b":", password] {
            context.update(part);
        }
        context.sign().as_ref().try_into().ok()
    }

    /// Whether these credentials were right before.
    pub(super) fn is_verified(&self, token: &Token) -> bool {
        self.verified.lock().known.contains(token)
    }

    /// Remembers credentials that are right.
    pub(super) fn remember(&self, token: Token) {
        let mut verified = self.verified.lock();
        if verified.known.insert(token) {
            verified.order.push_back(token);
        }
        if verified.order.len() > MAX_VERIFIED
            && let Some(oldest) = verified.order.pop_front()
        {
            verified.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A Secret with these values.
    pub(crate) fn secret(kind: &str, data: &[(&str, &str)]) -> Secret {
        let data: serde_json::Map<String, serde_json::Value> =
            data.iter().map(|(key, value)| ((*key).to_owned(), json!(STANDARD.encode(value)))).collect();
        serde_json::from_value(json!({"metadata": {"namespace": "shop", "name": "users"}, "type": kind, "data": data}))
            .expect("a Secret")
    }

    fn admits(current: &Current, user: &str, password: &str) -> Option<bool> {
        current.load().as_ref().map(|passwords| passwords.verify(user, password.as_bytes()))
    }

    #[test]
    fn a_file_and_a_map_have_users() {
        let (store, key): (_, Arc<str>) = (PasswordStore::default(), "shop/users".into());
        let (file, map) = (store.of(&key, PasswordFormat::File), store.of(&key, PasswordFormat::Map));
        assert_eq!((admits(&file, "a", "x"), admits(&map, "a", "x")), (None, None));
        let text = "# users\na:{PLAIN}x:y\r\nb:$1$abcd$Oy8OD9LGKv7H9yIMreLNV1:comment\nc:unknown\n\na:{PLAIN}later\nc:{PLAIN}later\n";
        store.apply(&key, Some(&secret("Opaque", &[("auth", text)])));
        for (user, password, expected) in [
            ("a", "x:y", true),
            ("a", "later", false),
            ("b", "secret", true),
            ("b", "other", false),
            ("c", "unknown", false),
            ("c", "later", false),
            ("c", "", false),
            ("", "", false),
            ("# users", "", false),
        ] {
            assert_eq!(admits(&file, user, password), Some(expected), "{user} {password}");
        }
        store.apply(&key, Some(&secret("Opaque", &[("a", "{PLAIN}x\n"), ("b", "")])));
        assert_eq!(admits(&file, "a", "x"), None, "it has no key auth");
        assert_eq!((admits(&map, "a", "x"), admits(&map, "b", "")), (Some(true), Some(false)));
        store.apply(&key, None);
        assert_eq!(admits(&map, "a", "x"), None);
    }

    #[test]
    fn a_secret_that_comes_before_its_rule_is_known_and_certificates_are_not_read() {
        let (store, key): (_, Arc<str>) = (PasswordStore::default(), "shop/users".into());
        store.apply(&key, Some(&secret("Opaque", &[("auth", "a:{PLAIN}x")])));
        assert_eq!(admits(&store.of(&key, PasswordFormat::File), "a", "x"), Some(true));
        store.apply(&key, Some(&secret(CERTIFICATE, &[("auth", "a:{PLAIN}x")])));
        assert_eq!(admits(&store.of(&key, PasswordFormat::File), "a", "x"), None);
        store.apply(&key, None);
        assert!(store.0.lock().is_empty());
    }

    #[test]
    fn credentials_are_remembered_until_the_passwords_change() {
        let (store, key): (_, Arc<str>) = (PasswordStore::default(), "shop/users".into());
        let current = store.of(&key, PasswordFormat::File);
        let apply = |text: &str| {
            store.apply(&key, Some(&secret("Opaque", &[("auth", text)])));
            current.load_full().expect("passwords")
        };
        let passwords = apply("a:$1$abcd$Oy8OD9LGKv7H9yIMreLNV1");
        let token = |password: &str| passwords.token("a", password.as_bytes()).expect("a token");
        passwords.remember(token("secret"));
        assert!(passwords.is_verified(&token("secret")) && !passwords.is_verified(&token("other")));
        assert!(Arc::ptr_eq(&passwords, &apply("a:$1$abcd$Oy8OD9LGKv7H9yIMreLNV1")), "nothing changed");
        for number in 0..MAX_VERIFIED {
            passwords.remember(token(&number.to_string()));
        }
        assert!(!passwords.is_verified(&token("secret")), "the oldest is forgotten");
        assert_eq!(passwords.verified.lock().known.len(), MAX_VERIFIED);
        assert!(passwords.is_slow("a") && passwords.is_slow("nobody"));
        let changed = apply("a:{PLAIN}other");
        assert!(!changed.is_verified(&token("1")) && !changed.is_slow("nobody"));
    }
}
