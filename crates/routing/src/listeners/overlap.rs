//! HTTPS listeners of one port whose hostnames overlap: a client may reuse a connection to one of them for the other.
//!
//! In: the HTTPS listeners of a Gateway and of its ListenerSets that are not in conflict, one by one. Out: whether one
//! overlaps with another, and for which of the others a change may have altered that.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A hostname of a port; none for all hosts.
pub(crate) type Host = (u16, Option<Arc<str>>);

/// The hostnames of a port.
#[derive(Clone, Debug, Default)]
struct Hosts {
    /// By their labels from the last to the first, so that the names below a wildcard are neighbours. Objects are replaced
    /// one by one, so that a name may be there twice in between.
    names: BTreeMap<Box<str>, usize>,
    /// Listeners without hostname.
    any: usize,
}

/// The hostnames of all HTTPS listeners of a group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overlaps(BTreeMap<u16, Hosts>);

impl Overlaps {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a listener; those of the others that may overlap since then.
    pub(crate) fn insert(&mut self, (port, host): &Host) -> Vec<Host> {
        let hosts = self.0.entry(*port).or_default();
        let count = match host {
            Some(host) => hosts.names.entry(reversed(host)).or_default(),
            None => &mut hosts.any,
        };
        *count += 1;
        if *count == 1 { hosts.related(*port, host.as_deref()) } else { Vec::new() }
    }

    /// Removes a listener; those of the others that may no longer overlap.
    pub(crate) fn remove(&mut self, (port, host): &Host) -> Vec<Host> {
        let Some(hosts) = self.0.get_mut(port) else { return Vec::new() };
        let rest = match host {
            Some(host) => hosts.names.get_mut(&reversed(host)),
            None => Some(&mut hosts.any),
        };
        let Some(rest) = rest else { return Vec::new() };
        *rest = rest.saturating_sub(1);
        if *rest > 0 {
            return Vec::new();
        }
        if let Some(host) = host {
            hosts.names.remove(&reversed(host));
        }
        let related = hosts.related(*port, host.as_deref());
        if hosts.names.is_empty() && hosts.any == 0 {
            self.0.remove(port);
        }
        related
    }

    /// Whether a listener overlaps with another one.
    pub(crate) fn is_overlapping(&self, (port, host): &Host) -> bool {
        let Some(hosts) = self.0.get(port) else { return false };
        match host {
            None => !hosts.names.is_empty(),
            Some(_) if hosts.any > 0 => true,
            Some(host) => hosts.around(host).next().is_some() || hosts.below(host).next().is_some(),
        }
    }
}

impl Hosts {
    /// The others that overlap with a hostname.
    fn related(&self, port: u16, host: Option<&str>) -> Vec<Host> {
        let any = (self.any > 0 && host.is_some()).then_some((port, None));
        let named = |name: Box<str>| (port, Some(name.into()));
        let names: Vec<Host> = match host {
            None => self.names.keys().map(|name| named(reversed(name))).collect(),
            Some(host) => self.around(host).chain(self.below(host)).map(named).collect(),
        };
        any.into_iter().chain(names).collect()
    }

    /// The wildcards that cover a hostname, itself not among them.
    fn around(&self, host: &str) -> impl Iterator<Item = Box<str>> {
        let labels = host.strip_prefix("*.").unwrap_or(host);
        labels.match_indices('.').filter_map(|(dot, _)| {
            let wildcard: Box<str> = format!("*{}", &labels[dot..]).into();
            self.names.contains_key(&reversed(&wildcard)).then_some(wildcard)
        })
    }

    /// The hostnames that a wildcard covers, itself not among them.
    fn below(&self, host: &str) -> impl Iterator<Item = Box<str>> {
        let own = reversed(host);
        let prefix = host.strip_prefix("*.").map(|labels| format!("{}.", reversed(labels)));
        let names = prefix.into_iter().flat_map(|prefix| {
            let names = self.names.range(Box::from(&*prefix)..).map(|(name, _)| name);
            names.take_while(move |name| name.starts_with(&*prefix))
        });
        names.filter(move |name| **name != own).map(|name| reversed(name))
    }
}

/// A name with its labels in the other order.
fn reversed(name: &str) -> Box<str> {
    name.rsplit('.').collect::<Vec<_>>().join(".").into()
}

#[cfg(test)]
mod tests;
