//! A controller made with kube-rs for a custom resource: finalizer, an owned object, a status, and a deletion that waits for it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{self, Event, finalizer};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use testbed::Server;

use super::{client, typed};

const FINALIZER: &str = "kube-rs.example.com/record";

/// Time limit of a wait.
const TIMEOUT: Duration = Duration::from_secs(60);

fn kind() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("kube-rs.example.com", "v1", "Gadget"))
}

fn gadgets(client: &Client) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), "default", &kind())
}

fn records(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "kube-public")
}

async fn define(client: &Client) {
    let definition: CustomResourceDefinition = typed(json!({
        "metadata": {"name": "gadgets.kube-rs.example.com"},
        "spec": {
            "group": "kube-rs.example.com", "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"color": {"type": "string", "default": "red"}}},
                    "status": {"type": "object", "properties": {"color": {"type": "string"}}},
                }}},
            }],
        },
    }));
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &definition).await.expect("created");
    let established = await_condition(definitions, "gadgets.kube-rs.example.com", conditions::is_crd_established());
    tokio::time::timeout(TIMEOUT, established).await.expect("established in time").expect("watched");
}

/// Writes a record outside of the owner's namespace, an owned object and the status; deletes the record at the end.
async fn reconcile(gadget: Arc<DynamicObject>, client: Arc<Client>) -> Result<Action, finalizer::Error<kube::Error>> {
    let client = &*client;
    finalizer(&gadgets(client), FINALIZER, gadget, |event| async move {
        match event {
            Event::Apply(gadget) => applied(&gadget, client).await,
            Event::Cleanup(gadget) => {
                records(client).delete(&gadget.name_any(), &DeleteParams::default()).await?;
            }
        }
        Ok(Action::await_change())
    })
    .await
}

async fn applied(gadget: &DynamicObject, client: &Client) {
    let name = gadget.name_any();
    let color = gadget.data["spec"]["color"].clone();
    let forced = PatchParams::apply("gadgets").force();
    let mut map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"color": color}});
    records(client).patch(&name, &forced, &Patch::Apply(&map)).await.expect("a record");
    map["metadata"]["ownerReferences"] = json!([gadget.controller_owner_ref(&kind())]);
    let owned: Api<ConfigMap> = Api::default_namespaced(client.clone());
    owned.patch(&name, &forced, &Patch::Apply(&map)).await.expect("an owned object");
    let status = json!({"status": {"color": color}});
    let merged = gadgets(client).patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await;
    merged.expect("a status");
}

async fn until(gadgets: &Api<DynamicObject>, name: &str, pointer: &str, value: &Value) {
    let has = |gadget: Option<&DynamicObject>| gadget.and_then(|one| one.data.pointer(pointer)) == Some(value);
    let seen = await_condition(gadgets.clone(), name, has);
    tokio::time::timeout(TIMEOUT, seen).await.expect("a status in time").expect("watched");
}

#[tokio::test]
async fn b07_a_controller_of_kube_rs_follows_a_custom_resource_to_its_end() {
    let server = Server::start();
    let client = client(&server).await;
    define(&client).await;
    let gadgets = gadgets(&client);
    let controller = Controller::new_with(gadgets.clone(), watcher::Config::default(), kind())
        .owns(Api::<ConfigMap>::default_namespaced(client.clone()), watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(1)), Arc::new(client.clone()));
    let controller = tokio::spawn(controller.for_each(|_| async {}));

    let gadget = DynamicObject::new("one", &kind()).data(json!({"spec": {}}));
    let created = gadgets.create(&PostParams::default(), &gadget).await.expect("created");
    until(&gadgets, "one", "/status/color", &json!("red")).await;
    let blue = Patch::Merge(json!({"spec": {"color": "blue"}}));
    gadgets.patch("one", &PatchParams::default(), &blue).await.expect("patched");
    until(&gadgets, "one", "/status/color", &json!("blue")).await;
    let record = records(&client).get("one").await.expect("a record");
    assert_eq!(record.data.and_then(|data| data.get("color").cloned()).as_deref(), Some("blue"));

    gadgets.delete("one", &DeleteParams::default()).await.expect("deleted");
    let uid = created.meta().uid.clone().expect("a UID");
    let gone = await_condition(gadgets.clone(), "one", conditions::is_deleted(&uid));
    tokio::time::timeout(TIMEOUT, gone).await.expect("finalized in time").expect("watched");
    assert!(records(&client).get_opt("one").await.expect("an answer").is_none(), "the record was left");
    let owned: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let gone = await_condition(owned, "one", |map: Option<&ConfigMap>| map.is_none());
    tokio::time::timeout(TIMEOUT, gone).await.expect("collected in time").expect("watched");
    controller.abort();
}
