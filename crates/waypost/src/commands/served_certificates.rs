//! Checks of certificates for the controllers, by the functions that the gateway loads them with: what a status calls valid can be served.

use api::view::Secret;
use control::CheckCertificates;
use gateway::certificates;
use jiff::Timestamp;

/// The checks.
pub(super) struct ServedCertificates;

impl CheckCertificates for ServedCertificates {
    fn certificate(&self, secret: &Secret) -> Result<(), String> {
        certificates::load(secret, Timestamp::now()).map(drop).map_err(|error| error.to_string())
    }

    fn authorities(&self, pem: &str) -> Result<(), String> {
        client::tls::roots(pem.as_bytes()).map(drop).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn invalid_certificates_are_refused_with_the_reason() {
        let secret = serde_json::from_value(json!({"metadata": {"namespace": "a", "name": "b"}, "type": "Opaque"}));
        let refused = ServedCertificates.certificate(&secret.expect("a Secret")).expect_err("no certificate");
        assert!(refused.contains("a/b") && refused.contains("Opaque"), "{refused}");
        assert!(ServedCertificates.authorities("").is_err());
        assert!(
            ServedCertificates.authorities("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----").is_err()
        );
    }
}
