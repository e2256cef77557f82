//! The filter that asks a backend whether a request may pass, and the filters of listeners, which contain it.

use super::filter_rules::only_with_type;
use super::references::{backend, local};
use super::schema::{Schema, choice, int32, list, object, optional, required, set_of, string};
use super::{Channel, shapes};

pub(super) fn external_auth(channel: Channel) -> Schema {
    let headers = || set_of(string()).max_items(64);
    let grpc = object([optional("allowedHeaders", "The headers of the request that are sent.", headers())]);
    let http = object([
        optional("allowedHeaders", "Further headers of the request that are sent.", headers()),
        optional("allowedResponseHeaders", "The headers of the response that are copied to the request.", headers()),
        optional("path", "The prefix of the path.", string().max_length(1024).pattern(shapes::PATH)),
    ]);
    let size = int32().at_least(0);
    let body = object([optional("maxSize", "The most bytes that are sent.", size)]);
    object([
        required("backendRef", "The authorization server.", backend(channel)),
        optional("forwardBody", "Whether the body of the request is sent.", body),
        optional("grpc", "Settings of the protocol GRPC.", grpc),
        optional("http", "Settings of the protocol HTTP.", http),
        required("protocol", "The protocol of the authorization server.", choice(&["HTTP", "GRPC"])),
    ])
    .rule("grpc must be specified when protocol is set to 'GRPC'", "self.protocol == 'GRPC' ? has(self.grpc) : true")
    .rule("protocol must be 'GRPC' when grpc is set", "!has(self.grpc) || self.protocol == 'GRPC'")
    .rule("http must be specified when protocol is set to 'HTTP'", "self.protocol == 'HTTP' ? has(self.http) : true")
    .rule("protocol must be 'HTTP' when http is set", "!has(self.http) || self.protocol == 'HTTP'")
}

/// The filters of a listener.
pub(super) fn listener_filters(channel: Channel) -> Schema {
    let filter = object([
        optional("extensionRef", "A filter of the implementation.", local()),
        optional("externalAuth", "A server that authorizes requests.", external_auth(channel)),
        required("type", "The kind of filter.", choice(&["ExternalAuth", "ExtensionRef"])),
    ])
    .rules(only_with_type("externalAuth", "ExternalAuth"))
    .rules(only_with_type("extensionRef", "ExtensionRef"));
    let requests = list(filter).max_items(16);
    object([optional("requests", "Applied to all requests before those of routes.", requests)])
}
