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
    ("TrafficPolicy", "TrafficPolicy sets what holds for the traffic of Gateways, routes and Services beyond the Gateway API.", OBJECT),
    ("TrafficPolicySpec", "TrafficPolicySpec defines the targets of a policy and what holds for their traffic. At least one field besides targetRefs must be set.", &[
        ("targetRefs", "The objects that the policy is attached to, in its own namespace: Gateways, ListenerSets, HTTPRoutes, GRPCRoutes and Services."),
        ("requestBody", "Limits of the bodies of requests."),
        ("timeouts", "How long gateways wait for backends."),
        ("sourceRanges", "The client addresses that are accepted; others get status 403."),
        ("authentication", "The credentials that requests need; others get status 401."),
        ("rateLimits", "Limits of the number of requests; those beyond get status 429."),
        ("maxConcurrentRequests", "The limit of concurrent requests of a client address; those beyond get status 429."),
        ("requireHTTPS", "Whether requests on listeners without TLS are redirected to https with status 308. Default: false."),
        ("loadBalancing", "How an endpoint of a Service is selected. Default: LeastRequest."),
        ("outlierDetection", "When endpoints that fail get no requests for some time."),
        ("slowStart", "How new endpoints start."),
        ("session", "Sticky sessions: requests with the cookie of a session reach the same endpoint."),
    ]),
    ("TrafficPolicyTarget", "TrafficPolicyTarget refers to an object of the namespace of the policy.", &[
        ("group", "The group of the object. Default: that of the kind."),
        ("kind", "The kind of the object: Gateway, ListenerSet, HTTPRoute, GRPCRoute or Service."),
        ("name", "The name of the object."),
        ("sectionName", "A listener of a Gateway or ListenerSet, a rule of a route, or a port of a Service, by name; empty: all of them."),
    ]),
    ("TrafficRequestBody", "TrafficRequestBody limits the bodies of requests.", &[
        ("maxSize", "The longest body, in bytes (8Mi). Longer ones get status 413."),
    ]),
    ("TrafficTimeouts", "TrafficTimeouts defines how long gateways wait for backends. Durations are written like 500ms, 30s or 1h30m.", &[
        ("connect", "How long a connection to an endpoint may take to be established."),
        ("read", "The longest silence of an endpoint between two reads, not the whole time of a request."),
        ("send", "The longest time in which an endpoint reads nothing while data for it is waiting."),
    ]),
    ("TrafficSourceRanges", "TrafficSourceRanges lists client addresses.", &[
        ("allow", "The CIDRs of clients that are accepted; empty: all."),
        ("deny", "The CIDRs of clients that are not accepted, also if they are in allow."),
    ]),
    ("TrafficAuthentication", "TrafficAuthentication defines the credentials that requests need: all that are set.", &[
        ("basic", "User names and passwords (RFC 7617)."),
        ("external", "Another server that authorises each request."),
    ]),
    ("TrafficBasicAuthentication", "TrafficBasicAuthentication refers to user names and passwords.", &[
        ("secretName", "The Secret of the namespace of the policy that has them: lines user:hash (htpasswd) under the key auth. Nodes may read it. Without it all requests are refused."),
        ("realm", "The realm that browsers show."),
    ]),
    ("TrafficExternalAuthentication", "TrafficExternalAuthentication refers to a server that gets a request for each request. 2xx admits, 401 and 403 are passed on to the client.", &[
        ("url", "The URL of the server. Variables of nginx such as $request_uri are available after the host."),
        ("method", "The method of requests to the server. Default: GET."),
        ("signInURL", "Where clients are redirected (302) instead of receiving 401."),
        ("signInRedirectParameter", "The parameter of signInURL with the page to return to. Default: rd."),
        ("requestRedirect", "The value of X-Auth-Request-Redirect; empty: path and query of the request."),
        ("responseHeaders", "Headers of the response of the server that are sent to the backend, in place of those of the client."),
        ("alwaysSetCookie", "Whether cookies of the server reach the client whatever status the backend answers. Default: false."),
    ]),
    ("TrafficRateLimit", "TrafficRateLimit limits the number of requests on each node.", &[
        ("requests", "How many requests are accepted in each period."),
        ("per", "The period: Second, Minute or Hour."),
        ("burst", "How many requests beyond the rate are accepted at once. Default: requests."),
        ("key", "Which requests are counted together. Default: those of a client address."),
        ("exempt", "CIDRs of clients without limit."),
    ]),
    ("TrafficRateLimitKey", "TrafficRateLimitKey selects the requests that are counted together.", &[
        ("type", "Client: requests of a client address. Header: requests with the same value of a header; those without it have no limit."),
        ("header", "The name of the header."),
    ]),
    ("TrafficConcurrencyLimit", "TrafficConcurrencyLimit limits the concurrent requests of a client address on each node.", &[
        ("limit", "How many."),
        ("exempt", "CIDRs of clients without limit."),
    ]),
    ("TrafficLoadBalancing", "TrafficLoadBalancing defines how an endpoint is selected.", &[
        ("type", "LeastRequest: the less loaded of two. RoundRobin: in turn. Random. ConsistentHash: by a part of the request."),
        ("consistentHash", "The part of the request, for the type ConsistentHash."),
    ]),
    ("TrafficConsistentHash", "TrafficConsistentHash is the part of a request that an endpoint is selected by.", &[
        ("type", "SourceIP (the client address), Header, Cookie, QueryParam or Path."),
        ("name", "The name of the header, cookie or query parameter."),
    ]),
    ("TrafficOutlierDetection", "TrafficOutlierDetection defines when endpoints that fail get no requests for some time.", &[
        ("consecutiveErrors", "How many failures in a row: no connection, no response in time, or status 502, 503 or 504. Default: 5."),
        ("baseEjectionTime", "For how long the first time; it doubles each time. Default: 30s."),
        ("maxEjectionTime", "For how long at most. Default: 5m."),
        ("maxEjectionPercent", "How many of the endpoints at most, in percent. Default: 50."),
    ]),
    ("TrafficSlowStart", "TrafficSlowStart defines how new endpoints start.", &[
        ("window", "How long the share of a new endpoint grows until it is that of the others."),
    ]),
    ("TrafficSession", "TrafficSession defines sticky sessions.", &[
        ("cookie", "The cookie that identifies a session; gateways set it."),
        ("changeOnFailure", "Whether a session moves to another endpoint when its own fails. Default: true."),
    ]),
    ("TrafficSessionCookie", "TrafficSessionCookie defines the cookie of a session. It is always HttpOnly.", &[
        ("name", "Its name."),
        ("path", "Its path; empty: /."),
        ("domain", "Its domain; empty: the host of the request."),
        ("maxAge", "How long it lasts (8h); empty: until the browser is closed."),
        ("secure", "Whether it is sent over TLS only; absent: if it was set over TLS."),
        ("sameSite", "Whether other sites send it: None, Lax or Strict; empty: as the browser decides."),
    ]),
    ("TrafficPolicyStatus", "TrafficPolicyStatus is the observed state of a policy.", &[
        ("ancestors", "The Gateways for which the policy holds, or its targets if there is none, with conditions."),
    ]),
    ("TrafficPolicyAncestor", "TrafficPolicyAncestor is the state of a policy at an object.", &[
        ("ancestorRef", "The object."),
        ("controllerName", "The controller that wrote the entry."),
        CONDITIONS,
    ]),
    ("TrafficPolicyAncestorRef", "TrafficPolicyAncestorRef refers to an object.", &[
        ("group", "The group of the object."),
        ("kind", "The kind of the object."),
        ("namespace", "The namespace of the object."),
        ("name", "The name of the object."),
        ("sectionName", "A section of the object."),
        ("port", "A port of the object."),
    ]),
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
