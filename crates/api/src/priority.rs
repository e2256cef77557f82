//! The admission plugin Priority: a new Pod gets the priority of its PriorityClass.
//!
//! In: a Pod and its class. Out: `spec.priority`, `spec.priorityClassName` and `spec.preemptionPolicy`, or why the Pod is refused.

use serde_json::Value;

use crate::value::ValueExt as _;

/// The preemption policy of classes that do not set one, and of Pods without a class.
pub const DEFAULT_POLICY: &str = "PreemptLowerPriority";

/// The class of Pods that name none. Two requests at the same time may make two classes the default: then it is the lower one.
#[must_use]
pub fn default_class(classes: &[Value]) -> Option<&Value> {
    classes.iter().filter(|class| class.flag("globalDefault")).min_by_key(|class| class.int("value"))
}

/// Why a class cannot be the default: another one is.
///
/// # Errors
/// The message of the refusal.
pub fn check_default(class: &Value, is_new: bool, classes: &[Value]) -> Result<(), String> {
    let Some(default) = default_class(classes).filter(|_| class.flag("globalDefault")) else { return Ok(()) };
    let name = default.text("metadata.name");
    if is_new || name != class.text("metadata.name") {
        return Err(format!("PriorityClass {name} is already marked as default. Only one default can exist"));
    }
    Ok(())
}

/// Gives a new Pod the priority of its class; `None` where it names none and there is no default.
///
/// # Errors
/// When the Pod has another priority or preemption policy already.
pub fn admit(pod: &mut Value, class: Option<&Value>) -> Result<(), String> {
    let (priority, policy) = match class {
        Some(class) => (class.int("value"), class.at("preemptionPolicy").as_str()),
        None => (0, Some(DEFAULT_POLICY)),
    };
    if let Some(given) = pod.at("spec.priority").as_i64().filter(|given| *given != priority) {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        ));
    }
    if let (Some(policy), Some(given)) = (policy, pod.at("spec.preemptionPolicy").as_str())
        && given != policy
    {
        return Err(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        ));
    }
    if let Some(class) = class {
        pod.put("spec.priorityClassName", class.text("metadata.name"));
    }
    pod.put("spec.priority", priority);
    if let Some(policy) = policy {
        pod.put("spec.preemptionPolicy", policy);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(name: &str, value: i64, global_default: bool) -> Value {
        json!({
            "metadata": {"name": name}, "value": value, "globalDefault": global_default, "preemptionPolicy": "Never",
        })
    }

    fn admitted(spec: &Value, class: Option<&Value>) -> Result<Value, String> {
        let mut pod = json!({"spec": spec});
        admit(&mut pod, class).map(|()| pod["spec"].take())
    }

    #[test]
    fn pods_get_the_priority_of_their_class() {
        let high = class("high", 100, false);
        let resolved = json!({"priorityClassName": "high", "priority": 100, "preemptionPolicy": "Never"});
        let none = json!({"priority": 0, "preemptionPolicy": "PreemptLowerPriority"});
        let cases = [
            (json!({"priorityClassName": "high"}), Some(&high), Ok(resolved.clone())),
            (resolved.clone(), Some(&high), Ok(resolved)),
            (json!({}), None, Ok(none.clone())),
            (none.clone(), None, Ok(none)),
            (
                json!({"priority": 7}),
                None,
                Err(
                    "the integer value of priority (7) must not be provided in pod spec; priority admission controller \
                     computed 0 from the given PriorityClass name",
                ),
            ),
            (
                json!({"preemptionPolicy": "PreemptLowerPriority"}),
                Some(&high),
                Err("the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided in pod spec; \
                     priority admission controller computed Never from the given PriorityClass name"),
            ),
        ];
        for (spec, class, expected) in cases {
            assert_eq!(admitted(&spec, class), expected.map_err(str::to_owned), "{spec}");
        }
    }

    #[test]
    fn one_class_is_the_default() {
        let (low, high, other) = (class("low", 1, true), class("high", 9, true), class("other", 0, false));
        let all = [high.clone(), low.clone(), other.clone()];
        assert_eq!(default_class(&all), Some(&low));
        assert_eq!(default_class(std::slice::from_ref(&other)), None);
        let refused = Err("PriorityClass low is already marked as default. Only one default can exist".to_owned());
        assert_eq!(check_default(&high, true, &all), refused);
        assert_eq!(check_default(&high, false, &all), refused);
        assert_eq!(check_default(&low, false, &all), Ok(()));
        assert_eq!(check_default(&other, true, &all), Ok(()));
        assert_eq!(check_default(&high, true, &[other]), Ok(()));
    }
}
