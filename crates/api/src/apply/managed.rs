//! The record of field ownership: `metadata.managedFields`.
//!
//! In: the entries of an object. Out: the same as sets of paths, and the entries again, sorted as Kubernetes sorts
//! them. One entry stands for one [`Owner`]; what an applier owns does not depend on the version it applied.

use serde_json::{Map, Value, json};

use super::element::Unreadable;
use super::fieldset::Set;
use super::object_type::ObjectType;
use super::versions;
use super::walk::reconciled;
use crate::value::ValueExt as _;

/// How many owners that used plain writes an object remembers.
const MAX_UPDATERS: usize = 10;

/// The owner that takes over from the oldest ones beyond that number.
const ANCIENT: &str = "ancient-changes";

/// An owner of fields, and the kind of its requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Owner<'a> {
    /// The name of the manager.
    pub(super) manager: &'a str,
    /// By server-side apply, not by a plain write.
    pub(super) applied: bool,
    /// The version the paths are of.
    pub(super) api_version: &'a str,
    /// `status`, or empty.
    pub(super) subresource: &'a str,
}

/// What one owner owns.
#[derive(Clone, Debug)]
pub(super) struct Owned<'a> {
    /// The manager.
    pub(super) owner: Owner<'a>,
    /// When that last changed.
    pub(super) time: Option<&'a str>,
    /// What.
    pub(super) set: Set<'a>,
}

/// Every owner of an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Managed<'a>(pub(super) Vec<Owned<'a>>);

impl Owner<'_> {
    /// Whether both are one entry of the record.
    pub(super) fn is(&self, other: &Owner<'_>) -> bool {
        self.manager == other.manager
            && self.applied == other.applied
            && self.subresource == other.subresource
            && (self.applied || self.api_version == other.api_version)
    }

    /// The text by which kube-apiserver distinguishes owners; it sorts by this.
    pub(super) fn id(&self) -> String {
        let mut out = String::from("{");
        for (name, text) in [
            ("manager", self.manager),
            ("operation", self.operation()),
            ("apiVersion", if self.applied { "" } else { self.api_version }),
            ("subresource", self.subresource),
        ] {
            if !text.is_empty() {
                let comma = if out.len() > 1 { "," } else { "" };
                out.push_str(&format!("{comma}\"{name}\":{}", Value::from(text)));
            }
        }
        out.push('}');
        out
    }

    fn operation(&self) -> &'static str {
        if self.applied { "Apply" } else { "Update" }
    }
}

/// Whether the client requests that the record be discarded: a list that is empty, or with one empty entry.
pub(super) fn is_reset(entries: &Value) -> bool {
    let empty = |entry: &Value| entry.as_object().is_some_and(|map| map.values().all(is_unset));
    match entries.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => empty(only),
        _ => false,
    }
}

fn is_unset(value: &Value) -> bool {
    value.is_null() || value == ""
}

impl<'a> Managed<'a> {
    /// The record of an object (null when it has none).
    ///
    /// # Errors
    /// The message for an invalid entry.
    pub(super) fn decode(entries: &'a Value) -> Result<Self, String> {
        let mut out = Self::default();
        for (index, entry) in entries.as_array().into_iter().flatten().enumerate() {
            let applied = match entry.text("operation") {
                "Apply" => true,
                "Update" => false,
                _ => return Err("operation must be `Apply` or `Update`".to_owned()),
            };
            if entry.text("apiVersion").is_empty() {
                return Err("apiVersion must not be empty".to_owned());
            }
            match entry.text("fieldsType") {
                "FieldsV1" => {}
                "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
                other => return Err(format!("invalid fieldsType \"{other}\" in managed fields entry {index}")),
            }
            let owner = Owner {
                manager: entry.text("manager"),
                applied,
                api_version: entry.text("apiVersion"),
                subresource: entry.text("subresource"),
            };
            let set =
                Set::decode(entry.at("fieldsV1")).map_err(|Unreadable(why)| format!("error decoding set: {why}"))?;
            *out.slot(owner) = Owned { owner, time: entry.at("time").as_str(), set };
        }
        Ok(out)
    }

    /// The record of a live object: an invalid one counts as none.
    pub(super) fn decode_live(live: Option<&'a Value>) -> Self {
        live.and_then(|live| Self::decode(live.at("metadata.managedFields")).ok()).unwrap_or_default()
    }

    /// Brings all sets to the version and schema of the request; owners of versions that are gone are forgotten.
    ///
    /// # Errors
    /// What in the live object does not fit the version of an owner.
    pub(super) fn fit(&mut self, ty: ObjectType<'_>, api_version: &str, live: &Value) -> Result<(), String> {
        let mut fitting: Vec<&str> = vec![api_version];
        let mut kept = Vec::with_capacity(self.0.len());
        for mut owned in std::mem::take(&mut self.0) {
            let version = owned.owner.api_version;
            let Some(set) = versions::translate(owned.set, ty, version, api_version) else { continue };
            if !fitting.contains(&version) {
                ty.check_in(version, live)?;
                fitting.push(version);
            }
            owned.set = reconciled(ty.other_root(version).unwrap_or_else(|| ty.root()), set);
            kept.push(owned);
        }
        self.0 = kept;
        Ok(())
    }

    /// The entry of an owner.
    pub(super) fn get(&self, owner: &Owner<'_>) -> Option<&Owned<'a>> {
        self.0.iter().find(|owned| owned.owner.is(owner))
    }

    /// The entry of an owner, created if missing.
    pub(super) fn slot(&mut self, owner: Owner<'a>) -> &mut Owned<'a> {
        let index = self.0.iter().position(|owned| owned.owner.is(&owner)).unwrap_or_else(|| {
            self.0.push(Owned { owner, time: None, set: Set::default() });
            self.0.len() - 1
        });
        &mut self.0[index]
    }

    /// Every path that a manager owns.
    pub(super) fn everything(&self) -> Set<'a> {
        self.0.iter().fold(Set::default(), |all, owned| all.union(owned.set.clone()))
    }

    /// Forgets owners that own nothing.
    pub(super) fn drop_empty(&mut self) {
        self.0.retain(|owned| !owned.set.is_empty());
    }

    /// Folds the oldest plain writers into one when there are too many of them.
    pub(super) fn cap(&mut self) {
        let mut count = self.0.iter().filter(|owned| !owned.owner.applied).count();
        if count <= MAX_UPDATERS {
            return;
        }
        let mut oldest: Vec<(Owner<'a>, Option<&'a str>, String)> = self
            .0
            .iter()
            .filter(|owned| !owned.owner.applied)
            .map(|owned| (owned.owner, owned.time, owned.owner.id()))
            .collect();
        oldest.sort_by(|a, b| (a.1, &a.2).cmp(&(b.1, &b.2)));
        let mut firsts: Vec<Owner<'a>> = Vec::new();
        for (owner, time, _) in oldest {
            if count <= MAX_UPDATERS {
                break;
            }
            // Paths of two versions are not to be mixed: each version has a bucket, once it has two owners to fold.
            let Some(first) = firsts.iter().find(|first| first.api_version == owner.api_version) else {
                firsts.push(owner);
                continue;
            };
            let bucket = Owner { manager: ANCIENT, applied: false, api_version: owner.api_version, subresource: "" };
            if self.get(&bucket).is_none() {
                let first = *first;
                self.slot(first).owner = bucket;
            }
            let set = std::mem::take(&mut self.slot(owner).set);
            let into = self.slot(bucket);
            into.set = std::mem::take(&mut into.set).union(set);
            into.time = time;
            self.0.retain(|owned| !owned.owner.is(&owner));
            count -= 1;
        }
    }

    /// The entries, sorted; paths go back to the version of their entry.
    pub(super) fn encode(self, ty: ObjectType<'_>, api_version: &str) -> Option<Value> {
        let mut all = self.0;
        all.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
        let entries: Vec<Value> = all.into_iter().map(|owned| encode_entry(owned, ty, api_version)).collect();
        (!entries.is_empty()).then_some(Value::Array(entries))
    }
}

fn sort_key<'k>(owned: &'k Owned<'_>) -> (&'k str, Option<&'k str>, &'k str, &'k str, &'k str) {
    let owner = &owned.owner;
    (owner.operation(), owned.time, owner.manager, owner.api_version, owner.subresource)
}

fn encode_entry(owned: Owned<'_>, ty: ObjectType<'_>, api_version: &str) -> Value {
    let owner = owned.owner;
    let set = versions::translate(owned.set, ty, api_version, owner.api_version).unwrap_or_default();
    let mut out = Map::new();
    for (name, text) in [
        ("manager", owner.manager),
        ("operation", owner.operation()),
        ("apiVersion", owner.api_version),
        ("time", owned.time.unwrap_or_default()),
        ("fieldsType", "FieldsV1"),
        ("subresource", owner.subresource),
    ] {
        if !text.is_empty() {
            out.insert(name.to_owned(), text.into());
        }
    }
    out.insert("fieldsV1".to_owned(), set.encode());
    Value::Object(out)
}

/// Restores the times of the live object when nothing but times has changed; returns whether it did.
pub(super) fn revert_times(live: &Value, new: &mut Value) -> bool {
    let before = live.items("metadata.managedFields");
    let after = new.items("metadata.managedFields");
    let alike = before.len() == after.len()
        && !before.is_empty()
        && before != after
        && before.iter().zip(after).all(|(before, after)| equal_but(before, after, &["time"]));
    if !alike || !equal_but(live, new, &["metadata", "managedFields"]) {
        return false;
    }
    new.put("metadata.managedFields", json!(before));
    true
}

/// Whether two values are equal apart from what a path leads to.
fn equal_but(a: &Value, b: &Value, path: &[&str]) -> bool {
    let Some((first, rest)) = path.split_first() else { return true };
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return a == b };
    let others = |map: &'_ Map<String, Value>| map.keys().filter(|key| key != first).count();
    others(a) == others(b)
        && a.iter().filter(|(key, _)| key != first).all(|(key, value)| b.get(key) == Some(value))
        && (rest.is_empty()
            || equal_but(a.get(*first).unwrap_or(&Value::Null), b.get(*first).unwrap_or(&Value::Null), rest))
}
