//! The admission plugin NodeRestriction: limits which objects and fields nodes may write.
//!
//! In: the user, and the object before and after. Out: 403 with the messages of kube-apiserver.

use api::adopted;
use api::kinds::certificatesigningrequest::server_names;
use api::status::Status;
use api::value::ValueExt as _;
use api::view::annotations::MIRROR_POD;
use api::view::labels;
use serde_json::{Map, Value};

use super::Call;
use crate::authz::node;

/// Labels under reserved domains that a node may set on itself.
const OWN_LABELS: [&str; 14] = [
    labels::HOSTNAME,
    labels::ZONE,
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    labels::OS,
    labels::ARCH,
    labels::BETA_OS,
    labels::BETA_ARCH,
    "kubernetes.io/instance-type",
    "failure-domain.kubernetes.io/zone",
    "failure-domain.kubernetes.io/region",
];
/// Domains of which a node may set any label.
const OWN_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// The domain of which a node may set none.
const RESTRICTED: &str = "node-restriction.kubernetes.io";

/// The subresource that evicts a Pod from its node.
const EVICTION: &str = "eviction";
/// The value for a Node without pod CIDRs.
const NO_POD_CIDRS: (&str, &[Value]) = ("", &[]);

/// Looks up the uid of a Node.
pub(super) type NodeUid<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Checks a create.
pub(super) fn on_create(call: &Call<'_>, name: &str, object: &Value, node_uid: NodeUid<'_>) -> Result<(), Status> {
    let Some(own) = node::name_of(call.user) else { return Ok(()) };
    let refuse = |why: &str| Err(Status::forbidden(call.kind.resource(), name, why));
    match call.kind.plural {
        "nodes" if name != own => refuse(&format!("node {own:?} is not allowed to modify node {name:?}")),
        "nodes" if pod_cidrs(object) != NO_POD_CIDRS => {
            refuse(&format!("node {own:?} is not allowed to set pod CIDRs"))
        }
        "nodes" if server_names::is_reserved(name) => {
            refuse(&format!("{name:?} is a name of the API server or of a Service, not of a node"))
        }
        "nodes" => match forbidden_labels(object, &Value::Null).as_slice() {
            [] => Ok(()),
            labels => {
                refuse(&format!("node {own:?} is not allowed to set the following labels: {}", labels.join(", ")))
            }
        },
        "csinodes" if name != own => refuse(node::OTHER_CSI_NODE),
        "leases" if node::is_of_announcers(call.namespace, name) => Ok(()),
        "leases" if name != own || call.namespace == "kube-system" => {
            refuse("can only access node lease with the same name as the requesting node")
        }
        "pods" if is_mirror(object) => mirror(own, object, node_uid).or_else(|why| refuse(&why)),
        "pods" => adoption(own, object).or_else(|why| refuse(&why)),
        _ => Ok(()),
    }
}

fn is_mirror(pod: &Value) -> bool {
    pod.at("metadata.annotations").get(MIRROR_POD).is_some()
}

/// Whether a node may create a mirror Pod: one for a static Pod of its own, without references to objects of the cluster.
fn mirror(own: &str, pod: &Value, node_uid: NodeUid<'_>) -> Result<(), String> {
    if pod.text("spec.nodeName") != own {
        return Err(format!("node {own:?} can only create pods with spec.nodeName set to itself"));
    }
    let owner = match pod.items("metadata.ownerReferences") {
        [owner] => owner,
        [] => return Err(format!("node {own:?} can only create pods with an owner reference set to itself")),
        _ => return Err(format!("node {own:?} can only create pods with a single owner reference set to itself")),
    };
    if (owner.text("apiVersion"), owner.text("kind"), owner.text("name")) != ("v1", "Node", own) {
        return Err(format!("node {own:?} can only create pods with an owner reference set to itself"));
    }
    if !owner.flag("controller") {
        return Err(format!("node {own:?} can only create pods with a controller owner reference set to itself"));
    }
    if owner.flag("blockOwnerDeletion") {
        return Err(format!("node {own:?} must not set blockOwnerDeletion on an owner reference"));
    }
    let (named, uid) = (owner.text("uid"), node_uid(own).ok_or_else(|| format!("nodes {own:?} not found"))?);
    if named != uid {
        return Err(format!("node {own} UID mismatch: expected {named} got {uid}"));
    }
    match used(pod) {
        Some(what) => Err(format!("node {own:?} can not create pods that reference {what}")),
        None => Ok(()),
    }
}

/// The first kind of object of the cluster that a Pod refers to.
fn used(pod: &Value) -> Option<&'static str> {
    let volumes = || pod.items("spec.volumes").iter();
    let sources = || volumes().flat_map(|volume| volume.items("projected.sources"));
    let containers = ["containers", "initContainers", "ephemeralContainers"];
    let containers = || containers.iter().flat_map(|list| pod.items(&format!("spec.{list}")));
    let variables = |one: &str, all: &str| {
        containers().any(|container| {
            container.items("env").iter().any(|env| env.at("valueFrom").has(one))
                || container.items("envFrom").iter().any(|source| source.has(all))
        })
    };
    let secrets = variables("secretKeyRef", "secretRef")
        || !pod.items("spec.imagePullSecrets").is_empty()
        || volumes().any(|volume| volume.has("secret"))
        || sources().any(|source| source.has("secret"));
    let maps = variables("configMapKeyRef", "configMapRef")
        || volumes().any(|volume| volume.has("configMap"))
        || sources().any(|source| source.has("configMap"));
    let tokens = || sources().any(|source| source.has("serviceAccountToken"));
    if !pod.text("spec.serviceAccountName").is_empty() || tokens() {
        return Some("a service account");
    }
    if secrets {
        return Some("secrets");
    }
    if maps {
        return Some("configmaps");
    }
    if volumes().any(|volume| volume.has("persistentVolumeClaim")) {
        return Some("persistentvolumeclaims");
    }
    (!pod.items("spec.resourceClaims").is_empty()).then_some("resourceclaims")
}

/// Whether a node may create an adopted Pod: one for what already runs on it, without references to objects of the cluster.
fn adoption(own: &str, pod: &Value) -> Result<(), String> {
    let Some(how) = adopted::how(pod) else {
        let mark = adopted::ANNOTATION;
        return Err(format!("pod does not have {mark:?} annotation, node {own:?} can only create adopted pods"));
    };
    if !adopted::HOWS.contains(&how) {
        return Err(format!("{how:?} is no way to adopt pods: expected one of {}", adopted::HOWS.join(", ")));
    }
    if pod.text("spec.nodeName") != own {
        return Err(format!("node {own:?} can only create pods with spec.nodeName set to itself"));
    }
    let is_ours = |owner: &Value| owner.text("kind") == "Node" && owner.text("name") == own;
    if !matches!(pod.items("metadata.ownerReferences"), [owner] if is_ours(owner)) {
        return Err(format!("node {own:?} can only create pods with an owner reference set to itself"));
    }
    let lists = ["volumes", "initContainers", "ephemeralContainers", "imagePullSecrets", "resourceClaims"];
    let takes = |container: &Value| !container.items("env").is_empty() || !container.items("envFrom").is_empty();
    let uses = lists.iter().find(|list| !pod.items(&format!("spec.{list}")).is_empty()).copied();
    let uses = uses.or_else(|| (!pod.text("spec.serviceAccountName").is_empty()).then_some("a service account"));
    match uses.or_else(|| pod.items("spec.containers").iter().any(takes).then_some("variables")) {
        Some(what) => Err(format!("node {own:?} can not create pods that have {what}")),
        None => Ok(()),
    }
}

/// Checks an update before the rules of the kind, which drop the field that is checked here.
pub(super) fn before_update(call: &Call<'_>, name: &str, new: &Value, old: &Value) -> Result<(), Status> {
    let Some(own) = node::name_of(call.user).filter(|_| call.kind.plural == "nodes") else { return Ok(()) };
    let source = |node: &Value| node.at("spec.configSource").clone();
    if source(new).is_null() || source(new) == source(old) {
        return Ok(());
    }
    let why = format!("node {own:?} is not allowed to update configSource to a new non-nil configSource");
    Err(Status::forbidden(call.kind.resource(), name, &why))
}

/// Checks an update.
pub(super) fn on_update(
    call: &Call<'_>,
    name: &str,
    new: &Value,
    old: &Value,
    allocates_pod_cidrs: bool,
) -> Result<(), Status> {
    let Some(own) = node::name_of(call.user) else { return Ok(()) };
    let refuse = |why: &str| Err(Status::forbidden(call.kind.resource(), name, why));
    match call.kind.plural {
        "nodes" if name != own => refuse(&format!("node {own:?} is not allowed to modify node {name:?}")),
        "nodes" if allocates_pod_cidrs && pod_cidrs(new) != pod_cidrs(old) => {
            refuse(&format!("node {own:?} is not allowed to modify pod CIDRs: the cluster allocates them"))
        }
        "nodes" => {
            if new.items("spec.taints") != old.items("spec.taints") && call.is_main() {
                return refuse(&format!("node {own:?} is not allowed to modify taints"));
            }
            match forbidden_labels(new, old).as_slice() {
                [] => Ok(()),
                labels => refuse(&format!("is not allowed to modify labels: {}", labels.join(", "))),
            }
        }
        "pods" if old.text("spec.nodeName") != own => {
            refuse(&format!("node {own:?} can only update pod status for pods with spec.nodeName set to itself"))
        }
        "pods" if adopted::how(new) != adopted::how(old) => {
            refuse(&format!("node {own:?} cannot update the annotation {:?}", adopted::ANNOTATION))
        }
        "pods" if labels(new) != labels(old) => {
            refuse(&format!("node {own:?} cannot update labels through pod status"))
        }
        _ => Ok(()),
    }
}

/// Checks a delete, with the object in the transaction that deletes it.
pub(super) fn on_delete(call: &Call<'_>, name: &str, old: &Value) -> Result<(), Status> {
    let Some(own) = node::name_of(call.user) else { return Ok(()) };
    if call.kind.plural != "pods" || old.text("spec.nodeName") == own {
        return Ok(());
    }
    let why = match call.subresource.map(|part| part.name) {
        Some(EVICTION) => format!("node {own} can only evict pods with spec.nodeName set to itself"),
        _ => format!("node {own:?} can only delete pods with spec.nodeName set to itself"),
    };
    Err(Status::forbidden(call.kind.resource(), name, &why))
}

fn pod_cidrs(node: &Value) -> (&str, &[Value]) {
    (node.text("spec.podCIDR"), node.items("spec.podCIDRs"))
}

fn labels(object: &Value) -> Map<String, Value> {
    object.map("metadata.labels").cloned().unwrap_or_default()
}

/// Labels that differ and that a node may not change, sorted.
fn forbidden_labels(new: &Value, old: &Value) -> Vec<String> {
    let (new, old) = (labels(new), labels(old));
    let changed = new.iter().filter(|(key, value)| old.get(*key) != Some(*value));
    let removed = old.iter().filter(|(key, _)| !new.contains_key(*key));
    let mut out: Vec<String> =
        changed.chain(removed).map(|(key, _)| key.clone()).filter(|key| !may_label(key)).collect();
    out.sort_unstable();
    out
}

/// Whether a node may set a label on itself.
fn may_label(label: &str) -> bool {
    let Some((domain, _)) = label.split_once('/') else { return true };
    let within = |whole: &str| domain == whole || domain.strip_suffix(whole).is_some_and(|rest| rest.ends_with('.'));
    let reserved = within("kubernetes.io") || within("k8s.io");
    !within(RESTRICTED) && (!reserved || OWN_LABELS.contains(&label) || OWN_DOMAINS.iter().any(|own| within(own)))
}

#[cfg(test)]
mod tests {
    use api::kinds;
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::auth::User;

    /// There are no Nodes.
    const NOBODY: fn(&str) -> Option<String> = |_| None;

    fn user(name: &str) -> User {
        User { name: name.into(), groups: vec![node::NODES.into()], ..User::default() }
    }

    fn call<'a>(user: &'a User, plural: &str, part: &str) -> Call<'a> {
        let group = if plural == "leases" { "coordination.k8s.io" } else { "" };
        let kind = kinds::find(group, "v1", plural).unwrap();
        Call {
            kind,
            namespace: "",
            subresource: kind.subresource(part),
            manager: "",
            dry_run: false,
            now: Timestamp::UNIX_EPOCH,
            user,
            audit: None,
        }
    }

    #[test]
    fn a_node_creates_only_its_own_node() {
        let n1 = user("system:node:n1");
        let mut object = json!({"metadata": {"labels": {"kubernetes.io/hostname": "n1", "mine": "x"}}});
        assert_eq!(on_create(&call(&n1, "nodes", ""), "n1", &object, &NOBODY), Ok(()));
        let other = on_create(&call(&n1, "nodes", ""), "n2", &object, &NOBODY).unwrap_err();
        assert_eq!(other.message, "nodes \"n2\" is forbidden: node \"n1\" is not allowed to modify node \"n2\"");
        object.put(
            "metadata.labels",
            json!({"node-role.kubernetes.io/control-plane": "", "a.node-restriction.kubernetes.io/b": ""}),
        );
        let labels = on_create(&call(&n1, "nodes", ""), "n1", &object, &NOBODY).unwrap_err();
        assert_eq!(
            labels.message,
            "nodes \"n1\" is forbidden: node \"n1\" is not allowed to set the following labels: \
             a.node-restriction.kubernetes.io/b, node-role.kubernetes.io/control-plane"
        );
        let as_server = user("system:node:kubernetes.default.svc");
        let server =
            on_create(&call(&as_server, "nodes", ""), "kubernetes.default.svc", &json!({}), &NOBODY).unwrap_err();
        assert!(server.code == 403 && server.message.contains("a name of the API server"), "{}", server.message);
        let lease = on_create(&call(&n1, "leases", ""), "n2", &json!({}), &NOBODY).unwrap_err();
        assert_eq!(lease.code, 403);
        let of_addresses = Call { namespace: "kube-system", ..call(&n1, "leases", "") };
        assert_eq!(on_create(&of_addresses, "waypost-address-192.0.2.7", &json!({}), &NOBODY), Ok(()));
        assert!(
            on_create(&of_addresses, "n1", &json!({}), &NOBODY).is_err()
                && on_create(&of_addresses, "x", &json!({}), &NOBODY).is_err()
        );
        let admin = User { name: "admin".into(), ..User::default() };
        assert_eq!(on_create(&call(&admin, "nodes", ""), "n2", &object, &NOBODY), Ok(()), "this is about nodes alone");
    }

    #[test]
    fn a_node_creates_only_adopted_pods_of_its_own() {
        let n1 = user("system:node:n1");
        let good = json!({
            "metadata": {
                "annotations": {"waypost.dev/adopted": "podman"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u"}],
            },
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
        });
        let make = |pod: &Value| {
            on_create(&call(&n1, "pods", ""), "p", pod, &NOBODY).map_err(|status| (status.code, status.message))
        };
        assert_eq!(make(&good), Ok(()));
        for (path, value, why) in [
            ("metadata.annotations", json!({}), "can only create adopted pods"),
            ("metadata.annotations", json!({"waypost.dev/adopted": "stolen"}), "no way to adopt"),
            ("metadata.ownerReferences", json!([]), "owner reference set to itself"),
            ("spec.nodeName", json!("n2"), "spec.nodeName set to itself"),
            ("spec.serviceAccountName", json!("admin"), "a service account"),
            ("spec.volumes", json!([{"name": "v", "secret": {"secretName": "s"}}]), "volumes"),
            ("spec.imagePullSecrets", json!([{"name": "s"}]), "imagePullSecrets"),
            ("spec.containers", json!([{"name": "c", "envFrom": [{"secretRef": {"name": "s"}}]}]), "variables"),
        ] {
            let mut pod = good.clone();
            pod.put(path, value);
            let (code, message) = make(&pod).unwrap_err();
            assert!(code == 403 && message.contains(why), "{path}: {message}");
        }
        let mut bare = good.clone();
        bare.put("metadata.annotations", json!({}));
        let dropped = on_update(&call(&n1, "pods", "status"), "p", &bare, &good, true);
        assert_eq!(dropped.map_err(|status| status.code), Err(403), "a Pod is adopted for good");
    }

    #[test]
    fn a_node_creates_mirror_pods_of_itself() {
        let n1 = user("system:node:n1");
        let good = json!({
            "metadata": {
                "annotations": {MIRROR_POD: "h"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u", "controller": true}],
            },
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
        });
        let uid = |_: &str| Some("u".to_owned());
        let make = |pod: &Value| on_create(&call(&n1, "pods", ""), "p", pod, &uid).map_err(|status| status.message);
        assert_eq!(make(&good), Ok(()));
        let owner = |change: Value| {
            let mut owner = good.items("metadata.ownerReferences")[0].clone();
            owner.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            json!([owner])
        };
        for (path, value, why) in [
            ("spec.nodeName", json!("n2"), "spec.nodeName set to itself"),
            ("metadata.ownerReferences", json!([]), "an owner reference set to itself"),
            ("metadata.ownerReferences", owner(json!({"name": "n2"})), "an owner reference set to itself"),
            ("metadata.ownerReferences", owner(json!({"controller": false})), "a controller owner reference"),
            ("metadata.ownerReferences", owner(json!({"uid": "v"})), "node n1 UID mismatch: expected v got u"),
            ("spec.serviceAccountName", json!("a"), "reference a service account"),
            ("spec.imagePullSecrets", json!([{"name": "s"}]), "reference secrets"),
            ("spec.volumes", json!([{"name": "v", "configMap": {"name": "m"}}]), "reference configmaps"),
        ] {
            let mut pod = good.clone();
            pod.put(path, value);
            let message = make(&pod).unwrap_err();
            assert!(message.contains(why), "{path}: {message}");
        }
    }

    #[test]
    fn a_node_cannot_change_its_taints_and_restricted_labels() {
        let n1 = user("system:node:n1");
        let old = json!({"metadata": {"labels": {"team.k8s.io/x": "a"}}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
        let change =
            |new: &Value| on_update(&call(&n1, "nodes", ""), "n1", new, &old, true).map_err(|status| status.message);
        assert_eq!(change(&old), Ok(()));
        let mut new = old.clone();
        new.put("spec.taints", json!([]));
        assert_eq!(change(&new), Err("nodes \"n1\" is forbidden: node \"n1\" is not allowed to modify taints".into()));
        let mut new = old.clone();
        new.put("metadata.labels", json!({"free": "x"}));
        assert_eq!(
            change(&new),
            Err("nodes \"n1\" is forbidden: is not allowed to modify labels: team.k8s.io/x".into())
        );
        let mut pod = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"nodeName": "n1"}});
        let before = pod.clone();
        let change = |new: &Value| on_update(&call(&n1, "pods", "status"), "p", new, &before, true);
        assert_eq!(change(&pod), Ok(()));
        pod.put("metadata.labels.app", "b");
        assert_eq!(change(&pod).map_err(|status| status.code), Err(403));
    }

    #[test]
    fn a_node_writes_only_pods_bound_to_it() {
        let n1 = user("system:node:n1");
        let refused = |done: Result<(), Status>| done.map_err(|status| (status.code, status.message)).unwrap_err();
        for node in ["n2", ""] {
            let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": node}});
            let only =
                |what: &str| (403, format!("pods \"p\" is forbidden: {what} pods with spec.nodeName set to itself"));
            let status = on_update(&call(&n1, "pods", "status"), "p", &pod, &pod, true);
            assert_eq!(refused(status), only("node \"n1\" can only update pod status for"));
            let deleted = on_delete(&call(&n1, "pods", ""), "p", &pod);
            assert_eq!(refused(deleted), only("node \"n1\" can only delete"));
            let evicted = on_delete(&call(&n1, "pods", "eviction"), "p", &pod);
            assert_eq!(refused(evicted), only("node n1 can only evict"));
        }
        let own = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}});
        assert_eq!(on_delete(&call(&n1, "pods", ""), "p", &own), Ok(()));
        assert_eq!(on_update(&call(&n1, "pods", "status"), "p", &own, &own, true), Ok(()));
    }

    #[test]
    fn a_node_does_not_choose_its_pod_cidrs() {
        let n1 = user("system:node:n1");
        let bare = json!({"metadata": {"name": "n1"}});
        for spec in [json!({"podCIDR": "0.0.0.0/1"}), json!({"podCIDRs": ["0.0.0.0/1"]})] {
            let mut node = bare.clone();
            node.put("spec", spec);
            let made = on_create(&call(&n1, "nodes", ""), "n1", &node, &NOBODY);
            assert_eq!(made.map_err(|status| status.code), Err(403));
            let change = |allocates| on_update(&call(&n1, "nodes", ""), "n1", &node, &bare, allocates);
            assert_eq!(change(true).map_err(|status| status.code), Err(403));
            assert_eq!(change(false), Ok(()), "as in the original where the cluster gives out none");
        }
    }
}
