//! Attacks with one valid credential, each carried out as it was against a release in which it worked.
//!
//! In: a server and the token of a node or of an ordinary account. Out: the refusal, and that nothing changed.

mod bodies;
mod nodes;
mod starvation;

use tempfile::TempDir;
use testbed::session::text;
use testbed::wire::{Reply, Wire, request};
use testbed::{Home, Server};

const JSON: (&str, &str) = ("Content-Type", "application/json");
const APPLY: (&str, &str) = ("Content-Type", "application/apply-patch+yaml");
const MERGE: (&str, &str) = ("Content-Type", "application/merge-patch+json");
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A server with tokens for the nodes `n1` and `n2` and the account `mallory`.
fn server(arguments: &[&str]) -> (Server, TempDir) {
    let folder = testbed::folder();
    let tokens = folder.path().join("tokens.csv");
    let lines = "n1,system:node:n1,,system:nodes\nn2,system:node:n2,,system:nodes\nmallory,mallory,,dev\n";
    std::fs::write(&tokens, lines).expect("a file of tokens");
    let mut all = vec!["--token-auth-file", tokens.to_str().expect("a path")];
    all.extend_from_slice(arguments);
    let home = Home::Own(testbed::folder());
    (Server::start_with(home, &all), folder)
}

/// A request with a token.
fn ask(server: &Server, token: &str, method: &str, path: &str, media: (&str, &str), body: &str) -> Reply {
    let bearer = format!("Bearer {token}");
    Wire::anonymous(server).ask(method, path, &[("Authorization", &bearer), media], body.as_bytes())
}

/// A Pod on a node.
fn pod(name: &str, node: &str) -> String {
    format!(
        r#"{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "{name}"}},
             "spec": {{"nodeName": "{node}", "containers": [{{"name": "c", "image": "i"}}]}}}}"#
    )
}

/// Creates an object as the administrator.
fn make(server: &Server, path: &str, body: &str) {
    let _ = Wire::admin(server).ask("POST", path, &[JSON], body.as_bytes()).success();
}

/// A request of which the server has the headers and half of the body.
struct Half {
    wire: Wire,
    rest: Vec<u8>,
}

impl Half {
    /// Sends half, and returns once the server has started to read the body: it has checked the headers then.
    fn send(server: &Server, token: &str, method: &str, path: &str, media: (&str, &str), body: &str) -> Self {
        let bearer = format!("Bearer {token}");
        let headers = [("Authorization", bearer.as_str()), media, ("Expect", "100-continue")];
        let mut bytes = request(method, path, &headers, body.as_bytes());
        let rest = bytes.split_off(bytes.len() - body.len() / 2);
        let mut wire = Wire::anonymous(server);
        wire.send(&bytes).expect("sent");
        assert_eq!(wire.head().expect("a first answer").code, 100);
        Self { wire, rest }
    }

    fn finish(mut self) -> Reply {
        self.wire.send(&self.rest).expect("sent");
        let mut reply = self.wire.head().expect("an answer");
        reply.body = self.wire.body(&reply).expect("all of it");
        reply
    }
}

/// The node of a Pod, its address and its phase, as the administrator sees them.
fn stored(server: &Server, name: &str) -> (String, String, String) {
    let pod = Wire::admin(server).ask("GET", &format!("{PODS}/{name}"), &[], b"").success();
    let at =
        |path: &str| pod.pointer(path).map(|value| value.as_str().unwrap_or_default().to_owned()).unwrap_or_default();
    assert_eq!(text(&pod, "/metadata/name"), name);
    (at("/spec/nodeName"), at("/status/podIP"), at("/status/phase"))
}
