//! Defaults of a Pod.
//!
//! Runs on every decoded Pod, so it must be idempotent and must not touch what is set.

use serde_json::{Map, Value, json};

use crate::value::ValueExt as _;

const CONTAINER_LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// Fills a Pod.
pub(super) fn fill(pod: &mut Value) {
    if !pod.at("spec").is_object() {
        pod.put("spec", Map::new());
    }
    if let Some(spec) = pod.get_mut("spec") {
        fill_spec(spec);
    }
    sync_pod_ips(pod);
}

/// Fills the spec of a Pod or of a template.
pub(super) fn fill_spec(spec: &mut Value) {
    sync_account(spec);
    set_text(spec, "dnsPolicy", "ClusterFirst");
    set_text(spec, "restartPolicy", "Always");
    set(spec, "securityContext", || json!({}));
    set(spec, "terminationGracePeriodSeconds", || 30.into());
    set_text(spec, "schedulerName", "default-scheduler");
    set(spec, "enableServiceLinks", || true.into());
    if spec.int("terminationGracePeriodSeconds") < 0 {
        spec.put("terminationGracePeriodSeconds", 1);
    }
    let host_network = spec.flag("hostNetwork");
    for list in CONTAINER_LISTS {
        let ephemeral = list == "ephemeralContainers";
        for container in spec.items_mut(list) {
            fill_container(container, host_network && !ephemeral);
            if !ephemeral {
                requests_from_limits(container);
            }
        }
    }
    for volume in spec.items_mut("volumes") {
        fill_volume(volume);
    }
}

/// The old name of the account follows the new one, which wins.
fn sync_account(spec: &mut Value) {
    let account = crate::table::or(spec.text("serviceAccountName"), spec.text("serviceAccount")).to_owned();
    if !account.is_empty() {
        spec.put("serviceAccountName", account.as_str());
        spec.put("serviceAccount", account);
    }
}

fn fill_container(container: &mut Value, host_network: bool) {
    if container.text("imagePullPolicy").is_empty() {
        let latest = tag(container.text("image")) == Some("latest");
        container.put("imagePullPolicy", if latest { "Always" } else { "IfNotPresent" });
    }
    set_text(container, "terminationMessagePath", "/dev/termination-log");
    set_text(container, "terminationMessagePolicy", "File");
    set(container, "resources", || json!({}));
    for port in container.items_mut("ports") {
        set_text(port, "protocol", "TCP");
        if host_network && port.int("hostPort") == 0 {
            let number = port.int("containerPort");
            port.put("hostPort", number);
        }
    }
    for variable in container.items_mut("env") {
        fill_field_ref(variable.at_mut("valueFrom.fieldRef"));
        if let Some(file) = present(variable.at_mut("valueFrom.fileKeyRef")) {
            set(file, "optional", || false.into());
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = present(container.get_mut(probe)) {
            fill_probe(probe);
        }
    }
    for handler in ["lifecycle.postStart", "lifecycle.preStop"] {
        if let Some(handler) = present(container.at_mut(handler)) {
            fill_http_get(handler);
        }
    }
}

fn fill_probe(probe: &mut Value) {
    for (field, value) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        if probe.int(field) == 0 {
            probe.put(field, value);
        }
    }
    fill_http_get(probe);
    if let Some(grpc) = present(probe.get_mut("grpc")) {
        set(grpc, "service", || "".into());
    }
}

fn fill_http_get(handler: &mut Value) {
    if let Some(get) = present(handler.get_mut("httpGet")) {
        set_text(get, "path", "/");
        set_text(get, "scheme", "HTTP");
    }
}

/// A limit is the default of the request.
fn requests_from_limits(container: &mut Value) {
    let Some(limits) = container.map("resources.limits").filter(|limits| !limits.is_empty()).cloned() else { return };
    set(container, "resources", || json!({}));
    let Some(resources) = container.get_mut("resources") else { return };
    set(resources, "requests", || json!({}));
    let Some(requests) = resources.get_mut("requests").and_then(Value::as_object_mut) else { return };
    for (name, quantity) in limits {
        requests.entry(name).or_insert(quantity);
    }
}

fn fill_volume(volume: &mut Value) {
    let no_source =
        volume.as_object().is_some_and(|map| map.iter().all(|(key, value)| key == "name" || value.is_null()));
    if no_source {
        volume.put("emptyDir", Map::new());
    }
    for kind in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = present(volume.get_mut(kind)) {
            set(source, "defaultMode", || 0o644.into());
        }
    }
    if let Some(path) = present(volume.get_mut("hostPath")) {
        set(path, "type", || "".into());
    }
    if let Some(image) = present(volume.get_mut("image"))
        && image.text("pullPolicy").is_empty()
    {
        let latest = tag(image.text("reference")) == Some("latest");
        image.put("pullPolicy", if latest { "Always" } else { "IfNotPresent" });
    }
    if volume.has("ephemeral.volumeClaimTemplate") && !volume.has("ephemeral.volumeClaimTemplate.spec.volumeMode") {
        volume.put("ephemeral.volumeClaimTemplate.spec.volumeMode", "Filesystem");
    }
    for item in volume.items_mut("downwardAPI.items") {
        fill_field_ref(item.get_mut("fieldRef"));
    }
    for source in volume.items_mut("projected.sources") {
        for item in source.items_mut("downwardAPI.items") {
            fill_field_ref(item.get_mut("fieldRef"));
        }
        if let Some(token) = present(source.get_mut("serviceAccountToken")) {
            set(token, "expirationSeconds", || 3600.into());
        }
    }
    fill_network_disks(volume);
}

/// Volumes of storage systems; kept so that Pods round-trip as with kube-apiserver.
fn fill_network_disks(volume: &mut Value) {
    for (kind, field, value) in [
        ("iscsi", "iscsiInterface", "default"),
        ("rbd", "pool", "rbd"),
        ("rbd", "user", "admin"),
        ("rbd", "keyring", "/etc/ceph/keyring"),
        ("azureDisk", "cachingMode", "ReadWrite"),
        ("azureDisk", "kind", "Shared"),
        ("azureDisk", "fsType", "ext4"),
        ("scaleIO", "storageMode", "ThinProvisioned"),
        ("scaleIO", "fsType", "xfs"),
    ] {
        if let Some(source) = present(volume.get_mut(kind)) {
            set_text(source, field, value);
        }
    }
    if let Some(disk) = present(volume.get_mut("azureDisk")) {
        set(disk, "readOnly", || false.into());
    }
}

fn fill_field_ref(reference: Option<&mut Value>) {
    if let Some(reference) = present(reference) {
        set_text(reference, "apiVersion", "v1");
    }
}

/// The single address and the list follow each other; the single one wins, for old agents.
fn sync_pod_ips(pod: &mut Value) {
    let one = pod.text("status.podIP");
    let first = pod.at("status.podIPs").get(0).map_or("", |ip| ip.text("ip"));
    if one == first {
        return;
    }
    if one.is_empty() {
        let first = first.to_owned();
        pod.put("status.podIP", first);
    } else {
        let list = json!([{"ip": one}]);
        pod.put("status.podIPs", list);
    }
}

fn present(value: Option<&mut Value>) -> Option<&mut Value> {
    value.filter(|value| value.is_object())
}

fn set(object: &mut Value, field: &str, value: impl FnOnce() -> Value) {
    if !object.has(field) {
        object.put(field, value());
    }
}

fn set_text(object: &mut Value, field: &str, value: &str) {
    if object.text(field).is_empty() {
        object.put(field, value);
    }
}

/// The tag of an image, `latest` if it has neither tag nor digest; none if the reference is no image at all.
fn tag(image: &str) -> Option<&str> {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let last = name.rfind('/').map_or(0, |slash| slash + 1);
    let (repository, tag) = match name[last..].split_once(':') {
        Some((word, tag)) => (&name[..last + word.len()], Some(tag)),
        None => (name, None),
    };
    let path = match repository.split_once('/') {
        Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => rest,
        _ => repository,
    };
    let valid = !path.is_empty()
        && path.split('/').all(|word| {
            word.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
                && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
        });
    match (valid, tag, digest) {
        (false, ..) => None,
        (true, Some(tag), _) => Some(tag),
        (true, None, Some(_)) => Some(""),
        (true, None, None) => Some("latest"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_images() {
        for (image, expected) in [
            ("img", Some("latest")),
            ("img:latest", Some("latest")),
            ("img:1", Some("1")),
            ("host:5000/a/img", Some("latest")),
            ("host:5000/a/img:2", Some("2")),
            ("img@sha256:00", Some("")),
            ("img:1@sha256:00", Some("1")),
            ("Img", None),
            ("", None),
        ] {
            assert_eq!(tag(image), expected, "{image}");
        }
    }

    #[test]
    fn filling_twice_is_filling_once() {
        let mut pod = json!({
            "spec": {
                "serviceAccount": "a", "terminationGracePeriodSeconds": -5, "hostNetwork": true,
                "containers": [{
                    "name": "c", "image": "i@sha256:00", "ports": [{"containerPort": 80}],
                    "resources": {"limits": {"cpu": "1"}},
                    "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 5},
                    "readinessProbe": {"grpc": {"port": 80}},
                    "env": [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                }],
                "volumes": [
                    {"name": "a"}, {"name": "b", "secret": {"secretName": "s"}},
                    {"name": "c", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
                ],
            },
            "status": {"podIPs": [{"ip": "10.0.0.1"}]},
        });
        fill(&mut pod);
        let once = pod.clone();
        fill(&mut pod);
        assert_eq!(pod, once);
        assert_eq!(pod.text("spec.serviceAccountName"), "a");
        assert_eq!(pod.int("spec.terminationGracePeriodSeconds"), 1);
        assert_eq!(pod.text("status.podIP"), "10.0.0.1");
        let container = &pod.items("spec.containers")[0];
        assert_eq!(container.text("imagePullPolicy"), "IfNotPresent");
        assert_eq!(container.at("ports"), &json!([{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]));
        assert_eq!(container.at("resources.requests"), &json!({"cpu": "1"}));
        assert_eq!(
            container.at("livenessProbe"),
            &json!({"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "periodSeconds": 5, "timeoutSeconds": 1,
                "successThreshold": 1, "failureThreshold": 3})
        );
        assert_eq!(container.text("readinessProbe.grpc.service"), "");
        assert_eq!(container.items("env")[0].text("valueFrom.fieldRef.apiVersion"), "v1");
        let volumes = pod.items("spec.volumes");
        assert_eq!(volumes[0], json!({"name": "a", "emptyDir": {}}));
        assert_eq!(volumes[1].int("secret.defaultMode"), 420);
        assert_eq!(volumes[2].items("projected.sources")[0].int("serviceAccountToken.expirationSeconds"), 3600);
    }

    #[test]
    fn a_single_address_wins_over_the_list() {
        let mut pod = json!({"status": {"podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}});
        fill(&mut pod);
        assert_eq!(pod.at("status.podIPs"), &json!([{"ip": "10.0.0.2"}]));
    }
}
