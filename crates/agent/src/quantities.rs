//! Resource quantities: limits of containers and Pods, the downward API, OOM scores.

use api::resources;
use api::value::ValueExt as _;
use kernel::cgroups::Limits;
use serde_json::Value;

/// Suffixes and their factors, in thousandths.
const SUFFIXES: [(&str, u128); 15] = [
    ("Ki", 1_024_000),
    ("Mi", 1_048_576_000),
    ("Gi", 1_073_741_824_000),
    ("Ti", 1_099_511_627_776_000),
    ("Pi", 1_125_899_906_842_624_000),
    ("Ei", 1_152_921_504_606_846_976_000),
    ("m", 1),
    ("k", 1_000_000),
    ("M", 1_000_000_000),
    ("G", 1_000_000_000_000),
    ("T", 1_000_000_000_000_000),
    ("P", 1_000_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000_000),
    ("u", 0),
    ("n", 0),
];

/// A quantity in thousandths, rounded up; `None` when it is invalid.
#[must_use]
pub fn thousandths(text: &str) -> Option<u128> {
    let text = text.trim();
    let (number, unit) = match SUFFIXES.iter().find(|(suffix, _)| text.ends_with(suffix)) {
        Some((suffix, unit)) => (text.strip_suffix(suffix)?, *unit),
        None => (text, 1000),
    };
    let (number, exponent) = match number.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.parse::<u32>().ok()?),
        None => (number, 0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let scaled = digits.checked_mul(unit)?.checked_mul(10u128.checked_pow(exponent)?)?;
    Some(scaled.div_ceil(10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?))
}

/// An entry of `requests` or `limits`, in thousandths.
fn amount(resources: &Value, list: &str, name: &str) -> Option<u64> {
    let value = resources.at(list).get(name)?;
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    thousandths(&text).and_then(|amount| u64::try_from(amount).ok())
}

/// The cgroup limits of a container.
#[must_use]
pub fn limits(container: &Value, processes: Option<u64>) -> Limits {
    let resources = container.at("resources");
    let cpu = amount(resources, "limits", "cpu");
    Limits {
        cpu_request: Some(amount(resources, "requests", "cpu").or(cpu).unwrap_or(0)),
        cpu: cpu.filter(|cpu| *cpu > 0),
        memory: amount(resources, "limits", "memory").map(|bytes| bytes / 1000).filter(|bytes| *bytes > 0),
        pids: processes,
    }
}

/// The cgroup limits of a Pod: the CPU weight of its requests.
#[must_use]
pub fn pod_limits(pod: &Value) -> Limits {
    let requests = resources::pod::charged(pod, resources::pod::Part::Requests);
    let cpu = requests.get("cpu").map_or(0, |amount| amount.thousandths().max(0).unsigned_abs());
    Limits { cpu_request: Some(cpu), ..Limits::default() }
}

/// Resources of the node; the limits of a container that sets none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Capacity {
    /// CPU, in millicores.
    pub cpu: u64,
    /// Memory, in bytes.
    pub memory: u64,
    /// Ephemeral storage, in bytes.
    pub storage: u64,
}

/// The value of a `resourceFieldRef`, divided and rounded up.
#[must_use]
pub fn field(container: &Value, resource: &str, divisor: &str, capacity: Capacity) -> Option<String> {
    let (list, name) = resource.split_once('.')?;
    let own = amount(container.at("resources"), list, name);
    let amount = match (own, list, name) {
        (Some(own), _, _) => own,
        (None, "limits", "cpu") => capacity.cpu,
        (None, "limits", "memory") => capacity.memory * 1000,
        (None, "limits", "ephemeral-storage") => capacity.storage * 1000,
        (None, "requests", _) => 0,
        _ => return None,
    };
    let divisor = if divisor.is_empty() || divisor == "0" { 1000 } else { thousandths(divisor)?.max(1) };
    Some(u128::from(amount).div_ceil(divisor).to_string())
}

/// `oom_score_adj` of a container, as the kubelet computes it.
#[must_use]
pub fn oom_score(pod: &Value, container: &Value, capacity: Capacity) -> i32 {
    match pod.text("status.qosClass") {
        "Guaranteed" => -997,
        "BestEffort" => 1000,
        _ => {
            let request = amount(container.at("resources"), "requests", "memory").unwrap_or(0) / 1000;
            let part = i64::try_from(1000 * request / capacity.memory.max(1)).unwrap_or(0);
            i32::try_from((1000 - part).clamp(3, 999)).unwrap_or(999)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_are_parsed() {
        let cases = [
            ("1", 1000),
            ("500m", 500),
            ("1.5", 1500),
            ("64Mi", 67_108_864_000),
            ("2k", 2_000_000),
            ("1e3", 1_000_000),
        ];
        for (text, expected) in cases {
            assert_eq!(thousandths(text), Some(expected), "{text}");
        }
        assert_eq!((thousandths("x"), thousandths("")), (None, None));
    }

    #[test]
    fn limits_are_read_and_divided() {
        let capacity = Capacity { cpu: 2000, memory: 1 << 30, storage: 0 };
        let container =
            json!({"resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}, "requests": {"cpu": "0.5"}}});
        let limits = limits(&container, Some(9));
        assert_eq!(
            (limits.cpu, limits.cpu_request, limits.memory, limits.pids),
            (Some(1500), Some(500), Some(64 << 20), Some(9))
        );
        assert_eq!(field(&container, "limits.cpu", "", capacity).as_deref(), Some("2"));
        assert_eq!(field(&container, "limits.cpu", "1m", capacity).as_deref(), Some("1500"));
        assert_eq!(field(&container, "limits.memory", "1Mi", capacity).as_deref(), Some("64"));
        assert_eq!(field(&json!({}), "limits.memory", "1Mi", capacity).as_deref(), Some("1024"));
        assert_eq!(field(&json!({}), "requests.memory", "", capacity).as_deref(), Some("0"));
    }

    #[test]
    fn the_weight_of_a_pod_is_the_sum_of_its_requests() {
        let requesting = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let pod = json!({"spec": {"initContainers": [requesting("300m")],
            "containers": [requesting("100m"), requesting("0.15"), {}]}});
        assert_eq!(pod_limits(&pod), Limits { cpu_request: Some(300), ..Limits::default() });
        assert_eq!(pod_limits(&json!({"spec": {"containers": [{}]}})).cpu_request, Some(0));
    }
}
