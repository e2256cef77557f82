//! Programs that listen on a machine, registered and taken back.

use serde_json::json;
use testbed::net::Protocol::Tcp;
use testbed::net::{Kind, eventually};

use super::machine::{Machine, ips, is_ready};

#[test]
fn a_program_is_an_endpoint_while_it_answers_whoever_restarts_what() {
    let mut machine = Machine::new();
    let (v4, v6) = (machine.node.v4().to_string(), machine.node.v6().to_string());
    machine.node.echo_on(&[Tcp], 3000);
    let said = machine.waypost("register web --port 3000 -l app=web,tier=front --period 1 --service=80").success();
    assert!(said.contains(&format!("pod/web registered on n1: {v4}:3000,[{v6}]:3000\n")), "{said}");
    assert!(said.contains("service/web created: 10.96."), "{said}");
    let pod = machine.pod("web");
    assert!(is_ready(&pod));
    assert_eq!(ips(&pod), [v4.clone(), v6]);
    assert_eq!(pod["metadata"]["annotations"]["waypost.dev/adopted"], "registered");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "Node");
    assert_eq!((&pod["spec"]["nodeName"], &pod["spec"]["hostNetwork"]), (&json!("n1"), &json!(true)));

    let service = machine.api(|session| session.get("/api/v1/namespaces/default/services/web")).success();
    assert_eq!(service["spec"]["ports"][0]["targetPort"], "tcp", "the port is asked for by its name");
    let address = service["spec"]["clusterIP"].as_str().expect("an address").to_owned();
    let outside = machine.outside();
    for client in [&*machine.node, &*outside] {
        eventually("the Service leads to the program", || {
            client.ask(Tcp, &address, 80).is_ok_and(|answer| answer.server.port() == 3000 && answer.name == "n1")
        });
    }

    machine.node.silence(3000);
    machine.until_ready("web", false);
    eventually("nobody is left", || machine.endpoints("web") == [(v4.clone(), false)]);
    eventually("callers are refused", || {
        machine.node.ask(Tcp, &address, 80).is_err_and(|failure| failure.kind == Kind::Refused)
    });
    machine.node.echo_on(&[Tcp], 3000);
    machine.until_ready("web", true);
    eventually("it is back", || machine.node.ask(Tcp, &address, 80).is_ok());

    machine.kill();
    machine.node.silence(3000);
    machine.start();
    machine.until_ready("web", false);
    machine.node.echo_on(&[Tcp], 3000);
    machine.until_ready("web", true);
    eventually("it is back once more", || machine.node.ask(Tcp, &address, 80).is_ok());
}

#[test]
fn s13_a_program_on_loopback_is_no_endpoint_and_is_told_what_to_do() {
    let mut machine = Machine::new();
    let address = machine.service("shy", &json!(3001));
    machine.node.echo_at(Tcp, "127.0.0.1", 3001);
    let run = machine.waypost("register shy --port 3001 --period 1");
    assert!(run.ok && run.err.contains("listens on loopback only") && run.err.contains("0.0.0.0:3001"), "{run:?}");
    let pod = machine.pod("shy");
    assert!(!is_ready(&pod) && !ips(&pod).iter().any(|ip| ip.starts_with("127.") || ip == "::1"), "{pod}");
    eventually("people are told", || machine.words("shy").contains("no other machine can reach"));
    assert!(!machine.endpoints("shy").iter().any(|(_, ready)| *ready));
    assert!(machine.node.ask(Tcp, &address, 80).is_err());

    // On one family alone, it is an endpoint of that family alone.
    let v6 = machine.node.v6().to_string();
    machine.node.echo_at(Tcp, &v6, 3001);
    let pod = machine.until_ready("shy", true);
    assert_eq!(ips(&pod), [v6]);
    let nothing = machine.waypost("register nobody --port 3009").err;
    assert!(nothing.contains("nothing listens on port 3009 yet"), "{nothing}");
}

#[test]
fn health_is_asked_for_as_was_said() {
    let mut machine = Machine::new();
    let folder = testbed::folder();
    let page = folder.path().join("up");
    let line = format!("python3 -m http.server 3002 --bind :: --directory {}", folder.path().display());
    let _server = machine.node.spawn(line.as_str());
    let out = machine.waypost("register page --port 3002 --health http:/up --period 1");
    assert!(out.ok, "{out:?}");
    machine.until_ready("page", false);
    eventually("people are told why", || machine.words("page").contains("statuscode: 404"));
    std::fs::write(&page, "").expect("written");
    let pod = machine.until_ready("page", true);
    assert_eq!(pod["spec"]["containers"][0]["ports"][0]["name"], "http");
    std::fs::remove_file(&page).expect("removed");
    machine.until_ready("page", false);
    let _ = machine.waypost("register any --port 3003 --health none --protocol udp").success();
    machine.until_ready("any", true);
}

#[test]
fn registrations_are_listed_changed_and_taken_back_and_the_program_stays() {
    let mut machine = Machine::new();
    machine.node.echo_on(&[Tcp], 3000);
    assert!(machine.waypost("register --list").success().contains("Nothing is registered"));
    let _ = machine.waypost("register web --port 3000 --service").success();
    let again = machine.waypost("register web --port 3000 --service").success();
    assert!(again.contains("pod/web unchanged") && again.contains("service/web unchanged"), "{again}");
    let uid = machine.pod("web")["metadata"]["uid"].clone();
    let other = machine.waypost("register web --port 3000 -l app=web -l tier=back").success();
    assert!(other.contains("pod/web registered again"), "{other}");
    assert_ne!(machine.pod("web")["metadata"]["uid"], uid);
    let list = machine.waypost("register --list").success();
    let row = list.lines().nth(1).expect("a row");
    for part in ["default", "web", "yes", ":3000", "n1", "registered", "app=web,tier=back"] {
        assert!(row.contains(part), "{list}");
    }

    let logs = machine.kubectl("logs web").failure();
    assert!(logs.contains("a registered program"), "{logs}");
    let spec = json!({"nodeName": "n1", "containers": [{"name": "c", "image": "host", "command": ["sleep", "1000"]}]});
    let plain = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"}, "spec": spec});
    let _ = machine.api(|session| session.post("/api/v1/namespaces/default/pods", &plain)).success();
    for (line, part) in [
        ("register plain --port 3000", "was not registered; choose another name"),
        ("unregister plain", "was not registered; delete it with `kubectl delete pod"),
        ("unregister nobody", "there is no Pod default/nobody"),
        ("register web --port 3000 --health ping", "say tcp, http:/path, https:/path or none"),
        ("register web --port 3000 --node n7", "there is no Node n7; those there are: n1"),
        ("register web --port 3000 -n shop", "there is no namespace shop"),
        ("register Web --port 3000", "cannot be the name of a Pod"),
    ] {
        let said = machine.waypost(line).failure();
        assert!(said.contains(part), "{line}: {said}");
    }

    let gone = machine.waypost("unregister web").success();
    assert!(gone.contains("pod/web unregistered") && gone.contains("service/web deleted"), "{gone}");
    machine.until_gone("web");
    assert!(machine.node.ask(Tcp, machine.node.v4(), 3000).is_ok(), "the program was not touched");
}

#[test]
fn a_registration_goes_with_its_node_and_by_kubectl_too() {
    let mut machine = Machine::new();
    machine.node.echo_on(&[Tcp], 3000);
    let _ = machine.waypost("register one --port 3000").success();
    let _ = machine.waypost("register two --port 3000").success();
    let _ = machine.kubectl("delete pod one").success();
    machine.until_gone("one");
    let _ = machine.kubectl("delete node n1").success();
    machine.until_gone("two");
}
