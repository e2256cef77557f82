//! Attacks with a join token, a node's certificate, and a person who approves without reading; all of them over TLS, as an attacker would.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rest::pki::{self, OwnKey, ServingNames};
use serde_json::json;
use testbed::net::eventually;

use super::*;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING: &str = "kubernetes.io/kubelet-serving";
const PEOPLE: &str = "kubernetes.io/kube-apiserver-client";

/// A key, and a request for a certificate of it.
struct Wish {
    key: OwnKey,
    object: Value,
}

/// A request for a certificate of a subject, with names.
fn wish(name: &str, signer: &str, subject: (&str, &str), dns: &[&str], ips: &[IpAddr]) -> Wish {
    let key = OwnKey::generate().expect("a key");
    let dns: Vec<String> = dns.iter().map(|name| (*name).to_owned()).collect();
    let request = key.request(subject.1, subject.0, &dns, ips).expect("a request");
    let usage = if signer == SERVING { "server auth" } else { "client auth" };
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"request": STANDARD.encode(request), "signerName": signer, "usages": ["digital signature", usage]},
    });
    Wish { key, object }
}

impl Stage {
    /// The API for a user with these credentials, from the machine of the server.
    fn attacker(&self, user: &Value) -> Session {
        let ca = STANDARD.encode(std::fs::read(self.home.path().join("pki/ca.crt")).expect("the cluster's CA"));
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("https://{}", self.server()), "certificate-authority-data": ca}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), config.to_string()).expect("a kubeconfig");
        session(&self.api, file.path())
    }

    /// Sends a request as an attacker, and waits until the server gives the reason why it does not approve it. Returns that reason.
    #[track_caller]
    fn not_approved(&mut self, attacker: &mut Session, wish: &Wish) -> String {
        let name = wish.object["metadata"]["name"].as_str().expect("a name");
        let _ = self.api.in_namespace(|| attacker.post(REQUESTS, &wish.object)).success();
        let event = self.api(|session| {
            let query = format!("&fieldSelector=involvedObject.name={name},reason=ApprovalRequired");
            session.watch("/api/v1/namespaces/default/events", &query).until(|kind, _| kind == "ADDED")
        });
        let object = self.get(&format!("{REQUESTS}/{name}"));
        assert!(object["status"]["conditions"].is_null() && object["status"]["certificate"].is_null(), "{object}");
        event["message"].as_str().expect("a message").to_owned()
    }

    /// A person approves without reading; the answer is why it was not signed.
    #[track_caller]
    fn not_signed(&mut self, name: &str) -> String {
        let _ = self.kubectl(&["certificate", "approve", name], "").success();
        let done = self
            .until(REQUESTS, name, |object| is_true(object, "Failed") || object["status"]["certificate"].is_string());
        assert!(done["status"]["certificate"].is_null(), "{name} was signed");
        let conditions = done["status"]["conditions"].as_array().expect("conditions");
        let failed = conditions.iter().find(|condition| condition["type"] == "Failed").expect("a failure");
        assert_eq!(failed["reason"], "SignerValidationFailure", "{failed}");
        failed["message"].as_str().expect("a message").to_owned()
    }

    /// Waits for the certificate of a request.
    #[track_caller]
    fn signed(&mut self, name: &str) -> String {
        let done = self.until(REQUESTS, name, |object| object["status"]["certificate"].is_string());
        let pem = STANDARD.decode(done["status"]["certificate"].as_str().expect("a certificate")).expect("base64");
        String::from_utf8(pem).expect("PEM")
    }

    /// An attacker who has become a node.
    #[track_caller]
    fn as_node(&mut self, bootstrapper: &mut Session, node: &str) -> Session {
        let user = format!("system:node:{node}");
        let wish = wish(&format!("join-{node}"), CLIENT, ("system:nodes", &user), &[], &[]);
        let _ = self.api.in_namespace(|| bootstrapper.post(REQUESTS, &wish.object)).success();
        let identity = wish.key.certified(&self.signed(&format!("join-{node}"))).expect("its certificate");
        self.attacker(&json!({
            "client-certificate-data": STANDARD.encode(identity.certificate_pem),
            "client-key-data": STANDARD.encode(identity.key_pem),
        }))
    }
}

/// The Node of an attacker, who sets its address.
fn node_at(addresses: &[(&str, &str)]) -> (Value, Value) {
    let addresses: Vec<Value> =
        addresses.iter().map(|(kind, address)| json!({"type": kind, "address": address})).collect();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    (node, json!({"status": {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}}))
}

#[test]
fn a_joiner_does_not_become_the_server_or_an_administrator() {
    let mut stage = Stage::start(&["--tls-san", "api.example.com"]);
    let token = stage.token();
    let mut attacker = stage.attacker(&json!({"token": token}));

    // A machine that calls itself like the server.
    let as_server = wish("join", CLIENT, ("system:nodes", "system:node:kubernetes.default.svc"), &[], &[]);
    let said = stage.not_approved(&mut attacker, &as_server);
    assert!(
        said.contains("a name of the API server") && said.contains("CN=system:node:kubernetes.default.svc"),
        "{said}"
    );
    let said = stage.not_signed("join");
    assert!(said.contains("a name of the API server"), "{said}");

    // An administrator, by way of the signer for nodes; and by the other one.
    let master = wish("master", CLIENT, ("system:masters", "system:node:n1"), &[], &[]);
    let said = stage.not_approved(&mut attacker, &master);
    assert!(said.contains("O=system:masters"), "whoever decides sees the subject: {said}");
    assert_eq!(stage.not_signed("master"), "subject organization is not system:nodes");
    let described = stage.kubectl(&["describe", "csr", "master"], "").success();
    assert!(described.contains("system:masters") && described.contains("ApprovalRequired"), "{described}");
    let described = stage.waypost("describe csr master").success();
    assert!(described.contains("O=system:masters, CN=system:node:n1"), "{described}");
    for (name, group, user) in [
        ("agents", "waypost:api-servers", "kube-apiserver-kubelet-client"),
        ("bootstrap", "system:bootstrappers", "mallory"),
        ("manager", "dev", "system:kube-controller-manager"),
    ] {
        let _ = stage.not_approved(&mut attacker, &wish(name, PEOPLE, (group, user), &[], &[]));
        let said = stage.not_signed(name);
        assert!(said.contains("of the cluster itself"), "{said}");
    }
    let refused = wish("root", PEOPLE, ("system:masters", "mallory"), &[], &[]);
    let said = stage.api.in_namespace(|| attacker.post(REQUESTS, &refused.object)).refused(403);
    assert!(
        said.contains("use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"),
        "{said}"
    );

    // A real node that would serve as the server: it writes the addresses of its Node itself.
    let mut node = stage.as_node(&mut attacker, "n1");
    let server = IpAddr::from(stage.api.v4());
    let text = server.to_string();
    let (object, status) = node_at(&[("InternalIP", &text), ("Hostname", "n1"), ("InternalDNS", "api.example.com")]);
    stage.api.in_namespace(|| {
        let _ = node.post("/api/v1/nodes", &object).success();
        let _ = node.merge("/api/v1/nodes/n1/status", &status).success();
    });
    let subject = ("system:nodes", "system:node:n1");
    for (name, dns, ips) in [
        ("serve-ip", &["n1"][..], &[server][..]),
        ("serve-san", &["api.example.com"], &[]),
        ("serve-name", &["kubernetes.default.svc"], &[]),
        ("serve-domain", &["n1.cluster.local"], &[]),
        ("serve-cluster-ip", &[], &["10.96.0.1".parse().expect("an address")]),
    ] {
        let _ = stage.not_approved(&mut node, &wish(name, SERVING, subject, dns, ips));
        let said = stage.not_signed(name);
        assert!(said.contains("no agent serves under it"), "{name}: {said}");
    }
}

#[test]
fn certificates_of_agents_are_of_a_ca_that_clients_do_not_trust() {
    let mut stage = Stage::start(&[]);
    let token = stage.token();
    let mut attacker = stage.attacker(&json!({"token": token}));
    let place = stage.machine("n1");
    let mut node = stage.as_node(&mut attacker, "n1");
    let own = IpAddr::from(stage.nodes[place].node.v4());
    let text = own.to_string();
    let (object, status) = node_at(&[("InternalIP", &text), ("Hostname", "n1")]);
    let serving = wish("serve", SERVING, ("system:nodes", "system:node:n1"), &["n1"], &[own]);
    stage.api.in_namespace(|| {
        let _ = node.post("/api/v1/nodes", &object).success();
        let _ = node.merge("/api/v1/nodes/n1/status", &status).success();
        let _ = node.post(REQUESTS, &serving.object).success();
    });
    let identity = serving.key.certified(&stage.signed("serve")).expect("its certificate");
    let files = testbed::folder();
    let serve = |stage: &Stage, identity: &pki::Identity, port: &str| {
        std::fs::write(files.path().join("crt"), &identity.certificate_pem).expect("a file");
        std::fs::write(files.path().join("key"), &identity.key_pem).expect("a file");
        let mut command = Command::new("openssl");
        command.args(["s_server", "-www", "-accept", port, "-cert"]).arg(files.path().join("crt"));
        let process = stage.nodes[place].node.spawn({
            command.arg("-key").arg(files.path().join("key"));
            command
        });
        process.wait_for_line("ACCEPT", TIMEOUT);
        process
    };
    let _agent = serve(&stage, &identity, "7443");
    let pki_file = |name: &str| stage.home.path().join("pki").join(name);
    let fetched = |ca: &str| {
        let mut command = Command::new("curl");
        command.args([
            "--silent",
            "--show-error",
            "--max-time",
            "10",
            "--resolve",
            &format!("n1:7443:{own}"),
            "--cacert",
        ]);
        command.arg(pki_file(ca)).arg("https://n1:7443/");
        stage.api.run(command)
    };
    assert!(fetched("agent-ca.crt").ok, "it is a good certificate for whoever trusts its CA");
    let refused = fetched("ca.crt").failure();
    assert!(refused.contains("certificate"), "clients of the API do not: {refused}");

    // What clients are given holds the cluster's CA and nothing else.
    let ca = std::fs::read_to_string(pki_file("ca.crt")).expect("the cluster's CA");
    let info = stage.get("/api/v1/namespaces/kube-public/configmaps/cluster-info");
    let admin = std::fs::read_to_string(stage.home.path().join("kubeconfig")).expect("a kubeconfig");
    for config in [info["data"]["kubeconfig"].as_str().expect("a kubeconfig"), &admin] {
        let data: Vec<&str> =
            config.lines().filter_map(|line| line.trim().strip_prefix("certificate-authority-data:")).collect();
        assert_eq!(data.len(), 1, "{config}");
        let data = STANDARD.decode(data[0].trim().trim_matches('"')).expect("base64");
        assert_eq!(String::from_utf8(data).expect("PEM"), ca);
    }

    // An agent with a certificate of the cluster's CA, as all had before: the server does not connect to it, and returns the fix.
    let _ = stage.post("/api/v1/namespaces/default/pods", &pod("p", "n1", json!({"name": "c", "image": "i"})));
    let old = of_cluster_ca(&stage, &[own]);
    let _agent = serve(&stage, &old, "10250");
    let log = stage.api(|session| session.get("/api/v1/namespaces/default/pods/p/log"));
    assert_eq!(log.code, 500, "{}", log.body);
    let said = log.body["message"].as_str().unwrap_or_default();
    assert!(said.contains("not of this cluster's agent CA") && said.contains("node/serving.crt"), "{said}");
}

/// A serving certificate as the previous version signed it.
fn of_cluster_ca(stage: &Stage, ips: &[IpAddr]) -> pki::Identity {
    let key = OwnKey::generate().expect("a key");
    let request = key.request("system:node:n1", "system:nodes", &["n1".to_owned()], ips).expect("a request");
    let request =
        api::kinds::certificatesigningrequest::request::Request::parse(request.as_bytes()).expect("a request");
    let pki = pki::load_or_create(&stage.home.path().join("pki"), &ServingNames::default(), Timestamp::now());
    let usages = ["digital signature", "server auth"];
    let pem = pki.expect("the server's identity").signing().sign(
        &request,
        &usages,
        Duration::from_secs(86_400),
        Timestamp::now(),
    );
    key.certified(&pem.expect("a certificate")).expect("its certificate")
}

#[test]
fn a_node_that_lives_is_not_taken_over_and_renews_what_an_older_server_signed() {
    let mut stage = Stage::start(&[]);
    let place = stage.machine("n1");
    let token = stage.token();
    stage.join(place, &["--token", &token]);
    stage.until("/api/v1/nodes", "n1", |node| is_true(node, "Ready"));
    let mut attacker = stage.attacker(&json!({"token": token}));
    let said = stage.not_approved(&mut attacker, &wish("twin", CLIENT, ("system:nodes", "system:node:n1"), &[], &[]));
    assert!(said.contains("Node n1 exists") && said.contains("a token cannot take over a running node"), "{said}");
    // A person may still decide so: the machine was replaced.
    let _ = stage.kubectl(&["certificate", "approve", "twin"], "").success();
    let _ = stage.signed("twin");

    let echo = json!({"name": "c", "image": "host", "command": ["sleep", "600"]});
    let _ = stage.post("/api/v1/namespaces/default/pods", &pod("p", "n1", echo));
    stage.until("/api/v1/namespaces/default/pods", "p", |pod| is_true(pod, "Ready"));
    let inside = |stage: &Stage| stage.kubectl(&["exec", "p", "--", "echo", "inside"], "");
    eventually("the agent has its certificate", || inside(&stage).ok);

    // A machine of the previous version: what it has kept is of the cluster's CA. It is good for long, and yet replaced at the next start.
    stage.nodes[place].process.take().expect("it runs").kill();
    let machine = &stage.nodes[place];
    let home = machine.home.path().join("node");
    let old = of_cluster_ca(&stage, &[machine.node.v4().into(), machine.node.v6().into()]);
    std::fs::write(home.join("serving.key"), &old.key_pem).expect("a key");
    std::fs::write(home.join("serving.crt"), &old.certificate_pem).expect("a certificate");
    stage.join(place, &[]);
    eventually("the agent has a certificate of the agent CA", || inside(&stage).ok);
    let now = std::fs::read_to_string(home.join("serving.crt")).expect("a certificate");
    let read = |name: &str| std::fs::read_to_string(stage.home.path().join("pki").join(name)).expect("a CA");
    assert!(pki::signed_by(&now, &read("agent-ca.crt")) && !pki::signed_by(&now, &read("ca.crt")));
}
