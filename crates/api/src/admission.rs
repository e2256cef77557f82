//! Admission plugins: their names, and which of them run. What they decide is pure and elsewhere in this crate; `store::admission` finds what
//! they need and makes it part of the transaction.

pub mod service_account;

use std::collections::BTreeSet;
use std::str::FromStr;

/// A plugin that can be switched off.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Plugin {
    /// LimitRanges fill in and bound what Pods ask for.
    LimitRanger,
    /// Webhooks change objects.
    MutatingAdmissionWebhook,
    /// Nodes change only what is theirs.
    NodeRestriction,
    /// Pods do only what the labels of their Namespace allow.
    PodSecurity,
    /// Pods get the priority of their PriorityClass.
    Priority,
    /// Namespaces use no more than their ResourceQuotas say.
    ResourceQuota,
    /// Pods have a ServiceAccount, and its token.
    ServiceAccount,
    /// Requests keep to ValidatingAdmissionPolicies.
    ValidatingAdmissionPolicy,
    /// Webhooks may refuse requests.
    ValidatingAdmissionWebhook,
}

const ALL: [Plugin; 9] = [
    Plugin::LimitRanger,
    Plugin::MutatingAdmissionWebhook,
    Plugin::NodeRestriction,
    Plugin::PodSecurity,
    Plugin::Priority,
    Plugin::ResourceQuota,
    Plugin::ServiceAccount,
    Plugin::ValidatingAdmissionPolicy,
    Plugin::ValidatingAdmissionWebhook,
];

impl Plugin {
    /// The name in Kubernetes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LimitRanger => "LimitRanger",
            Self::MutatingAdmissionWebhook => "MutatingAdmissionWebhook",
            Self::NodeRestriction => "NodeRestriction",
            Self::PodSecurity => "PodSecurity",
            Self::Priority => "Priority",
            Self::ResourceQuota => "ResourceQuota",
            Self::ServiceAccount => "ServiceAccount",
            Self::ValidatingAdmissionPolicy => "ValidatingAdmissionPolicy",
            Self::ValidatingAdmissionWebhook => "ValidatingAdmissionWebhook",
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

    /// No plugins.
    #[must_use]
    pub const fn none() -> Self {
        Self(BTreeSet::new())
    }

    /// Whether a plugin runs.
    #[must_use]
    pub fn has(&self, plugin: Plugin) -> bool {
        self.0.contains(&plugin)
    }
}

/// Warnings and audit annotations of an admission decision.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Notes {
    /// Texts of Warning headers.
    pub warnings: Vec<String>,
    /// Annotations of the audit event: keys and values.
    pub annotations: Vec<(String, String)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_switched_by_name() {
        assert_eq!("ServiceAccount".parse(), Ok(Plugin::ServiceAccount));
        assert!("Frob".parse::<Plugin>().is_err_and(|why| why.contains("PodSecurity, Priority, ResourceQuota")));
        assert!(Plugins::default().has(Plugin::ServiceAccount) && !Plugins::none().has(Plugin::ServiceAccount));
        let off = Plugins::new(&[], &[Plugin::ServiceAccount]);
        assert!(!off.has(Plugin::ServiceAccount) && off.has(Plugin::NodeRestriction));
        assert!(Plugins::new(&[Plugin::ServiceAccount], &[Plugin::ServiceAccount]).has(Plugin::ServiceAccount));
    }
}
