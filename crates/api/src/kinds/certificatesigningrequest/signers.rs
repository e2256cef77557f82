//! What each signer of the cluster signs: subject, names and usages.
//!
//! In: a signer, the content of a request, and its usages. Out: nothing, or why it is not signed. Approval does not override these rules: they
//! hold for requests that a person approved, too. The rules for nodes and their messages are those of kube-controller-manager. Certificates of
//! other clients are restricted further than there, because the API server authenticates by the subject alone: the holder of a certificate for a
//! name or a group of the cluster itself is that component. Pure.

use super::request::Request;
use super::{API_CLIENT, NODE_CLIENT, NODE_SERVING};
use crate::names;

/// The prefix of the user name of a node.
pub const NODE_USER: &str = "system:node:";
/// The group of nodes.
pub const NODES: &str = "system:nodes";

/// Names and groups with these prefixes belong to the cluster: administrators (`system:masters`), nodes, bootstrappers, ServiceAccounts,
/// control-plane components, and the API server towards agents (`waypost:api-servers`).
const RESERVED_PREFIXES: [&str; 2] = ["system:", "waypost:"];
/// Names that certificates of the server and of its administrator have.
const RESERVED_USERS: [&str; 2] = ["kube-apiserver-kubelet-client", "waypost-admin"];

const CLIENT: &str = "client auth";
const SERVER: &str = "server auth";
const SIGNATURE: &str = "digital signature";
/// Only RSA keys need it.
const ENCIPHERMENT: &str = "key encipherment";

/// Checks a request against the rules of its signer.
///
/// # Errors
/// Which rule it breaks.
pub fn check(signer: &str, request: &Request, usages: &[&str]) -> Result<(), String> {
    match signer {
        NODE_CLIENT => node_client(request, usages),
        NODE_SERVING => node_serving(request, usages),
        API_CLIENT => api_client(request, usages),
        _ => Err(format!("{signer} is not a signer of this cluster")),
    }
}

/// The node that a request is for; nothing unless its subject is that of a node.
#[must_use]
pub fn node_of(request: &Request) -> Option<&str> {
    request.common_name.strip_prefix(NODE_USER).filter(|name| names::dns_subdomain(name).is_empty())
}

fn node_client(request: &Request, usages: &[&str]) -> Result<(), String> {
    of_nodes(request)?;
    let forbidden = [
        (!request.dns.is_empty(), "DNS"),
        (!request.emails.is_empty(), "Email"),
        (!request.ips.is_empty(), "IP"),
        (!request.uris.is_empty(), "URI"),
        (request.other_names, "Other"),
    ];
    if let Some((_, kind)) = forbidden.iter().find(|(present, _)| *present) {
        return Err(format!("{kind} subjectAltNames are not allowed"));
    }
    named_as_node(request)?;
    node_usages(CLIENT, usages)
}

fn node_serving(request: &Request, usages: &[&str]) -> Result<(), String> {
    of_nodes(request)?;
    if request.dns.is_empty() && request.ips.is_empty() {
        return Err("DNS or IP subjectAltName is required".to_owned());
    }
    let forbidden =
        [(!request.emails.is_empty(), "Email"), (!request.uris.is_empty(), "URI"), (request.other_names, "Other")];
    if let Some((_, kind)) = forbidden.iter().find(|(present, _)| *present) {
        return Err(format!("{kind} subjectAltNames are not allowed"));
    }
    node_usages(SERVER, usages)?;
    named_as_node(request)
}

fn of_nodes(request: &Request) -> Result<(), String> {
    if request.organizations == [NODES] { Ok(()) } else { Err(format!("subject organization is not {NODES}")) }
}

fn named_as_node(request: &Request) -> Result<(), String> {
    if !request.common_name.starts_with(NODE_USER) {
        return Err(format!("subject common name does not begin with {NODE_USER}"));
    }
    match node_of(request) {
        Some(_) => Ok(()),
        None => Err(format!("subject common name {:?} is not {NODE_USER} and the name of a Node", request.common_name)),
    }
}

/// Exactly these, with or without what RSA keys need. Usages are a set: a validated request has none twice.
fn node_usages(main: &str, usages: &[&str]) -> Result<(), String> {
    let mut known = [main, SIGNATURE, ENCIPHERMENT];
    let fits = usages.iter().all(|usage| known.contains(usage))
        && [main, SIGNATURE].iter().all(|usage| usages.contains(usage));
    known.sort_unstable();
    if fits { Ok(()) } else { Err(format!("usages did not match [{}]", known.join(" "))) }
}

fn api_client(request: &Request, usages: &[&str]) -> Result<(), String> {
    if let Some(other) = usages.iter().find(|usage| ![CLIENT, SIGNATURE, ENCIPHERMENT].contains(usage)) {
        return Err(format!("invalid usage for client certificate: {other}"));
    }
    if !usages.contains(&CLIENT) {
        return Err(format!("missing required usage for client certificate: {CLIENT}"));
    }
    let is_reserved = |name: &str| RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    if let Some(group) = request.organizations.iter().find(|group| is_reserved(group)) {
        return Err(format!(
            "subject organization {group:?} is a group of the cluster itself: {API_CLIENT} does not sign for it; grant a group of your own what it needs"
        ));
    }
    let user = request.common_name.as_str();
    if is_reserved(user) || RESERVED_USERS.contains(&user) {
        return Err(format!(
            "subject common name {user:?} is a user of the cluster itself: {API_CLIENT} does not sign for it; grant a user of your own what it needs"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Request {
        Request { common_name: "system:node:n1".into(), organizations: vec![NODES.into()], ..Request::default() }
    }

    fn person(user: &str, groups: &[&str]) -> Request {
        let organizations = groups.iter().map(|group| (*group).to_owned()).collect();
        Request { common_name: user.into(), organizations, ..Request::default() }
    }

    #[track_caller]
    fn refused(signer: &str, request: &Request, usages: &[&str], why: &str) {
        assert_eq!(check(signer, request, usages), Err(why.to_owned()), "{request:?}");
    }

    const CLIENTS: &[&str] = &["digital signature", "client auth"];
    const SERVERS: &[&str] = &["server auth", "digital signature"];

    #[test]
    fn a_node_is_a_client_under_its_subject_alone() {
        assert_eq!(check(NODE_CLIENT, &node(), CLIENTS), Ok(()));
        assert_eq!(check(NODE_CLIENT, &node(), &["key encipherment", "digital signature", "client auth"]), Ok(()));
        let no_nodes = "subject organization is not system:nodes";
        for groups in
            [&["system:masters"][..], &[], &["system:nodes", "system:masters"], &["system:nodes", "system:nodes"]]
        {
            refused(NODE_CLIENT, &person("system:node:n1", groups), CLIENTS, no_nodes);
        }
        refused(NODE_CLIENT, &person("n1", &[NODES]), CLIENTS, "subject common name does not begin with system:node:");
        for name in ["system:node:", "system:node:N1", "system:node:a b", "system:node:system:masters"] {
            let said = check(NODE_CLIENT, &person(name, &[NODES]), CLIENTS).unwrap_err();
            assert!(said.contains("the name of a Node"), "{said}");
        }
        let mut with = node();
        with.dns = vec!["n1".into()];
        refused(NODE_CLIENT, &with, CLIENTS, "DNS subjectAltNames are not allowed");
        let with = Request { ips: vec![[192, 0, 2, 7].into()], ..node() };
        refused(NODE_CLIENT, &with, CLIENTS, "IP subjectAltNames are not allowed");
        let with = Request { other_names: true, ..node() };
        refused(NODE_CLIENT, &with, CLIENTS, "Other subjectAltNames are not allowed");
        let usages = "usages did not match [client auth digital signature key encipherment]";
        refused(NODE_CLIENT, &node(), SERVERS, usages);
        refused(NODE_CLIENT, &node(), &["client auth"], usages);
        refused(NODE_CLIENT, &node(), &["client auth", "digital signature", "server auth"], usages);
    }

    #[test]
    fn an_agent_serves_under_names_and_addresses() {
        let named = Request { dns: vec!["n1".into()], ..node() };
        assert_eq!(check(NODE_SERVING, &named, SERVERS), Ok(()));
        refused(NODE_SERVING, &node(), SERVERS, "DNS or IP subjectAltName is required");
        let with = Request { emails: vec!["a@b".into()], ..named.clone() };
        refused(NODE_SERVING, &with, SERVERS, "Email subjectAltNames are not allowed");
        let with = Request { uris: vec!["spiffe://a".into()], ..named.clone() };
        refused(NODE_SERVING, &with, SERVERS, "URI subjectAltNames are not allowed");
        let usages = "usages did not match [digital signature key encipherment server auth]";
        refused(NODE_SERVING, &named, CLIENTS, usages);
        let master = Request { organizations: vec!["system:masters".into()], ..named };
        refused(NODE_SERVING, &master, SERVERS, "subject organization is not system:nodes");
    }

    #[test]
    fn nobody_becomes_a_part_of_the_cluster_by_a_client_certificate() {
        assert_eq!(check(API_CLIENT, &person("alice", &["dev"]), &["client auth"]), Ok(()));
        assert_eq!(check(API_CLIENT, &person("alice", &[]), CLIENTS), Ok(()));
        for group in
            ["system:masters", "system:nodes", "system:bootstrappers", "system:serviceaccounts", "waypost:api-servers"]
        {
            let said = check(API_CLIENT, &person("alice", &["dev", group]), CLIENTS).unwrap_err();
            assert!(said.contains(group) && said.contains("a group of the cluster itself"), "{said}");
        }
        for user in [
            "system:node:n1",
            "system:kube-controller-manager",
            "system:serviceaccount:kube-system:default",
            "system:anonymous",
            "kube-apiserver-kubelet-client",
            "waypost-admin",
        ] {
            let said = check(API_CLIENT, &person(user, &["dev"]), CLIENTS).unwrap_err();
            assert!(said.contains(user) && said.contains("a user of the cluster itself"), "{said}");
        }
        refused(API_CLIENT, &person("a", &[]), SERVERS, "invalid usage for client certificate: server auth");
        refused(
            API_CLIENT,
            &person("a", &[]),
            &["digital signature"],
            "missing required usage for client certificate: client auth",
        );
        refused("example.com/x", &person("a", &[]), CLIENTS, "example.com/x is not a signer of this cluster");
    }

    #[test]
    fn people_see_the_whole_subject_and_nothing_that_steers_a_terminal() {
        let asked = Request {
            dns: vec!["n1".into()],
            ips: vec![[192, 0, 2, 7].into()],
            uris: vec!["spiffe://a".into()],
            other_names: true,
            ..person("a\x1b[2J", &["x", "y"])
        };
        assert_eq!(asked.summary(), "O=x, O=y, CN=a?[2J, DNS:n1, IP:192.0.2.7, URI:spiffe://a, other names");
    }
}
