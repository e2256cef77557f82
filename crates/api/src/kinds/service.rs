//! Service: an abstract way to reach a set of Pods, and the kind with by far the most rules.
//!
//! The details are in the modules below, one topic each; this file defines when each is applied. On create:
//! defaults, then addresses and ports are claimed, then the status is cleared, then everything is validated. So a
//! claim that fails hides every other error, as in kube-apiserver. On update the same, with omitted fields
//! completed from the old object.

use serde_json::{Value, json};

use crate::claims::Claims;
use crate::field::Errors;
use crate::kind::{Kind, Rules, Selectable, Subresource, keep_status, status_of};
use crate::status::Status;
use crate::value::ValueExt as _;

mod addresses;
mod defaults;
mod families;
mod fields;
mod node_ports;
mod normalise;
mod status;
mod table;
mod validate;
mod validate_update;
mod warnings;
mod wipe;

#[cfg(test)]
mod tests;

/// The kind.
pub static KIND: Kind = Kind {
    kind: "Service",
    plural: "services",
    singular: "service",
    short_names: &["svc"],
    categories: &["all"],
    schema: "core.Service",
    table: "services/specs",
    subresources: &[
        Subresource {
            name: "proxy",
            kind: "ServiceProxyOptions",
            verbs: &["create", "delete", "get", "patch", "update"],
        },
        status_of("Service"),
    ],
    create_on_update: true,
    delete_returns_object: true,
    selectable: &[
        Selectable { label: "spec.clusterIP", value: |object| object.text("spec.clusterIP").to_owned() },
        Selectable { label: "spec.type", value: |object| object.text("spec.type").to_owned() },
    ],
    table_view: &table::TABLE,
    ..Kind::common(&ServiceRules)
};

/// The rules of Services.
struct ServiceRules;

impl Rules for ServiceRules {
    fn default(&self, object: &mut Value) {
        defaults::fill(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        object.put("status", json!({"loadBalancer": {}}));
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_status(new, old);
        wipe::wipe(new, &defaults::seen(old));
    }

    fn begin_create(&self, object: &mut Value, claims: &mut dyn Claims) -> Result<(), Status> {
        normalise::on_create(object);
        families::settle(object, None, claims.families())?;
        addresses::claim_all(object, claims)?;
        node_ports::claim_all(object, claims)
    }

    fn begin_update(&self, new: &mut Value, old: &Value, claims: &mut dyn Claims) -> Result<(), Status> {
        let families = claims.families().to_vec();
        let old = &defaults::seen_with(old, families.first().copied());
        normalise::keep_allocated(new, old);
        normalise::on_update(new, old);
        families::settle(new, Some(old), &families)?;
        let freed_addresses = addresses::change(new, old, claims)?;
        let freed_ports = node_ports::change(new, old, claims)?;
        // Only now: nothing that this very update gives up may be claimed by it.
        for address in freed_addresses {
            claims.release_address(address);
        }
        for port in freed_ports {
            claims.release_port(port);
        }
        Ok(())
    }

    fn finish_delete(&self, object: &Value, claims: &mut dyn Claims) {
        for address in addresses::held(&defaults::seen(object)) {
            claims.release_address(address);
        }
        for port in node_ports::held(object) {
            claims.release_port(port);
        }
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        crate::meta::validate(object, true, crate::names::name_is_label, errors);
        validate::validate(object, None, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        crate::meta::validate_update(new, old, errors);
        validate_update::validate(new, &defaults::seen(old), errors);
    }

    fn validate_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        crate::meta::validate_update(new, old, errors);
        status::validate(new, old, errors);
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>, out: &mut Vec<String>) {
        warnings::warn(new, out);
    }

    fn status_warnings(&self, new: &Value, _old: &Value, out: &mut Vec<String>) {
        status::warn(new, out);
    }

    fn on_read(&self, object: &mut Value) {
        defaults::fill_on_read(object, None);
    }
}
