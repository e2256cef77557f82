//! `waypost dig`: the search path, the records, the objects behind them, and a server with different answers.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use serde_json::{Value, json};
use testbed::Server;
use testbed::session::{Session, text};

use super::{ask, make_namespace, make_pod, make_service};

/// The output of the command, as JSON, and its exit code.
fn dig(server: &Server, arguments: &str) -> (Option<i32>, Value) {
    let said = ask(server, &format!("dig -o json {arguments}"));
    let value = serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"));
    (said.code, value)
}

/// `name type code` of each step.
fn steps(said: &Value) -> Vec<String> {
    let steps = said["steps"].as_array().expect("steps").iter();
    steps.map(|step| format!("{} {} {}", text(step, "/name"), text(step, "/type"), text(step, "/rcode"))).collect()
}

/// `type data <- kind name field` of each record of the last name.
fn records(said: &Value) -> Vec<String> {
    let answers = said["steps"].as_array().expect("steps").iter().flat_map(|step| step["answer"].as_array());
    let line = |record: &Value| {
        let from = |key: &str| text(record, &format!("/from/0/{key}")).to_owned();
        let origin = [from("kind"), from("name"), from("field")].join(" ");
        format!("{} {} <- {origin}", text(record, "/type"), text(record, "/data"))
    };
    answers.flatten().map(line).collect()
}

/// A slice of a Service in `default`: an endpoint that is ready and one that is not.
fn make_slice(api: &mut Session, service: &str, name: &str) {
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
        "endpoints": [{"addresses": ["10.1.0.1"], "hostname": "db-0"},
                      {"addresses": ["10.1.0.2"], "conditions": {"ready": false}}],
        "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}]});
    let _ = api.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice).success();
}

#[test]
fn s34_names_are_found_along_the_search_path_with_the_objects_behind_them() {
    let server = Server::start();
    let mut api = server.session();
    make_namespace(&mut api, "shop");
    let spec = json!({"clusterIP": "10.96.0.50", "clusterIPs": ["10.96.0.50", "fd00:10:96::50"],
                      "ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}]});
    make_service(&mut api, "shop", "web", spec);
    let both =
        ["A 10.96.0.50 <- Service shop/web spec.clusterIPs", "AAAA fd00:10:96::50 <- Service shop/web spec.clusterIPs"];
    let (code, said) = dig(&server, "web -n shop");
    assert_eq!((code, records(&said)), (Some(0), both.map(str::to_owned).to_vec()));
    let name = "web.shop.svc.cluster.local.";
    assert_eq!(steps(&said), [format!("{name} A NOERROR"), format!("{name} AAAA NOERROR")]);
    let (code, said) = dig(&server, "web.shop A");
    assert_eq!((code, records(&said)), (Some(0), vec![both[0].to_owned()]));
    assert_eq!(
        steps(&said),
        ["web.shop.default.svc.cluster.local. A NXDOMAIN".to_owned(), format!("{name} A NOERROR")]
    );
    let (code, said) = dig(&server, "10.96.0.50");
    assert_eq!(code, Some(0));
    assert_eq!(records(&said), ["PTR web.shop.svc.cluster.local. <- Service shop/web spec.clusterIPs"]);
    let said = ask(&server, "dig web.shop a").success();
    for wanted in [
        "; as a Pod of namespace default asks: search default.svc.cluster.local svc.cluster.local cluster.local, ndots 5",
        "1. web.shop.default.svc.cluster.local. A NXDOMAIN",
        "   web.shop.svc.cluster.local.  30  IN  A  10.96.0.50  ; Service shop/web (spec.clusterIPs)",
    ] {
        assert!(said.lines().any(|line| line == wanted), "{wanted} is missing:\n{said}");
    }
}

#[test]
fn s34_a_name_without_an_answer_is_explained() {
    let server = Server::start();
    let said = ask(&server, "dig nope A");
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("; there is no Service default/nope"), "{said:?}");
    assert!(said.out.contains("4. nope. A not ours"), "{said:?}");
    assert!(said.err.contains("no record was found for nope"), "{said:?}");
    let said = ask(&server, "dig web.nowhere.svc.cluster.local. A");
    assert!(said.code == Some(1) && said.out.contains("; namespace nowhere does not exist"), "{said:?}");
    assert_eq!(ask(&server, "dig kubernetes.default.svc.cluster.local").code, Some(0));
    let said = ask(&server, "dig kubernetes --cluster-domain other.example A").success();
    assert!(said.contains("kubernetes.default.svc.other.example."), "{said}");
    let said = ask(&server, "dig x -n nowhere");
    assert!(said.code == Some(1) && said.err.contains("there is no namespace nowhere"), "{said:?}");
    let said = ask(&server, "dig x NONSENSE");
    assert!(said.code == Some(2) && said.err.contains("NONSENSE"), "{said:?}");
}

#[test]
fn s34_a_pod_searches_as_its_settings_say() {
    let server = Server::start();
    let mut api = server.session();
    let config = json!({"searches": ["kube-system.svc.cluster.local"], "options": [{"name": "ndots", "value": "1"}]});
    make_pod(&mut api, "own", json!({"dnsConfig": config}));
    make_service(&mut api, "kube-system", "hidden", json!({"clusterIP": "10.96.0.60", "ports": [{"port": 80}]}));
    let (code, said) = dig(&server, "hidden A --pod own");
    assert_eq!(code, Some(0));
    assert_eq!(said["search"]["ndots"], 1);
    assert_eq!(steps(&said).last().map(String::as_str), Some("hidden.kube-system.svc.cluster.local. A NOERROR"));
    assert_eq!(dig(&server, "hidden A").0, Some(1));
    make_pod(&mut api, "host", json!({"dnsPolicy": "Default"}));
    let said = ask(&server, "dig kubernetes --pod host");
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("Pod default/host does not ask the cluster's DNS (dnsPolicy Default)"), "{said:?}");
}

#[test]
fn s35_ports_are_found_with_their_service() {
    let server = Server::start();
    let mut api = server.session();
    api.create("web", json!({"ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}]}));
    let (code, said) = dig(&server, "_http._tcp.web SRV");
    assert_eq!(code, Some(0));
    assert_eq!(records(&said), ["SRV 0 100 80 web.default.svc.cluster.local. <- Service default/web spec.ports"]);
    let said = ask(&server, "dig _ftp._tcp.web SRV");
    assert!(said.code == Some(1) && said.out.contains("has no port named ftp of protocol tcp"), "{said:?}");
}

#[test]
fn s36_an_alias_says_where_it_leads() {
    let server = Server::start();
    let mut api = server.session();
    api.create("out", json!({"type": "ExternalName", "externalName": "db.example.com"}));
    api.create("like", json!({"type": "ExternalName", "externalName": "192.0.2.7"}));
    let (code, said) = dig(&server, "out A");
    assert_eq!(code, Some(0));
    assert_eq!(records(&said), ["CNAME db.example.com. <- Service default/out spec.externalName"]);
    assert_eq!(said["steps"][0]["beyond"], "db.example.com.");
    let said = ask(&server, "dig like A");
    assert!(said.code == Some(1) && said.out.contains("is an IP address, not a name"), "{said:?}");
}

#[test]
fn s37_endpoints_of_headless_services_come_from_their_slices() {
    let server = Server::start();
    let mut api = server.session();
    api.create("db", json!({"clusterIP": "None", "ports": [{"name": "sql", "port": 5432}]}));
    let said = ask(&server, "dig db A");
    assert!(said.code == Some(1) && said.out.contains("is headless and has no ready endpoint"), "{said:?}");
    make_slice(&mut api, "db", "db-made");
    let wanted = ["A 10.1.0.1 <- EndpointSlice default/db-made endpoints"];
    for name in ["db", "db-0.db"] {
        let (code, said) = dig(&server, &format!("{name} A"));
        assert_eq!((code, records(&said)), (Some(0), wanted.map(str::to_owned).to_vec()));
    }
}

/// A server that returns one address for every name, and the full response only over TCP.
struct Stubborn {
    socket: UdpSocket,
    address: SocketAddr,
}

impl Stubborn {
    fn start(says: Ipv4Addr) -> Self {
        let (socket, listener) = loop {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            // The same number may be taken for connections.
            if let Ok(listener) = TcpListener::bind(socket.local_addr().expect("an address")) {
                break (socket, listener);
            }
        };
        let address = socket.local_addr().expect("an address");
        let own = socket.try_clone().expect("a socket");
        std::thread::spawn(move || cut(&own));
        std::thread::spawn(move || tell(&listener, says));
        Self { socket, address }
    }
}

impl Drop for Stubborn {
    fn drop(&mut self) {
        // Nothing at all ends it.
        let _ = self.socket.send_to(&[], self.address);
        let _ = TcpStream::connect(self.address);
    }
}

fn cut(socket: &UdpSocket) {
    let mut buffer = [0; 512];
    loop {
        let (length, client) = socket.recv_from(&mut buffer).expect("a question");
        if length == 0 {
            return;
        }
        socket.send_to(&reply(&buffer[..length], None), client).expect("sent");
    }
}

fn tell(listener: &TcpListener, says: Ipv4Addr) {
    loop {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut length = [0; 2];
        if stream.read_exact(&mut length).is_err() {
            return;
        }
        let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut question).expect("a question");
        let reply = reply(&question, Some(says));
        let length = u16::try_from(reply.len()).expect("a short reply").to_be_bytes();
        stream.write_all(&[&length[..], &reply].concat()).expect("sent");
    }
}

/// An address for a question of type A and class IN; without one the reply is truncated.
pub(crate) fn reply(question: &[u8], says: Option<Ipv4Addr>) -> Vec<u8> {
    let name = question[12..].iter().position(|byte| *byte == 0).expect("a name");
    let end = 12 + name + 5;
    let flags: u16 = if says.is_some() { 0x8180 } else { 0x8380 };
    let mut out = question[..2].to_vec();
    for word in [flags, 1, u16::from(says.is_some()), 0, 0] {
        out.extend(word.to_be_bytes());
    }
    out.extend_from_slice(&question[12..end]);
    if let Some(address) = says {
        out.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4]);
        out.extend(address.octets());
    }
    out
}

#[test]
fn s34_dig_reports_a_server_whose_response_differs_from_the_objects() {
    let server = Server::start();
    let name = "kubernetes.default.svc.cluster.local.";
    let right = Stubborn::start(Ipv4Addr::new(10, 96, 0, 1));
    let said = ask(&server, &format!("dig {name} A --server {}", right.address)).success();
    assert!(said.contains(&format!("; server {} returns the same records", right.address)), "{said}");
    assert!(!said.contains("DIFFERENT"), "{said}");
    let wrong = Stubborn::start(Ipv4Addr::new(192, 0, 2, 9));
    let said = ask(&server, &format!("dig {name} A --server {}", wrong.address)).success();
    for wanted in [
        &format!("; DIFFERENT: the response of server {} differs from the objects", wrong.address),
        &format!("only the server has   {name} A 192.0.2.9"),
        &format!("only the objects have {name} A 10.96.0.1"),
    ] {
        assert!(said.contains(wanted), "{wanted} is missing:\n{said}");
    }
    let (code, said) = dig(&server, &format!("ghost.default.svc.cluster.local. A --server {}", wrong.address));
    assert_eq!((code, &said["steps"][0]["server"]["different"]), (Some(0), &json!(true)));
    let (code, said) = dig(&server, &format!("www.example.com. A --server {}", wrong.address));
    assert_eq!((code, &said["steps"][0]["server"]["different"]), (Some(0), &json!(false)));
    assert_eq!(said["steps"][0]["server"]["answer"][0]["data"], "192.0.2.9");
}

#[test]
fn s34_dig_shows_the_objects_when_the_server_does_not_respond() {
    let server = Server::start();
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = silent.local_addr().expect("an address");
    let said = ask(&server, &format!("dig kubernetes --server {address}")).success();
    assert!(said.contains("10.96.0.1"), "{said}");
    assert_eq!(
        said.matches(&format!("query to server {address} failed: no response before the timeout")).count(),
        1,
        "{said}"
    );
}
