//! `EncryptionConfiguration` of `apiserver.config.k8s.io/v1`: text becomes [`Encryption`].
//!
//! The rules and messages are those of kube-apiserver. The providers `aesgcm` and `identity` are supported; `kms`, `aescbc` and
//! `secretbox` are refused with the one to use instead. A key of 16 or 24 bytes has the strength of its own length, although
//! the data keys derived from it have 32. Messages hold no secret.

use api::field::{Errors, Path};
use api::value::ValueExt as _;
use api::yaml::YamlError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::envelope::MAX_NAME;
use super::key::SecretKey;
use super::{Encryption, Resource, Rule};

const API_VERSION: &str = "apiserver.config.k8s.io/v1";
const KIND: &str = "EncryptionConfiguration";

/// Every provider of the format.
const PROVIDERS: [&str; 5] = ["kms", "aesgcm", "aescbc", "secretbox", "identity"];

const KEY_LENGTHS: [usize; 3] = [16, 24, 32];
const NOT_REST: [&str; 3] = ["apiserveripinfo", "serviceipallocations", "servicenodeportallocations"];

/// Why a configuration is not valid. The texts hold no secret.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is not YAML.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// A field is unknown, repeated or of another type.
    #[error("strict decoding error: {0}")]
    Strict(String),
    /// It is not an object.
    #[error("expected an object of {API_VERSION}, kind {KIND}")]
    NoObject,
    /// It is an object of another kind.
    #[error("no kind {kind:?} is registered for version {version:?}; expected {KIND:?} of {API_VERSION:?}")]
    Kind {
        /// Its `kind`.
        kind: String,
        /// Its `apiVersion`.
        version: String,
    },
    /// Fields have invalid values: every problem.
    #[error("{0}")]
    Fields(String),
}

/// Reads a configuration, YAML or JSON.
pub(super) fn parse(text: &[u8]) -> Result<Encryption, ConfigError> {
    let (value, repeated) = api::yaml::from_yaml(text)?;
    if let Some(first) = repeated.into_iter().next() {
        return Err(ConfigError::Strict(first));
    }
    if !value.is_object() {
        return Err(ConfigError::NoObject);
    }
    let (version, kind) = (value.text("apiVersion"), value.text("kind"));
    if (version, kind) != (API_VERSION, KIND) {
        return Err(ConfigError::Kind { kind: kind.to_owned(), version: version.to_owned() });
    }
    let root = Path::Root("resources");
    let mut reader = Reader::default();
    reader.known_fields(&value, None, &["apiVersion", "kind", "resources"]);
    let rules = reader.list(&value, "resources", &root).to_owned();
    if rules.is_empty() {
        reader.errors.required(&root, "at least one resources is required");
    }
    for (index, rule) in rules.iter().enumerate() {
        reader.rule(rule, &root.index(index));
    }
    let Reader { unknown, errors, keys, rules } = reader;
    match unknown.into_iter().next() {
        Some(first) => Err(ConfigError::Strict(first)),
        None if errors.is_empty() => Ok(Encryption { keys, rules }),
        None => Err(ConfigError::Fields(errors.summary())),
    }
}

/// The state of the parser.
#[derive(Default)]
struct Reader {
    /// Violations of the format, as text.
    unknown: Vec<String>,
    errors: Errors,
    keys: Vec<SecretKey>,
    rules: Vec<Rule>,
}

/// One element of `providers`.
enum Provider {
    Identity,
    /// The place of its first key.
    Encrypts(Option<usize>),
}

impl Reader {
    /// Records fields that the format does not have.
    fn known_fields(&mut self, value: &Value, path: Option<&Path<'_>>, known: &[&str]) {
        let Some(fields) = value.as_object() else {
            let place = path.map_or_else(String::new, ToString::to_string);
            self.unknown.push(format!("{place}: expected an object"));
            return;
        };
        for name in fields.keys().filter(|name| !known.contains(&name.as_str())) {
            let place = path.map_or_else(|| name.clone(), |path| path.child(name).to_string());
            self.unknown.push(format!("unknown field {place:?}"));
        }
    }

    /// The list in a field; nothing if it is absent.
    fn list<'v>(&mut self, value: &'v Value, field: &str, path: &Path<'_>) -> &'v [Value] {
        match value.get(field) {
            Some(Value::Array(items)) => items,
            None | Some(Value::Null) => &[],
            Some(_) => {
                self.unknown.push(format!("{path}: expected a list"));
                &[]
            }
        }
    }

    /// The string in a field; empty if it is absent.
    fn text<'v>(&mut self, value: &'v Value, field: &str, path: &Path<'_>) -> &'v str {
        match value.get(field) {
            Some(Value::String(text)) => text,
            None | Some(Value::Null) => "",
            Some(_) => {
                self.unknown.push(format!("{}: expected a string", path.child(field)));
                ""
            }
        }
    }

    fn rule(&mut self, value: &Value, path: &Path<'_>) {
        self.known_fields(value, Some(path), &["resources", "providers"]);
        let (named, provided) = (path.child("resources"), path.child("providers"));
        let resources = self.resources(value, &named);
        let providers = self.list(value, "providers", &provided);
        if providers.is_empty() {
            self.errors.required(&provided, &format!("at least one {provided} is required"));
        }
        let providers: Vec<Provider> = providers
            .iter()
            .enumerate()
            .filter_map(|(index, provider)| self.provider(provider, &provided.index(index)))
            .collect();
        let writes = match providers.first() {
            Some(Provider::Encrypts(first)) => *first,
            _ => None,
        };
        let reads_plain = providers.iter().any(|provider| matches!(provider, Provider::Identity));
        self.rules.push(Rule { resources, writes, reads_plain });
    }

    fn resources(&mut self, value: &Value, path: &Path<'_>) -> Vec<Resource> {
        let list = self.list(value, "resources", path);
        if list.is_empty() {
            self.errors.required(path, &format!("at least one {path} is required"));
        }
        let mut names = Vec::new();
        for (index, item) in list.iter().enumerate() {
            match item.as_str() {
                Some(name) => names.push(name),
                None => self.unknown.push(format!("{}: expected a string", path.index(index))),
            }
        }
        let resources: Vec<Resource> = names.iter().map(|name| Resource::parse(name)).collect();
        check_overlap(&resources, list, path, &mut self.errors);
        for (index, name) in names.iter().enumerate() {
            if let Some(why) = refused_resource(name) {
                self.errors.invalid(&path.index(index), *name, why);
            }
        }
        resources
    }

    fn provider(&mut self, value: &Value, path: &Path<'_>) -> Option<Provider> {
        self.known_fields(value, Some(path), &PROVIDERS);
        let given = |name: &&str| value.get(name).is_some_and(|value| !value.is_null());
        let present: Vec<&str> = PROVIDERS.into_iter().filter(given).collect();
        match present[..] {
            ["identity"] => {
                self.known_fields(value.at("identity"), Some(&path.child("identity")), &[]);
                Some(Provider::Identity)
            }
            ["aesgcm"] => Some(Provider::Encrypts(self.keys(value.at("aesgcm"), &path.child("aesgcm")))),
            [other] => {
                let why = format!("provider {other} is not supported; use aesgcm");
                self.errors.forbidden(&path.child(other), &why);
                None
            }
            [] => {
                let why = "provider does not contain any of the expected providers: AESGCM, Identity";
                self.errors.invalid(path, Value::Object(Map::new()), why);
                None
            }
            _ => {
                let why =
                    "more than one provider specified in a single element, should split into different list elements";
                self.errors.invalid(path, present.join(", "), why);
                None
            }
        }
    }

    /// Reads the keys of a provider; the place of the first.
    fn keys(&mut self, value: &Value, path: &Path<'_>) -> Option<usize> {
        self.known_fields(value, Some(path), &["keys"]);
        let path = path.child("keys");
        let list = self.list(value, "keys", &path);
        if list.is_empty() {
            self.errors.required(&path, "at least one keys is required");
        }
        let places: Vec<Option<usize>> =
            list.iter().enumerate().map(|(index, key)| self.key(key, &path.index(index))).collect();
        places.first().copied().flatten()
    }

    fn key(&mut self, value: &Value, path: &Path<'_>) -> Option<usize> {
        self.known_fields(value, Some(path), &["name", "secret"]);
        let (name, secret) = (self.text(value, "name", path), self.text(value, "secret", path));
        if name.is_empty() {
            self.errors.required(&path.child("name"), "name is a mandatory field for a key");
        }
        if name.len() > MAX_NAME {
            self.errors.too_long(&path.child("name"), MAX_NAME);
        }
        let path = path.child("secret");
        if secret.is_empty() {
            self.errors.required(&path, "secret is a mandatory field for a key");
            return None;
        }
        let Ok(secret) = STANDARD.decode(secret).map(Zeroizing::new) else {
            self.errors.invalid(&path, "REDACTED", "secrets must be base64 encoded");
            return None;
        };
        if !KEY_LENGTHS.contains(&secret.len()) {
            let why = format!("secret is not of the expected length, got {}, expected one of [16 24 32]", secret.len());
            self.errors.invalid(&path, "REDACTED", &why);
            return None;
        }
        let key = SecretKey::new(name, secret);
        let known = self.keys.iter().position(|known| *known == key);
        Some(known.unwrap_or_else(|| {
            self.keys.push(key);
            self.keys.len() - 1
        }))
    }
}

/// Why Kubernetes rejects this name of a resource.
fn refused_resource(name: &str) -> Option<&'static str> {
    let Resource { resource, group } = Resource::parse(name);
    if name.to_lowercase() != name {
        Some("resource name should not contain capital letters")
    } else if name == "*" {
        Some("use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources")
    } else if NOT_REST.contains(&name) {
        Some("resources which do not have REST API/s cannot be encrypted")
    } else if group == "events.k8s.io" {
        Some(
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file",
        )
    } else if group == "extensions" {
        Some("'extensions' group has been removed and cannot be used for encryption")
    } else if group == "*" && resource != "*" {
        Some("encrypting the same resource across groups is not supported")
    } else {
        None
    }
}

/// Resources of one list must not repeat or mask each other.
fn check_overlap(resources: &[Resource], list: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let others = |place: usize| resources.iter().enumerate().filter(move |(other, _)| *other != place);
    let any = |relation: &dyn Fn(&Resource, &Resource) -> bool| {
        resources.iter().enumerate().any(|(place, one)| others(place).any(|(_, other)| relation(one, other)))
    };
    let shown = || Value::Array(list.to_vec());
    if any(&|one, other| one == other) {
        errors.invalid(path, shown(), "the same resource cannot be specified multiple times");
    }
    let masks = |one: &Resource, other: &Resource| {
        one != other
            && (one.is_everything() || one.group == other.group && (one.resource == "*" || other.resource == "*"))
    };
    if any(&masks) {
        let why = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked";
        errors.invalid(path, shown(), why);
    }
}

#[cfg(test)]
mod tests;
