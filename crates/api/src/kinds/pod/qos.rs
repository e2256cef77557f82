//! The quality of service a Pod asks for by its requests and limits.

use serde_json::Value;

use crate::value::ValueExt as _;

/// `Guaranteed`, `Burstable` or `BestEffort`.
pub(super) fn class(pod: &Value) -> &'static str {
    let spec = pod.at("spec");
    if ["requests", "limits"].iter().any(|kind| spec.at("resources").map(kind).is_some_and(|map| !map.is_empty())) {
        return of_resources(spec.at("resources"));
    }
    let containers = ["initContainers", "containers"].into_iter().flat_map(|list| spec.items(list));
    let mut class = None;
    for container in containers {
        let one = of_resources(container.at("resources"));
        if class.is_some_and(|class| class != one) {
            return "Burstable";
        }
        class = Some(one);
    }
    class.unwrap_or("BestEffort")
}

fn of_resources(resources: &Value) -> &'static str {
    let of_one = |name: &str| {
        let read = |kind: &str| quantity(resources.at(kind).get(name).unwrap_or(&Value::Null));
        match (read("requests"), read("limits")) {
            (request, limit) if request != limit => "Burstable",
            (0, _) => "BestEffort",
            _ => "Guaranteed",
        }
    };
    if ["requests", "limits"].iter().all(|kind| resources.map(kind).is_none_or(serde_json::Map::is_empty)) {
        return "BestEffort";
    }
    // Only these two count; asking for something else alone leaves the Pod at best effort.
    let (cpu, memory) = (of_one("cpu"), of_one("memory"));
    if cpu == memory { cpu } else { "Burstable" }
}

/// A quantity in billionths, large enough to compare; nothing for what is missing or cannot be read.
fn quantity(value: &Value) -> i128 {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return 0,
    };
    let end = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let billionths = format!("{whole}{fraction}").parse::<i128>().unwrap_or(0);
    let (factor, divisor) = scale(suffix);
    billionths.saturating_mul(factor) / divisor
}

fn scale(suffix: &str) -> (i128, i128) {
    const DECIMAL: &str = "kMGTPE";
    if let Some(binary) = suffix.strip_suffix('i') {
        let power = DECIMAL.to_uppercase().find(binary).filter(|_| binary.len() == 1);
        return (power.map_or(1, |power| 1024_i128.pow(u32::try_from(power).unwrap_or(0) + 1)), 1);
    }
    match suffix {
        "" => (1, 1),
        "m" => (1, 1_000),
        "u" => (1, 1_000_000),
        "n" => (1, 1_000_000_000),
        _ if suffix.len() == 1 && DECIMAL.contains(suffix) => {
            let power = DECIMAL.find(suffix).unwrap_or(0);
            (1000_i128.pow(u32::try_from(power).unwrap_or(0) + 1), 1)
        }
        _ => match suffix.get(1..).and_then(|power| power.parse::<i32>().ok()) {
            Some(power @ 0..=18) => (10_i128.pow(power.unsigned_abs()), 1),
            Some(power @ -18..0) => (1, 10_i128.pow(power.unsigned_abs())),
            _ => (1, 1),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_compare() {
        for (a, b) in [
            (json!("1"), json!("1000m")),
            (json!("0.5"), json!("500m")),
            (json!(2), json!("2")),
            (json!("1Gi"), json!("1024Mi")),
            (json!("1k"), json!("1e3")),
            (json!("128974848"), json!("123Mi")),
            (json!("1E"), json!("1000P")),
            (json!("100m"), json!("1e-1")),
        ] {
            assert_eq!(quantity(&a), quantity(&b), "{a} {b}");
        }
        assert_ne!(quantity(&json!("1M")), quantity(&json!("1Mi")));
        assert_eq!(quantity(&json!("é")), 0);
    }

    #[test]
    fn classes() {
        let pod = |containers: Value| json!({"spec": {"containers": containers}});
        let both = json!({"cpu": "1", "memory": "1Gi"});
        let full = json!({"resources": {"limits": both, "requests": {"cpu": "1000m", "memory": "1024Mi"}}});
        assert_eq!(class(&pod(json!([{}]))), "BestEffort");
        assert_eq!(class(&pod(json!([full]))), "Guaranteed");
        assert_eq!(class(&pod(json!([full, {}]))), "Burstable");
        assert_eq!(class(&pod(json!([{"resources": {"requests": {"cpu": "1"}}}]))), "Burstable");
        assert_eq!(class(&pod(json!([{"resources": {"requests": {"example.com/x": "1"}}}]))), "BestEffort");
        assert_eq!(class(&json!({"spec": {"resources": {"limits": both, "requests": both}}})), "Guaranteed");
    }
}
