//! Environment variables by which a container finds the Services that existed before it.
//!
//! In: Services of all namespaces, the namespace of a Pod, whether it wants links. Out: names and values in a fixed order,
//! the Service of each, and the names that two Services claimed. The kubelet resolves such a conflict randomly; here
//! Services are sorted by name and the first to set a variable keeps it, so equal Services give equal text.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::Value;

mod output;
#[cfg(test)]
mod tests;

pub use output::{to_dotenv, to_json, to_shell};

/// The Service whose variables every container gets, with its namespace.
const MASTER: (&str, &str) = ("default", "kubernetes");

/// The fields of a Service that the variables depend on.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Service {
    /// Where it is.
    pub namespace: String,
    /// What it is called.
    pub name: String,
    /// `spec.clusterIP`, as stored: an address, `None`, or nothing.
    pub cluster_ip: String,
    /// Its ports, in their order.
    pub ports: Vec<Port>,
}

/// A port of a Service.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Port {
    /// Its name, or nothing.
    pub name: String,
    /// Its number.
    pub port: i64,
    /// `TCP`, `UDP`, `SCTP`, or nothing for `TCP`.
    pub protocol: String,
}

/// One variable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    /// `WEB_SERVICE_HOST`
    pub name: String,
    /// `10.96.0.7`
    pub value: String,
    /// The Service it is for: `default/web`.
    pub service: String,
}

/// Two Services wanted one name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Clash {
    /// The name.
    pub name: String,
    /// The Service whose value is used.
    pub kept: String,
    /// What did not get in.
    pub lost: Variable,
}

/// All variables of a container.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Environment {
    /// The variables, in order; no name twice.
    pub variables: Vec<Variable>,
    /// Names that were wanted twice.
    pub clashes: Vec<Clash>,
}

/// The Pod does not say whether it wants links. A server fills this in; a Pod without it was not defaulted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("spec.enableServiceLinks of the Pod is not set: create the Pod through the API, which defaults it to true")]
pub struct LinksUnset;

impl Service {
    /// Reads an object; fields that are missing or of another type count as empty.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (meta, spec) = (&object["metadata"], &object["spec"]);
        let port = |port: &Value| Port {
            name: text(&port["name"]),
            port: port["port"].as_i64().unwrap_or_default(),
            protocol: text(&port["protocol"]),
        };
        Self {
            namespace: text(&meta["namespace"]),
            name: text(&meta["name"]),
            cluster_ip: text(&spec["clusterIP"]),
            ports: spec["ports"].as_array().into_iter().flatten().map(port).collect(),
        }
    }

    fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether there is an address to tell: not for headless, `ExternalName` and not yet allocated ones.
    fn has_address(&self) -> bool {
        !self.cluster_ip.is_empty() && self.cluster_ip != "None"
    }
}

/// The environment of a container in `namespace`.
///
/// # Errors
/// When `links` (`spec.enableServiceLinks` of the Pod) is not set.
pub fn environment<'a>(
    services: impl IntoIterator<Item = &'a Service>,
    namespace: &str,
    links: Option<bool>,
) -> Result<Environment, LinksUnset> {
    let links = links.ok_or(LinksUnset)?;
    let mut writer = Writer::default();
    for service in candidates(services, namespace, links) {
        writer.service(service);
    }
    Ok(writer.out)
}

/// Which Services the container learns of, in the order of their names.
fn candidates<'a>(services: impl IntoIterator<Item = &'a Service>, namespace: &str, links: bool) -> Vec<&'a Service> {
    let (mut own, mut master) = (Vec::new(), None);
    for service in services.into_iter().filter(|service| service.has_address()) {
        if links && service.namespace == namespace {
            own.push(service);
        } else if (service.namespace.as_str(), service.name.as_str()) == MASTER {
            master = Some(service);
        }
    }
    if !own.iter().any(|service| service.name == MASTER.1) {
        own.extend(master);
    }
    own.sort_by(|a, b| a.name.cmp(&b.name));
    own
}

/// Gathers variables; the first to write a name keeps it.
#[derive(Default)]
struct Writer {
    out: Environment,
    places: HashMap<String, usize>,
}

impl Writer {
    fn put(&mut self, service: &str, name: String, value: String) {
        let variable = Variable { name, value, service: service.to_owned() };
        if let Some(place) = self.places.get(&variable.name) {
            let kept = self.out.variables[*place].service.clone();
            self.out.clashes.push(Clash { name: variable.name.clone(), kept, lost: variable });
            return;
        }
        self.places.insert(variable.name.clone(), self.out.variables.len());
        self.out.variables.push(variable);
    }

    fn service(&mut self, service: &Service) {
        let (key, prefix) = (service.key(), mangle(&service.name));
        let address = &service.cluster_ip;
        self.put(&key, format!("{prefix}_SERVICE_HOST"), address.clone());
        let Some(first) = service.ports.first() else { return };
        self.put(&key, format!("{prefix}_SERVICE_PORT"), first.port.to_string());
        for port in service.ports.iter().filter(|port| !port.name.is_empty()) {
            self.put(&key, format!("{prefix}_SERVICE_PORT_{}", mangle(&port.name)), port.port.to_string());
        }
        self.put(&key, format!("{prefix}_PORT"), link(address, first));
        for port in &service.ports {
            let protocol = protocol(port);
            let name = format!("{prefix}_PORT_{}_{}", port.port, protocol.to_uppercase());
            self.put(&key, name.clone(), link(address, port));
            self.put(&key, format!("{name}_PROTO"), protocol.to_lowercase());
            self.put(&key, format!("{name}_PORT"), port.port.to_string());
            self.put(&key, format!("{name}_ADDR"), address.clone());
        }
    }
}

/// A name as part of a variable's name. A leading digit stays, as in the kubelet.
fn mangle(name: &str) -> String {
    name.replace('-', "_").to_ascii_uppercase()
}

fn protocol(port: &Port) -> &str {
    if port.protocol.is_empty() { "TCP" } else { &port.protocol }
}

/// `tcp://10.96.0.7:80`, `udp://[fd00::7]:53`
fn link(address: &str, port: &Port) -> String {
    let mut out = protocol(port).to_lowercase();
    let written = if address.contains(':') {
        write!(out, "://[{address}]:{}", port.port)
    } else {
        write!(out, "://{address}:{}", port.port)
    };
    written.expect("text can always be appended to");
    out
}
