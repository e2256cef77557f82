//! Services of both families on one node, their Pods, and client Pods of several namespaces.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use testbed::net::{Family, Pod, eventually, objects};

use super::super::stage::{Page, Stage, TARGET};
use super::grpc::Grpc;
use crate::gateway::pods;

/// The port of the Services.
pub(super) const PORT: u16 = 80;
/// The annotation by which a Service opts in.
pub(super) const LAYER_7: &str = "waypost.dev/layer-7";
/// Far more than a response takes.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What backends speak.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Spoken {
    Http1,
    /// By prior knowledge, with the trailers of gRPC.
    Http2,
}

/// See the module.
pub(super) struct Mesh {
    pub(super) stage: Stage,
    /// The cluster IPs of the Services, IPv4 first.
    addresses: Mutex<BTreeMap<String, [String; 2]>>,
}

impl Mesh {
    pub(super) fn new() -> Self {
        Self { stage: Stage::new(), addresses: Mutex::default() }
    }

    /// A Pod that serves the port [`TARGET`].
    pub(super) fn backend(&self, name: &str, spoken: Spoken) -> Pod {
        let pod = self.stage.node.pod(name);
        match spoken {
            Spoken::Http1 => drop(pods::serve(&pod, TARGET, None)),
            Spoken::Http2 => pods::serve_h2(&pod, TARGET),
        }
        pod
    }

    /// A Service with the port [`PORT`], called `http`; modifiers act on that port.
    pub(super) fn service(&self, name: &str, modify: impl FnOnce(objects::Service) -> objects::Service) {
        let address = {
            let mut addresses = self.addresses.lock();
            let number = addresses.len() + 1;
            let new = || [format!("10.96.9.{number}"), format!("fd00:10:96::9{number:02}")];
            addresses.entry(name.to_owned()).or_insert_with(new).clone()
        };
        let [v4, v6] = address;
        let service = objects::service(name).cluster_ip(v4).cluster_ip(v6).port(PORT).named("http").target(TARGET);
        self.stage.served.put(&modify(service).json());
    }

    /// A Service whose port has this application protocol, and that opts in.
    pub(super) fn opted_in(&self, name: &str, app_protocol: &str) {
        self.service(name, |service| service.app_protocol(app_protocol).annotation(LAYER_7, "true"));
    }

    /// Has a Service lead to these Pods.
    pub(super) fn endpoints(&self, name: &str, pods: &[Pod]) {
        for family in Family::BOTH {
            let slice = objects::slice(name).family(family).port(TARGET).named("http");
            let slice = pods.iter().fold(slice, |slice, pod| slice.endpoint(pod));
            self.stage.served.put(&slice.json());
        }
    }

    /// A Service without annotation, with one Pod of the same name that speaks HTTP/1.1.
    pub(super) fn single(&self, name: &str) {
        self.service(name, |service| service);
        self.endpoints(name, &[self.backend(name, Spoken::Http1)]);
    }

    /// A client: a Pod with its object in a namespace, which is created if needed.
    pub(super) fn client(&self, name: &str, namespace: &str) -> Pod {
        let served = &self.stage.served;
        let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        served.session(|session| {
            let code = session.post("/api/v1/namespaces", &object).code;
            assert!([201, 409].contains(&code), "creating namespace {namespace}: {code}");
        });
        eventually("Pods can be created in the namespace", || {
            served.session(|session| session.get(&account).code == 200)
        });
        let pod = self.stage.node.pod(name);
        let mut object = objects::pod(&pod, ("app", "client"), true);
        object["metadata"]["namespace"] = namespace.into();
        served.put(&object);
        pod
    }

    /// Creates an HTTPRoute whose parent is a Service of the namespace `default`, or changes it.
    pub(super) fn route(&self, namespace: &str, name: &str, service: &str, rules: &Value) {
        let parent = json!({"group": "", "kind": "Service", "name": service, "namespace": "default", "port": PORT});
        let object = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"name": name, "namespace": namespace}, "spec": {"parentRefs": [parent], "rules": rules},
        });
        self.stage.put(&routes_of(namespace), &object);
    }

    /// Removes a route.
    pub(super) fn remove_route(&self, namespace: &str, name: &str) {
        self.stage.remove(&routes_of(namespace), name);
    }

    /// A cluster IP of a Service.
    pub(super) fn address(&self, service: &str, family: Family) -> SocketAddr {
        let addresses = self.addresses.lock();
        let [v4, v6] = addresses.get(service).expect("a Service");
        let text = if family == Family::V4 { v4 } else { v6 };
        SocketAddr::new(text.parse().expect("an address"), PORT)
    }

    /// The response to curl in a Pod, for a path of a Service, with these arguments besides.
    pub(super) fn ask(&self, client: &Pod, service: &str, path: &str, arguments: &[&str]) -> Option<Page> {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--include", "--max-time", "20", "--path-as-is"]).args(arguments);
        command.arg(format!("http://{}{path}", self.address(service, Family::V4)));
        Page::parse(&client.run(command).out)
    }

    /// Waits until the response is as wanted, and returns it.
    #[track_caller]
    pub(super) fn until(&self, what: &str, client: &Pod, service: &str, wanted: impl Fn(&Page) -> bool) -> Page {
        let mut found = None;
        eventually(what, || {
            found = self.ask(client, service, "/", &[]).filter(|page| wanted(page));
            found.is_some()
        });
        found.expect("it was found")
    }

    /// Waits until requests on one connection reach several Pods: the Service is served at layer 7.
    #[track_caller]
    pub(super) fn until_balanced(&self, client: &Pod, service: &str, spoken: Spoken) {
        let at = self.address(service, Family::V4);
        eventually("requests of one connection reach several Pods", || match spoken {
            Spoken::Http1 => pods_of_one_connection(client, at).is_some_and(|pods| pods.len() > 1),
            Spoken::Http2 => {
                Grpc::try_connect(client, at).is_some_and(|grpc| grpc.calls(8, 1).is_ok_and(|pods| pods.len() > 1))
            }
        });
    }
}

/// The Pods that answer eight requests on one connection of HTTP/1.1. None if it fails.
pub(super) fn pods_of_one_connection(client: &Pod, at: SocketAddr) -> Option<BTreeMap<String, usize>> {
    let mut connection = Connection::open(client, at)?;
    let mut pods = BTreeMap::new();
    for _ in 0..8 {
        let page = connection.exchange("/")?;
        *pods.entry(page.pod()?.to_owned()).or_default() += 1;
    }
    Some(pods)
}

/// A connection of HTTP/1.1 that stays open.
pub(super) struct Connection {
    stream: TcpStream,
}

impl Connection {
    /// Opens one from a Pod. None if that fails.
    pub(super) fn open(client: &Pod, at: SocketAddr) -> Option<Self> {
        let stream = client.in_namespace(|| TcpStream::connect_timeout(&at, TIMEOUT)).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).ok()?;
        Some(Self { stream })
    }

    /// One request and its response. None if the connection ends before that.
    pub(super) fn exchange(&mut self, path: &str) -> Option<Page> {
        self.stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: web.test\r\n\r\n").as_bytes()).ok()?;
        let (mut text, mut byte) = (Vec::new(), [0]);
        while !text.ends_with(b"\r\n\r\n") {
            self.stream.read_exact(&mut byte).ok()?;
            text.push(byte[0]);
        }
        let page = Page::parse(&String::from_utf8_lossy(&text))?;
        let mut body = vec![0; page.header("content-length").map_or(Some(0), |length| length.parse().ok())?];
        self.stream.read_exact(&mut body).ok()?;
        Some(Page { body: String::from_utf8_lossy(&body).into_owned(), ..page })
    }
}

fn routes_of(namespace: &str) -> String {
    format!("/apis/gateway.networking.k8s.io/v1/namespaces/{namespace}/httproutes")
}

/// A backend of a rule.
pub(super) fn to(service: &str, weight: u32) -> Value {
    json!({"name": service, "namespace": "default", "port": PORT, "weight": weight})
}

/// A rule for all requests to a Service, that marks the responses.
pub(super) fn marked(mark: &str, service: &str) -> Value {
    let filter = json!({"type": "ResponseHeaderModifier", "responseHeaderModifier": {"set": [{"name": "x-route", "value": mark}]}});
    json!([{"filters": [filter], "backendRefs": [to(service, 1)]}])
}
