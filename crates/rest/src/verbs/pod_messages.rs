//! POST to `pods/binding` and `bindings` (assigns a Pod to a node) and to `pods/eviction` (deletes it, if its budget allows).
//!
//! In: a Binding or an Eviction. Out: a change of the Pod, and a Status as the response.

use api::dynamic_admission::request::Operation;
use api::field::Errors;
use api::kinds::{binding, pod};
use api::lifecycle;
use api::options::DeleteOptions;
use api::status::Status;
use api::value::ValueExt as _;
use serde_json::{Value, json};

use super::api_request::ApiRequest;
use super::delete;
use crate::registry::{Call, Change, Source, check_name};
use crate::reply::Reply;

/// Assigns a Pod to a node. The Pod is named by the URL, or by the Binding that is posted to the collection.
pub(super) async fn bind(request: &ApiRequest<'_>, warnings: &mut Vec<String>) -> Result<Reply, Status> {
    let registry = &request.shared.registry;
    let (options, mut sent) = request.create(&binding::KIND, warnings)?;
    let name = request.target.name.unwrap_or_else(|| sent.text("metadata.name")).to_owned();
    let name = name.as_str();
    if request.target.name.is_some() && !sent.text("metadata.name").is_empty() {
        check_name(&sent, name)?;
    }
    let mut errors = Errors::default();
    binding::KIND.rules.validate_create(&sent, &mut errors);
    if !errors.is_empty() {
        return Err(Status::invalid("", binding::KIND.kind, name, &errors));
    }
    let now = lifecycle::seconds(request.context.now);
    let subresource = pod::KIND.subresource(pod::BINDING);
    let call = Call { subresource, ..pod_call(request, &options.field_manager, options.dry_run) };
    registry.admit_message(&call, request.about(Operation::Create, name), &mut sent, warnings).await?;
    let run = |old: &Value, _: &mut Vec<String>| bound(&sent, old, &now);
    registry.update(&call, &Change { name, source: Source::Patch(&run) }, warnings).await?;
    Ok(success(request))
}

/// A Pod with the node that a Binding names.
fn bound(sent: &Value, old: &Value, now: &str) -> Result<Value, Status> {
    let (name, uid) = (old.text("metadata.name"), sent.text("metadata.uid"));
    let refuse = |why: &str| {
        let mut resource = pod::KIND.resource();
        resource.plural = "pods/binding";
        Err(Status::conflict(resource, name, why))
    };
    if !uid.is_empty() && uid != old.text("metadata.uid") {
        return refuse(&format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            old.text("metadata.uid")
        ));
    }
    let mut new = old.clone();
    if let Err(why) = pod::bind(&mut new, sent.text("target.name"), now) {
        return refuse(&why);
    }
    for (key, value) in sent.map("metadata.annotations").into_iter().flatten() {
        let mut annotations = new.map("metadata.annotations").cloned().unwrap_or_default();
        annotations.insert(key.clone(), value.clone());
        new.put("metadata.annotations", annotations);
    }
    Ok(new)
}

/// Deletes a Pod with the options of its Eviction, if its PodDisruptionBudget allows it.
pub(super) async fn evict(request: &ApiRequest<'_>, warnings: &mut Vec<String>) -> Result<Reply, Status> {
    let (registry, name) = (&request.shared.registry, request.name);
    let dry_run = request.create_options()?.dry_run;
    let mut sent = request.message("policy.Eviction")?;
    let named = sent.text("metadata.name");
    if !named.is_empty() && named != name {
        return Err(Status::bad_request(format!(
            "name in URL does not match name in Eviction object: name in URL: {name}, name in Eviction object: {named}"
        )));
    }
    let call = pod_call(request, "", dry_run);
    registry.admit_message(&call, request.about(Operation::Create, name), &mut sent, warnings).await?;
    let mut options = DeleteOptions::from_value(sent.at("deleteOptions"))?;
    options.dry_run |= dry_run;
    let call = Call { dry_run: options.dry_run, ..call };
    registry.evict(&call, name, &delete::deletion(&options), warnings).await?;
    Ok(success(request))
}

/// A call for the Pod, also where the URL names `bindings`.
fn pod_call<'a>(request: &'a ApiRequest<'_>, manager: &'a str, dry_run: bool) -> Call<'a> {
    Call { kind: &pod::KIND, ..request.call(manager, dry_run) }
}

fn success(request: &ApiRequest<'_>) -> Reply {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Reply::document(201, request.context.view.success(&status))
}
