//! Field ownership: server-side apply, and `managedFields` of every other write.
//!
//! In: the live object, and what a client requests: a whole object ([`track_update`]) or a configuration ([`apply`]).
//! Out: the object to continue with, its `metadata.managedFields` updated, or the conflicts.
//!
//! A write changes a set of field paths ([`walk`]); the writer owns them from then on and all others lose them. An
//! apply states the paths its manager wants to own: paths it no longer states are removed from the object ([`merge`]),
//! and paths that others own with another value are conflicts. Both work on typed objects *before* addresses and ports
//! are allocated, so that values chosen by the server have no owner.

mod check;
mod conflict;
mod custom;
#[cfg(test)]
mod custom_tests;
mod element;
mod fieldset;
mod lastapplied;
mod managed;
mod merge;
mod node;
mod object_type;
mod reset;
#[cfg(test)]
mod tests;
mod typed;
mod versions;
mod walk;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::status::Status;
use crate::value::ValueExt as _;
use check::{Duplicates, check};
use conflict::Conflict;
use fieldset::Set;
use managed::{Managed, Owner};
pub use object_type::{CustomType, ObjectType};
use reset::Reset;
use versions::Differences;
use walk::Difference;

/// The writer, and the kind of write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Manager<'a> {
    /// The `fieldManager` of the request, or its default.
    pub name: &'a str,
    /// The version of the request (`v1`, `discovery.k8s.io/v1`).
    pub api_version: &'a str,
    /// The subresource that is written, or empty.
    pub subresource: &'a str,
}

/// Paths without an owner: the identity of an object, and fields reserved to the server.
static NEVER_OWNED: LazyLock<Set<'static>> = LazyLock::new(|| {
    Set::of_fields(&[
        "metadata",
        "metadata.name",
        "metadata.namespace",
        "metadata.creationTimestamp",
        "metadata.selfLink",
        "metadata.uid",
        "metadata.clusterName",
        "metadata.generation",
        "metadata.managedFields",
        "metadata.resourceVersion",
    ])
});

/// The owner of everything that was there before the first apply to an object without a record.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Writes `metadata.managedFields` of `new`, the object as a write that is not an apply wants it: defaulted, but before
/// anything is allocated. `live` is `None` on create. The `managedFields` of `new` are to be what the client sent: an
/// empty list resets the record, none keeps it. `now` is RFC 3339 with seconds.
pub fn track_update<'s>(
    ty: impl Into<ObjectType<'s>>,
    live: Option<&Value>,
    new: &mut Value,
    manager: &Manager<'_>,
    now: &str,
) {
    let ty = ty.into();
    let sent = new.at_mut("metadata").and_then(Value::as_object_mut).and_then(|meta| meta.remove("managedFields"));
    let sent = sent.filter(|_| manager.subresource.is_empty()).unwrap_or_default();
    let fields = if managed::is_reset(&sent) {
        updated(ty, live, new, Managed::default(), manager, now)
    } else {
        let managed = Managed::decode(&sent).ok().filter(|managed| !managed.0.is_empty());
        updated(ty, live, new, managed.unwrap_or_else(|| Managed::decode_live(live)), manager, now)
    };
    // A record that cannot be made is no reason to refuse a write: the old one stays.
    let fields = fields.unwrap_or_else(|_| live.map(|live| live.at("metadata.managedFields").clone()));
    put_fields(new, fields);
}

fn updated(
    ty: ObjectType<'_>,
    live: Option<&Value>,
    new: &Value,
    managed: Managed<'_>,
    manager: &Manager<'_>,
    now: &str,
) -> Result<Option<Value>, String> {
    // An object that lost its record gets no new one before it is applied to.
    if managed.0.is_empty() && live.is_some_and(|live| !live.text("metadata.uid").is_empty()) {
        return Ok(None);
    }
    let old = live.map(|live| ty.complete(Some(live)));
    let old = old.as_ref().unwrap_or_else(|| ty.zero());
    let new = ty.complete(Some(new));
    ty.check_stored(&new)?;
    ty.check_stored(old)?;
    Ok(take_over(ty, old, &new, managed, manager, now)?.encode(ty, manager.api_version))
}

/// Gives the manager what differs between two complete objects.
fn take_over<'a>(
    ty: ObjectType<'a>,
    old: &'a Value,
    new: &'a Value,
    mut managed: Managed<'a>,
    manager: &Manager<'a>,
    now: &'a str,
) -> Result<Managed<'a>, String> {
    managed.fit(ty, manager.api_version, old)?;
    let mut differences = Differences::new(ty, old, new, Reset::fields(ty, manager.subresource).set())?;
    for owned in &mut managed.0 {
        owned.set = lost(std::mem::take(&mut owned.set), differences.of(owned.owner.api_version)?);
    }
    let gained = differences.own.changed.difference(&NEVER_OWNED);
    if !gained.is_empty() {
        let own = managed.slot(owner(manager, false));
        own.set = std::mem::take(&mut own.set).union(gained);
        own.time = Some(now);
    }
    managed.drop_empty();
    managed.cap();
    Ok(managed)
}

fn lost<'a>(set: Set<'a>, difference: &Difference<'_>) -> Set<'a> {
    set.difference(&difference.changed).difference(&difference.removed)
}

fn owner<'a>(manager: &Manager<'a>, applied: bool) -> Owner<'a> {
    let name = if manager.name.is_empty() { "unknown" } else { manager.name };
    Owner { manager: name, applied, api_version: manager.api_version, subresource: manager.subresource }
}

/// Server-side apply: lays a configuration over the live object (`None`: it is to be created) and takes out what the
/// manager applied before and does not now. The answer has its `managedFields` and is to be decoded and defaulted as
/// any object a client sends. `force` takes what others own.
///
/// # Errors
/// The Status that answers a configuration that does not fit the schema, or that is in conflict with other managers.
pub fn apply<'s>(
    ty: impl Into<ObjectType<'s>>,
    live: Option<&Value>,
    config: &Value,
    manager: &Manager<'_>,
    force: bool,
    now: &str,
) -> Result<Value, Status> {
    let ty = ty.into();
    check_type(ty, config, manager)?;
    let record = live.map_or(&Value::Null, |live| live.at("metadata.managedFields"));
    let managed =
        Managed::decode(record).map_err(|why| Status::raw(format!("failed to decode managed fields: {why}")))?;
    if config.at("metadata.managedFields").is_array() {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    let wanted = bare(config);
    check(ty.root(), &wanted, Duplicates::Refuse).map_err(|why| {
        Status::raw(format!("failed to create typed patch object ({}): {why}", identity(config, config)))
    })?;
    let old = ty.complete(live);
    ty.check_stored(&old).map_err(|why| {
        let live = identity(live.unwrap_or(config), config);
        Status::raw(format!("failed to create typed live object ({live}): {why}"))
    })?;
    let request = Request { ty, old: &old, config: &wanted, manager, now };
    let managed = request.begin(managed).map_err(Status::raw)?;
    let last = live.filter(|_| manager.name == lastapplied::KUBECTL);
    let last = last.and_then(|live| lastapplied::last_config(ty, live, manager.api_version));
    let outcome = match (request.merge(managed.clone(), force).map_err(Status::raw)?, &last) {
        (Err(conflicts), Some(last)) => {
            // What kubectl had applied on the client's side, and what is still so, it may have.
            let mine = lastapplied::untouched(ty, &old, last);
            let rest = remaining(conflicts, &mine);
            if rest.is_empty() { request.merge(managed, true).map_err(Status::raw)? } else { Err(rest) }
        }
        (outcome, _) => outcome,
    };
    let (merged, managed) = outcome.map_err(conflict::refuse)?;
    let fields = managed.encode(ty, manager.api_version);
    let mut object = match (merged, live) {
        (Some(merged), _) => whole(merged, config),
        (None, Some(live)) => live.clone(),
        (None, None) => whole(old.clone(), config),
    };
    Reset::fields(ty, manager.subresource).restore(live, &mut object);
    if manager.name == lastapplied::KUBECTL {
        lastapplied::refresh(&mut object, config);
    }
    put_fields(&mut object, fields);
    Ok(object)
}

/// Restores the times in `managedFields` when the write changes nothing else; returns whether it did.
///
/// A write that only renews times is no write: call this with the defaulted object before it is compared with the
/// live one.
pub fn revert_times(live: &Value, new: &mut Value) -> bool {
    managed::revert_times(live, new)
}

/// One apply, ready to be merged.
struct Request<'a, 'm> {
    ty: ObjectType<'a>,
    old: &'a Value,
    config: &'a Value,
    manager: &'m Manager<'a>,
    now: &'a str,
}

/// The merged object, unless it is the live one, and its owners; or the conflicts.
type Merged<'a> = Result<(Option<Value>, Managed<'a>), Vec<Conflict<'a>>>;

impl<'a> Request<'a, '_> {
    /// The initial owners: fields without an owner get one, or they could never be removed again.
    fn begin(&self, mut managed: Managed<'a>) -> Result<Managed<'a>, String> {
        if managed.0.is_empty() {
            let before = Manager { name: BEFORE_FIRST_APPLY, ..*self.manager };
            managed = take_over(self.ty, self.ty.zero(), self.old, managed, &before, self.now)
                .map_err(|why| format!("failed to create manager for existing fields: {why}"))?;
        }
        managed.fit(self.ty, self.manager.api_version, self.old)?;
        Ok(managed)
    }

    fn merge(&self, mut managed: Managed<'a>, force: bool) -> Result<Merged<'a>, String> {
        let node = self.ty.root();
        let reset = Reset::fields(self.ty, self.manager.subresource).set();
        let merged =
            merge::merge(node, self.old, self.config).map_err(|why| format!("failed to merge config: {why}"))?;
        let own = owner(self.manager, true);
        let last = managed.get(&own).map(|owned| (owned.owner.api_version, owned.set.clone()));
        let slot = managed.slot(own);
        slot.set = walk::set_of(node, self.config).without(reset);
        slot.owner = own;
        let merged = self.prune(merged, last, &managed).map_err(|why| format!("failed to prune fields: {why}"))?;
        let mut differences = Differences::new(self.ty, self.old, &merged, reset)?;
        let mut conflicts = Vec::new();
        for owned in managed.0.iter_mut().filter(|owned| !owned.owner.is(&own)) {
            let difference = differences.of(owned.owner.api_version)?;
            let paths = owned.set.clone().intersection(&difference.changed);
            if !paths.is_empty() && !force {
                conflicts.push(Conflict { owner: owned.owner, paths });
            }
            owned.set = lost(std::mem::take(&mut owned.set), difference);
        }
        if !conflicts.is_empty() {
            return Ok(Err(conflicts));
        }
        let same = element::same(self.old, &merged);
        let slot = managed.slot(own);
        slot.set = std::mem::take(&mut slot.set).difference(&NEVER_OWNED);
        if !same {
            slot.time = Some(self.now);
        }
        managed.drop_empty();
        let merged = (!same).then(|| {
            let mut merged = merged;
            merge::settle(node, &mut merged);
            merged
        });
        Ok(Ok((merged, managed)))
    }

    /// Takes out what the manager applied last time (in which version, and what) and does not apply now.
    fn prune(&self, merged: Value, last: Option<(&str, Set<'a>)>, managed: &Managed<'a>) -> Result<Value, String> {
        let Some((version, last)) = last.filter(|(_, set)| !set.is_empty()) else { return Ok(merged) };
        self.ty
            .check_in(version, &merged)
            .map_err(|why| format!("failed to convert merged object to last applied version: {why}"))?;
        let versions: BTreeSet<&str> = managed.0.iter().map(|owned| owned.owner.api_version).collect();
        for other in versions.into_iter().filter(|other| *other != version) {
            self.ty.check_in(other, &merged).map_err(|why| {
                format!("failed add back owned items: failed to convert merged object at version {other}: {why}")
            })?;
        }
        Ok(merge::prune(self.ty.root(), merged, &last, managed.everything()))
    }
}

/// The conflicts that remain when some paths are free to be taken.
fn remaining<'a>(conflicts: Vec<Conflict<'a>>, free: &Set<'_>) -> Vec<Conflict<'a>> {
    let left = conflicts.into_iter().map(|conflict| Conflict { paths: conflict.paths.difference(free), ..conflict });
    left.filter(|conflict| !conflict.paths.is_empty()).collect()
}

/// A configuration is applied only in the version and kind of the request.
fn check_type(ty: ObjectType<'_>, config: &Value, manager: &Manager<'_>) -> Result<(), Status> {
    if config.text("kind") == ty.kind() && config.text("apiVersion") == manager.api_version {
        return Ok(());
    }
    Err(Status::bad_request(format!("invalid object type: {}", group_version_kind(config))))
}

/// `/v1, Kind=Service` or `discovery.k8s.io/v1, Kind=EndpointSlice`.
fn group_version_kind(object: &Value) -> String {
    let (version, kind) = (object.text("apiVersion"), object.text("kind"));
    match version.matches('/').count() {
        0 => format!("/{version}, Kind={kind}"),
        1 => format!("{version}, Kind={kind}"),
        _ => "/, Kind=".to_owned(),
    }
}

/// The name of an object, which is of the type of the configuration.
fn identity(object: &Value, config: &Value) -> String {
    let (namespace, name) = (object.text("metadata.namespace"), object.text("metadata.name"));
    format!("{namespace}/{name}; {}", group_version_kind(config))
}

/// A configuration without what the schema tables leave out.
fn bare(config: &Value) -> Value {
    let mut out = config.clone();
    if let Some(map) = out.as_object_mut() {
        map.remove("apiVersion");
        map.remove("kind");
    }
    if out.at("metadata.managedFields").is_null() {
        out.drop_path("metadata.managedFields");
    }
    out
}

/// A merged object with the type of the configuration.
fn whole(merged: Value, config: &Value) -> Value {
    let mut map = match merged {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    for name in ["apiVersion", "kind"] {
        map.insert(name.to_owned(), config.text(name).into());
    }
    Value::Object(map)
}

fn put_fields(object: &mut Value, fields: Option<Value>) {
    match fields.filter(|fields| !fields.is_null()) {
        Some(fields) => object.put("metadata.managedFields", fields),
        None => {
            object.drop_path("metadata.managedFields");
        }
    }
}
