//! Hosts of requests, listeners and routes: in, a host; out, what is configured for the most specific name that covers it.
//!
//! An exact name is more specific than a wildcard, a longer wildcard more than a shorter one, and any name more than
//! none. `*.example.com` covers names with any number of further labels, but not `example.com`.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

use crate::persistent::Map;

/// Values by host: exact names, wildcards, and a default without a name. Names are in lower case.
///
/// A clone is a few references. A change after it costs about log16(n) small copies. Finding a value costs one lookup for
/// the exact name and one for each label of the host (only where wildcards exist), and does not allocate.
#[derive(Debug)]
pub struct HostMap<T> {
    exact: Map<Arc<str>, T>,
    /// By what follows `*.`.
    wildcards: Map<Arc<str>, T>,
    default: Option<T>,
}

impl<T: Clone> Clone for HostMap<T> {
    fn clone(&self) -> Self {
        Self { exact: self.exact.clone(), wildcards: self.wildcards.clone(), default: self.default.clone() }
    }
}

impl<T> Default for HostMap<T> {
    fn default() -> Self {
        Self { exact: Map::default(), wildcards: Map::default(), default: None }
    }
}

/// A value whose name covers a host.
#[derive(Debug)]
pub struct Covering<'a, 'h, T> {
    /// The value.
    pub value: &'a T,
    /// What follows `*.`, for a wildcard, or the whole name; none for the default.
    pub name: Option<&'h str>,
    /// How many labels of the host its `*` stands for; 0 without wildcard.
    pub labels: usize,
}

impl<T> HostMap<T> {
    /// Whether there are no values.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.wildcards.is_empty() && self.default.is_none()
    }

    /// Number of values.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.exact.len() + self.wildcards.len() + self.default.is_some() as usize
    }

    /// The value of exactly this name.
    #[must_use]
    pub fn get(&self, host: Option<&str>) -> Option<&T> {
        match host {
            None => self.default.as_ref(),
            Some(host) => match host.strip_prefix("*.") {
                Some(suffix) => self.wildcards.get(suffix),
                None => self.exact.get(host),
            },
        }
    }

    /// The value of the most specific name that covers a host.
    #[must_use]
    pub fn find(&self, host: &str) -> Option<&T> {
        self.candidates(host).next()
    }

    /// The values of all names that cover a host, most specific first.
    pub fn candidates<'a, 'h>(&'a self, host: &'h str) -> impl Iterator<Item = &'a T> + use<'a, 'h, T> {
        self.covering(host).map(|covering| covering.value)
    }

    /// The same, with the names.
    pub fn covering<'a, 'h>(&'a self, host: &'h str) -> impl Iterator<Item = Covering<'a, 'h, T>> {
        let exact = self.exact.get(host).map(|value| Covering { value, name: Some(host), labels: 0 });
        let wildcards = suffixes(host).take_while(|_| !self.wildcards.is_empty()).filter_map(|(suffix, labels)| {
            self.wildcards.get(suffix).map(|value| Covering { value, name: Some(suffix), labels })
        });
        let default = self.default.iter().map(|value| Covering { value, name: None, labels: 0 });
        exact.into_iter().chain(wildcards).chain(default)
    }

    /// All values, in no particular order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.exact.values().chain(self.wildcards.values()).chain(&self.default)
    }
}

impl<T: Clone> HostMap<T> {
    /// Sets the value of a name and returns the one before.
    pub fn insert(&mut self, host: Option<&str>, value: T) -> Option<T> {
        match host {
            None => self.default.replace(value),
            Some(host) => match host.strip_prefix("*.") {
                Some(suffix) => self.wildcards.insert(suffix.into(), value),
                None => self.exact.insert(host.into(), value),
            },
        }
    }

    /// Removes the value of a name.
    pub fn remove(&mut self, host: Option<&str>) -> Option<T> {
        match host {
            None => self.default.take(),
            Some(host) => match host.strip_prefix("*.") {
                Some(suffix) => self.wildcards.remove(suffix),
                None => self.exact.remove(host),
            },
        }
    }

    /// The value of exactly this name, after inserting one if there is none.
    pub fn get_mut_or_insert_with(&mut self, host: Option<&str>, make: impl FnOnce() -> T) -> &mut T {
        match host {
            None => self.default.get_or_insert_with(make),
            Some(host) => match host.strip_prefix("*.") {
                Some(suffix) => self.wildcards.get_mut_or_insert_with(suffix.into(), make),
                None => self.exact.get_mut_or_insert_with(host.into(), make),
            },
        }
    }
}

/// What follows each dot of a host, longest first, with the number of labels before it.
fn suffixes(host: &str) -> impl Iterator<Item = (&str, usize)> {
    let dots = host.bytes().enumerate().filter(|(_, byte)| *byte == b'.');
    // A host that begins with a dot has no label in front of it; the empty one counts where others follow.
    dots.enumerate().filter(|(_, (at, _))| *at > 0).map(|(index, (at, _))| (&host[at + 1..], index + 1))
}

/// The place of a hostname (none for all hosts) in the order of precedence: smaller ones are tried first.
#[must_use]
pub fn specificity(hostname: Option<&str>) -> (u8, Reverse<usize>) {
    match hostname.map(|name| name.strip_prefix("*.").ok_or(name)) {
        Some(Err(_)) => (0, Reverse(0)),
        Some(Ok(suffix)) => (1, Reverse(suffix.split('.').count())),
        None => (2, Reverse(0)),
    }
}

/// Whether a listener with this hostname (none for all) and a route with that one have hosts in common.
#[must_use]
pub fn intersects(listener: Option<&str>, route: &str) -> bool {
    let Some(listener) = listener else { return true };
    match (listener.strip_prefix("*."), route.strip_prefix("*.")) {
        (None, None) => listener == route,
        (Some(suffix), None) => is_below(route, suffix),
        (None, Some(suffix)) => is_below(listener, suffix),
        (Some(one), Some(other)) => one == other || is_below(one, other) || is_below(other, one),
    }
}

/// Whether a hostname (none for all, `*.` for a wildcard) covers a host.
#[must_use]
pub fn covers(hostname: Option<&str>, host: &str) -> bool {
    hostname.is_none_or(|hostname| match hostname.strip_prefix("*.") {
        Some(suffix) => is_below(host, suffix),
        None => hostname == host,
    })
}

/// Whether a name is another one with at least one label in front.
fn is_below(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix).is_some_and(|labels| labels.len() > 1 && labels.ends_with('.'))
}

/// The host of an authority: without user, port and trailing dot, in lower case. IPv6 addresses keep their brackets.
#[must_use]
pub fn host_of(authority: &str) -> Cow<'_, str> {
    let authority = authority.rsplit_once('@').map_or(authority, |(_, rest)| rest);
    let host = if authority.starts_with('[') {
        authority.find(']').map_or(authority, |end| &authority[..=end])
    } else {
        match authority.split_once(':') {
            // More than one colon: an IPv6 address without brackets.
            Some((host, port)) if !port.contains(':') => host,
            _ => authority,
        }
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

#[cfg(test)]
mod tests;
