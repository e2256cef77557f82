//! Non-resource paths: health, version, metrics, discovery, OpenAPI, OpenID.

use std::sync::Arc;

use api::status::Status;
use http::header;
use serde_json::json;

use crate::handler::{RequestContext, Shared, failed};
use crate::negotiate::{self, wants_aggregated_discovery};
use crate::openapi::{self, Document, Form, OpenApi};
use crate::reply::Reply;
use crate::route::Route;
use crate::view::View;
use crate::{discovery, query, version};

/// Plain text.
const TEXT: &str = "text/plain; charset=utf-8";
/// How long clients may cache token keys; keys overlap for much longer in a rotation.
const OPENID_CACHE: &str = "public, max-age=3600";
/// The health checks.
const CHECKS: [&str; 3] = ["ping", "store", "bootstrap"];

/// `/healthz`, `/livez`, `/readyz`.
pub(crate) fn health(shared: &Shared, page: &str, check: Option<&str>, query: &str) -> Reply {
    let query = query::parse(query);
    let excluded: Vec<&str> =
        query.iter().filter(|(key, _)| key == "exclude").map(|(_, value)| value.as_str()).collect();
    let ready = *shared.ready.borrow() && !*shared.draining.borrow();
    let passes = |name: &str| name != "bootstrap" || page != "readyz" || ready;
    if let Some(name) = check {
        return match CHECKS.contains(&name) {
            true if passes(name) => Reply::bytes(200, TEXT, "ok"),
            true => Reply::bytes(500, TEXT, "internal server error: not ready yet\n"),
            false => Reply::bytes(404, TEXT, "404 page not found\n"),
        };
    }
    let checks: Vec<&&str> = CHECKS.iter().filter(|name| !excluded.contains(*name)).collect();
    let healthy = checks.iter().all(|name| passes(name));
    let mut lines = String::new();
    for name in checks {
        lines.push_str(&if passes(name) {
            format!("[+]{name} ok\n")
        } else {
            format!("[-]{name} failed: reason withheld\n")
        });
    }
    match (healthy, query::first(&query, "verbose").is_some()) {
        (true, false) => Reply::bytes(200, TEXT, "ok"),
        (true, true) => Reply::bytes(200, TEXT, format!("{lines}{page} check passed\n")),
        (false, _) => Reply::bytes(500, TEXT, format!("{lines}{page} check failed\n")),
    }
}

/// `/version`.
pub(crate) fn version() -> Reply {
    Reply::bytes(200, "application/json", version::document().to_string())
}

/// GET of every other non-resource path.
pub(crate) fn get(shared: &Arc<Shared>, context: &RequestContext<'_>, route: Route<'_>) -> Reply {
    if *context.method != http::Method::GET {
        return failed(&context.view, &Status::method_not_allowed());
    }
    let accept = context.header(header::ACCEPT);
    match route {
        Route::Metrics => {
            Reply::bytes(200, "application/openmetrics-text; version=1.0.0; charset=utf-8", shared.metrics.text())
        }
        Route::CoreVersions | Route::Groups if wants_aggregated_discovery(accept) => {
            aggregated(shared, context, matches!(route, Route::CoreVersions))
        }
        Route::OpenIdConfiguration => openid_configuration(shared),
        Route::JsonWebKeys => {
            let keys = json!({"keys": shared.authn.accounts().public_keys(context.now)});
            Reply::bytes(200, "application/jwk-set+json", keys.to_string()).with(header::CACHE_CONTROL, OPENID_CACHE)
        }
        Route::OpenApiV2 => openapi_v2(shared, context),
        Route::OpenApiV3 => Reply::bytes(200, "application/json", openapi(shared).v3_index()),
        Route::OpenApiV3Document(name) => openapi_v3(shared, context, name),
        // No protobuf message is defined for it.
        Route::Root => {
            Reply::bytes(200, "application/json", discovery::root(shared.registry.kinds().served()).to_string())
        }
        _ => match legacy(shared, route) {
            Some(document) => match negotiate::choose(accept, false) {
                Ok(form) => Reply::document(200, View { form, ..context.view }.discovery(&document)),
                Err(status) => failed(&context.view, &status),
            },
            None => Reply::bytes(404, TEXT, "404 page not found\n"),
        },
    }
}

/// OpenID Connect Discovery, by which others verify ServiceAccount tokens.
fn openid_configuration(shared: &Shared) -> Reply {
    let document = json!({
        "issuer": shared.authn.accounts().issuer(),
        "jwks_uri": format!("https://{}/openid/v1/jwks", shared.address),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    });
    Reply::bytes(200, "application/json", document.to_string()).with(header::CACHE_CONTROL, OPENID_CACHE)
}

fn legacy(shared: &Shared, route: Route<'_>) -> Option<serde_json::Value> {
    let kinds = shared.registry.kinds();
    match route {
        Route::CoreVersions => Some(discovery::core_versions(kinds.served(), &shared.address)),
        Route::Groups => Some(discovery::group_list(kinds.served())),
        Route::Group(group) => discovery::group(kinds.served(), group),
        Route::Resources { group, version } => discovery::resources(kinds.served(), group, version),
        _ => None,
    }
}

fn aggregated(shared: &Shared, context: &RequestContext<'_>, core: bool) -> Reply {
    let kinds = shared.registry.kinds();
    let kinds = kinds.served();
    let document = if core { discovery::aggregated_core(kinds) } else { discovery::aggregated_groups(kinds) };
    let reply = if context.header(header::IF_NONE_MATCH) == Some(document.etag.as_str()) {
        Reply::bytes(304, discovery::AGGREGATED_TYPE, bytes::Bytes::new())
    } else {
        Reply::bytes(200, discovery::AGGREGATED_TYPE, document.body)
    };
    reply
        .with(header::ETAG, document.etag)
        .with(header::VARY, "Accept")
        .with(header::CACHE_CONTROL, discovery::AGGREGATED_CACHE_CONTROL)
}

fn openapi(shared: &Shared) -> Arc<OpenApi> {
    shared.openapi.read(&shared.registry.kinds())
}

fn openapi_v2(shared: &Shared, context: &RequestContext<'_>) -> Reply {
    match openapi::v2_form(context.header(header::ACCEPT)) {
        Some(Form::Json) => document(context, "application/json", &openapi(shared).v2_json()),
        Some(Form::Protobuf) => document(context, openapi::V2_PROTOBUF, &openapi(shared).v2_proto()),
        None => Reply::bytes(406, TEXT, ""),
    }
}

fn openapi_v3(shared: &Shared, context: &RequestContext<'_>, name: &str) -> Reply {
    let Some(found) = openapi(shared).v3(name) else { return Reply::bytes(404, TEXT, "404 page not found\n") };
    if openapi::v3_form(context.header(header::ACCEPT)).is_none() {
        return Reply::bytes(406, TEXT, "");
    }
    match context.param("hash") {
        Some(hash) if hash != found.hash => {
            Reply::bytes(301, TEXT, "").with(header::LOCATION, openapi::v3_location(name, &found.hash))
        }
        Some(_) => document(context, "application/json", &found).with(header::CACHE_CONTROL, openapi::IMMUTABLE),
        None => document(context, "application/json", &found),
    }
}

/// A document that is stored compressed, in the encoding that the client accepts.
fn document(context: &RequestContext<'_>, content_type: &'static str, document: &Document) -> Reply {
    let etag = format!("\"{}\"", document.hash);
    let gzip = context.header(header::ACCEPT_ENCODING).is_some_and(|accepted| accepted.contains("gzip"));
    let reply = if context.header(header::IF_NONE_MATCH) == Some(etag.as_str()) {
        Reply::bytes(304, content_type, bytes::Bytes::new())
    } else if gzip {
        Reply::bytes(200, content_type, document.gzip.clone()).with(header::CONTENT_ENCODING, "gzip")
    } else {
        Reply::bytes(200, content_type, document.plain())
    };
    reply.with(header::ETAG, etag).with(header::VARY, "Accept")
}
