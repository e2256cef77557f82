//! Basic authentication (RFC 7617).
//!
//! In: the headers of a request, the passwords of a Secret. Out: the request may pass, or why not. Slow hashes are
//! computed by other threads, few at a time: the node keeps serving, and no Secret takes all turns. Credentials that were
//! right are remembered, so that a client pays once.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use routing::policy::BasicAuth;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::passwords::{Current, Passwords};
use super::refusal::{Reason, Refusal};

/// The longest password, in bytes: the work of a hash grows with it.
const MAX_PASSWORD: usize = 256;
/// How long a request waits for the verification of its password.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Turns to compute a hash.
pub(super) struct Hashing(Arc<Semaphore>);

impl Hashing {
    /// Half of the processors compute hashes at a time.
    pub(super) fn new(workers: usize) -> Self {
        Self(Arc::new(Semaphore::new(workers.div_ceil(2).max(1))))
    }

    /// Whether this is the password of a user; none if too many wait, or for too long.
    async fn verify(&self, passwords: &Arc<Passwords>, user: &str, password: &str) -> Option<bool> {
        let _place = passwords.places.try_acquire().ok()?;
        let turns = async {
            let of_secret = Arc::clone(&passwords.turns).acquire_owned().await.ok()?;
            Some((of_secret, Arc::clone(&self.0).acquire_owned().await.ok()?))
        };
        let turns = timeout(MAX_WAIT, turns).await.ok()??;
        let (passwords, user, password) = (Arc::clone(passwords), Box::<str>::from(user), Box::<str>::from(password));
        let verified = tokio::task::spawn_blocking(move || {
            // The turns end with the work, not with the request.
            let _turns = turns;
            passwords.verify(&user, password.as_bytes())
        });
        verified.await.ok()
    }
}

/// Checks the credentials of a request; returns the user.
pub(super) async fn check(
    auth: &BasicAuth,
    passwords: &Current,
    hashing: &Hashing,
    headers: &HeaderMap,
) -> Result<String, Refusal> {
    let unavailable = |text| Refusal::new(Reason::AuthUnavailable, StatusCode::SERVICE_UNAVAILABLE, text);
    let Some(passwords) = passwords.load_full() else {
        return Err(unavailable("The passwords that this route requires are not available."));
    };
    let (user, password) = credentials(headers).ok_or_else(|| denied(auth))?;
    let token = passwords.token(&user, password.as_bytes());
    if token.as_ref().is_some_and(|token| passwords.is_verified(token)) {
        return Ok(user);
    }
    if !passwords.is_slow(&user) {
        return if passwords.verify(&user, password.as_bytes()) { Ok(user) } else { Err(denied(auth)) };
    }
    let is_right = hashing.verify(&passwords, &user, &password).await;
    match is_right.ok_or_else(|| unavailable("Too many passwords are being verified; try again."))? {
        true => {
            token.into_iter().for_each(|token| passwords.remember(token));
            Ok(user)
        }
        false => Err(denied(auth)),
    }
}

/// User and password of a request, if it has them exactly once.
fn credentials(headers: &HeaderMap) -> Option<(String, String)> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, encoded) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("basic").then_some(())?;
    let text = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    let is_sound = password.len() <= MAX_PASSWORD && !password.contains('\0');
    is_sound.then(|| (user.to_owned(), password.to_owned()))
}

fn denied(auth: &BasicAuth) -> Refusal {
    let realm = auth.realm.replace(['"', '\\'], "");
    let challenge = HeaderValue::try_from(format!("Basic realm=\"{realm}\""));
    let challenge = challenge.unwrap_or_else(|_| HeaderValue::from_static("Basic"));
    Refusal::new(Reason::Password, StatusCode::UNAUTHORIZED, "User name and password are required.")
        .with(WWW_AUTHENTICATE, challenge)
}

#[cfg(test)]
mod tests {
    use routing::policy::PasswordFormat;

    use super::*;
    use crate::policy::PasswordStore;
    use crate::policy::passwords::tests::secret;

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (AUTHORIZATION, HeaderValue::from_str(value).expect("a value"))).collect()
    }

    fn basic(text: &str) -> String {
        format!("Basic {}", STANDARD.encode(text))
    }

    #[test]
    fn credentials_are_read_once_and_bounded() {
        let of = |values: &[&str]| credentials(&headers(values));
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(of(&[&basic("a:b:c")]), pair("a", "b:c"));
        assert_eq!(of(&[&basic("a:b").replace("Basic", "bAsIc")]), pair("a", "b"));
        assert_eq!(of(&[&basic(&format!("a:{}", "x".repeat(256)))]), pair("a", &"x".repeat(256)));
        for bad in [
            &[][..],
            &["Bearer abc"],
            &["Basic"],
            &["Basic !!!"],
            &[&basic("nocolon")],
            &[&basic("a:b"), &basic("a:b")],
            &[&basic("a:b\0c")],
            &[&basic(&format!("a:{}", "x".repeat(257)))],
        ] {
            assert_eq!(of(bad), None, "{bad:?}");
        }
    }

    fn setting() -> (BasicAuth, PasswordStore, Current) {
        let auth =
            BasicAuth { realm: "the \"shop\"".into(), secret: "shop/users".into(), format: PasswordFormat::File };
        let store = PasswordStore::default();
        let current = store.of(&auth.secret, auth.format);
        (auth, store, current)
    }

    #[tokio::test]
    async fn without_a_secret_nobody_passes() {
        let (auth, store, current) = setting();
        let hashing = Hashing::new(1);
        let ask = async |text: &str| check(&auth, &current, &hashing, &headers(&[&basic(text)])).await;
        let status = |result: Result<String, Refusal>| result.map_err(|refusal| refusal.status().as_u16());
        assert_eq!(status(ask("a:secret").await), Err(503));
        store.apply(&auth.secret, Some(&secret("Opaque", &[("auth", "a:$1$abcd$Oy8OD9LGKv7H9yIMreLNV1\nb:{PLAIN}x")])));
        for (text, expected) in [
            ("a:secret", Ok("a")),
            ("a:secret", Ok("a")),
            ("a:other", Err(401)),
            ("nobody:secret", Err(401)),
            ("b:x", Ok("b")),
            ("b:y", Err(401)),
        ] {
            assert_eq!(status(ask(text).await), expected.map(str::to_owned), "{text}");
        }
        let passwords = current.load_full().expect("passwords");
        assert!(passwords.is_verified(&passwords.token("a", b"secret").expect("a token")));
        assert!(!passwords.is_verified(&passwords.token("a", b"other").expect("a token")));
        store.apply(&auth.secret, None);
        assert_eq!(status(ask("a:secret").await), Err(503));
    }

    #[tokio::test]
    async fn when_too_many_wait_the_next_is_refused_unless_it_is_remembered() {
        let (auth, store, current) = setting();
        let hashing = Hashing::new(1);
        store.apply(&auth.secret, Some(&secret("Opaque", &[("auth", "a:$1$abcd$Oy8OD9LGKv7H9yIMreLNV1")])));
        let ask = async |text: &str| check(&auth, &current, &hashing, &headers(&[&basic(text)])).await;
        assert!(ask("a:secret").await.is_ok());
        let passwords = current.load_full().expect("passwords");
        let all = passwords.places.available_permits();
        let _taken = passwords.places.acquire_many(u32::try_from(all).expect("few")).await.expect("places");
        let refused = ask("a:other").await.map_err(|refusal| refusal.status());
        assert_eq!(refused, Err(StatusCode::SERVICE_UNAVAILABLE));
        assert!(ask("a:secret").await.is_ok());
    }

    #[test]
    fn a_realm_cannot_end_its_quotes() {
        let (auth, ..) = setting();
        let answer = denied(&auth).answer(false);
        assert_eq!(answer.headers()[WWW_AUTHENTICATE], "Basic realm=\"the shop\"");
    }
}
