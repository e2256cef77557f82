//! Why a request to nftables failed, and what that means for whoever made it.

use rustix::io::Errno;
use thiserror::Error;

/// A request that failed. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("nftables, {doing}{}: {errno}", change.map_or_else(String::new, |index| format!(", change {index}")))]
pub struct NftError {
    /// What the kernel said.
    pub errno: Errno,
    /// Which change of the batch it refused, if it was one of them.
    pub change: Option<usize>,
    /// What was being done.
    pub doing: &'static str,
}

impl NftError {
    /// A failure that is not about one change.
    pub(crate) fn new(doing: &'static str, errno: Errno) -> Self {
        Self { errno, change: None, doing }
    }

    /// The same request may succeed a moment later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        [Errno::INTR, Errno::NOBUFS, Errno::RESTART, Errno::AGAIN, Errno::TIMEDOUT].contains(&self.errno)
    }

    /// This process may not do it.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        [Errno::PERM, Errno::ACCESS].contains(&self.errno)
    }

    /// This kernel cannot do it. A kernel without a kind of rule may also say that something is missing.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        [Errno::OPNOTSUPP, Errno::AFNOSUPPORT, Errno::PROTONOSUPPORT, Errno::NOSYS].contains(&self.errno)
    }

    /// What was to be changed is not there: somebody else deleted it, or the whole table.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.errno == Errno::NOENT
    }

    /// What was to be added is there already, and differs.
    #[must_use]
    pub fn is_clash(&self) -> bool {
        self.errno == Errno::EXIST
    }

    /// What was to be deleted is in use.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.errno == Errno::BUSY
    }

    /// There is no room for it.
    #[must_use]
    pub fn is_full(&self) -> bool {
        [Errno::NOMEM, Errno::NOSPC, Errno::NFILE, Errno::MSGSIZE, Errno::TOOBIG].contains(&self.errno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_which_change_was_refused() {
        let error = NftError { errno: Errno::NOENT, change: Some(3), doing: "applying a batch" };
        assert!(error.to_string().starts_with("nftables, applying a batch, change 3: No such file"), "{error}");
        assert!(error.is_gone() && !error.is_retryable() && !error.is_permission());
    }
}
