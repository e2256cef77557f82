//! How objects are converted between versions: not at all, or by a webhook.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use x509_parser::pem::Pem;

use super::options::Options;
use crate::field::{Errors, Path};
use crate::kinds::admissionregistration::client_config;
use crate::kinds::common::one_of;
use crate::names;
use crate::value::ValueExt as _;

/// The versions of ConversionReview that the server supports.
const REVIEW_VERSIONS: &[&str] = &["v1", "v1beta1"];

/// Checks the conversion of a definition.
pub(super) fn validate(path: &Path<'_>, conversion: &Value, options: &Options<'_>, errors: &mut Errors) {
    if !conversion.is_object() {
        return;
    }
    let strategy = conversion.text("strategy");
    one_of(&path.child("strategy"), strategy, &["None", "Webhook"], errors);
    let (config_path, versions_path) = (path.child("webhookClientConfig"), path.child("conversionReviewVersions"));
    let (config, versions) = (conversion.at("webhook.clientConfig"), conversion.at("webhook.conversionReviewVersions"));
    if strategy != "Webhook" {
        let why = "should not be set when strategy is not set to Webhook";
        if config.is_object() {
            errors.forbidden(&config_path, why);
        }
        if versions.as_array().is_some_and(|list| !list.is_empty()) {
            errors.forbidden(&versions_path, why);
        }
        return;
    }
    if config.is_object() {
        client_config::validate(&config_path, config, errors);
        let bundle = config.text("caBundle");
        if !bundle.is_empty()
            && !options.any_ca_bundle
            && let Err(why) = read_ca_bundle(bundle)
        {
            errors.invalid(&config_path.child("caBundle"), bundle, &why);
        }
    } else {
        errors.required(&config_path, "required when strategy is set to Webhook");
    }
    validate_versions(&versions_path, versions, options.known_review_version, errors);
}

fn validate_versions(path: &Path<'_>, list: &Value, must_be_known: bool, errors: &mut Errors) {
    let versions: Vec<&str> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if versions.is_empty() {
        return errors.required(path, "");
    }
    for (index, version) in versions.iter().enumerate() {
        if versions[..index].contains(version) {
            errors.invalid(&path.index(index), *version, "duplicate version");
            continue;
        }
        for why in names::dns_1035_label(version) {
            errors.invalid(&path.index(index), *version, &why);
        }
    }
    if must_be_known && !versions.iter().any(|version| REVIEW_VERSIONS.contains(version)) {
        errors.invalid(path, list, &format!("must include at least one of {}", REVIEW_VERSIONS.join(", ")));
    }
}

/// Whether a stored definition names a known version of ConversionReview, or none at all.
pub(super) fn has_known_version(definition: &Value) -> bool {
    let versions = definition.texts("spec.conversion.webhook.conversionReviewVersions");
    versions.is_empty() || versions.iter().any(|version| REVIEW_VERSIONS.contains(version))
}

/// Reads a CA bundle: PEM in base64.
///
/// # Errors
/// What is wrong, when not one certificate can be read.
pub(super) fn read_ca_bundle(bundle: &str) -> Result<(), String> {
    let pem = STANDARD.decode(bundle).unwrap_or_default();
    let mut why = "no valid certificate authority data seen".to_owned();
    for (index, block) in Pem::iter_from_buffer(&pem).enumerate() {
        match block {
            Ok(block) if block.label != "CERTIFICATE" => {}
            Ok(block) => match block.parse_x509() {
                Ok(_) => return Ok(()),
                Err(error) => why = format!("failed to parse certificate: {error}"),
            },
            Err(_) if index == 0 => why = "unable to parse bytes as PEM block".to_owned(),
            Err(_) => {}
        }
    }
    if !pem.windows(5).any(|window| window == b"-----") {
        why = "unable to parse bytes as PEM block".to_owned();
    }
    Err(format!("unable to load root certificates: {why}"))
}
