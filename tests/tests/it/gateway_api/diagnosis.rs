//! What the commands say of routes that do not work: `explain`, `trace` and `doctor` name the same cause.

use std::process::Command;

use serde_json::{Value, json};
use testbed::{binary, run};

use super::desk::{Desk, ROUTES, gateway, route};

/// Runs our program with the administrator's kubeconfig; its JSON, whatever its exit code is.
#[track_caller]
fn waypost(desk: &Desk, words: &str) -> Value {
    let mut command = Command::new(binary());
    command.args(words.split_whitespace()).env("KUBECONFIG", desk.server.kubeconfig());
    let run = run(&mut command, "");
    serde_json::from_str(&run.out).unwrap_or_else(|error| panic!("{words}: {error}\n{}\n{}", run.out, run.err))
}

#[test]
fn s52_a_route_that_does_not_work_says_why() {
    let home = testbed::folder();
    let mut desk = Desk::new(&home);
    let _ = desk.session.create("web", json!({"ports": [{"port": 8080}]}));
    desk.apply(&gateway("public"));
    desk.gateway("public", "Programmed=True/Programmed");
    let _ = desk.session.post(ROUTES, &route("shop", "wbe", 8080)).success();
    desk.route("shop", "ResolvedRefs=False/BackendNotFound");

    let explained = waypost(&desk, "explain route/shop -o json");
    let route = &explained["objects"][0];
    assert_eq!((&route["kind"], &route["state"]), (&json!("HTTPRoute"), &json!("not working")), "{explained}");
    let finding = &route["findings"][0];
    assert_eq!(finding["code"], "BackendMissing", "{explained}");
    assert!(finding["message"].as_str().is_some_and(|text| text.ends_with("did you mean web?")), "{explained}");

    let traced = waypost(&desk, "trace http://192.0.2.0/cart -H Host:shop.test -o json");
    let candidate = &traced["candidates"][0];
    assert_eq!(candidate["gateway"]["key"], "default/public", "{traced}");
    assert_eq!(
        (&candidate["listeners"][0]["chosen"], &candidate["answer"]["status"]),
        (&json!(true), &json!(500)),
        "{traced}"
    );
    assert_eq!(candidate["rules"][0]["taken"], true, "{traced}");

    let examined = waypost(&desk, "doctor -o json");
    let routes = examined["routes"].as_array().expect("a list");
    let shop = routes.iter().find(|one| one["name"] == "shop").expect("the route");
    assert_eq!(shop["findings"][0]["code"], "BackendMissing", "{examined}");
    assert!(routes.iter().all(|one| one["kind"] != "Gateway"), "{examined}");
}
