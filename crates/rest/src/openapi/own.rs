//! Descriptions of our own kinds: the name of a definition in, the text of a type or a field out.
//!
//! What `kubectl explain` shows of them. Kubernetes' own kinds have their texts in a crate ([`super::text`]).

/// The schema table of our kinds.
pub(super) const TABLE: &str = "waypost";
/// What the names of their definitions begin with.
pub(super) const PACKAGE: &str = "dev.waypost.v1";

/// A type, what it is for, and its fields.
type Text = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// What every object has.
const OBJECT: &[(&str, &str)] = &[
    ("apiVersion", "The version of the schema of this object: waypost.dev/v1."),
    ("kind", "The kind of this object."),
    ("metadata", "Name, labels and what else every object has."),
    ("spec", "What is wanted."),
    ("status", "What is."),
];

const CONDITIONS: (&str, &str) = ("conditions", "What is true of the object at the moment, and since when.");

#[rustfmt::skip] // One line for each field, however long.
static TEXTS: &[Text] = &[
    ("IPPool", "IPPool holds addresses that Services of type LoadBalancer get, and says who may have them.", OBJECT),
    ("IPPoolSpec", "IPPoolSpec says which addresses there are, and who may have them.", &[
        ("addresses", "Prefixes (192.0.2.0/28), ranges (192.0.2.40-192.0.2.60) and single addresses, of both families; they must not overlap."),
        ("autoAssign", "Whether Services that name no pool get addresses from this one. Default: true. If false, only Services with the annotation waypost.dev/pool: NAME, or that ask for one of its addresses, get them."),
        ("internal", "Whether the pool is for Services whose annotations ask for an internal load balancer, and for no others. Default: false."),
        ("avoidBuggyIPs", "Whether IPv4 addresses that end in .0 or .255 are left out: some old devices refuse them. Default: false."),
        ("priority", "Pools with lower numbers are used first. Among equals, pools for certain namespaces or Services come before pools for all. Default: 0."),
        ("namespaces", "The namespaces whose Services may have addresses from here; empty: all."),
        ("serviceSelector", "The labels of the Services that may have addresses from here; absent: all."),
        ("announce", "How the addresses are announced: l2 (ARP and NDP on the local network), bgp (to every BGPPeer), or both. Default: both."),
    ]),
    ("IPPoolStatus", "IPPoolStatus says how much of a pool is in use.", &[
        ("capacity", "How many addresses the pool has."),
        ("assigned", "How many of them Services have."),
        CONDITIONS,
    ]),
    ("BGPPeer", "BGPPeer is a router that nodes tell about the addresses of load balancers.", OBJECT),
    ("BGPPeerSpec", "BGPPeerSpec says where a router is and how to talk to it.", &[
        ("myASN", "The number of the autonomous system of the nodes."),
        ("peerASN", "The number of the autonomous system of the router."),
        ("peerAddress", "The address of the router."),
        ("peerPort", "The port of the router. Default: 179."),
        ("holdTimeSeconds", "After how many seconds of silence a session is over; a sign of life is sent three times as often. Default: 90."),
        ("sourceAddress", "The address from which nodes call; empty: the system chooses."),
        ("routerID", "The identifier of the speaker; empty: the node's own IPv4 address."),
        ("password", "Where the password of the session is (TCP MD5, RFC 2385)."),
        ("ebgpMultiHop", "Whether the router may be more than one hop away. Default: false."),
        ("gracefulRestart", "Whether the router keeps our routes while a node's speaker restarts (RFC 4724). Default: true."),
        ("restartTimeSeconds", "For how many seconds the router keeps them. Default: 120."),
        ("communities", "Communities of every route: pairs like 64512:100, or no-export, no-advertise, no-export-subconfed, blackhole."),
        ("localPref", "The preference of our routes inside one autonomous system; 0: none. Only when myASN and peerASN are equal."),
        ("maxPrefixes", "The session ends when the router sends more routes than this. Default: 1000."),
        ("nodeSelector", "The labels of the Nodes that talk to this router; absent: all."),
    ]),
    ("BGPPassword", "BGPPassword says where the password of a session is.", &[
        ("secretRef", "The Secret that holds it. Every node may read it."),
    ]),
    ("BGPSecretReference", "BGPSecretReference names an entry of a Secret.", &[
        ("namespace", "The namespace of the Secret."),
        ("name", "The name of the Secret."),
        ("key", "The key in it. Default: password."),
    ]),
    ("BGPPeerStatus", "BGPPeerStatus says what is known of a router. Sessions are told by Events and by what each node reports.", &[CONDITIONS]),
];

fn find(definition: &str) -> Option<&'static Text> {
    let name = definition.strip_prefix(PACKAGE)?.strip_prefix('.')?;
    TEXTS.iter().find(|(known, ..)| *known == name)
}

/// What a type of ours is for.
pub(super) fn of_type(definition: &str) -> Option<&'static str> {
    find(definition).map(|(_, text, _)| *text)
}

/// What a field of a type of ours is for.
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
