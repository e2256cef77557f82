//! Who may do what: every kind, subresource and verb for every class of caller, held against `docs/access.txt`.
//!
//! The table is read by people, so a cell lists verbs by their letters. Each cell is checked twice: by a SubjectAccessReview, and by a
//! request of that caller, which is rejected with 403 if and only if the cell does not have the verb.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};
use testbed::wire::{Wire, request};
use testbed::{Home, Server};

const JSON: (&str, &str) = ("Content-Type", "application/json");
const NAMESPACE: &str = "team";
/// Verbs by their letters, in the order in which a cell lists them.
const VERBS: [(&str, char); 8] = [
    ("create", 'c'),
    ("get", 'g'),
    ("list", 'l'),
    ("watch", 'w'),
    ("update", 'u'),
    ("patch", 'p'),
    ("delete", 'd'),
    ("deletecollection", 'D'),
];
/// Subresources that are connections: their answers are not only those of authorization.
const CONNECTIONS: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// A class of callers: one of them, and the objects it is checked with.
struct Caller {
    title: &'static str,
    user: &'static str,
    groups: &'static [&'static str],
    /// The object of a kind, and that of the kinds Node and Lease.
    objects: (&'static str, &'static str),
    /// Whether admission refuses what authorization allows, so that requests say less than reviews.
    is_restricted: bool,
}

const fn caller(title: &'static str, user: &'static str, groups: &'static [&'static str]) -> Caller {
    Caller { title, user, groups, objects: ("own", "n1"), is_restricted: false }
}

const AUTHENTICATED: &str = "system:authenticated";

const CALLERS: [Caller; 10] = [
    caller("anonymous", "system:anonymous", &["system:unauthenticated"]),
    caller(
        "bootstrapper",
        "system:bootstrap:abcdef",
        &["system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token", AUTHENTICATED],
    ),
    caller("node-own", "system:node:n1", &["system:nodes", AUTHENTICATED]),
    Caller {
        objects: ("other", "n2"),
        is_restricted: true,
        ..caller("node-other", "system:node:n1", &["system:nodes", AUTHENTICATED])
    },
    Caller {
        objects: ("other", "n2"),
        is_restricted: true,
        ..caller("agent-other", "system:node:n1", &["system:nodes", "system:waypost:nodes", AUTHENTICATED])
    },
    caller(
        "account",
        "system:serviceaccount:team:robot",
        &["system:serviceaccounts", "system:serviceaccounts:team", AUTHENTICATED],
    ),
    caller("view", "vera", &[AUTHENTICATED]),
    caller("edit", "ed", &[AUTHENTICATED]),
    caller("admin", "ada", &[AUTHENTICATED]),
    caller("master", "root", &["system:masters", AUTHENTICATED]),
];

const HEADING: &str = "\
# Who may do what. A test compares this table with the server; `BLESS=1` writes it anew.
#
# c create, g get, l list, w watch, u update, p patch, d delete, D deletecollection; - nothing.
#
# anonymous     no credentials
# bootstrapper  a join token
# node-own      a kubelet, on its own Node and Lease, its own Pods and what those refer to
# node-other    a kubelet, on objects of others; NodeRestriction refuses more on the object itself
# agent-other   a Waypost node, which is also proxy, DNS server and announcer, on objects of others
# account       a ServiceAccount without bindings
# view, edit, admin   users with a RoleBinding to that ClusterRole in the namespace of the object
# master        the group system:masters
";

/// A resource or subresource that is served.
struct Served {
    group: String,
    version: String,
    resource: String,
    subresource: String,
    namespaced: bool,
    verbs: Vec<String>,
}

impl Served {
    fn title(&self) -> String {
        let part = if self.subresource.is_empty() { String::new() } else { format!("/{}", self.subresource) };
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        format!("{}{group}{part}", self.resource)
    }

    /// The namespace and the name of the object that a caller is checked with.
    fn object(&self, caller: &Caller, verb: &str) -> (&'static str, &'static str) {
        let (plain, node) = caller.objects;
        let name = match self.resource.as_str() {
            "csinodes" | "leases" | "nodes" => node,
            "namespaces" => NAMESPACE,
            _ => plain,
        };
        let is_node = caller.user.starts_with("system:node:");
        let namespace = match (self.resource.as_str(), self.namespaced) {
            ("leases", _) if is_node => "kube-node-lease",
            ("namespaces", _) if has_name(verb, self) => NAMESPACE,
            (_, true) => NAMESPACE,
            (_, false) => "",
        };
        (namespace, if has_name(verb, self) { name } else { "" })
    }

    fn path(&self, caller: &Caller, verb: &str) -> String {
        let (namespace, name) = self.object(caller, verb);
        let mut path = match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        if self.namespaced {
            path.push_str(&format!("/namespaces/{namespace}"));
        }
        path.push_str(&format!("/{}", self.resource));
        for part in [name, self.subresource.as_str()].into_iter().filter(|part| !part.is_empty()) {
            path.push_str(&format!("/{part}"));
        }
        path
    }
}

fn has_name(verb: &str, served: &Served) -> bool {
    match verb {
        "get" | "update" | "patch" | "delete" => true,
        _ => !served.subresource.is_empty(),
    }
}

/// Everything that is served, in the order of discovery.
fn served(admin: &mut Wire) -> Vec<Served> {
    let groups = admin.ask("GET", "/apis", &[], b"").success();
    let mut versions = vec![(String::new(), "v1".to_owned(), "/api/v1".to_owned())];
    for group in groups["groups"].as_array().expect("groups") {
        let (name, version) = (&group["name"], &group["preferredVersion"]["version"]);
        let (name, version) = (name.as_str().expect("a name"), version.as_str().expect("a version"));
        versions.push((name.to_owned(), version.to_owned(), format!("/apis/{name}/{version}")));
    }
    let mut out = Vec::new();
    for (group, version, path) in versions {
        let list = admin.ask("GET", &path, &[], b"").success();
        for resource in list["resources"].as_array().expect("resources") {
            let name = resource["name"].as_str().expect("a name");
            let (main, part) = name.split_once('/').unwrap_or((name, ""));
            let verbs = resource["verbs"].as_array().expect("verbs").iter();
            out.push(Served {
                group: group.clone(),
                version: version.clone(),
                resource: main.to_owned(),
                subresource: part.to_owned(),
                namespaced: resource["namespaced"] == true,
                verbs: verbs.filter_map(Value::as_str).map(str::to_owned).collect(),
            });
        }
    }
    out
}

fn make(admin: &mut Wire, path: &str, body: &Value) {
    let _ = admin.ask("POST", path, &[JSON], body.to_string().as_bytes()).success();
}

/// The objects that callers are checked with.
fn populate(admin: &mut Wire) {
    make(admin, "/api/v1/namespaces", &json!({"metadata": {"name": NAMESPACE}}));
    let inside = format!("/api/v1/namespaces/{NAMESPACE}");
    for (name, node) in [("own", "n1"), ("other", "n2")] {
        make(admin, "/api/v1/nodes", &json!({"metadata": {"name": node}}));
        for resource in ["serviceaccounts", "secrets", "configmaps"] {
            make(admin, &format!("{inside}/{resource}"), &json!({"metadata": {"name": name}}));
        }
        let volumes = json!([
            {"name": "s", "secret": {"secretName": name}}, {"name": "c", "configMap": {"name": name}},
        ]);
        let spec = json!({
            "nodeName": node, "serviceAccountName": name, "volumes": volumes,
            "containers": [{"name": "c", "image": "i"}],
        });
        make(admin, &format!("{inside}/pods"), &json!({"metadata": {"name": name}, "spec": spec}));
    }
    let bindings = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings");
    for (role, user) in [("view", "vera"), ("edit", "ed"), ("admin", "ada")] {
        let binding = json!({
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        });
        make(admin, &bindings, &binding);
    }
}

/// The result of a SubjectAccessReview.
fn reviewed(admin: &mut Wire, served: &Served, verb: &str, caller: &Caller) -> bool {
    let (namespace, name) = served.object(caller, verb);
    let review = json!({"spec": {
        "user": caller.user, "groups": caller.groups,
        "resourceAttributes": {
            "verb": verb, "group": served.group, "version": served.version, "resource": served.resource,
            "subresource": served.subresource, "namespace": namespace, "name": name,
        },
    }});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let answer = admin.ask("POST", path, &[JSON], review.to_string().as_bytes()).success();
    answer["status"]["allowed"].as_bool().expect("a decision")
}

/// The status code of a request of the caller. Bodies are invalid JSON: an allowed write gets 400, not 403.
fn requested(server: &Server, admin: &mut Wire, served: &Served, verb: &str, caller: &Caller) -> u16 {
    let path = served.path(caller, verb);
    let (method, query, body): (_, _, &[u8]) = match verb {
        "create" => ("POST", "", b"!"),
        "update" => ("PUT", "", b"!"),
        "patch" => ("PATCH", "", b"!"),
        "delete" | "deletecollection" => ("DELETE", "?dryRun=All", b""),
        "watch" => ("GET", "?watch=1&timeoutSeconds=60", b""),
        _ => ("GET", "", b""),
    };
    let media = if verb == "patch" { "application/merge-patch+json" } else { "application/json" };
    let mut headers = vec![("Content-Type", media), ("Impersonate-User", caller.user)];
    headers.extend(caller.groups.iter().map(|group| ("Impersonate-Group", *group)));
    let target = format!("{path}{query}");
    if verb != "watch" {
        return admin.ask(method, &target, &headers, body).code;
    }
    // A watch does not end, so it has its own connection, which is closed here.
    let mut wire = Wire::admin(server);
    wire.send(&request(method, &target, &headers, body)).expect("sent");
    wire.head().expect("an answer").code
}

#[test]
fn b02_every_verb_on_every_kind_is_for_whom_the_table_says() {
    let server = Server::start_with(Home::temporary(), &[]);
    let mut admin = Wire::admin(&server);
    populate(&mut admin);
    let mut table = format!("{HEADING}\n{:<58}", "resource");
    for caller in &CALLERS {
        write!(table, " {:<12}", caller.title).expect("a string");
    }
    for served in served(&mut admin) {
        write!(table, "\n{:<58}", served.title()).expect("a string");
        for caller in &CALLERS {
            let mut cell = String::new();
            for (verb, letter) in VERBS.iter().filter(|(verb, _)| served.verbs.iter().any(|own| own == verb)) {
                let allowed = reviewed(&mut admin, &served, verb, caller);
                if allowed {
                    cell.push(*letter);
                }
                if caller.is_restricted || CONNECTIONS.contains(&served.subresource.as_str()) {
                    continue;
                }
                let code = requested(&server, &mut admin, &served, verb, caller);
                assert_eq!(code != 403, allowed, "{verb} {} as {}: {code}", served.title(), caller.title);
            }
            write!(table, " {:<12}", if cell.is_empty() { "-" } else { &cell }).expect("a string");
        }
    }
    let table: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/access.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &table).expect("written");
        return;
    }
    let wanted = std::fs::read_to_string(&path).expect("the table");
    for (wanted, found) in wanted.lines().zip(table.lines()) {
        assert_eq!(wanted, found, "docs/access.txt is not true; with BLESS=1 this test writes it anew");
    }
    assert_eq!(wanted.lines().count(), table.lines().count());
}
