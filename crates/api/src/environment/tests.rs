use std::process::Command;

use super::*;

fn variable(name: &str, value: &str) -> Variable {
    Variable { name: name.into(), value: value.into(), service: "ns/svc".into() }
}

/// Values that break careless quoting.
const HOSTILE: [&str; 11] = [
    "",
    "10.96.0.1",
    "tcp://[fd00::1]:80",
    "it's",
    "a b",
    "$HOME `id` $(id) ${X}",
    "two\nlines",
    "\"double\" \\back\\slash\\n",
    "tab\tand\rreturn",
    "# not a remark",
    "'; rm -rf / #",
];

fn hostile() -> Vec<Variable> {
    HOSTILE.iter().enumerate().map(|(index, value)| variable(&format!("V{index}"), value)).collect()
}

#[test]
fn s33_recorded_cases_come_out_as_recorded() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/env/cases.json");
    let text = std::fs::read_to_string(path).expect("the recorded cases");
    let file: Value = serde_json::from_str(&text).expect("JSON");
    let cases = file["cases"].as_array().expect("cases");
    assert!(cases.len() >= 45, "only {} cases", cases.len());
    for case in cases {
        let services: Vec<Service> = case["services"].as_array().expect("services").iter().map(Service::read).collect();
        let namespace = case["namespace"].as_str().expect("a namespace");
        let got = environment(&services, namespace, case["enableServiceLinks"].as_bool());
        let id = &case["id"];
        match (case.get("error"), got) {
            (Some(_), got) => assert_eq!(got, Err(LinksUnset), "{id}"),
            (None, Err(error)) => panic!("{id}: {error}"),
            (None, Ok(got)) => {
                let got: Value = got.variables.iter().map(|v| vec![v.name.clone(), v.value.clone()]).collect();
                assert_eq!(got, case["expect"], "{id} {}", case["title"]);
            }
        }
    }
}

#[test]
fn a_clash_is_said_and_the_order_of_the_input_does_not_matter() {
    let service = |name: &str, address: &str| Service {
        namespace: "ns".into(),
        name: name.into(),
        cluster_ip: address.into(),
        ports: vec![Port { port: 80, ..Port::default() }],
    };
    let both = [service("foo", "10.0.0.1"), service("foo-service", "10.0.0.2")];
    let one = environment(&both, "ns", Some(true)).expect("set");
    let other = environment(both.iter().rev(), "ns", Some(true)).expect("set");
    assert_eq!(one, other);
    assert_eq!(
        one.clashes,
        [Clash {
            name: "FOO_SERVICE_PORT".into(),
            kept: "ns/foo".into(),
            lost: Variable {
                name: "FOO_SERVICE_PORT".into(),
                value: "tcp://10.0.0.2:80".into(),
                service: "ns/foo-service".into(),
            },
        }]
    );
}

#[test]
#[allow(clippy::disallowed_methods, reason = "whether a shell reads it back, only a shell can say")]
fn a_shell_gives_every_value_back() {
    let mut script = to_shell(&hostile());
    for index in 0..HOSTILE.len() {
        script.push_str(&format!("printf '%s\\0' \"$V{index}\"\n"));
    }
    let out = Command::new("sh").arg("-c").arg(&script).output().expect("a shell");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let got: Vec<&str> = std::str::from_utf8(&out.stdout).expect("text").split_terminator('\0').collect();
    assert_eq!(got, HOSTILE);
}

#[test]
fn a_name_that_is_none_does_not_become_a_command() {
    for name in ["1WEB_PORT", "A;id", "A\nid", ""] {
        let shell = to_shell(&[variable(name, "x")]);
        assert!(shell.starts_with('#') && shell.lines().count() == 1, "{shell:?}");
    }
    assert_eq!(to_dotenv(&[variable("1WEB_PORT", "x")]), "1WEB_PORT=x\n");
    assert!(to_dotenv(&[variable("A\nB", "x")]).starts_with("# "));
}

#[test]
fn json_keeps_order_and_values() {
    let text = to_json(&hostile());
    let parsed: Value = serde_json::from_str(&text).expect("JSON");
    for (index, value) in HOSTILE.iter().enumerate() {
        assert_eq!(parsed[format!("V{index}")], *value);
    }
    assert!(text.find("V2\"") < text.find("V10\""), "{text}");
    assert_eq!(to_json(&[]), "{}\n");
}

#[test]
fn dotenv_quotes_only_what_needs_it() {
    let lines = to_dotenv(&hostile());
    assert_eq!(
        lines.lines().collect::<Vec<_>>(),
        [
            "V0=''",
            "V1=10.96.0.1",
            "V2=tcp://[fd00::1]:80",
            "V3=\"it's\"",
            "V4='a b'",
            "V5='$HOME `id` $(id) ${X}'",
            "V6=\"two\\nlines\"",
            "V7='\"double\" \\back\\slash\\n'",
            "V8=\"tab\tand\\rreturn\"",
            "V9='# not a remark'",
            "V10=\"'; rm -rf / #\"",
        ]
    );
}
