//! Examples of profiles that are allowed and forbidden.

use serde_json::{Value, json};

use crate::pod_security::evaluate::found;

/// A Pod and its containers `a`, `b` … with a field in their security contexts.
fn spec(field: &str, own: &Value, set: &[Value]) -> Value {
    let names = ["a", "b", "c"];
    let list =
        set.iter().zip(names).map(|(value, name)| json!({"name": name, "securityContext": {field: value.clone()}}));
    json!({"securityContext": {field: own}, "containers": list.collect::<Vec<_>>()})
}

fn kind(name: &str) -> Value {
    json!({"type": name})
}

#[test]
fn app_armor_fields() {
    for (own, set, expected) in [
        (Value::Null, &[Value::Null, kind("RuntimeDefault"), kind("Localhost")][..], ""),
        (
            kind("Unconfined"),
            &[],
            "forbidden AppArmor profile (pod must not set AppArmor profile type to \"Unconfined\")",
        ),
        (
            Value::Null,
            &[kind("Unconfined"), Value::Null, kind("Unconfined")],
            "forbidden AppArmor profile (containers \"a\", \"c\" must not set AppArmor profile type to \"Unconfined\")",
        ),
        (
            kind("x"),
            &[kind("Unconfined")],
            "forbidden AppArmor profiles (pod and container \"a\" must not set AppArmor profile type to \"Unconfined\", \
             \"x\")",
        ),
    ] {
        let spec = spec("appArmorProfile", &own, set);
        for minor in [0, 37] {
            assert_eq!(found("appArmorProfile", minor, &Value::Null, &spec), expected, "{spec}");
        }
    }
}

#[test]
fn app_armor_annotations() {
    let key = |container: &str| format!("container.apparmor.security.beta.kubernetes.io/{container}");
    let annotated = |entries: &[(&str, &str)]| {
        let map = entries.iter().map(|(name, value)| (key(name), Value::from(*value))).collect();
        json!({"annotations": Value::Object(map)})
    };
    let none = json!({});
    let good = annotated(&[("a", "runtime/default"), ("b", "localhost/x"), ("c", "")]);
    assert_eq!(found("appArmorProfile", 37, &good, &none), "");
    assert_eq!(
        found("appArmorProfile", 37, &annotated(&[("a", "unconfined")]), &none),
        "forbidden AppArmor profile (annotation must not set AppArmor profile type to \
         \"container.apparmor.security.beta.kubernetes.io/a=\"unconfined\"\")"
    );
    let both = spec("appArmorProfile", &kind("Unconfined"), &[]);
    assert_eq!(
        found("appArmorProfile", 37, &annotated(&[("b", "y"), ("a", "x\"")]), &both),
        "forbidden AppArmor profiles (pod and annotations must not set AppArmor profile type to \"Unconfined\", \
         \"container.apparmor.security.beta.kubernetes.io/a=\"x\\\"\"\", \
         \"container.apparmor.security.beta.kubernetes.io/b=\"y\"\")"
    );
}

#[test]
fn seccomp_annotations() {
    let metadata = |entries: Value| json!({"annotations": entries});
    let spec = json!({"initContainers": [{"name": "i"}], "containers": [{"name": "c"}]});
    let (pod, prefix) = ("seccomp.security.alpha.kubernetes.io/pod", "container.seccomp.security.alpha.kubernetes.io/");
    let (one, other, stranger) = (format!("{prefix}c"), format!("{prefix}i"), format!("{prefix}x"));
    for (annotations, expected) in [
        (json!({pod: "runtime/default", &one: "docker/default", &other: "localhost/x", &stranger: "y"}), String::new()),
        (json!({pod: "unconfined"}), format!("seccompProfile (forbidden annotation {pod}=\"unconfined\")")),
        (
            json!({pod: "", &one: "x", &other: "y"}),
            format!("seccompProfile (forbidden annotations {one}=\"x\", {other}=\"y\", {pod}=\"\")"),
        ),
    ] {
        for minor in [0, 18] {
            let found = found("seccompProfile_baseline", minor, &metadata(annotations.clone()), &spec);
            assert_eq!(found, expected, "{annotations}");
        }
        // From 1.19 on the fields count, not the annotations.
        assert_eq!(found("seccompProfile_baseline", 19, &metadata(annotations), &spec), "");
    }
}

#[test]
fn seccomp_may_not_be_disabled() {
    for (own, set, expected) in [
        (Value::Null, &[Value::Null, kind("RuntimeDefault"), kind("Localhost")][..], ""),
        (kind("Unconfined"), &[Value::Null], "pod"),
        (kind("RuntimeDefault"), &[kind("Unconfined")], "container \"a\""),
        (kind("Unconfined"), &[kind("Unconfined"), Value::Null, kind("Unconfined")], "pod and containers \"a\", \"c\""),
    ] {
        let expected = match expected {
            "" => String::new(),
            who => {
                format!("seccompProfile ({who} must not set securityContext.seccompProfile.type to \"Unconfined\")")
            }
        };
        let spec = spec("seccompProfile", &own, set);
        assert_eq!(found("seccompProfile_baseline", 18, &Value::Null, &spec), "");
        for minor in [19, 37] {
            assert_eq!(found("seccompProfile_baseline", minor, &Value::Null, &spec), expected, "{spec}");
        }
    }
}

#[test]
fn seccomp_must_be_set() {
    let missing = |who: &str| {
        format!(
            "seccompProfile (pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \
             \"Localhost\")"
        )
    };
    let bad = |who: &str| {
        format!("seccompProfile ({who} must not set securityContext.seccompProfile.type to \"Unconfined\")")
    };
    for (own, set, expected) in [
        (kind("RuntimeDefault"), &[Value::Null, kind("Localhost")][..], String::new()),
        (Value::Null, &[kind("RuntimeDefault")], String::new()),
        (Value::Null, &[kind("RuntimeDefault"), Value::Null], missing("container \"b\"")),
        (Value::Null, &[Value::Null, Value::Null], missing("containers \"a\", \"b\"")),
        (kind("Unconfined"), &[Value::Null], bad("pod")),
        // Containers with a bad profile are reported instead of those without one.
        (Value::Null, &[Value::Null, kind("Unconfined")], bad("container \"b\"")),
        (kind("Unconfined"), &[kind("Unconfined")], bad("pod and container \"a\"")),
    ] {
        let mut spec = spec("seccompProfile", &own, set);
        assert_eq!(found("seccompProfile_restricted", 18, &Value::Null, &spec), "");
        for minor in [19, 37] {
            assert_eq!(found("seccompProfile_restricted", minor, &Value::Null, &spec), expected, "{spec}");
        }
        spec["os"] = json!({"name": "windows"});
        assert_eq!(found("seccompProfile_restricted", 24, &Value::Null, &spec), expected);
        assert_eq!(found("seccompProfile_restricted", 25, &Value::Null, &spec), "");
    }
}

#[test]
fn se_linux() {
    let text = |detail: &str| {
        format!("seLinuxOptions ({detail})").replace("FIELD", "forbidden securityContext.seLinuxOptions")
    };
    for (minor, own, set, expected) in [
        (0, kind("container_t"), &[kind("container_init_t"), kind("container_kvm_t"), json!({})][..], String::new()),
        (0, Value::Null, &[json!({"level": "s0"})], String::new()),
        (
            30,
            Value::Null,
            &[kind("container_engine_t")],
            text("container \"a\" set FIELD: type \"container_engine_t\""),
        ),
        (31, Value::Null, &[kind("container_engine_t")], String::new()),
        (37, json!({"user": "u"}), &[Value::Null], text("pod set FIELD: user may not be set")),
        (
            37,
            json!({"type": "y", "role": "r"}),
            &[json!({"type": "x", "user": "u"}), kind("container_t"), kind("x")],
            text(
                "pod and containers \"a\", \"c\" set FIELD: types \"x\", \"y\"; user may not be set; role may not be set",
            ),
        ),
    ] {
        let spec = spec("seLinuxOptions", &own, set);
        assert_eq!(found("seLinuxOptions", minor, &Value::Null, &spec), expected, "{spec}");
    }
}
