//! Creates the objects that every cluster has: namespaces, built-in PriorityClasses, default roles and bindings, the default ServiceCIDR, and the `kubernetes` Service with the
//! endpoints of the API server. Existing objects are kept; default roles and bindings are reconciled.

use std::net::{IpAddr, SocketAddr};

use api::admission::Plugins;
use api::custom::Kinds;
use api::kinds::priorityclass::{self, SYSTEM_CLASSES};
use api::rbac::defaults::{DEFAULTS, Step, reconcile};
use api::value::ValueExt as _;
use api::view::labels;
use jiff::Timestamp;
use serde_json::{Value, json};
use store::allocation::{Ranges, address_key, address_object, port_map_key};
use store::{CommitError, Key, Store, Table};

use crate::allocation::service_cidrs::{DEFAULT, as_flagged, default_object};
use crate::allocation::snapshot::{Setting, StoredCidr};
use crate::cluster_roles;
use crate::write::{Write, Writer};

/// Namespaces that always exist.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
/// The most rounds of reconciling default roles: creation, aggregation (`view` into `edit` into `admin`), replaced bindings, and conflicts with other
/// servers.
const ATTEMPTS: usize = 10;
/// The name of the Service of the API server.
const SERVICE: &str = "kubernetes";

/// Creates missing objects; `server` is the advertised address of the API server.
///
/// # Errors
/// When the store cannot write.
pub async fn run(store: &dyn Store, ranges: &Ranges, server: SocketAddr) -> Result<(), CommitError> {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let setting = Setting { ranges, now: &now };
    for writes in missing(store, &setting, server) {
        let writer = Writer {
            store,
            ranges,
            now: Timestamp::now(),
            checked: false,
            plugins: &Plugins::none(),
            kinds: Kinds::fixed(),
        };
        let Ok(txn) = writer.transaction(&writes) else { continue };
        match store.commit(txn).await {
            // Another server wrote it.
            Err(error) if error.is_conflict() => {}
            done => drop(done?),
        }
    }
    default_roles(store, ranges).await
}

/// Reconciles default roles and bindings in one transaction, and aggregates them: without them only administrators have access.
async fn default_roles(store: &dyn Store, ranges: &Ranges) -> Result<(), CommitError> {
    for _ in 0..ATTEMPTS {
        let writer = Writer {
            store,
            ranges,
            now: Timestamp::now(),
            checked: true,
            plugins: &Plugins::none(),
            kinds: Kinds::fixed(),
        };
        let mut writes = lacking_roles(store);
        if writes.is_empty() {
            writes = cluster_roles::outdated(store);
        }
        if writes.is_empty() {
            return Ok(());
        }
        let txn = match writer.transaction(&writes) {
            Ok(txn) => txn,
            Err(error) => {
                tracing::warn!(%error, "reconcile default roles failed");
                return Ok(());
            }
        };
        match store.commit(txn).await {
            Err(error) if error.is_conflict() => {}
            done => drop(done?),
        }
    }
    Ok(())
}

fn lacking_roles(store: &dyn Store) -> Vec<Write> {
    let mut writes = Vec::new();
    for default in DEFAULTS.iter() {
        let (table, kind) = (default.kind.table, default.kind);
        let name = default.object.text("metadata.name");
        let name = match default.object.text("metadata.namespace") {
            "" => name.to_owned(),
            namespace => format!("{namespace}/{name}"),
        };
        let entry = store.get(&Key { table: Table::named(table), name: name.as_str().into() });
        let existing = entry.as_ref().map(|entry| api::object::decode(kind, &entry.value, entry.modified));
        match (reconcile(&default.object, existing.as_ref()), entry) {
            (Some(Step::Create(object)), _) => writes.push(Write::create(table, object)),
            (Some(Step::Update(object)), Some(entry)) => {
                tracing::info!(kind = kind.kind, name, "adding missing rules to default role");
                writes.push(Write::Object { table, object: Box::new(object), modified: entry.modified });
            }
            (Some(Step::Replace(_)), Some(entry)) => {
                tracing::info!(kind = kind.kind, name, "replacing default binding with another role");
                writes.push(Write::delete(&entry));
            }
            (Some(_) | None, _) => {}
        }
    }
    writes
}

/// The writes that create missing objects.
fn missing(store: &dyn Store, setting: &Setting<'_>, server: SocketAddr) -> Vec<Vec<Write>> {
    let absent = |table: &str, name: &str| store.get(&Key { table: Table::named(table), name: name.into() }).is_none();
    let mut out: Vec<Vec<Write>> = Vec::new();
    for name in NAMESPACES.iter().filter(|name| absent("namespaces", name)) {
        out.push(vec![Write::create("namespaces", namespace(name, setting.now))]);
    }
    for class in SYSTEM_CLASSES.iter().filter(|class| absent(priorityclass::KIND.table, class.name)) {
        out.push(vec![Write::create(priorityclass::KIND.table, class.object())]);
    }
    match store.get(&Key { table: Table::named("servicecidrs"), name: DEFAULT.into() }) {
        None => out.push(vec![Write::create("servicecidrs", default_object(setting))]),
        Some(entry) => {
            let stored = StoredCidr { object: api::object::decode_bare(&entry.value), modified: entry.modified };
            out.extend(as_flagged(&stored, setting));
        }
    }
    if store.get(&port_map_key()).is_none() {
        let value = json!({"range": setting.ranges.ports_text()}).to_string();
        out.push(vec![Write::Raw { key: port_map_key(), value: value.into(), modified: 0 }]);
    }
    let key = format!("default/{SERVICE}");
    if let (true, Some(address)) = (absent("services/specs", &key), setting.ranges.first_address()) {
        out.push(service_writes(store, address, setting.now, server.port()));
    }
    for (table, object) in
        [("services/endpoints", endpoints(server, setting.now)), ("endpointslices", slice(server, setting.now))]
    {
        let unchanged = store.get(&Key { table: Table::named(table), name: key.as_str().into() });
        match unchanged {
            None => out.push(vec![Write::create(table, object)]),
            Some(entry) => {
                let mut have = api::object::decode_bare(&entry.value);
                if moved(&have, &object) {
                    for part in ["subsets", "endpoints", "ports", "addressType"] {
                        if object.has(part) {
                            have.put(part, object.at(part).clone());
                        }
                    }
                    out.push(vec![Write::Object { table, object: Box::new(have), modified: entry.modified }]);
                }
            }
        }
    }
    out
}

/// Whether the address of the API server has changed.
fn moved(have: &Value, wanted: &Value) -> bool {
    ["subsets", "endpoints", "ports", "addressType"].iter().any(|part| have.at(part) != wanted.at(part))
}

fn metadata(name: &str, namespace: &str, now: &str) -> Value {
    let mut out = json!({"name": name, "uid": uuid::Uuid::new_v4().to_string(), "creationTimestamp": now});
    if !namespace.is_empty() {
        out.put("namespace", namespace);
    }
    out
}

/// A new namespace.
pub(crate) fn namespace(name: &str, now: &str) -> Value {
    let mut metadata = metadata(name, "", now);
    metadata["labels"] = json!({labels::METADATA_NAME: name});
    json!({"metadata": metadata, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}})
}

fn service_writes(store: &dyn Store, address: IpAddr, now: &str, port: u16) -> Vec<Write> {
    let mut metadata = metadata(SERVICE, "default", now);
    metadata["labels"] = json!({"component": "apiserver", "provider": "kubernetes"});
    let service = json!({
        "metadata": metadata,
        "spec": {
            "type": "ClusterIP", "clusterIP": address.to_string(), "clusterIPs": [address.to_string()],
            "ipFamilies": [api::ip::Family::of(address).as_str()], "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster", "sessionAffinity": "None",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}],
        },
        "status": {"loadBalancer": {}},
    });
    let uid = uuid::Uuid::new_v4().to_string();
    let held = address_object(address, "default", SERVICE, &uid, now);
    let modified = store.get(&address_key(address)).map_or(0, |entry| entry.modified);
    vec![
        Write::Object { table: "ipaddresses", object: Box::new(held), modified },
        Write::create("services/specs", service),
    ]
}

fn endpoints(server: SocketAddr, now: &str) -> Value {
    let mut metadata = metadata(SERVICE, "default", now);
    metadata["labels"] = json!({labels::SKIP_MIRROR: "true"});
    json!({
        "metadata": metadata,
        "subsets": [{
            "addresses": [{"ip": server.ip().to_string()}],
            "ports": [{"name": "https", "port": server.port(), "protocol": "TCP"}],
        }],
    })
}

fn slice(server: SocketAddr, now: &str) -> Value {
    let mut metadata = metadata(SERVICE, "default", now);
    metadata["labels"] = json!({labels::SERVICE_NAME: SERVICE});
    metadata["generation"] = json!(1);
    json!({
        "metadata": metadata,
        "addressType": api::ip::Family::of(server.ip()).as_str(),
        "endpoints": [{"addresses": [server.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": server.port(), "protocol": "TCP"}],
    })
}

#[cfg(test)]
mod tests {
    use api::object;
    use store::{Embedded, Options};

    use super::*;

    #[tokio::test]
    async fn default_roles_are_aggregated_from_the_start() {
        let home = tempfile::TempDir::new().expect("a directory");
        let index = |table: &str, value: &[u8]| {
            api::kinds::by_table(table).map_or_else(Default::default, |kind| kind.facts(&object::decode_light(value)))
        };
        let store = Embedded::open(home.path().join("store"), index, Options::default()).expect("a store");
        let ranges = Ranges { addresses: vec!["10.96.0.0/16".parse().expect("a range")], ports: 30000..=32767 };
        run(&store, &ranges, "127.0.0.1:6443".parse().expect("an address")).await.expect("first objects");
        for (name, resource) in [("view", "services"), ("edit", "pods/exec"), ("admin", "rolebindings")] {
            let role = store.get(&Key { table: Table::named("clusterroles"), name: name.into() }).expect("a role");
            let rules = object::decode_light(&role.value).items("rules").to_vec();
            assert!(rules.iter().any(|rule| rule.texts("resources").contains(&resource)), "{name}: {rules:?}");
        }
        assert_eq!(lacking_roles(&store), []);
        let class = |name: &str| store.get(&Key { table: Table::named("priorityclasses"), name: name.into() });
        let values =
            SYSTEM_CLASSES.map(|one| class(one.name).map(|entry| object::decode_light(&entry.value).int("value")));
        assert_eq!(values, [Some(2_000_000_000), Some(2_000_001_000)]);
        assert_eq!(cluster_roles::outdated(&store), []);
    }
}
