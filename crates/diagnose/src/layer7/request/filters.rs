//! Filters as text.

use api::view::gateway_api::{Filter, FilterKind, Header, HeaderModifier, PathModifier, PathModifierKind};

/// What a filter does, in one line.
pub(in crate::layer7) fn text(filter: &Filter) -> String {
    match filter.kind {
        FilterKind::RequestHeaderModifier => modifier("request headers", filter.request_header_modifier.as_ref()),
        FilterKind::ResponseHeaderModifier => modifier("response headers", filter.response_header_modifier.as_ref()),
        FilterKind::RequestMirror => {
            let mirror = filter.request_mirror.clone().unwrap_or_default();
            let share = match (mirror.percent, mirror.fraction) {
                (Some(percent), _) => format!("{percent} % of requests"),
                (None, Some(share)) => format!("{} of {} requests", share.numerator, share.denominator.unwrap_or(100)),
                (None, None) => "all requests".to_owned(),
            };
            format!("mirror {share} to Service {}", mirror.backend_ref.object.name)
        }
        FilterKind::RequestRedirect => {
            let redirect = filter.request_redirect.clone().unwrap_or_default();
            let mut parts = vec![format!("redirect with status {}", redirect.status_code.unwrap_or(302))];
            parts.extend(redirect.scheme.map(|scheme| format!("scheme {scheme}")));
            parts.extend(redirect.hostname.map(|host| format!("host {host}")));
            parts.extend(redirect.port.map(|port| format!("port {port}")));
            parts.extend(redirect.path.as_ref().map(path));
            parts.join(", ")
        }
        FilterKind::UrlRewrite => {
            let rewrite = filter.url_rewrite.clone().unwrap_or_default();
            let host = rewrite.hostname.map(|host| format!("host {host}"));
            let parts: Vec<String> = host.into_iter().chain(rewrite.path.as_ref().map(path)).collect();
            format!("rewrite {}", parts.join(", "))
        }
        FilterKind::Cors => "CORS: answers preflight requests, adds Access-Control headers".to_owned(),
        FilterKind::ExternalAuth => "external authorisation".to_owned(),
        FilterKind::ExtensionRef => {
            let reference = filter.extension_ref.clone().unwrap_or_default();
            format!("filter {}/{} {}", reference.group(), reference.kind_or(""), reference.name)
        }
        FilterKind::Unknown => "a filter of a later version".to_owned(),
    }
}

fn path(change: &PathModifier) -> String {
    let text = |value: &Option<Box<str>>| value.as_deref().unwrap_or_default().to_owned();
    match change.kind {
        PathModifierKind::ReplaceFullPath => format!("path to {}", text(&change.replace_full_path)),
        PathModifierKind::ReplacePrefixMatch => {
            format!("the matched prefix of the path to {}", text(&change.replace_prefix_match))
        }
        PathModifierKind::Unknown => "path in a way of a later version".to_owned(),
    }
}

fn modifier(what: &str, given: Option<&HeaderModifier>) -> String {
    let given = given.cloned().unwrap_or_default();
    let pairs = |verb: &str, all: &[Header]| -> Vec<String> {
        all.iter().map(|one| format!("{verb} {}: {}", one.name, one.value)).collect()
    };
    let mut parts: Vec<String> = given.remove.iter().map(|name| format!("remove {name}")).collect();
    parts.extend(pairs("set", &given.set));
    parts.extend(pairs("add", &given.add));
    format!("{what}: {}", parts.join(", "))
}
