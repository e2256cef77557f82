//! Descriptions of Waypost's own kinds: the name of a definition in, the text of a type or a field out.
//!
//! `kubectl explain` shows them. Descriptions of Kubernetes kinds are in a crate ([`super::text`]).

/// The schema table of our kinds.
pub(super) const TABLE: &str = "waypost";
/// The prefix of the names of their definitions.
pub(super) const PACKAGE: &str = "dev.waypost.v1";

/// A type, its description, and its fields.
type Text = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// Fields that every object has.
const OBJECT: &[(&str, &str)] = &[
    ("apiVersion", "The version of the schema of this object: waypost.dev/v1."),
    ("kind", "The kind of this object."),
    ("metadata", "Standard object metadata."),
    ("spec", "The desired state."),
    ("status", "The observed state."),
];

const CONDITIONS: (&str, &str) = ("conditions", "The current conditions of the object.");

#[rustfmt::skip] // One line for each field, however long.
static TEXTS: &[Text] = &[
    ("IPPool", "IPPool is a pool of addresses for Services of type LoadBalancer.", OBJECT),
    ("IPPoolSpec", "IPPoolSpec defines the addresses of a pool and which Services may use them.", &[
        ("addresses", "Prefixes (192.0.2.0/28), ranges (192.0.2.40-192.0.2.60) and single addresses, of both families; they must not overlap."),
        ("autoAssign", "Whether Services that name no pool get addresses from this one. Default: true. If false, only Services with the annotation waypost.dev/pool: NAME, or that request one of its addresses, get them."),
        ("internal", "Whether the pool is for Services whose annotations request an internal load balancer, and for no others. Default: false."),
        ("avoidBuggyIPs", "Whether IPv4 addresses that end in .0 or .255 are not assigned: some old devices refuse them. Default: false."),
        ("priority", "Pools with lower numbers are used first. Among equals, pools for certain namespaces or Services come before pools for all. Default: 0."),
        ("namespaces", "The namespaces whose Services may use this pool; empty: all."),
        ("serviceSelector", "The labels of the Services that may use this pool; absent: all."),
        ("announce", "How the addresses are announced: l2 (ARP and NDP on the local network), bgp (to every BGPPeer), or both. Default: both."),
    ]),
    ("IPPoolStatus", "IPPoolStatus is the usage of a pool.", &[
        ("capacity", "How many addresses the pool has."),
        ("assigned", "How many of them are assigned to Services."),
        CONDITIONS,
    ]),
    ("BGPPeer", "BGPPeer is a router to which nodes announce the addresses of load balancers.", OBJECT),
    ("BGPPeerSpec", "BGPPeerSpec defines the sessions with a router.", &[
        ("myASN", "The autonomous system number (ASN) of the nodes."),
        ("peerASN", "The autonomous system number (ASN) of the router."),
        ("peerAddress", "The address of the router."),
        ("peerPort", "The port of the router. Default: 179."),
        ("holdTimeSeconds", "The hold time of a session, in seconds; keepalives are sent at a third of it. Default: 90."),
        ("sourceAddress", "The source address of connections; empty: the system chooses."),
        ("routerID", "The BGP identifier of the speaker; empty: the IPv4 address of the node."),
        ("password", "The password of the session (TCP MD5, RFC 2385)."),
        ("ebgpMultiHop", "Whether the router may be more than one hop away. Default: false."),
        ("gracefulRestart", "Whether the router keeps routes while the speaker of a node restarts (RFC 4724). Default: true."),
        ("restartTimeSeconds", "For how many seconds the router keeps them. Default: 120."),
        ("communities", "Communities of every route: pairs like 64512:100, or no-export, no-advertise, no-export-subconfed, blackhole."),
        ("localPref", "The local preference of routes inside one autonomous system; 0: none. Only when myASN and peerASN are equal."),
        ("maxPrefixes", "The session ends when the router sends more routes than this. Default: 1000."),
        ("nodeSelector", "The labels of the Nodes that open sessions with this router; absent: all."),
    ]),
    ("BGPPassword", "BGPPassword refers to the password of a session.", &[
        ("secretRef", "The Secret that holds it. The nodes that the BGPPeer selects may read it."),
    ]),
    ("BGPSecretReference", "BGPSecretReference refers to a key of a Secret.", &[
        ("namespace", "The namespace of the Secret."),
        ("name", "The name of the Secret."),
        ("key", "The key in it. Default: password."),
    ]),
    ("BGPPeerStatus", "BGPPeerStatus is the observed state of a router. Events and the reports of nodes show sessions.", &[CONDITIONS]),
];

fn find(definition: &str) -> Option<&'static Text> {
    let name = definition.strip_prefix(PACKAGE)?.strip_prefix('.')?;
    TEXTS.iter().find(|(known, ..)| *known == name)
}

/// The description of a type.
pub(super) fn of_type(definition: &str) -> Option<&'static str> {
    find(definition).map(|(_, text, _)| *text)
}

/// The description of a field.
pub(super) fn of_field(definition: &str, field: &str) -> Option<&'static str> {
    find(definition)?.2.iter().find(|(known, _)| *known == field).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use api::schema;

    use super::*;

    #[test]
    fn every_type_and_field_of_ours_has_a_text() {
        let ours = schema::all().map(schema::TypeId::get).filter(|known| known.name.starts_with("waypost."));
        let mut count = 0;
        for known in ours {
            let definition = known.name.replace("waypost.", "dev.waypost.v1.");
            assert!(of_type(&definition).is_some(), "{definition}");
            for field in known.json_fields() {
                assert!(of_field(&definition, field.json).is_some(), "{definition} {}", field.json);
            }
            count += 1;
        }
        assert_eq!(count, TEXTS.len());
    }
}
