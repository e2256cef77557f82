//! The keys of the CAs, as the controllers see them: a function that signs an order, with the CA of the signer that the order names.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::time::Duration;

use api::kinds::certificatesigningrequest::request::Request;
use jiff::Timestamp;

/// What is to be signed.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// The signer (`spec.signerName`): agents' serving certificates have another CA than those of clients.
    pub signer: &'a str,
    /// Names and key.
    pub request: &'a Request,
    /// What the certificate is for, in the words of CertificateSigningRequests.
    pub usages: &'a [&'a str],
    /// How long it is good.
    pub lifetime: Duration,
    /// From when on.
    pub now: Timestamp,
}

type Sign = dyn Fn(&Order<'_>) -> Result<String, String> + Send + Sync;

/// See the module.
#[derive(Clone)]
pub struct Signer(Arc<Sign>);

impl Signer {
    /// One that signs so: the answer is a certificate in PEM, or what is wrong.
    pub fn new(sign: impl Fn(&Order<'_>) -> Result<String, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(sign))
    }

    pub(super) fn sign(&self, order: &Order<'_>) -> Result<String, String> {
        (self.0)(order)
    }
}

impl PartialEq for Signer {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Signer {}

impl Debug for Signer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Signer")
    }
}
