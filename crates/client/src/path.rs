//! The URLs of lists and watches.

use api::kind::Kind;
use std::fmt::Write as _;

use crate::watch::Selection;

/// `/apis/discovery.k8s.io/v1/namespaces/x/endpointslices`.
fn collection(kind: &Kind, namespace: &str) -> String {
    let mut path = if kind.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", kind.group) };
    let _ = write!(path, "/{}", kind.version);
    if !namespace.is_empty() {
        path.push_str("/namespaces/");
        escape(&mut path, namespace);
    }
    path + "/" + kind.plural
}

/// One object.
pub(super) fn object(kind: &Kind, namespace: &str, name: &str) -> String {
    let mut path = collection(kind, namespace) + "/";
    escape(&mut path, name);
    path
}

/// A collection with the watch's selectors and these parameters; empty ones are left out.
pub(super) fn query(what: &Selection, parameters: &[(&str, &str)]) -> String {
    let mut path = collection(what.kind, what.namespace());
    let selectors = [("labelSelector", what.labels()), ("fieldSelector", what.fields())];
    let mut joint = '?';
    for (name, value) in selectors.iter().chain(parameters).filter(|(_, value)| !value.is_empty()) {
        path.push(joint);
        path.push_str(name);
        path.push('=');
        escape(&mut path, value);
        joint = '&';
    }
    path
}

/// Percent-encodes text for a URL.
pub(super) fn escape(out: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}
