//! The downward API: fields of a Pod by path.

use std::net::IpAddr;

use api::value::ValueExt as _;
use serde_json::Value;

/// Addresses that the Pod status may not show yet.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Pod IPs.
    pub addresses: Vec<IpAddr>,
    /// Node addresses.
    pub host: Vec<IpAddr>,
}

/// A field of a Pod by path; `None` when it is not supported.
#[must_use]
pub fn field(pod: &Value, known: &Known, path: &str) -> Option<String> {
    let join = |ips: &[IpAddr]| ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let first = |ips: &[IpAddr]| ips.first().map_or_else(String::new, ToString::to_string);
    Some(match path {
        "metadata.name" | "metadata.namespace" | "metadata.uid" | "spec.nodeName" | "spec.serviceAccountName" => {
            pod.text(path).to_owned()
        }
        "metadata.labels" | "metadata.annotations" => lines(pod.at(path)),
        "status.hostIP" => first(&known.host),
        "status.hostIPs" => join(&known.host),
        "status.podIP" => first(&known.addresses),
        "status.podIPs" => join(&known.addresses),
        _ => {
            let (map, key) = path.strip_suffix("']").and_then(|path| path.split_once("['"))?;
            if !matches!(map, "metadata.labels" | "metadata.annotations") {
                return None;
            }
            pod.at(map).get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
        }
    })
}

/// A map as lines `key="value"`, in order.
fn lines(map: &Value) -> String {
    let mut all: Vec<String> = map
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", Value::String(value.as_str().unwrap_or_default().to_owned())))
        .collect();
    all.sort();
    all.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_found_by_their_paths() {
        let pod = json!({"metadata": {"name": "web", "labels": {"b": "2", "a": "x\"y"}}});
        let known = Known { addresses: vec![[10, 0, 0, 2].into(), "fd00::2".parse().expect("ip")], host: Vec::new() };
        let get = |path| field(&pod, &known, path);
        assert_eq!(get("metadata.name").as_deref(), Some("web"));
        assert_eq!(get("metadata.labels").as_deref(), Some("a=\"x\\\"y\"\nb=\"2\""));
        assert_eq!(get("metadata.labels['b']").as_deref(), Some("2"));
        assert_eq!(get("metadata.annotations['b']").as_deref(), Some(""));
        assert_eq!(
            (get("status.podIP").as_deref(), get("status.podIPs").as_deref()),
            (Some("10.0.0.2"), Some("10.0.0.2,fd00::2"))
        );
        assert_eq!((get("status.hostIP").as_deref(), get("spec.containers")), (Some(""), None));
    }
}
