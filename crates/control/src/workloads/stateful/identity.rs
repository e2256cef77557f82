//! The identity of a StatefulSet Pod: its ordinal, labels and host name.

use api::value::ValueExt as _;
use serde_json::Value;

/// The label with the Pod name, for Services that select one Pod.
const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
/// The label with the number of the Pod.
const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// The ordinal of a Pod; `None` when its name does not match.
pub(super) fn ordinal(set: &str, pod: &str) -> Option<usize> {
    let digits = pod.strip_prefix(set)?.strip_prefix('-')?;
    let number: usize = digits.parse().ok()?;
    // `web-01` is not a Pod of `web`.
    (digits == number.to_string()).then_some(number)
}

/// Sets labels, host name and subdomain.
pub(super) fn set_identity(pod: &mut Value, set: &Value, number: usize) {
    let name = pod.text("metadata.name").to_owned();
    let mut labels = pod.map("metadata.labels").cloned().unwrap_or_default();
    labels.insert(NAME_LABEL.to_owned(), name.as_str().into());
    labels.insert(INDEX_LABEL.to_owned(), number.to_string().into());
    pod.put("metadata.labels", Value::Object(labels));
    pod.put("spec.hostname", name);
    let service = set.text("spec.serviceName");
    if service.is_empty() {
        pod.drop_path("spec.subdomain");
    } else {
        pod.put("spec.subdomain", service);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinals_are_parsed() {
        assert_eq!(ordinal("web", "web-0"), Some(0));
        assert_eq!(ordinal("web", "web-12"), Some(12));
        for other in ["web", "web-", "web-01", "web-x", "webs-1", "other-1", "web-1-2", "web-+1"] {
            assert_eq!(ordinal("web", other), None, "{other}");
        }
    }
}
