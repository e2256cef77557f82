//! Which Pod of a set one is: the number at the end of its name, and what it has because of that.

use api::value::ValueExt as _;
use serde_json::Value;

/// The label with the name of the Pod, for Services that lead to one Pod.
const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
/// The label with the number of the Pod.
const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// The number of a Pod of a set; none when it has not the name of one.
pub(super) fn ordinal(set: &str, pod: &str) -> Option<usize> {
    let digits = pod.strip_prefix(set)?.strip_prefix('-')?;
    let number: usize = digits.parse().ok()?;
    // `web-01` is no Pod of `web`.
    (digits == number.to_string()).then_some(number)
}

/// Gives a Pod what it has for being this one: labels, and a host name below that of the Service.
pub(super) fn give(pod: &mut Value, set: &Value, number: usize) {
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
    fn numbers_stand_at_the_end() {
        assert_eq!(ordinal("web", "web-0"), Some(0));
        assert_eq!(ordinal("web", "web-12"), Some(12));
        for other in ["web", "web-", "web-01", "web-x", "webs-1", "other-1", "web-1-2", "web-+1"] {
            assert_eq!(ordinal("web", other), None, "{other}");
        }
    }
}
