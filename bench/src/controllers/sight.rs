//! What is read of EndpointSlices and Endpoints: whose they are, and which Pods they have in which state.

use serde::Deserialize;

/// The two kinds that controllers make of Services and Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// EndpointSlices.
    Slices,
    /// Legacy Endpoints.
    Endpoints,
}

/// An object, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Its name.
    pub name: String,
    /// The Service it belongs to.
    pub service: String,
    /// Its endpoints.
    pub members: Vec<Member>,
    /// Its ports: name and number.
    pub ports: Vec<(String, u16)>,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The Pod.
    pub pod: String,
    /// Its address.
    pub address: String,
    /// The Node it is on.
    pub node: String,
    /// Whether it is ready.
    pub ready: bool,
}

/// An object on the wire.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Wire {
    pub(super) metadata: Metadata,
    endpoints: Option<Vec<Endpoint>>,
    ports: Option<Vec<Port>>,
    subsets: Option<Vec<Subset>>,
    /// Of an error instead of an object.
    pub(super) message: String,
}

/// The metadata of an object or a list.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    name: String,
    labels: Labels,
    pub(super) resource_version: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Labels {
    #[serde(rename = "kubernetes.io/service-name")]
    service: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Endpoint {
    addresses: Vec<String>,
    conditions: Conditions,
    node_name: String,
    target_ref: Target,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Conditions {
    ready: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Target {
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Port {
    name: String,
    port: u16,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Subset {
    addresses: Vec<Address>,
    not_ready_addresses: Vec<Address>,
    ports: Vec<Port>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Address {
    ip: String,
    node_name: String,
    target_ref: Target,
}

// === impl Kind ===

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Slices, Self::Endpoints];

    /// Where they are, in all namespaces.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Slices => "/apis/discovery.k8s.io/v1/endpointslices",
            Self::Endpoints => "/api/v1/endpoints",
        }
    }
}

// === impl Sight ===

impl From<Wire> for Sight {
    fn from(Wire { metadata, endpoints, ports, subsets, .. }: Wire) -> Self {
        let mut members: Vec<Member> = endpoints.into_iter().flatten().map(Member::from).collect();
        let mut all_ports = ports.unwrap_or_default();
        for subset in subsets.into_iter().flatten() {
            members.extend(subset.addresses.into_iter().map(|address| address.member(true)));
            members.extend(subset.not_ready_addresses.into_iter().map(|address| address.member(false)));
            all_ports.extend(subset.ports);
        }
        // An Endpoints object has the name of its Service.
        let Metadata { name, labels: Labels { service }, .. } = metadata;
        let service = if service.is_empty() { name.clone() } else { service };
        let ports = all_ports.into_iter().map(|port| (port.name, port.port)).collect();
        Self { name, service, members, ports }
    }
}

impl Sight {
    /// How many endpoints are ready.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.members.iter().filter(|member| member.ready).count()
    }
}

impl From<Endpoint> for Member {
    fn from(endpoint: Endpoint) -> Self {
        let Endpoint { addresses, conditions, node_name, target_ref } = endpoint;
        Self { pod: target_ref.name, address: addresses.join(","), node: node_name, ready: conditions.ready }
    }
}

impl Address {
    fn member(self, ready: bool) -> Member {
        Member { pod: self.target_ref.name, address: self.ip, node: self.node_name, ready }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(pod: &str, ready: bool) -> Member {
        Member { pod: pod.to_owned(), address: "10.0.0.1".to_owned(), node: "n".to_owned(), ready }
    }

    fn read(text: &str) -> Sight {
        serde_json::from_str::<Wire>(text).expect("an object").into()
    }

    #[test]
    fn a_slice_belongs_to_the_service_of_its_label() {
        let sight = read(
            r#"{"metadata":{"name":"web-x1","labels":{"kubernetes.io/service-name":"web","other":"label"}},
                "endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":false,"serving":true},"nodeName":"n",
                "targetRef":{"kind":"Pod","name":"p"}}],"ports":[{"name":"http","port":8080}]}"#,
        );
        assert_eq!((sight.service.as_str(), sight.ready()), ("web", 0));
        assert_eq!((sight.members, sight.ports), (vec![member("p", false)], vec![("http".to_owned(), 8080)]));
        assert_eq!(read(r#"{"metadata":{"name":"e"},"endpoints":null,"ports":null}"#).members, []);
    }

    #[test]
    fn endpoints_belong_to_the_service_of_their_name() {
        let sight = read(
            r#"{"metadata":{"name":"web"},"subsets":[{
                "addresses":[{"ip":"10.0.0.1","nodeName":"n","targetRef":{"name":"a"}}],
                "notReadyAddresses":[{"ip":"10.0.0.1","nodeName":"n","targetRef":{"name":"b"}}]}]}"#,
        );
        assert_eq!((sight.service.as_str(), sight.ready()), ("web", 1));
        assert_eq!(sight.members, [member("a", true), member("b", false)]);
    }
}
