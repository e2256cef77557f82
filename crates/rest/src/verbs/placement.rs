//! Where Pods go: `pods/binding` and `bindings` give a Pod its node, `pods/eviction` asks it to leave.
//!
//! Both are small messages about a Pod that become a change of it, and are answered with a Status.

use std::sync::Arc;

use api::dynamic_admission::request::Operation;
use api::field::Errors;
use api::kinds::{binding, pod};
use api::lifecycle;
use api::options::{DeleteOptions, WriteOptions};
use api::status::Status;
use api::value::ValueExt as _;
use http::header;
use serde_json::{Value, json};

use super::{about, delete, manager};
use crate::handler::{Ask, Shared};
use crate::registry::{Call, Change, Source, check_name};
use crate::reply::Reply;
use crate::route::Target;
use crate::{body, negotiate};

/// Gives a Pod its node. The Pod is named by the URL, or by the Binding that is posted to the collection.
pub(super) async fn bind(
    shared: &Arc<Shared>,
    ask: &Ask<'_>,
    target: &Target<'_>,
    bytes: &[u8],
    warnings: &mut Vec<String>,
) -> Result<Reply, Status> {
    let options = WriteOptions::create(&ask.query)?;
    let media = negotiate::body_media(ask.header(header::CONTENT_TYPE))?;
    let mut sent = body::object(&binding::KIND, media, bytes, options.field_validation, warnings)?;
    let name = target.name.unwrap_or_else(|| sent.text("metadata.name")).to_owned();
    let name = name.as_str();
    if target.name.is_some() && !sent.text("metadata.name").is_empty() {
        check_name(&sent, name)?;
    }
    let mut errors = Errors::default();
    binding::KIND.rules.validate_create(&sent, &mut errors);
    if !errors.is_empty() {
        return Err(Status::invalid("", binding::KIND.kind, name, &errors));
    }
    let now = lifecycle::seconds(ask.now);
    let manager = manager(ask, &options.field_manager);
    let call = call(ask, target, &manager, options.dry_run);
    shared.registry.admit_message(&call, about(target, Operation::Create, name), &mut sent, warnings).await?;
    let run = |old: &Value, _: &mut Vec<String>| bound(&sent, old, &now);
    shared.registry.update(&call, &Change { name, source: Source::Patch(&run) }, warnings).await?;
    Ok(success(ask))
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

/// Deletes a Pod as its Eviction says. Nothing else can refuse it: there are no disruption budgets.
pub(super) async fn evict(
    shared: &Arc<Shared>,
    ask: &Ask<'_>,
    target: &Target<'_>,
    bytes: &[u8],
    warnings: &mut Vec<String>,
) -> Result<Reply, Status> {
    let name = target.name.unwrap_or_default();
    let options = WriteOptions::create(&ask.query)?;
    let media = negotiate::body_media(ask.header(header::CONTENT_TYPE))?;
    let mut sent = body::message("policy.Eviction", media, bytes)?;
    let named = sent.text("metadata.name");
    if !named.is_empty() && named != name {
        return Err(Status::bad_request(format!(
            "name in URL does not match name in Eviction object: name in URL: {name}, name in Eviction object: {named}"
        )));
    }
    let part = target.subresource;
    let asked = Call { subresource: part, ..call(ask, target, "", options.dry_run) };
    shared.registry.admit_message(&asked, about(target, Operation::Create, name), &mut sent, warnings).await?;
    let mut wish = DeleteOptions::from_value(sent.at("deleteOptions"))?;
    wish.dry_run |= options.dry_run;
    let call = Call { dry_run: wish.dry_run, ..asked };
    shared.registry.delete(&call, name, &delete::deletion(&wish), warnings).await?;
    Ok(success(ask))
}

/// A call about a Pod, whatever the URL names.
fn call<'a>(ask: &Ask<'a>, target: &Target<'a>, manager: &'a str, dry_run: bool) -> Call<'a> {
    let subresource = pod::KIND.subresource(pod::BINDING);
    Call { kind: &pod::KIND, subresource, ..super::call(ask, target, manager, dry_run) }
}

fn success(ask: &Ask<'_>) -> Reply {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Reply::document(201, ask.view.success(&status))
}
