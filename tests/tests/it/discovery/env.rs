//! `waypost env`: the variables, in three formats, and the errors when there are none.

use std::process::Command;

use serde_json::{Value, json};
use testbed::{Server, binary, run};

use super::{ask, make_namespace, make_pod, make_service};

fn ports(port: u16) -> Value {
    json!({"ports": [{"port": port}]})
}

#[test]
fn s33_the_variables_of_a_namespace_are_those_that_docker_links_had() {
    let server = Server::start();
    let mut api = server.session();
    let spec = json!({"clusterIP": "10.96.0.77", "ports": [
        {"name": "http", "port": 80}, {"name": "dns-u", "port": 53, "protocol": "UDP"}]});
    api.create("redis-primary", spec);
    api.create("none", json!({"clusterIP": "None", "ports": [{"port": 80}]}));
    api.create("out", json!({"type": "ExternalName", "externalName": "example.com"}));
    let out = ask(&server, "env").success();
    let own: Vec<&str> = out.lines().filter(|line| !line.contains("KUBERNETES_")).collect();
    let wanted = [
        "export REDIS_PRIMARY_SERVICE_HOST='10.96.0.77'",
        "export REDIS_PRIMARY_SERVICE_PORT='80'",
        "export REDIS_PRIMARY_SERVICE_PORT_HTTP='80'",
        "export REDIS_PRIMARY_SERVICE_PORT_DNS_U='53'",
        "export REDIS_PRIMARY_PORT='tcp://10.96.0.77:80'",
        "export REDIS_PRIMARY_PORT_80_TCP='tcp://10.96.0.77:80'",
        "export REDIS_PRIMARY_PORT_80_TCP_PROTO='tcp'",
        "export REDIS_PRIMARY_PORT_80_TCP_PORT='80'",
        "export REDIS_PRIMARY_PORT_80_TCP_ADDR='10.96.0.77'",
        "export REDIS_PRIMARY_PORT_53_UDP='udp://10.96.0.77:53'",
        "export REDIS_PRIMARY_PORT_53_UDP_PROTO='udp'",
        "export REDIS_PRIMARY_PORT_53_UDP_PORT='53'",
        "export REDIS_PRIMARY_PORT_53_UDP_ADDR='10.96.0.77'",
    ];
    assert_eq!(own, wanted);
    let program = format!("{out}echo $KUBERNETES_SERVICE_HOST $REDIS_PRIMARY_PORT");
    let said = run(Command::new("sh").arg("-c").arg(program), "").success();
    assert_eq!(said, "10.96.0.1 tcp://10.96.0.77:80\n");
    let said: Value = serde_json::from_str(&ask(&server, "env -o json").success()).expect("JSON");
    assert_eq!((&said["KUBERNETES_SERVICE_PORT_HTTPS"], &said["NONE_PORT"]), (&json!("443"), &Value::Null));
    let said = ask(&server, "env -o dotenv").success();
    assert!(said.contains("\nREDIS_PRIMARY_PORT_53_UDP=udp://10.96.0.77:53\n"), "{said}");
}

#[test]
fn s33_other_namespaces_and_pods_without_links_know_only_the_api() {
    let server = Server::start();
    let mut api = server.session();
    make_namespace(&mut api, "shop");
    make_service(&mut api, "shop", "cart", ports(80));
    api.create("web", ports(80));
    let of = |arguments: &str| {
        let said: Value = serde_json::from_str(&ask(&server, arguments).success()).expect("JSON");
        let hosts = said.as_object().expect("variables").keys().filter(|name| name.ends_with("_SERVICE_HOST"));
        hosts.cloned().collect::<Vec<_>>()
    };
    assert_eq!(of("env -o json -n shop"), ["CART_SERVICE_HOST", "KUBERNETES_SERVICE_HOST"]);
    make_pod(&mut api, "linked", json!({}));
    make_pod(&mut api, "alone", json!({"enableServiceLinks": false}));
    assert_eq!(of("env -o json --pod linked"), ["KUBERNETES_SERVICE_HOST", "WEB_SERVICE_HOST"]);
    assert_eq!(of("env -o json --pod alone"), ["KUBERNETES_SERVICE_HOST"]);
}

#[test]
fn s33_a_name_that_two_services_want_is_told_with_both() {
    let server = Server::start();
    let mut api = server.session();
    api.create("foo", ports(80));
    api.create("foo-service", json!({"clusterIP": "10.96.0.78", "ports": [{"port": 81}]}));
    let said = ask(&server, "env -o dotenv");
    assert!(said.ok && said.out.contains("\nFOO_SERVICE_PORT=80\n"), "{said:?}");
    assert_eq!(said.err.lines().count(), 1, "{said:?}");
    for wanted in ["FOO_SERVICE_PORT is wanted", "default/foo keeps it", "default/foo-service", "tcp://10.96.0.78:81"] {
        assert!(said.err.contains(wanted), "{wanted} is missing: {said:?}");
    }
}

#[test]
fn s33_what_is_not_there_is_named_with_the_next_step() {
    let mut server = Server::start();
    let complaint = |arguments: &str| {
        let said = ask(&server, arguments);
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
        said.err
    };
    let said = complaint("env -n nowhere");
    assert!(said.contains("there is no namespace nowhere") && said.contains("kubectl get namespaces"), "{said}");
    let said = complaint("env --pod ghost");
    assert!(said.contains("there is no Pod default/ghost") && said.contains("kubectl get pods -n default"), "{said}");
    let said = complaint("env -n ../../pods");
    assert!(said.contains("cannot be the name of a namespace"), "{said}");
    let said = complaint("env --kubeconfig /nowhere/at/all");
    assert!(said.contains("/nowhere/at/all") && said.contains("--kubeconfig"), "{said}");
    server.kill();
    let said = ask(&server, "env");
    assert!(said.code == Some(1) && said.err.contains("is the server of the kubeconfig running?"), "{said:?}");
}

#[test]
fn s33_the_kubeconfig_of_the_data_directory_is_found() {
    let server = Server::start();
    let mut command = Command::new(binary());
    command.arg("env").env("WAYPOST_DATA_DIR", server.home()).env("KUBECONFIG", "");
    assert!(run(&mut command, "").success().contains("KUBERNETES_SERVICE_HOST"));
}
