//! Backoff of image pulls: per Pod and image, 10 seconds after the first failure, doubled to at most 5 minutes.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::decide::backoff;

/// How long a container shows `ErrImagePull` before it shows `ImagePullBackOff`.
const ERROR_SHOWN: SignedDuration = SignedDuration::from_secs(2);

/// Failed pulls by Pod UID and image.
#[derive(Debug, Default)]
pub struct PullBackoff(Mutex<HashMap<(String, String), Entry>>);

#[derive(Clone, Debug)]
struct Entry {
    seconds: u32,
    until: Timestamp,
    error: String,
}

impl PullBackoff {
    /// Records a failed pull.
    pub(crate) fn failed(&self, pod: &str, image: &str, error: &str, now: Timestamp) {
        let mut entries = self.0.lock();
        // Entries of Pods that no longer exist expire.
        entries.retain(|_, entry| now < backoff::until(entry.until, 2 * entry.seconds));
        let key = (pod.to_owned(), image.to_owned());
        let seconds = backoff::next(entries.get(&key).map_or(0, |entry| entry.seconds));
        entries.insert(key, Entry { seconds, until: backoff::until(now, seconds), error: error.to_owned() });
    }

    pub(crate) fn reset(&self, pod: &str, image: &str) {
        self.0.lock().remove(&(pod.to_owned(), image.to_owned()));
    }

    /// The last error of an image that may not be pulled yet.
    pub(crate) fn active(&self, pod: &str, image: &str, now: Timestamp) -> Option<String> {
        let entries = self.0.lock();
        let entry = entries.get(&(pod.to_owned(), image.to_owned()))?;
        (now < entry.until).then(|| entry.error.clone())
    }

    /// When a container without its image is reconciled again, given the reason that it shows now.
    pub(crate) fn retry_at(&self, pod: &str, image: &str, reason: &str, now: Timestamp) -> Timestamp {
        let until = self.0.lock().get(&(pod.to_owned(), image.to_owned())).map_or(now, |entry| entry.until);
        let shown = now.saturating_add(ERROR_SHOWN).unwrap_or(Timestamp::MAX);
        match reason {
            "ErrImagePull" => until.min(shown),
            _ => until.max(shown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_to_a_maximum_and_is_reset() {
        let pulls = PullBackoff::default();
        let now = Timestamp::UNIX_EPOCH;
        let mut at = now;
        let mut lengths = Vec::new();
        for _ in 0..7 {
            pulls.failed("u", "web", "no", at);
            let until = pulls.retry_at("u", "web", "ImagePullBackOff", at);
            lengths.push(until.duration_since(at).as_secs());
            assert_eq!(pulls.retry_at("u", "web", "ErrImagePull", at), backoff::until(at, 2));
            assert_eq!(pulls.active("u", "web", at).as_deref(), Some("no"));
            at = until;
            assert_eq!(pulls.active("u", "web", at), None, "the pull may be tried again");
        }
        assert_eq!(lengths, [10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(pulls.active("other", "web", now), None);
        pulls.reset("u", "web");
        pulls.failed("u", "web", "no", at);
        assert_eq!(pulls.retry_at("u", "web", "ImagePullBackOff", at), backoff::until(at, 10));
    }
}
