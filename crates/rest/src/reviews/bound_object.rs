//! `spec.boundObjectRef` of a TokenRequest: the object that the token is bound to, and what a node may bind.
//!
//! In: the reference, the account, and the lookup of objects. Out: the objects that the token names, or an error with the message of
//! kube-apiserver. The rules for nodes are those of NodeRestriction: a token only for a Pod of the node, and only for an audience that a
//! volume of that Pod requests.

use api::field::quote;
use api::kinds::serviceaccount;
use api::status::{Resource, Status};
use api::value::ValueExt as _;
use serde_json::{Value, json};

use crate::auth::objects::Referent;
use crate::auth::service_account::{Binding, Reference};
use crate::auth::{Authenticator, User};
use crate::authz::node;

/// The objects that a token is bound to.
#[derive(Default)]
pub(super) struct Objects {
    pod: Option<Value>,
    secret: Option<Value>,
    node: Option<Value>,
}

impl Objects {
    /// The binding in the claims of the token.
    pub(super) fn binding(&self) -> Binding<'_> {
        let [pod, secret, node] = [&self.pod, &self.secret, &self.node].map(|one| one.as_ref().map(Reference::to));
        Binding { pod, secret, node }
    }
}

/// Finds the bound objects of a request.
///
/// # Errors
/// 400, 404 and 409, with the messages of kube-apiserver.
pub(super) fn find(body: &Value, account: &Value, authn: &Authenticator) -> Result<Objects, Status> {
    let mut objects = Objects::default();
    if !body.has("spec.boundObjectRef") {
        return Ok(objects);
    }
    let target = body.at("spec.boundObjectRef");
    let (group, version) = target.text("apiVersion").split_once('/').unwrap_or(("", target.text("apiVersion")));
    let (kind, name) = (target.text("kind"), target.text("name"));
    let namespace = account.text("metadata.namespace");
    let get = |what: Referent, namespace| {
        authn.find(what, namespace, name).ok_or_else(|| Status::not_found(what.kind().resource(), name))
    };
    let found = match (group, kind) {
        ("", "Pod") => {
            let pod = get(Referent::Pod, namespace)?;
            runs_as(&pod, account)?;
            objects.node = node_of(&pod, authn);
            objects.pod.insert(pod)
        }
        ("", "Secret") => objects.secret.insert(get(Referent::Secret, namespace)?),
        ("", "Node") => objects.node.insert(get(Referent::Node, "")?),
        _ => {
            let message = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(Status::bad_request(message));
        }
    };
    let uid = target.text("uid");
    if !uid.is_empty() && uid != found.text("metadata.uid") {
        return Err(Status::conflict(Resource { group, plural: kind, kind }, name, &other_uid(uid)));
    }
    Ok(objects)
}

fn other_uid(uid: &str) -> String {
    format!(
        "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been \
         deleted and then recreated"
    )
}

/// The account of a Pod; `default` if it names none.
fn runs_as(pod: &Value, account: &Value) -> Result<(), Status> {
    let own = match pod.text("spec.serviceAccountName") {
        "" => "default",
        name => name,
    };
    let name = account.text("metadata.name");
    if own == name {
        return Ok(());
    }
    let name = quote(name);
    let message =
        format!("cannot bind token for serviceaccount {name} to pod running with different serviceaccount name.");
    Err(Status::bad_request(message))
}

/// The Node of a Pod; only the name if it does not exist.
fn node_of(pod: &Value, authn: &Authenticator) -> Option<Value> {
    let name = pod.text("spec.nodeName");
    let found = authn.find(Referent::Node, "", name).filter(|_| !name.is_empty());
    found.or_else(|| (!name.is_empty()).then(|| json!({"metadata": {"name": name}})))
}

/// Refuses what a node may not request; other users are not restricted.
///
/// # Errors
/// 403 and 404, with the messages of kube-apiserver.
pub(super) fn restrict_node(body: &Value, account: &Value, user: &User, authn: &Authenticator) -> Result<(), Status> {
    let Some(own) = node::name_of(user) else { return Ok(()) };
    let refuse = |why: &str| {
        let accounts = serviceaccount::KIND.resource();
        Err(Status::forbidden(accounts, account.text("metadata.name"), why))
    };
    let target = body.at("spec.boundObjectRef");
    let (name, uid) = (target.text("name"), target.text("uid"));
    if target.text("apiVersion") != "v1" || target.text("kind") != "Pod" || name.is_empty() {
        return refuse("node requested token not bound to a pod");
    }
    if uid.is_empty() {
        return refuse("node requested token with a pod binding without a uid");
    }
    let pod = authn.find(Referent::Pod, account.text("metadata.namespace"), name);
    let pod = pod.ok_or_else(|| Status::not_found(Referent::Pod.kind().resource(), name))?;
    if pod.text("metadata.uid") != uid {
        return refuse(&other_uid(uid));
    }
    if pod.text("spec.nodeName") != own {
        return refuse("node requested token bound to a pod scheduled on a different node");
    }
    let audience = match body.texts("spec.audiences")[..] {
        [] => "",
        [one] => one,
        _ => return refuse("node may only request 0 or 1 audiences"),
    };
    if asks_for(&pod, audience) {
        return Ok(());
    }
    refuse(&format!("{} is not authorized to request tokens for audience {}", user.name, quote(audience)))
}

/// Whether a volume of a Pod requests tokens for an audience.
fn asks_for(pod: &Value, audience: &str) -> bool {
    let sources = pod.items("spec.volumes").iter().flat_map(|volume| volume.items("projected.sources"));
    let mut tokens = sources.filter(|source| source.has("serviceAccountToken"));
    tokens.any(|source| source.text("serviceAccountToken.audience") == audience)
}
