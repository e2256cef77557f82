//! Parameters of a binding: which objects a policy is evaluated with.

use serde_json::Value;

use super::Params;
use crate::dynamic_admission::matching::labels;
use crate::selector;
use crate::value::ValueExt as _;

/// The kind of a policy's parameters.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ParamKind {
    /// Empty for core.
    pub group: String,
    /// `v1`.
    pub version: String,
    /// `ConfigMap`.
    pub kind: String,
}

impl ParamKind {
    /// Of a `paramKind`; none when it is null.
    #[must_use]
    pub fn read(value: &Value) -> Option<Self> {
        let api_version = value.text("apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = value.text("kind").to_owned();
        value.is_object().then(|| Self { group: group.to_owned(), version: version.to_owned(), kind })
    }

    /// `/v1, Kind=ConfigMap`.
    pub(super) fn described(&self) -> String {
        format!("{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// The parameters that a binding names: null where the policy has no kind of parameters or the binding names none, and
/// nothing where none are found and that is allowed. `source` has the objects of the policy's kind.
///
/// # Errors
/// Why there are none.
pub(super) fn collect(source: Option<&dyn Params>, reference: &Value, namespace: &str) -> Result<Vec<Value>, String> {
    let Some(source) = source.filter(|_| reference.is_object()) else { return Ok(vec![Value::Null]) };
    let own = reference.text("namespace");
    let namespace = match (source.namespaced(), own, namespace) {
        (true, "", "") => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_owned()
            );
        }
        (true, "", namespace) => namespace,
        (true, own, _) => own,
        (false, "", _) => "",
        (false, _, _) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
    };
    let found: Vec<Value> = match (reference.text("name"), reference.at("selector")) {
        ("", Value::Null) => return Err("one of name or selector must be provided".to_owned()),
        ("", wanted) => {
            let selector = selector::from_object(wanted).ok_or("the selector of paramRef is invalid")?;
            let is_selected = |object: &Value| selector.matches(&labels(object), "", "");
            source.list(namespace).into_iter().filter(is_selected).collect()
        }
        (name, Value::Null) => source.get(namespace, name).into_iter().collect(),
        _ => return Err("paramRef.name and paramRef.selector are mutually exclusive".to_owned()),
    };
    if found.is_empty() && reference.text("parameterNotFoundAction") == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found)
}
