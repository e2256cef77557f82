//! Filters of a rule, and the members of its policy that filters can express.

use api::view::gateway_api::{Filter, FilterKind, Header, HeaderModifier};
use serde_json::{Value, json};

use crate::model::Rule;
use crate::policy::Redirect;

/// The filters of a rule.
pub(super) fn filters(rule: &Rule) -> Vec<Value> {
    rule.filters.iter().filter_map(filter).collect()
}

fn filter(filter: &Filter) -> Option<Value> {
    Some(match filter.kind {
        FilterKind::RequestHeaderModifier => {
            json!({"type": "RequestHeaderModifier", "requestHeaderModifier": headers(filter.request_header_modifier.as_ref()?)})
        }
        FilterKind::ResponseHeaderModifier => {
            json!({"type": "ResponseHeaderModifier", "responseHeaderModifier": headers(filter.response_header_modifier.as_ref()?)})
        }
        FilterKind::UrlRewrite => {
            json!({"type": "URLRewrite", "urlRewrite": {"hostname": filter.url_rewrite.as_ref()?.hostname.as_deref()?}})
        }
        FilterKind::Cors => {
            let cors = filter.cors.as_ref()?;
            let mut value = json!({
                "allowOrigins": cors.allow_origins, "allowMethods": cors.allow_methods, "allowHeaders": cors.allow_headers,
            });
            if cors.allow_credentials == Some(true) {
                value["allowCredentials"] = true.into();
            }
            if !cors.expose_headers.is_empty() {
                value["exposeHeaders"] = json!(cors.expose_headers);
            }
            if let Some(age) = cors.max_age {
                value["maxAge"] = age.into();
            }
            json!({"type": "CORS", "cors": value})
        }
        // The settings of an Ingress make no others.
        _ => return None,
    })
}

fn headers(modifier: &HeaderModifier) -> Value {
    let header = |header: &Header| json!({"name": header.name, "value": header.value});
    json!({"set": modifier.set.iter().map(header).collect::<Vec<_>>()})
}

/// A redirect to https.
pub(super) fn https_redirect(status: u16) -> Value {
    json!({"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": status}})
}

/// A redirect to a location without variables, or whose only ones stand for the whole request; none for any other.
pub(super) fn redirect(redirect: &Redirect) -> Option<Value> {
    let (scheme, rest) = redirect.location.source().split_once("://")?;
    let (rest, keeps_path) = rest.strip_suffix("$request_uri").map_or((rest, false), |rest| (rest, true));
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    if [authority, path].iter().any(|part| part.contains('?') || part.contains('$') && *part != "$http_host") {
        return None;
    }
    if keeps_path && !path.is_empty() {
        return None;
    }
    let mut value = json!({"statusCode": redirect.status});
    if scheme != "$scheme" {
        value["scheme"] = scheme.into();
    }
    if authority != "$http_host" {
        let (host, port) =
            authority.split_once(':').map_or((authority, None), |(host, port)| (host, port.parse::<u16>().ok()));
        value["hostname"] = host.into();
        if let Some(port) = port {
            value["port"] = port.into();
        }
    }
    if !keeps_path {
        value["path"] = json!({"type": "ReplaceFullPath", "replaceFullPath": if path.is_empty() { "/" } else { path }});
    }
    Some(json!({"type": "RequestRedirect", "requestRedirect": value}))
}
