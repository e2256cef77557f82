//! Users by bootstrap token: machines that are about to join.
//!
//! In: a bearer token of the form `id.secret`, and the Secret that keeps the token of that id. Out: the user `system:bootstrap:ID`, in
//! the groups that the Secret names. The Secret is read at each request: deleting it ends its token.

use api::bootstrap_token::{GROUP, Kept, Token};
use jiff::Timestamp;
use serde_json::Value;

use super::User;

/// What the names of such users begin with.
pub const USER_PREFIX: &str = "system:bootstrap:";

/// The user of a token, when its Secret lets it in.
#[must_use]
pub fn user(token: &Token, secret: &Value, now: Timestamp) -> Option<User> {
    let kept = Kept::read(secret)?;
    if !kept.admits(token, now) {
        return None;
    }
    let groups = std::iter::once(GROUP.to_owned()).chain(kept.groups).collect();
    Some(User { name: format!("{USER_PREFIX}{}", token.id()), groups, ..User::default() })
}

/// A token that nobody can guess.
///
/// # Panics
/// Never: the machine gives far more random bytes than are needed.
#[must_use]
pub fn new_token() -> Token {
    use ring::rand::SecureRandom as _;
    let mut bytes = [0; 64];
    loop {
        ring::rand::SystemRandom::new().fill(&mut bytes).expect("a kernel with a source of random bytes");
        // All but four of 256 values can be used, so 64 bytes are hardly ever too few for 22 letters.
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
    fn the_secret_says_who_comes() {
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
