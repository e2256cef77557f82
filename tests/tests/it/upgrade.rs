//! Upgrades: stores that earlier releases have written are read, updated and served by this one.
//!
//! `tests/stores/VERSION` has the store of a release and what its server answered (`scripts/record-store`). The server is started on a copy of
//! it: first as a member that is not the leader, so that no controller changes anything, then as usual.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use tar::Archive;
use tempfile::TempDir;
use testbed::session::{Session, text};
use testbed::{Home, Server};

const RECORDED_SERVICES: &str = "/api/v1/namespaces/upgrade/services";

/// What a server answered: the items of every list, by path.
type Answers = BTreeMap<String, Vec<Value>>;

/// A recorded store.
struct Recorded {
    folder: PathBuf,
    name: &'static str,
}

/// The stores of all recorded releases.
fn recorded(name: &'static str) -> Vec<Recorded> {
    let stores = Path::new(env!("CARGO_MANIFEST_DIR")).join("stores");
    let entries = fs::read_dir(stores).expect("recorded stores").map(|entry| entry.expect("an entry").path());
    let found: Vec<Recorded> = entries.filter(|path| path.is_dir()).map(|folder| Recorded { folder, name }).collect();
    assert!(!found.is_empty(), "there are no recorded stores");
    found
}

impl Recorded {
    fn open(&self, ending: &str) -> GzDecoder<File> {
        let path = self.folder.join(format!("{}.{ending}", self.name));
        GzDecoder::new(File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }

    fn answers(&self) -> Answers {
        serde_json::from_reader(self.open("json.gz")).expect("recorded answers")
    }

    /// A data directory with a copy of the store.
    fn copy(&self) -> TempDir {
        let home = testbed::folder();
        Archive::new(self.open("tar.gz")).unpack(home.path()).expect("a store");
        home
    }
}

/// Starts a server whose controllers wait: according to the recorded Lease, another server is the leader.
fn start_without_controllers(home: &Path, arguments: &[&str]) -> Server {
    Server::start_with(Home::Kept(home.to_owned()), &[&["--leader-elect"][..], arguments].concat())
}

/// `namespace/name`.
fn id(object: &Value) -> (String, String) {
    (text(object, "/metadata/namespace").to_owned(), text(object, "/metadata/name").to_owned())
}

/// Objects that a server writes when it starts: its own address, and the default roles of its release.
fn is_written_at_start(path: &str, object: &Value) -> bool {
    let is_own = matches!(path, "/api/v1/endpoints" | "/apis/discovery.k8s.io/v1/endpointslices")
        && id(object).0 == "default"
        && id(object).1.starts_with("kubernetes");
    is_own || object["metadata"]["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"
}

/// Events expire an hour after they were written: those that are left are compared.
fn expires(path: &str) -> bool {
    path.ends_with("/events")
}

/// Where an item of a list is.
fn path_of(list: &str, object: &Value) -> String {
    let (namespace, name) = id(object);
    let (version, plural) = list.rsplit_once('/').expect("a path");
    match namespace.as_str() {
        "" => format!("{list}/{name}"),
        namespace => format!("{version}/namespaces/{namespace}/{plural}/{name}"),
    }
}

/// Compares every list with the recorded one; how many objects were compared.
fn compare(api: &mut Session, answers: &Answers) -> usize {
    let mut compared = 0;
    for (path, recorded) in answers {
        let found: BTreeMap<_, _> = api.items(path).into_iter().map(|object| (id(&object), object)).collect();
        for object in recorded {
            let now = found.get(&id(object));
            if is_written_at_start(path, object) {
                assert!(now.is_some(), "{path}: {:?} is missing", id(object));
            } else if now.is_some() || !expires(path) {
                assert_eq!(now, Some(object), "{path}: {:?}", id(object));
                compared += 1;
            }
        }
    }
    compared
}

#[test]
fn objects_of_earlier_releases_read_as_they_were() {
    for store in recorded("plain") {
        let (home, answers) = (store.copy(), store.answers());
        let server = start_without_controllers(home.path(), &[]);
        let mut api = server.session();
        assert!(compare(&mut api, &answers) >= 100, "few objects in {}", store.folder.display());
        // One by one, too: a list copies bytes where a read of one object may take another way.
        for (path, objects) in answers.iter().filter(|(path, _)| !expires(path)) {
            for object in objects.iter().filter(|object| !is_written_at_start(path, object)) {
                let mut read = api.get(&path_of(path, object)).success();
                for key in ["apiVersion", "kind"] {
                    assert!(read[key].is_string(), "{path}: {read}");
                    if object.get(key).is_none() {
                        read.as_object_mut().expect("an object").remove(key);
                    }
                }
                assert_eq!(&read, object);
            }
        }
    }
}

#[test]
fn objects_of_earlier_releases_can_be_updated_and_keep_their_content() {
    for store in recorded("plain") {
        let (home, answers) = (store.copy(), store.answers());
        let mut server = start_without_controllers(home.path(), &[]);
        let mut api = server.session();
        let mut updated = BTreeMap::new();
        for (path, objects) in answers.iter().filter(|(path, _)| !expires(path)) {
            for object in objects.iter().filter(|object| !is_written_at_start(path, object)) {
                let path = path_of(path, object);
                let mut next = api.get(&path).success();
                next["metadata"]["annotations"]["example.com/updated"] = "yes".into();
                let written = api.put(&path, &next).success();
                assert_eq!(content(&written), content(&next), "{path}");
                assert_ne!(written["metadata"]["resourceVersion"], next["metadata"]["resourceVersion"], "{path}");
                updated.insert(path, written);
            }
        }
        server.kill();
        let server = start_without_controllers(home.path(), &[]);
        let mut api = server.session();
        for (path, object) in updated {
            assert_eq!(content(&api.get(&path).success()), content(&object), "{path}");
        }
    }
}

/// An object without what writes change: annotations are part of the generation of Deployments.
fn content(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().expect("metadata");
    metadata.retain(|key, _| !matches!(key.as_str(), "generation" | "resourceVersion" | "managedFields"));
    object
}

#[test]
fn allocations_of_earlier_releases_stay_and_are_not_given_twice() {
    for store in recorded("plain") {
        let (home, answers) = (store.copy(), store.answers());
        let server = Server::start_with(Home::Kept(home.path().to_owned()), &[]);
        let mut api = server.session();
        let services = &answers["/api/v1/services"];
        let (addresses, ports) = (cluster_ips(services), node_ports(services));
        assert!(addresses.len() >= 10 && ports.len() >= 5, "{addresses:?} {ports:?}");
        for address in &addresses {
            let family = if address.contains(':') { "IPv6" } else { "IPv4" };
            let spec = json!({"clusterIP": address, "ipFamilies": [family], "ports": [{"port": 80}]});
            let refused = api.refuse("twin", spec);
            assert!(refused.contains("provided IP is already allocated"), "{refused}");
        }
        for port in &ports {
            let refused = api.refuse("twin", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}));
            assert!(refused.contains("provided port is already allocated"), "{refused}");
        }
        let mut made = Vec::new();
        for number in 0..20 {
            let spec = json!({"type": "NodePort", "ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}]});
            made.push(api.create(&format!("new-{number}"), spec));
        }
        assert!(cluster_ips(&made).iter().all(|address| !addresses.contains(address)), "{made:?}");
        assert!(node_ports(&made).iter().all(|port| !ports.contains(port)), "{made:?}");

        until_controllers_work(&mut api);
        let specs = |services: &[Value]| -> BTreeMap<_, _> {
            let recorded = services.iter().filter(|service| id(service).0 == "upgrade");
            recorded.map(|service| (id(service), service["spec"].clone())).collect()
        };
        assert_eq!(specs(&api.items("/api/v1/services")), specs(services));
        // Released values can be allocated again.
        let _ = api.delete(&format!("{RECORDED_SERVICES}/node-port-chosen")).success();
        let spec = json!({"type": "NodePort", "clusterIP": "10.96.0.78", "ports": [{"port": 80, "nodePort": 30077}]});
        assert_eq!(api.create("heir", spec)["spec"]["clusterIP"], "10.96.0.78");
    }
}

/// Waits until the controllers have read everything and write: a new Service with a selector gets its EndpointSlice.
fn until_controllers_work(api: &mut Session) {
    let _ = api.create("selecting", json!({"selector": {"app": "nothing"}, "ports": [{"port": 80}]}));
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let query = "&labelSelector=kubernetes.io/service-name%3Dselecting";
    api.watch(slices, query).until(|_, slice| slice["addressType"] == "IPv4");
}

fn cluster_ips(services: &[Value]) -> Vec<String> {
    let listed = services.iter().filter_map(|service| service["spec"]["clusterIPs"].as_array()).flatten();
    listed.filter_map(Value::as_str).filter(|address| *address != "None").map(str::to_owned).collect()
}

fn node_ports(services: &[Value]) -> Vec<u64> {
    let ports = services.iter().filter_map(|service| service["spec"]["ports"].as_array()).flatten();
    let health = services.iter().filter_map(|service| service["spec"]["healthCheckNodePort"].as_u64());
    ports.filter_map(|port| port["nodePort"].as_u64()).chain(health).filter(|port| *port != 0).collect()
}

#[test]
fn custom_resources_of_earlier_releases_are_served_in_all_versions_and_validated() {
    for store in recorded("plain") {
        let home = store.copy();
        let server = Server::start_with(Home::Kept(home.path().to_owned()), &[]);
        let mut api = server.session();
        let widgets = "/apis/example.com/v1/namespaces/upgrade/widgets";
        assert_eq!(api.names(&format!("{widgets}?fieldSelector=spec.color%3Dgreen")), ["full"]);
        let refused = api.merge(&format!("{widgets}/full"), &json!({"spec": {"replicas": 3}})).refused(422);
        assert!(refused.contains("green widgets are rare"), "{refused}");
        assert_eq!(api.get(&format!("{widgets}/full/scale")).success()["spec"]["replicas"], 2);
        for (version, unit) in [("v1", json!("mm")), ("v1beta1", Value::Null)] {
            let gadgets = api.items(&format!("/apis/example.com/{version}/gadgets"));
            let sizes: Vec<&Value> = gadgets.iter().map(|gadget| &gadget["size"]).collect();
            assert_eq!(sizes, [&json!(3), &json!(4)], "{version}");
            assert!(gadgets.iter().all(|gadget| gadget["unit"] == unit), "{version}: {gadgets:?}");
        }
    }
}

#[test]
fn encrypted_stores_of_earlier_releases_are_read_with_their_key() {
    for store in recorded("encrypted") {
        let home = store.copy();
        let keys = testbed::folder();
        let file = keys.path().join("encryption.yaml");
        fs::copy(store.folder.join("encryption.yaml"), &file).expect("the key");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("changed");
        // Keys are for the API server alone.
        std::os::unix::fs::chown(&file, Some(testbed::SERVER_USER), None).expect("given");
        let arguments = ["--encryption-provider-config", file.to_str().expect("a path")];
        let server = start_without_controllers(home.path(), &arguments);
        let mut api = server.session();
        let answers = store.answers();
        compare(&mut api, &answers);
        assert!(answers["/api/v1/secrets"].len() >= 4, "the store has Secrets");
        let secret = "/api/v1/namespaces/upgrade/secrets/opaque";
        let change = json!({"data": {"more": "eA=="}});
        assert_eq!(api.merge(secret, &change).success()["data"]["more"], "eA==");
    }
}
