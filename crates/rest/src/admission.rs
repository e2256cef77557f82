//! Admission: what the cluster adds to an object, and what it refuses, before the rules of the kind.
//!
//! Each plugin is one file with pure functions; `registry` calls them inside of the transaction. Which ones run is said by
//! `--enable-admission-plugins` and `--disable-admission-plugins`, with the names of Kubernetes.

pub mod service_account;

use std::collections::BTreeSet;
use std::str::FromStr;

/// A plugin that can be switched off.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Plugin {
    /// Nodes change only what is theirs.
    NodeRestriction,
    /// Pods do only what the labels of their Namespace allow.
    PodSecurity,
    /// Pods have a ServiceAccount, and its token.
    ServiceAccount,
}

const ALL: [Plugin; 3] = [Plugin::NodeRestriction, Plugin::PodSecurity, Plugin::ServiceAccount];

impl Plugin {
    /// The name in Kubernetes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NodeRestriction => "NodeRestriction",
            Self::PodSecurity => "PodSecurity",
            Self::ServiceAccount => "ServiceAccount",
        }
    }
}

impl FromStr for Plugin {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = ALL.into_iter().find(|plugin| plugin.name() == name);
        found.ok_or_else(|| format!("no admission plugin {name:?}; there are {}", ALL.map(Self::name).join(", ")))
    }
}

/// The plugins that run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plugins(BTreeSet<Plugin>);

impl Default for Plugins {
    fn default() -> Self {
        Self(ALL.into())
    }
}

impl Plugins {
    /// All but those that are disabled; one that is both enabled and disabled runs.
    #[must_use]
    pub fn new(enabled: &[Plugin], disabled: &[Plugin]) -> Self {
        let runs = |plugin: &Plugin| enabled.contains(plugin) || !disabled.contains(plugin);
        Self(ALL.into_iter().filter(runs).collect())
    }

    /// Whether a plugin runs.
    #[must_use]
    pub fn has(&self, plugin: Plugin) -> bool {
        self.0.contains(&plugin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_switched_by_name() {
        assert_eq!("ServiceAccount".parse(), Ok(Plugin::ServiceAccount));
        assert!(
            "Frob".parse::<Plugin>().is_err_and(|why| why.contains("NodeRestriction, PodSecurity, ServiceAccount"))
        );
        assert!(Plugins::default().has(Plugin::ServiceAccount));
        let off = Plugins::new(&[], &[Plugin::ServiceAccount]);
        assert!(!off.has(Plugin::ServiceAccount) && off.has(Plugin::NodeRestriction));
        assert!(Plugins::new(&[Plugin::ServiceAccount], &[Plugin::ServiceAccount]).has(Plugin::ServiceAccount));
    }
}
