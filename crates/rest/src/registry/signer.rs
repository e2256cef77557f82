//! CertificateSigningRequests: sets the author, and authorizes approvers and signers for the signer name, beyond the permission to
//! write `approval` or `status`.
//!
//! In: the user, and the request before and after. Out: 403 with the messages of kube-apiserver, or the request with its author.
//! The signer is that of the stored request: a change cannot choose another.

use api::field::quote;
use api::kinds::certificatesigningrequest::request::Request;
use api::kinds::certificatesigningrequest::{self as csr, API_CLIENT, APPROVAL};
use api::status::Status;
use api::value::ValueExt as _;
use serde_json::{Value, json};

use super::{Call, Registry};
use crate::auth::User;
use crate::authz::Attributes;
use crate::pki::MASTERS;

/// Checks and completes a new request.
pub(super) fn on_create(call: &Call<'_>, name: &str, object: &mut Value) -> Result<(), Status> {
    if !is_request(call) {
        return Ok(());
    }
    write_author(call.user, object);
    check_groups(call, name, object)
}

fn is_request(call: &Call<'_>) -> bool {
    (call.kind.group, call.kind.plural) == (csr::KIND.group, csr::KIND.plural)
}

impl Registry {
    /// Authorizes a change of a request.
    pub(super) fn check_signer(&self, call: &Call<'_>, name: &str, new: &Value, old: &Value) -> Result<(), Status> {
        if !is_request(call) {
            return Ok(());
        }
        let same = |field: &str| new.at("status").at(field) == old.at("status").at(field);
        let verb = match call.subresource.map(|part| part.name) {
            Some(APPROVAL) => "approve",
            Some("status") if !same("certificate") || !same("conditions") => "sign",
            _ => return Ok(()),
        };
        let signer = old.text("spec.signerName");
        if self.allows_signer(call, verb, signer) {
            return Ok(());
        }
        let why = format!("user not permitted to {verb} requests with signerName {}", quote(signer));
        Err(Status::forbidden(call.kind.resource(), name, &why))
    }

    /// Whether the user may act for a signer, by its name or by its domain.
    fn allows_signer(&self, call: &Call<'_>, verb: &str, signer: &str) -> bool {
        let allowed = |name: &str| {
            let asked = Attributes { resource: "signers", subresource: "", ..call.attributes(verb, name) };
            self.authorizer.authorize(&asked).allowed
        };
        let domain = signer.split_once('/').map_or(signer, |(domain, _)| domain);
        allowed(signer) || allowed(&format!("{domain}/*"))
    }
}

/// Sets the author of a request.
fn write_author(user: &User, object: &mut Value) {
    for (field, value) in [
        ("username", json!(user.name)),
        ("uid", json!(user.uid)),
        ("groups", json!(user.groups)),
        ("extra", json!(user.extra)),
    ] {
        object.put(&format!("spec.{field}"), value);
    }
}

/// Refuses client certificates for the group `system:masters`.
fn check_groups(call: &Call<'_>, name: &str, object: &Value) -> Result<(), Status> {
    let is_master = || Request::of(object).is_ok_and(|request| request.organizations.iter().any(|own| own == MASTERS));
    if object.text("spec.signerName") != API_CLIENT || !is_master() {
        return Ok(());
    }
    let why = format!("use of {API_CLIENT} signer with {MASTERS} group is not allowed");
    Err(Status::forbidden(call.kind.resource(), name, &why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_sets_the_author_of_a_csr() {
        let node = User { name: "system:node:n1".into(), groups: vec!["system:nodes".into()], ..User::default() };
        let mut object = json!({"spec": {"username": "system:masters", "groups": ["system:masters"], "uid": "x"}});
        write_author(&node, &mut object);
        assert_eq!(
            object,
            json!({"spec": {"username": "system:node:n1", "groups": ["system:nodes"], "uid": "", "extra": {}}})
        );
    }
}
