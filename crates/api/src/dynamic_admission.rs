//! Dynamic admission control: policies in expressions, and webhooks, which administrators configure.
//!
//! In: the objects of `admissionregistration.k8s.io` and a request. Out: which of them apply ([`matching`]) and what the
//! policies decide ([`policy`]). Calling webhooks needs a network and is not here. Expressions
//! are CEL ([`language`]).

pub mod evaluation;
pub mod expression;
pub mod fake;
pub mod language;
pub mod matching;
pub mod policy;
pub mod request;
pub mod type_check;
pub mod url;

/// The API group of policies and webhook configurations.
pub const GROUP: &str = "admissionregistration.k8s.io";

/// Requests that answer questions about authentication and authorization: nothing is stored, and a cluster that admits
/// them by a webhook may lock itself out.
pub const EXCLUDED: &[(&str, &str)] = &[
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];
