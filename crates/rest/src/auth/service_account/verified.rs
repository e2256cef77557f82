//! Tokens whose signature was verified: a signature that fits does so for ever, and verifying it takes longer than the rest of most requests.
//!
//! In: tokens. Out: whether the signature of the very same bytes was verified before. Times, accounts and bound objects are not remembered: they are
//! checked with each request. Only tokens that the server signed come in here, so nobody else decides what is remembered.

use std::collections::HashSet;

use parking_lot::Mutex;
use ring::digest::{SHA256, digest};

/// How many are remembered, of 32 bytes each. All are forgotten when there are more.
const LIMIT: usize = 16 * 1024;

/// See the module.
#[derive(Default)]
pub(super) struct VerifiedTokens {
    /// By the hash of the whole token.
    hashes: Mutex<HashSet<[u8; 32]>>,
}

impl VerifiedTokens {
    /// Verifies a token unless that was done before.
    pub(super) fn check<E>(&self, token: &str, verify: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        if self.hashes.lock().contains(&hash) {
            return Ok(());
        }
        verify()?;
        let mut hashes = self.hashes.lock();
        if hashes.len() >= LIMIT {
            hashes.clear();
        }
        hashes.insert(hash);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_verified_is_not_verified_again() {
        let tokens = VerifiedTokens::default();
        assert_eq!(tokens.check("a", || Err("bad")), Err("bad"));
        assert_eq!(tokens.check("a", || Err("bad")), Err("bad"), "only what is good is remembered");
        assert_eq!(tokens.check("a", || Ok::<_, &str>(())), Ok(()));
        assert_eq!(tokens.check("a", || Err("not asked")), Ok(()));
        assert_eq!(tokens.check("b", || Err("bad")), Err("bad"));
    }

    #[test]
    fn memory_is_bounded() {
        let tokens = VerifiedTokens::default();
        for number in 0..=LIMIT {
            tokens.check(&number.to_string(), || Ok::<_, ()>(())).unwrap();
        }
        assert_eq!(tokens.hashes.lock().len(), 1);
    }
}
