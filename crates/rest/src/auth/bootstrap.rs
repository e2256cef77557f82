//! Bootstrap tokens: credentials of machines that join.
//!
//! In: a bearer token of the form `id.secret`, and the Secret of that id. Out: the user `system:bootstrap:ID`, in the groups of the
//! Secret. The Secret is read at each request: deleting it revokes the token.

use api::bootstrap_token::{GROUP, Kept, Token};
use jiff::Timestamp;
use serde_json::Value;

use super::User;

/// The prefix of the user names.
pub const USER_PREFIX: &str = "system:bootstrap:";

/// The user of a token, if its Secret allows authentication.
#[must_use]
pub fn user(token: &Token, secret: &Value, now: Timestamp) -> Option<User> {
    let kept = Kept::read(secret)?;
    if !kept.admits(token, now) {
        return None;
    }
    let groups = std::iter::once(GROUP.to_owned()).chain(kept.groups).collect();
    Some(User { name: format!("{USER_PREFIX}{}", token.id()), groups, ..User::default() })
}

/// A new random token.
///
/// # Panics
/// Never: the system returns far more random bytes than are needed.
#[must_use]
pub fn new_token() -> Token {
    use ring::rand::SecureRandom as _;
    let mut bytes = [0; 64];
    loop {
        ring::rand::SystemRandom::new().fill(&mut bytes).expect("a kernel with a source of random bytes");
        // All but four of 256 values can be used, so 64 bytes are almost always enough for 22 letters.
        if let Some(token) = Token::from_random(&bytes) {
            return token;
        }
    }
}

#[cfg(test)]
mod tests {
    use api::kinds::secret;

    use super::*;

    #[test]
    fn the_secret_determines_user_and_groups() {
        let (token, now) = (new_token(), Timestamp::from_second(1_800_000_000).unwrap());
        assert_ne!(token, new_token());
        let mut kept = token.keep("", None);
        secret::KIND.rules.default(&mut kept);
        let user = user(&token, &kept, now).expect("a user");
        assert_eq!(user.name, format!("system:bootstrap:{}", token.id()));
        assert_eq!(user.groups, ["system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token"]);
        assert_eq!(super::user(&new_token(), &kept, now), None);
    }
}
