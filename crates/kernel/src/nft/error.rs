//! Errors of nftables requests, and what they mean to callers.

use rustix::io::Errno;
use thiserror::Error;

/// A failed request. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("nftables, {doing}{}: {errno}", change.map_or_else(String::new, |index| format!(", change {index}")))]
pub struct NftError {
    /// Error number of the kernel.
    pub errno: Errno,
    /// Index of the refused change, if it was one of the batch.
    pub change: Option<usize>,
    /// The failed operation.
    pub doing: &'static str,
}

impl NftError {
    /// An error that is not about a single change.
    pub(crate) fn new(doing: &'static str, errno: Errno) -> Self {
        Self { errno, change: None, doing }
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        [Errno::INTR, Errno::NOBUFS, Errno::RESTART, Errno::AGAIN, Errno::TIMEDOUT].contains(&self.errno)
    }

    /// Whether privileges are missing.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        [Errno::PERM, Errno::ACCESS].contains(&self.errno)
    }

    /// Whether the kernel lacks support. A missing expression module may also be reported as not found.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        [Errno::OPNOTSUPP, Errno::AFNOSUPPORT, Errno::PROTONOSUPPORT, Errno::NOSYS].contains(&self.errno)
    }

    /// Whether the object does not exist: another program deleted it or its table.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.errno == Errno::NOENT
    }

    /// Whether a different object of this name exists.
    #[must_use]
    pub fn is_clash(&self) -> bool {
        self.errno == Errno::EXIST
    }

    /// Whether the object is in use.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.errno == Errno::BUSY
    }

    /// Whether there is no space.
    #[must_use]
    pub fn is_full(&self) -> bool {
        [Errno::NOMEM, Errno::NOSPC, Errno::NFILE, Errno::MSGSIZE, Errno::TOOBIG].contains(&self.errno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refused_change_is_named() {
        let error = NftError { errno: Errno::NOENT, change: Some(3), doing: "applying a batch" };
        assert!(error.to_string().starts_with("nftables, applying a batch, change 3: No such file"), "{error}");
        assert!(error.is_gone() && !error.is_retryable() && !error.is_permission());
    }
}
