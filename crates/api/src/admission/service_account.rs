//! ServiceAccount admission: every Pod runs as a ServiceAccount, and finds its token, the CA and its namespace at the usual place.
//!
//! In: a new Pod and its ServiceAccount. Out: the Pod with what it needs, or why it may not use what it names. Pods that stand for something
//! which runs already (mirror Pods, adopted ones) have no account and may use nothing of the cluster.

use serde_json::{Value, json};

use crate::adopted;
use crate::field::quote;
use crate::lifecycle;
use crate::value::ValueExt as _;
use crate::view::annotations::{ENFORCE_MOUNTABLE_SECRETS, MIRROR_POD};

/// The account of Pods that name none.
pub const DEFAULT: &str = "default";
/// Where containers find the token.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The volume with the token.
const VOLUME: &str = "kube-api-access";
/// Lifetime of tokens in seconds. An unusual number, which distinguishes them from requested ones.
const LIFETIME: u32 = 3607;
/// The ConfigMap with the CA, in every namespace.
const ROOT_CA: &str = "kube-root-ca.crt";

/// The account that a new Pod needs; none for those that have none. Where the Pod names none, the default is filled in.
///
/// # Errors
/// Why the Pod may not be.
pub fn account_of(pod: &mut Value) -> Result<Option<String>, String> {
    if is_mirror(pod) {
        return check_mirror(pod).map(|()| None);
    }
    if adopted::how(pod).is_some() {
        return Ok(None);
    }
    if pod.text("spec.serviceAccountName").is_empty() {
        pod.put("spec.serviceAccountName", DEFAULT);
    }
    let name = pod.text("spec.serviceAccountName").to_owned();
    pod.put("spec.serviceAccount", name.as_str());
    Ok(Some(name))
}

/// Gives a Pod what comes with its account, and checks what it uses. `pick` chooses a number below another at random, for the name of the volume.
///
/// # Errors
/// Why the Pod may not use a Secret.
pub fn admit(pod: &mut Value, account: &Value, pick: impl FnMut(usize) -> usize) -> Result<(), String> {
    let wish = |object: &Value, path: &str| object.at(path).as_bool();
    let mounts = wish(pod, "spec.automountServiceAccountToken")
        .or_else(|| wish(account, "automountServiceAccountToken"))
        .unwrap_or(true);
    if mounts {
        mount_token(pod, pick);
    }
    if pod.items("spec.imagePullSecrets").is_empty() && !account.items("imagePullSecrets").is_empty() {
        let names = account.items("imagePullSecrets").iter().map(|secret| json!({"name": secret.text("name")}));
        pod.put("spec.imagePullSecrets", names.collect::<Vec<Value>>());
    }
    let enforced = account.at("metadata.annotations").get(ENFORCE_MOUNTABLE_SECRETS).and_then(Value::as_str);
    if enforced.is_some_and(|text| ["1", "t", "T", "true", "TRUE", "True"].contains(&text)) {
        check_secrets(pod, account)?;
    }
    Ok(())
}

fn is_mirror(pod: &Value) -> bool {
    pod.at("metadata.annotations").get(MIRROR_POD).is_some()
}

fn check_mirror(pod: &Value) -> Result<(), String> {
    if !pod.text("spec.serviceAccountName").is_empty() {
        return Err("a mirror pod may not reference service accounts".to_owned());
    }
    if !secrets(pod).is_empty() {
        return Err("a mirror pod may not reference secrets".to_owned());
    }
    let sources = pod.items("spec.volumes").iter().flat_map(|volume| volume.items("projected.sources"));
    if sources.into_iter().any(|source| source.has("serviceAccountToken")) {
        return Err("a mirror pod may not use ServiceAccountToken volume projections".to_owned());
    }
    Ok(())
}

/// The names of all Secrets that a Pod uses.
fn secrets(pod: &Value) -> Vec<&str> {
    let mut out: Vec<&str> = pod.items("spec.imagePullSecrets").iter().map(|secret| secret.text("name")).collect();
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in pod.items(&format!("spec.{list}")) {
            out.extend(container.items("env").iter().map(|env| env.text("valueFrom.secretKeyRef.name")));
            out.extend(container.items("envFrom").iter().map(|source| source.text("secretRef.name")));
        }
    }
    for volume in pod.items("spec.volumes") {
        out.push(volume.text("secret.secretName"));
        out.extend(volume.items("projected.sources").iter().map(|source| source.text("secret.name")));
        out.push(volume.text("csi.nodePublishSecretRef.name"));
    }
    out.retain(|name| !name.is_empty());
    out
}

/// Mounts the token into every container that has nothing there.
fn mount_token(pod: &mut Value, pick: impl FnMut(usize) -> usize) {
    let prefix = format!("{VOLUME}-");
    let existing = pod.items("spec.volumes").iter().map(|volume| volume.text("name"));
    let existing = existing.into_iter().find(|name| name.starts_with(&prefix)).map(str::to_owned);
    let name = existing.clone().unwrap_or_else(|| lifecycle::generate_name(&prefix, pick));
    let mut needed = false;
    for list in ["spec.initContainers", "spec.containers"] {
        for container in pod.items_mut(list) {
            let mounts = container.items("volumeMounts");
            if mounts.iter().any(|mount| mount.text("mountPath") == MOUNT_PATH) {
                continue;
            }
            let mut mounts = mounts.to_vec();
            mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
            container.put("volumeMounts", mounts);
            needed = true;
        }
    }
    if needed && existing.is_none() {
        let mut volumes = pod.items("spec.volumes").to_vec();
        volumes.push(token_volume(&name));
        pod.put("spec.volumes", volumes);
    }
}

fn token_volume(name: &str) -> Value {
    let namespace = json!({"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}});
    json!({"name": name, "projected": {"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"expirationSeconds": LIFETIME, "path": "token"}},
        {"configMap": {"name": ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]}})
}

/// Whether an account that limits Secrets lists all that a Pod uses.
fn check_secrets(pod: &Value, account: &Value) -> Result<(), String> {
    let own = account.text("metadata.name");
    let listed = |list: &str, name: &str| account.items(list).iter().any(|secret| secret.text("name") == name);
    let refuse = |what: String, kind: &str| {
        Err(format!("{what} is not allowed because service account {own} does not reference that {kind}"))
    };
    for volume in pod.items("spec.volumes").iter().filter(|volume| volume.has("secret")) {
        let name = volume.text("secret.secretName");
        if !listed("secrets", name) {
            return refuse(format!("volume with secret.secretName={}", quote(name)), "secret");
        }
    }
    for (list, what) in [("initContainers", "init container"), ("containers", "container")] {
        for container in pod.items(&format!("spec.{list}")) {
            for (used, how) in used(container) {
                if !listed("secrets", used) {
                    let container = container.text("name");
                    let what = format!("{what} {container} with {how} referencing secret.secretName={}", quote(used));
                    return refuse(what, "secret");
                }
            }
        }
    }
    for (index, secret) in pod.items("spec.imagePullSecrets").iter().enumerate() {
        let name = secret.text("name");
        if !listed("imagePullSecrets", name) {
            return refuse(format!("imagePullSecrets[{index}].name={}", quote(name)), "imagePullSecret");
        }
    }
    Ok(())
}

/// The Secrets that the variables of a container come from, and how.
fn used(container: &Value) -> Vec<(&str, String)> {
    let one = container.items("env").iter().filter(|env| env.has("valueFrom.secretKeyRef"));
    let one = one.map(|env| (env.text("valueFrom.secretKeyRef.name"), format!("envVar {}", env.text("name"))));
    let all = container.items("envFrom").iter().filter(|source| source.has("secretRef"));
    one.chain(all.map(|source| (source.text("secretRef.name"), "envFrom".to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: &Value) -> Value {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": spec});
        if !pod.has("spec.containers") {
            pod.put("spec.containers", json!([{"name": "c"}]));
        }
        pod
    }

    #[test]
    fn a_pod_gets_an_account_and_its_token() {
        let mut pod = pod(
            &json!({"containers": [{"name": "a"}, {"name": "b", "volumeMounts": [{"name": "e", "mountPath": MOUNT_PATH}]}]}),
        );
        assert_eq!(account_of(&mut pod), Ok(Some(DEFAULT.to_owned())));
        assert_eq!(admit(&mut pod, &json!({"metadata": {"name": DEFAULT}}), |_| 0), Ok(()));
        assert_eq!((pod.text("spec.serviceAccountName"), pod.text("spec.serviceAccount")), (DEFAULT, DEFAULT));
        let volume = pod.items("spec.volumes")[0].clone();
        assert!(volume.text("name").starts_with("kube-api-access-"));
        let sources = volume.items("projected.sources");
        assert_eq!(sources[0], json!({"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}));
        assert_eq!((sources.len(), volume.int("projected.defaultMode")), (3, 420));
        let containers = pod.items("spec.containers");
        assert_eq!(containers[0].items("volumeMounts")[0].at("name"), volume.at("name"));
        assert_eq!(containers[1].items("volumeMounts").len(), 1, "what is there stays");
    }

    #[test]
    fn pods_and_accounts_may_refuse_the_token() {
        let mounted = |spec: Value, account: Value| {
            let mut pod = pod(&spec);
            admit(&mut pod, &account, |_| 0).unwrap();
            !pod.items("spec.volumes").is_empty()
        };
        let (yes, no) = (json!({"automountServiceAccountToken": true}), json!({"automountServiceAccountToken": false}));
        assert!(mounted(json!({}), json!({})) && mounted(yes, no.clone()));
        assert!(!mounted(no.clone(), json!({})) && !mounted(json!({}), no));
    }

    #[test]
    fn what_runs_already_has_no_account() {
        let mirror = |spec: Value| {
            let mut pod = pod(&spec);
            pod.put("metadata.annotations", json!({MIRROR_POD: "h"}));
            account_of(&mut pod)
        };
        assert_eq!(mirror(json!({})), Ok(None));
        let account = mirror(json!({"serviceAccountName": "a"}));
        assert_eq!(account, Err("a mirror pod may not reference service accounts".to_owned()));
        let secret = mirror(json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}));
        assert_eq!(secret, Err("a mirror pod may not reference secrets".to_owned()));
        let mut adopted = pod(&json!({}));
        adopted.put("metadata.annotations", json!({adopted::ANNOTATION: "podman"}));
        assert_eq!(account_of(&mut adopted), Ok(None));
    }

    #[test]
    fn an_account_may_limit_secrets() {
        let account = json!({
            "metadata": {"name": "robot", "annotations": {ENFORCE_MOUNTABLE_SECRETS: "true"}},
            "automountServiceAccountToken": false, "secrets": [{"name": "good"}],
        });
        let check = |spec: Value| admit(&mut pod(&spec), &account, |_| 0);
        let volume = |name: &str| json!({"volumes": [{"name": "v", "secret": {"secretName": name}}]});
        assert_eq!(check(volume("good")), Ok(()));
        assert_eq!(
            check(volume("a")),
            Err("volume with secret.secretName=\"a\" is not allowed because service account robot does not reference that \
                 secret".to_owned())
        );
        let env = json!({"containers": [{"name": "c", "env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "a"}}}]}]});
        assert!(
            check(env).unwrap_err().starts_with("container c with envVar X referencing secret.secretName=\"a\" is not")
        );
        assert!(
            check(json!({"imagePullSecrets": [{"name": "a"}]}))
                .unwrap_err()
                .starts_with("imagePullSecrets[0].name=\"a\"")
        );
    }
}
