//! Encryption at rest: which values are encrypted in the store's files, and with which key.
//!
//! In: an `EncryptionConfiguration` as Kubernetes defines it ([`Encryption::parse`], [`load`]). Out: for each table, the key that
//! new values are encrypted with and whether plain values are accepted; for a key id found in a file, the key.
//!
//! Memory holds plain values, so reads cost nothing. [`Encryptor`] and [`Decryptor`] work where records are encoded for a
//! file and decoded from it, which covers the log, snapshots, backups and their temporary files. Keys of entries (namespace and
//! name) are not encrypted, as in etcd.

mod config;
mod decryptor;
mod encryptor;
mod envelope;
mod file;
mod key;

use std::collections::BTreeMap;

pub use self::config::ConfigError;
pub use self::decryptor::{DecryptError, Values};
pub(crate) use self::decryptor::{Decryptor, Unreadable};
pub(crate) use self::encryptor::Encryptor;
pub(crate) use self::envelope::Location;
pub use self::file::{LoadError, load};
pub use self::key::KeyId;
use self::key::SecretKey;
use crate::Table;

/// Keys, and the rules that map tables to them. The default encrypts nothing and has no keys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Encryption {
    /// Every key of the configuration; any of them decrypts.
    keys: Vec<SecretKey>,
    /// In the order of the configuration: the first that matches a table counts.
    rules: Vec<Rule>,
}

/// One element of `resources` in the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    resources: Vec<Resource>,
    /// The place in `keys` of the key that encrypts; `None` writes plain values.
    writes: Option<usize>,
    /// Whether plain values are read.
    reads_plain: bool,
}

/// A resource, or a wildcard: `secrets`, `deployments.apps`, `*.apps`, `*.` (the core group), `*.*`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Resource {
    resource: String,
    group: String,
}

// === impl Encryption ===

impl Encryption {
    /// Reads an `apiserver.config.k8s.io/v1 EncryptionConfiguration`, YAML or JSON.
    ///
    /// # Errors
    ///
    /// When it is not valid by the rules of Kubernetes, or names a provider that is not supported here. The text holds no
    /// secret.
    pub fn parse(text: &[u8]) -> Result<Self, ConfigError> {
        config::parse(text)
    }

    /// Whether any resource is encrypted when it is written.
    #[must_use]
    pub fn encrypts(&self) -> bool {
        self.rules.iter().any(|rule| rule.writes.is_some())
    }

    /// Whether objects of a resource are encrypted when they are written; the core group is empty.
    #[must_use]
    pub fn encrypts_resource(&self, resource: &str, group: &str) -> bool {
        let fits = |rule: &&Rule| rule.resources.iter().any(|pattern| pattern.matches(resource, group));
        self.rules.iter().find(fits).is_some_and(|rule| rule.writes.is_some())
    }

    /// The keys that new values are encrypted with, by id, with their names.
    pub(crate) fn writing_keys(&self) -> BTreeMap<KeyId, Box<str>> {
        let keys = self.rules.iter().filter_map(|rule| self.keys.get(rule.writes?));
        keys.map(|key| (key.id(), key.name().into())).collect()
    }

    /// The place of the key that values of this table are encrypted with; `None` for plain values.
    fn writes(&self, table: Table) -> Option<usize> {
        self.rule(table)?.writes
    }

    /// The id of the key that values of this table are encrypted with; `None` for plain values.
    pub(crate) fn writing_key(&self, table: Table) -> Option<KeyId> {
        self.keys.get(self.writes(table)?).map(SecretKey::id)
    }

    /// Whether plain values of this table are accepted.
    pub(crate) fn reads_plain(&self, table: Table) -> bool {
        self.rule(table).is_none_or(|rule| rule.reads_plain)
    }

    /// Whether there is a key with this id.
    pub(crate) fn has_key(&self, id: KeyId) -> bool {
        self.key(id).is_some()
    }

    fn key(&self, id: KeyId) -> Option<&SecretKey> {
        self.keys.iter().find(|key| key.id() == id)
    }

    fn rule(&self, table: Table) -> Option<&Rule> {
        if self.rules.is_empty() {
            return None;
        }
        let (resource, group) = resource_of(table)?;
        self.rules.iter().find(|rule| rule.resources.iter().any(|pattern| pattern.matches(resource, group)))
    }
}

/// The resource and group whose objects a table holds. Tables without objects, such as the register of node ports, have
/// none and are never encrypted.
fn resource_of(table: Table) -> Option<(&'static str, &'static str)> {
    let custom = || api::custom::resource_of_table(table.as_str()).map(|(group, plural)| (plural, group));
    api::kinds::by_table(table.as_str()).map(|kind| (kind.plural, kind.group)).or_else(custom)
}

// === impl Resource ===

impl Resource {
    /// `resource` or `resource.group`.
    fn parse(text: &str) -> Self {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        Self { resource: resource.to_owned(), group: group.to_owned() }
    }

    fn is_everything(&self) -> bool {
        self.resource == "*" && self.group == "*"
    }

    fn matches(&self, resource: &str, group: &str) -> bool {
        self.is_everything() || self.group == group && (self.resource == "*" || self.resource == resource)
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Configurations for tests.

    use super::Encryption;

    /// A rule for the configuration: resources, then providers, each `identity` or a key `NAME:SEED`.
    pub(crate) fn encryption(rules: &[(&str, &[&str])]) -> Encryption {
        let text: Vec<String> = rules.iter().map(|(resources, providers)| rule(resources, providers)).collect();
        let text = format!(
            r#"{{"apiVersion":"apiserver.config.k8s.io/v1","kind":"EncryptionConfiguration","resources":[{}]}}"#,
            text.join(",")
        );
        Encryption::parse(text.as_bytes()).expect("a good configuration")
    }

    fn rule(resources: &str, providers: &[&str]) -> String {
        use base64::Engine as _;
        let providers: Vec<String> = providers
            .iter()
            .map(|provider| match provider.split_once(':') {
                None => r#"{"identity":{}}"#.to_owned(),
                Some((name, seed)) => {
                    let secret = base64::engine::general_purpose::STANDARD.encode(seed.repeat(32).split_at(32).0);
                    format!(r#"{{"aesgcm":{{"keys":[{{"name":"{name}","secret":"{secret}"}}]}}}}"#)
                }
            })
            .collect();
        format!(r#"{{"resources":["{}"],"providers":[{}]}}"#, resources.replace(',', "\",\""), providers.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::testing::encryption;
    use super::*;

    #[test]
    fn the_first_rule_that_matches_counts() {
        let encryption = encryption(&[
            ("events", &["identity"]),
            ("secrets,*.apps", &["one:a", "identity"]),
            ("*.", &["two:b"]),
            ("*.*", &["three:c", "two:b"]),
        ]);
        let name = |table: &str| {
            let id = encryption.writing_key(Table::named(table))?;
            encryption.keys.iter().find(|key| key.id() == id).map(|key| key.name().to_owned())
        };
        for (table, key, reads_plain) in [
            ("events", None, true),
            ("secrets", Some("one"), true),
            ("deployments", Some("one"), true),
            ("configmaps", Some("two"), false),
            ("services/specs", Some("two"), false),
            ("leases", Some("three"), false),
            ("nodeports", None, true),
        ] {
            assert_eq!(name(table).as_deref(), key, "{table}");
            assert_eq!(encryption.reads_plain(Table::named(table)), reads_plain, "{table}");
        }
        assert!(encryption.encrypts());
        assert_eq!(encryption.keys.len(), 3, "a key that is listed twice is kept once");
        assert_eq!(encryption.writing_keys().len(), 3);
    }

    #[test]
    fn without_a_configuration_nothing_is_encrypted_and_plain_values_are_read() {
        let none = Encryption::default();
        let secrets = Table::named("secrets");
        assert!(!none.encrypts() && none.writing_key(secrets).is_none() && none.reads_plain(secrets));
    }
}
