//! The users that the processes of a Pod run as: `runAsNonRoot` and `runAsUser`.

use serde_json::Value;

use super::{Forbidden, Pod, containers, setters};

/// Containers must have `runAsNonRoot: true`, of their own or of the Pod.
pub(in super::super) fn non_root(pod: &Pod<'_>) -> Option<Forbidden> {
    let reason = "runAsNonRoot != true";
    let (own, set) = pod.own_and_containers("runAsNonRoot");
    let (mut explicit, mut unset) = (Vec::new(), Vec::new());
    for (name, value) in set {
        match value {
            Value::Null => unset.push(name),
            Value::Bool(true) => (),
            _ => explicit.push(name),
        }
    }
    if let Some(setters) = setters(own == &Value::Bool(false), &explicit) {
        return Some(Forbidden {
            reason,
            detail: format!("{setters} must not set securityContext.runAsNonRoot=false"),
        });
    }
    (own != &Value::Bool(true) && !unset.is_empty()).then(|| Forbidden {
        reason,
        detail: format!("pod or {} must set securityContext.runAsNonRoot=true", containers(&unset)),
    })
}

/// Neither the Pod nor a container may set `runAsUser: 0`.
pub(in super::super) fn user_id(pod: &Pod<'_>) -> Option<Forbidden> {
    let (own, set) = pod.own_and_containers("runAsUser");
    let is_root = |value: &Value| value.as_i64() == Some(0);
    let bad: Vec<&str> = set.filter(|(_, value)| is_root(value)).map(|(name, _)| name).collect();
    let setters = setters(is_root(own), &bad)?;
    Some(Forbidden { reason: "runAsUser=0", detail: format!("{setters} must not set runAsUser=0") })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::pod_security::evaluate::found;

    /// A Pod and its containers `a`, `b` … with a field in their security contexts.
    fn spec(field: &str, own: &Value, set: &[Value]) -> Value {
        let names = ["a", "b", "c"];
        let list =
            set.iter().zip(names).map(|(value, name)| json!({"name": name, "securityContext": {field: value.clone()}}));
        json!({"securityContext": {field: own}, "containers": list.collect::<Vec<_>>()})
    }

    #[test]
    fn non_root() {
        let (yes, no, unset) = (json!(true), json!(false), Value::Null);
        for (own, set, expected) in [
            (&yes, &[&unset, &yes][..], ""),
            (&unset, &[&yes, &yes], ""),
            (&unset, &[], ""),
            (&no, &[&yes], "pod must not set securityContext.runAsNonRoot=false"),
            (&no, &[&unset], "pod must not set securityContext.runAsNonRoot=false"),
            (&yes, &[&no], "container \"a\" must not set securityContext.runAsNonRoot=false"),
            (
                &no,
                &[&no, &unset, &no],
                "pod and containers \"a\", \"c\" must not set securityContext.runAsNonRoot=false",
            ),
            (&unset, &[&no, &unset], "container \"a\" must not set securityContext.runAsNonRoot=false"),
            (&unset, &[&yes, &unset], "pod or container \"b\" must set securityContext.runAsNonRoot=true"),
            (&unset, &[&unset, &unset], "pod or containers \"a\", \"b\" must set securityContext.runAsNonRoot=true"),
        ] {
            let set: Vec<Value> = set.iter().map(|value| (*value).clone()).collect();
            let mut spec = spec("runAsNonRoot", own, &set);
            let expected =
                if expected.is_empty() { String::new() } else { format!("runAsNonRoot != true ({expected})") };
            for minor in [0, 37] {
                assert_eq!(found("runAsNonRoot", minor, &Value::Null, &spec), expected, "{spec}");
            }
            spec["hostUsers"] = json!(false);
            assert_eq!(found("runAsNonRoot", 34, &Value::Null, &spec), expected, "{spec}");
            assert_eq!(found("runAsNonRoot", 35, &Value::Null, &spec), "", "{spec}");
        }
        let bare = json!({"containers": [{"name": "a"}]});
        let expected = "runAsNonRoot != true (pod or container \"a\" must set securityContext.runAsNonRoot=true)";
        assert_eq!(found("runAsNonRoot", 37, &Value::Null, &bare), expected);
    }

    #[test]
    fn user_id() {
        for (own, set, expected) in [
            (Value::Null, &[Value::Null, json!(1)][..], ""),
            (json!(1000), &[Value::Null], ""),
            (json!(0), &[json!(1)], "runAsUser=0 (pod must not set runAsUser=0)"),
            (json!(1), &[json!(1), json!(0)], "runAsUser=0 (container \"b\" must not set runAsUser=0)"),
            (json!(0), &[json!(0), json!(0)], "runAsUser=0 (pod and containers \"a\", \"b\" must not set runAsUser=0)"),
        ] {
            let mut spec = spec("runAsUser", &own, set);
            assert_eq!(found("runAsUser", 22, &Value::Null, &spec), "");
            for minor in [23, 37] {
                assert_eq!(found("runAsUser", minor, &Value::Null, &spec), expected, "{spec}");
            }
            spec["hostUsers"] = json!(false);
            assert_eq!(found("runAsUser", 34, &Value::Null, &spec), expected, "{spec}");
            assert_eq!(found("runAsUser", 35, &Value::Null, &spec), "", "{spec}");
        }
    }
}
