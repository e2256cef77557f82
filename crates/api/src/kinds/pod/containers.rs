//! Checks of the containers of a Pod: names, images, ports, environment, mounts.

use std::collections::HashSet;

use serde_json::Value;

use super::handlers;
use crate::field::{Errors, Path};
use crate::kinds::common::{PROTOCOLS, not_found, one_of, report, variable_name};
use crate::names;
use crate::value::ValueExt as _;

/// What the containers of a Pod refer to.
pub(super) struct Context<'p> {
    /// The volumes that may be mounted.
    pub(super) volumes: HashSet<&'p str>,
    /// How long the Pod may take to end, in seconds.
    pub(super) grace: i64,
}

/// Checks the containers that do the work.
pub(super) fn validate_main(path: &Path<'_>, spec: &Value, context: &Context<'_>, errors: &mut Errors) {
    let containers = spec.items("containers");
    if containers.is_empty() {
        errors.required(path, "");
        return;
    }
    let mut seen = HashSet::new();
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(index);
        validate_one(&path, container, context, errors);
        if !seen.insert(container.text("name")) {
            errors.duplicate(&path.child("name"), container.text("name"));
        }
        handlers::validate_all(&path, container, context.grace, errors);
        validate_restart_policy(&path, container, errors);
    }
    check_host_ports(path, containers, errors);
}

/// Checks the containers that run before the others.
pub(super) fn validate_init(list: &Path<'_>, spec: &Value, context: &Context<'_>, errors: &mut Errors) {
    let mut seen: HashSet<&str> = spec.items("containers").iter().map(|container| container.text("name")).collect();
    for (index, container) in spec.items("initContainers").iter().enumerate() {
        let path = list.index(index);
        validate_one(&path, container, context, errors);
        validate_restart_policy(&path, container, errors);
        let name = container.text("name");
        if seen.contains(name) {
            errors.duplicate(&path.child("name"), name);
        } else if !name.is_empty() {
            seen.insert(name);
        }
        check_host_ports(list, std::slice::from_ref(container), errors);
        if container.text("restartPolicy") == "Always" {
            handlers::validate_all(&path, container, context.grace, errors);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if container.has(field) {
                let detail = "may not be set for init containers without restartPolicy=Always";
                errors.forbidden(&path.child(field), detail);
            }
        }
    }
}

/// Checks of Pods that templates of Pods do not have.
pub(super) fn validate_images(spec: &Value, errors: &mut Errors) {
    for (list, root) in [("containers", "spec.containers"), ("initContainers", "spec.initContainers")] {
        let path = Path::Root(root);
        for (index, container) in spec.items(list).iter().enumerate() {
            let image = container.text("image");
            if image.trim() != image {
                let detail = "must not have leading or trailing whitespace";
                errors.invalid(&path.index(index).child("image"), image, detail);
            }
        }
    }
}

fn validate_one(path: &Path<'_>, container: &Value, context: &Context<'_>, errors: &mut Errors) {
    let name = container.text("name");
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    } else {
        report(&path.child("name"), name, names::dns_label(name), errors);
    }
    if container.text("image").is_empty() {
        errors.required(&path.child("image"), "");
    }
    let policy = container.text("terminationMessagePolicy");
    one_of(&path.child("terminationMessagePolicy"), policy, &["File", "FallbackToLogsOnError"], errors);
    validate_ports(&path.child("ports"), container.items("ports"), errors);
    validate_environment(&path.child("env"), container.items("env"), errors);
    validate_env_from(&path.child("envFrom"), container.items("envFrom"), errors);
    validate_mounts(&path.child("volumeMounts"), container, context, errors);
    validate_devices(&path.child("volumeDevices"), container, context, errors);
    let policy = container.text("imagePullPolicy");
    one_of(&path.child("imagePullPolicy"), policy, &["Always", "IfNotPresent", "Never"], errors);
}

fn validate_restart_policy(path: &Path<'_>, container: &Value, errors: &mut Errors) {
    if let Some(policy) = container.at("restartPolicy").as_str() {
        let known = ["Always", "Never", "OnFailure"];
        if !known.contains(&policy) {
            errors.not_supported(&path.child("restartPolicy"), policy, &known);
        }
    } else if !container.items("restartPolicyRules").is_empty() {
        let detail = "must specify restartPolicy when restart rules are used";
        errors.required(&path.child("restartPolicy"), detail);
    }
}

fn validate_ports(list: &Path<'_>, ports: &[Value], errors: &mut Errors) {
    let mut seen = HashSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = list.index(index);
        let name = port.text("name");
        if !name.is_empty() {
            let wrong = names::port_name(name);
            if wrong.is_empty() && !seen.insert(name) {
                errors.duplicate(&path.child("name"), name);
            }
            report(&path.child("name"), name, wrong, errors);
        }
        match port.int("containerPort") {
            0 => errors.required(&path.child("containerPort"), ""),
            number => check_port(&path.child("containerPort"), number, errors),
        }
        if port.int("hostPort") != 0 {
            check_port(&path.child("hostPort"), port.int("hostPort"), errors);
        }
        one_of(&path.child("protocol"), port.text("protocol"), PROTOCOLS, errors);
    }
}

pub(super) fn check_port(path: &Path<'_>, number: i64, errors: &mut Errors) {
    for detail in names::port_number(number) {
        errors.invalid(path, number, &detail);
    }
}

fn check_host_ports(list: &Path<'_>, containers: &[Value], errors: &mut Errors) {
    let mut seen = HashSet::new();
    for (index, container) in containers.iter().enumerate() {
        let container_path = list.index(index);
        let ports = container_path.child("ports");
        for (index, port) in container.items("ports").iter().enumerate() {
            let number = port.int("hostPort");
            let key = (port.text("protocol"), port.text("hostIP"), number);
            if number != 0 && !seen.insert(key) {
                let text = format!("{}/{}/{number}", key.0, key.1);
                errors.duplicate(&ports.index(index).child("hostPort"), text);
            }
        }
    }
}

fn validate_environment(list: &Path<'_>, variables: &[Value], errors: &mut Errors) {
    for (index, variable) in variables.iter().enumerate() {
        let path = list.index(index);
        let name = variable.text("name");
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        } else {
            report(&path.child("name"), name, variable_name(name), errors);
        }
        if variable.has("valueFrom") {
            validate_value_from(&path.child("valueFrom"), variable, errors);
        }
    }
}

fn validate_value_from(path: &Path<'_>, variable: &Value, errors: &mut Errors) {
    let source = variable.at("valueFrom");
    let mut count = 0;
    for field in ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"] {
        if !source.has(field) {
            continue;
        }
        count += 1;
        match field {
            "fieldRef" => validate_field_ref(&path.child(field), source.at(field), errors),
            "configMapKeyRef" | "secretKeyRef" => validate_key_ref(&path.child(field), source.at(field), errors),
            _ => {}
        }
    }
    if count == 0 {
        let detail =
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.invalid(path, "", detail);
    } else if !variable.text("value").is_empty() {
        errors.invalid(path, "", "may not be specified when `value` is not empty");
    } else if count > 1 {
        errors.invalid(path, "", "may not have more than one field specified at a time");
    }
}

fn validate_field_ref(path: &Path<'_>, reference: &Value, errors: &mut Errors) {
    let field = reference.text("fieldPath");
    if field.is_empty() {
        errors.required(&path.child("fieldPath"), "");
        return;
    }
    let subscript = |map: &str| field.strip_prefix(map)?.strip_prefix("['")?.strip_suffix("']");
    if let Some(key) = subscript("metadata.labels") {
        report(path, key, names::qualified_name(key), errors);
    } else if let Some(key) = subscript("metadata.annotations") {
        let key = key.to_lowercase();
        report(path, &key, names::qualified_name(&key), errors);
    } else if !matches!(
        field,
        "metadata.name"
            | "metadata.namespace"
            | "metadata.uid"
            | "spec.nodeName"
            | "spec.serviceAccountName"
            | "status.hostIP"
            | "status.hostIPs"
            | "status.podIP"
            | "status.podIPs"
    ) {
        let detail = format!("error converting fieldPath: field label not supported: {field}");
        errors.invalid(&path.child("fieldPath"), field, &detail);
    }
}

fn validate_key_ref(path: &Path<'_>, reference: &Value, errors: &mut Errors) {
    let (name, key) = (reference.text("name"), reference.text("key"));
    report(&path.child("name"), name, names::name_is_subdomain(name, false), errors);
    if key.is_empty() {
        errors.required(&path.child("key"), "");
    } else {
        report(&path.child("key"), key, names::config_key(key), errors);
    }
}

fn validate_env_from(list: &Path<'_>, sources: &[Value], errors: &mut Errors) {
    for (index, source) in sources.iter().enumerate() {
        let path = list.index(index);
        let prefix = source.text("prefix");
        report(&path.child("prefix"), prefix, variable_name(prefix), errors);
        let mut count = 0;
        for field in ["configMapRef", "secretRef"] {
            if !source.has(field) {
                continue;
            }
            count += 1;
            let reference = path.child(field);
            match source.at(field).text("name") {
                "" => errors.required(&reference.child("name"), ""),
                name => report(&reference.child("name"), name, names::name_is_subdomain(name, true), errors),
            }
        }
        match count {
            0 => errors.invalid(list, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(list, "", "may not have more than one field specified at a time"),
        }
    }
}

fn validate_mounts(list: &Path<'_>, container: &Value, context: &Context<'_>, errors: &mut Errors) {
    let devices = container.items("volumeDevices");
    let mut paths = HashSet::new();
    for (index, mount) in container.items("volumeMounts").iter().enumerate() {
        let path = list.index(index);
        let (name, mount_path) = (mount.text("name"), mount.text("mountPath"));
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        }
        if !context.volumes.contains(name) {
            not_found(&path.child("name"), name, errors);
        }
        if mount_path.is_empty() {
            errors.required(&path.child("mountPath"), "");
        }
        if !paths.insert(mount_path) {
            errors.invalid(&path.child("mountPath"), mount_path, "must be unique");
        }
        if devices.iter().any(|device| device.text("name") == name) {
            errors.invalid(&path.child("name"), name, "must not already exist in volumeDevices");
        }
        if devices.iter().any(|device| device.text("devicePath") == mount_path) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.invalid(&path.child("mountPath"), mount_path, detail);
        }
        if !mount.text("subPath").is_empty() {
            check_relative(&list.child("subPath"), mount.text("subPath"), errors);
        }
        let expression = mount.text("subPathExpr");
        if !expression.is_empty() {
            if !mount.text("subPath").is_empty() {
                let detail = "subPathExpr and subPath are mutually exclusive";
                errors.invalid(&path.child("subPathExpr"), expression, detail);
            }
            check_relative(&list.child("subPathExpr"), expression, errors);
        }
    }
}

fn validate_devices(list: &Path<'_>, container: &Value, context: &Context<'_>, errors: &mut Errors) {
    let (mut seen_names, mut seen_paths) = (HashSet::new(), HashSet::new());
    for (index, device) in container.items("volumeDevices").iter().enumerate() {
        let path = list.index(index);
        let (name, device_path) = (device.text("name"), device.text("devicePath"));
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        } else if !seen_names.insert(name) {
            errors.invalid(&path.child("name"), name, "must be unique");
        }
        if !context.volumes.contains(name) {
            not_found(&path.child("name"), name, errors);
        }
        if device_path.is_empty() {
            errors.required(&path.child("devicePath"), "");
        } else if device_path.split('/').any(|part| part == "..") {
            errors.invalid(&path.child("devicePath"), device_path, "can not contain backsteps ('..')");
        } else if !seen_paths.insert(device_path) {
            errors.invalid(&path.child("devicePath"), device_path, "must be unique");
        }
    }
}

/// A path that stays below where it starts.
pub(super) fn check_relative(path: &Path<'_>, text: &str, errors: &mut Errors) {
    if text.starts_with('/') {
        errors.invalid(path, text, "must be a relative path");
    }
    if text.split('/').any(|part| part == "..") {
        errors.invalid(path, text, "must not contain '..'");
    }
}
