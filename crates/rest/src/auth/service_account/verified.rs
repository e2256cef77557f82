//! A cache of verified signatures: verifying one takes longer than the rest of most requests.
//!
//! In: tokens. Out: whether the signature of the same bytes was verified before. Times, accounts and bound objects are not cached: they are
//! checked with each request. Only valid tokens are added, so clients cannot fill the cache.

use std::collections::HashSet;

use parking_lot::Mutex;
use ring::digest::{SHA256, digest};

/// The largest number of entries of 32 bytes each. The cache is cleared beyond it.
const LIMIT: usize = 16 * 1024;

/// See the module.
#[derive(Default)]
pub(super) struct VerifiedTokens {
    /// By the hash of the whole token.
    hashes: Mutex<HashSet<[u8; 32]>>,
}

impl VerifiedTokens {
    /// Verifies a token unless it is in the cache.
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
    fn verified_signatures_are_cached() {
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
