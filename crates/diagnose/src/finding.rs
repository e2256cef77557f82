//! Findings: what is wrong with a Service, with a stable code for programs.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Value, json};

/// The severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Clients cannot use the Service, or one of its ports or addresses.
    NotWorking,
    /// The Service has everything that it needs; some of its traffic probably fails.
    Degraded,
}

impl Level {
    /// As JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotWorking => "not working",
            Self::Degraded => "degraded",
        }
    }
}

/// One problem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The code, in CamelCase: the reason of conditions and Events, the code in JSON. Most are in [`CODES`]; load balancers
    /// add those of their own condition.
    pub code: Cow<'static, str>,
    /// Its severity.
    pub level: Level,
    /// What is wrong, in a sentence.
    pub message: String,
    /// Details, one per line. They may change while the message does not.
    pub evidence: Vec<String>,
    /// The command that repairs it, or that shows more.
    pub fix: String,
}

impl Finding {
    /// A finding of something that keeps the Service from working.
    pub fn new(code: impl Into<Cow<'static, str>>, message: impl Into<String>, fix: impl Into<String>) -> Self {
        let (code, message, fix) = (code.into(), message.into(), fix.into());
        Self { code, level: Level::NotWorking, message, evidence: Vec::new(), fix }
    }

    /// The same finding with another severity.
    #[must_use]
    pub fn at(self, level: Level) -> Self {
        Self { level, ..self }
    }

    /// As JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "code": self.code, "level": self.level.as_str(), "message": self.message, "evidence": self.evidence,
            "fix": self.fix,
        })
    }
}

impl Serialize for Finding {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.json().serialize(to)
    }
}

/// The result of a stage without a problem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Healthy {
    /// One word.
    pub reason: &'static str,
    /// A sentence. It depends only on the Service itself, so that no change of a Pod changes it.
    pub message: String,
}

/// One of the things that a Service needs.
pub type Stage = Result<Healthy, Finding>;

/// A stage without a problem.
pub(crate) fn healthy(reason: &'static str, message: impl Into<String>) -> Stage {
    Ok(Healthy { reason, message: message.into() })
}

/// The codes of findings.
pub mod code {
    /// No load balancer has given the Service an address.
    pub const PENDING: &str = "Pending";
    /// No controller serves the `loadBalancerClass`.
    pub const CLASS_NOT_SERVED: &str = "LoadBalancerClassNotServed";
    /// `externalName` is an IP address.
    pub const EXTERNAL_NAME_IS_ADDRESS: &str = "ExternalNameIsAddress";
    /// The selector matches no Pod.
    pub const NO_POD_MATCHES: &str = "NoPodMatches";
    /// There is neither a selector nor an endpoint.
    pub const NO_SELECTOR: &str = "NoSelector";
    /// No selected Pod is ready.
    pub const PODS_NOT_READY: &str = "PodsNotReady";
    /// The named `targetPort` is not a port of the Pods.
    pub const NO_SUCH_TARGET_PORT: &str = "NoSuchTargetPort";
    /// The Pods have no address of the Service's family.
    pub const WRONG_FAMILY: &str = "WrongFamily";
    /// The Pods are bound to a Node that does not exist.
    pub const NODE_MISSING: &str = "NodeMissing";
    /// An endpoint is the cluster IP of a Service.
    pub const ENDPOINT_IS_CLUSTER_IP: &str = "EndpointIsClusterIP";
    /// An endpoint is an address to which no packet can be sent.
    pub const ENDPOINT_NOT_ROUTABLE: &str = "EndpointNotRoutable";
    /// The Pods are ready, but not in the EndpointSlices.
    pub const NOT_PUBLISHED: &str = "NotPublished";
    /// Without selector: no endpoint is ready.
    pub const ENDPOINTS_NOT_READY: &str = "EndpointsNotReady";
    /// Without selector: the EndpointSlices have no port of that name and protocol.
    pub const NO_SUCH_PORT: &str = "NoSuchPort";
    /// The containers declare the target port for another protocol only.
    pub const PROTOCOL_NOT_DECLARED: &str = "ProtocolNotDeclared";
    /// No source range is of the family of a load balancer's address.
    pub const SOURCES_LACK_FAMILY: &str = "SourceRangesLackFamily";
    /// The Service asks for layer 7, and a port cannot be served there.
    pub const NOT_AT_LAYER_7: &str = "NotServedAtLayer7";
}

/// All codes.
pub const CODES: [&str; 17] = [
    code::PENDING,
    code::CLASS_NOT_SERVED,
    code::EXTERNAL_NAME_IS_ADDRESS,
    code::NO_POD_MATCHES,
    code::NO_SELECTOR,
    code::PODS_NOT_READY,
    code::NO_SUCH_TARGET_PORT,
    code::WRONG_FAMILY,
    code::NODE_MISSING,
    code::ENDPOINT_IS_CLUSTER_IP,
    code::ENDPOINT_NOT_ROUTABLE,
    code::NOT_PUBLISHED,
    code::ENDPOINTS_NOT_READY,
    code::NO_SUCH_PORT,
    code::PROTOCOL_NOT_DECLARED,
    code::SOURCES_LACK_FAMILY,
    code::NOT_AT_LAYER_7,
];
