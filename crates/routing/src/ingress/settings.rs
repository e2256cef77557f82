//! The annotations of an Ingress as settings, independent of all other objects.

mod access;
mod canary;
mod cors;
mod limits;
mod session;
#[cfg(test)]
mod tests;

use api::view::gateway_api::{Filter, FilterKind, Header, HeaderModifier, UrlRewrite};
use api::view::ingress::Ingress;

use super::host::limits::{MOST_ALIASES, MOST_RULES};
use super::reader::{Reader, parts};
use super::{Defaults, Finding, Reason, catalogue};
use crate::model::Retry;
use crate::policy::{Policy, Redirect, Template};

pub(super) use canary::{ALWAYS, Canary, CanaryHeader, NEVER};

/// Retries without limit (`proxy-next-upstream-tries: "0"`) end here.
const MOST_RETRIES: u32 = 10;

/// What the annotations of an Ingress say.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Settings {
    /// What holds for each of its rules, except for `require_https` and `rewrite`, which depend on host and path.
    pub(super) policy: Policy,
    /// Redirect to https if the host has TLS.
    pub(super) ssl_redirect: bool,
    /// Redirect to https in any case.
    pub(super) force_ssl_redirect: bool,
    /// Paths are regular expressions.
    pub(super) use_regex: bool,
    /// The new path of each rule.
    pub(super) rewrite_target: Option<(Box<str>, Template)>,
    /// Where `/` is redirected.
    pub(super) app_root: Option<Redirect>,
    /// Filters of each rule.
    pub(super) filters: Vec<Filter>,
    /// The protocol of the backends.
    pub(super) protocol: Option<Protocol>,
    /// Retries.
    pub(super) retry: Option<Retry>,
    /// The Ingress is a canary.
    pub(super) canary: Option<Canary>,
    /// Further names of its hosts.
    pub(super) aliases: Vec<Box<str>>,
    /// The other form of each host, with or without `www.`, is redirected to it.
    pub(super) www_redirect: bool,
    /// Why its requests fail.
    pub(super) broken: Option<Box<str>>,
}

/// `backend-protocol`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Protocol {
    /// HTTP/2, for gRPC.
    pub(super) is_http2: bool,
    /// TLS without verification of the certificate.
    pub(super) is_tls: bool,
}

impl Settings {
    /// Reads the annotations of an Ingress.
    pub(super) fn read(ingress: &Ingress, defaults: &Defaults) -> (Self, Vec<Finding>) {
        let annotations = &ingress.metadata.annotations;
        let mut reader = Reader::new(annotations);
        let mut settings = Self::default();
        settings.paths(&mut reader, defaults);
        settings.redirects(&mut reader);
        settings.headers(&mut reader);
        settings.backends(&mut reader, defaults);
        access::read(&mut settings.policy, &mut reader, &ingress.metadata.namespace);
        limits::read(&mut settings.policy, &mut reader, &ingress.metadata.key());
        settings.policy.session = session::read(&mut reader);
        settings.filters.extend(cors::read(&mut reader));
        settings.canary = canary::read(&mut reader);
        settings.aliases = reader.list("server-alias").unwrap_or_default();
        let is_host = |alias: &str| {
            api::names::dns_subdomain(alias).is_empty() || api::names::wildcard_subdomain(alias).is_empty()
        };
        if settings.aliases.iter().any(|alias| !is_host(alias)) {
            reader.reject(
                "server-alias",
                "the value must be hosts that commas separate; regular expressions are not supported",
            );
            settings.aliases.retain(|alias| is_host(alias));
        }
        // Rules of others must not take the requests of aliases to which access is restricted.
        if settings.aliases.len() > MOST_ALIASES && !settings.policy.restricts() {
            let message = format!("annotation server-alias: those after the first {MOST_ALIASES} hosts are ignored");
            reader.find(Reason::AliasIgnored, message);
            settings.aliases.truncate(MOST_ALIASES);
        }
        let mut findings = reader.findings;
        if ingress.spec.rules.len() > MOST_RULES {
            let outcome =
                if settings.policy.restricts() { "; because access is restricted, they are closed" } else { "" };
            let message = format!("the hosts of the rules after the first {MOST_RULES} are not served{outcome}");
            findings.push(Finding { reason: Reason::PathInvalid, message });
        }
        findings.extend(catalogue::not_honoured(annotations));
        (settings, findings)
    }

    fn paths(&mut self, reader: &mut Reader<'_>, defaults: &Defaults) {
        self.ssl_redirect = reader.flag("ssl-redirect").unwrap_or(defaults.ssl_redirect);
        self.force_ssl_redirect = reader.flag("force-ssl-redirect").unwrap_or_default();
        self.use_regex = reader.flag("use-regex").unwrap_or_default();
        self.rewrite_target = template(reader, "rewrite-target", Template::parse);
        let root = |text: &str| match text.starts_with('/') {
            true => Template::parse(&format!("$scheme://$http_host{text}")),
            false => Err(crate::policy::TemplateError::NotUrl(text.into())),
        };
        self.app_root = template(reader, "app-root", root).map(|(_, location)| Redirect { status: 302, location });
    }

    /// A temporary redirect precedes a permanent one.
    fn redirects(&mut self, reader: &mut Reader<'_>) {
        self.www_redirect = reader.flag("from-to-www-redirect").unwrap_or_default();
        let mut redirect = |key: &str, code: &str, most: u32, default: u16| {
            let status = |status: u32| u16::try_from(status).ok().filter(|_| (300..=most).contains(&status));
            let (_, location) = template(reader, key, Template::url)?;
            let status = reader.number(code).and_then(status).unwrap_or(default);
            Some(Redirect { status, location })
        };
        let temporary = redirect("temporal-redirect", "temporal-redirect-code", 307, 302);
        let permanent = redirect("permanent-redirect", "permanent-redirect-code", 308, 301);
        self.policy.redirect = temporary.or(permanent);
    }

    fn headers(&mut self, reader: &mut Reader<'_>) {
        let mut request = header_lines(reader, "request-headers");
        if let Some(prefix) = reader.text("x-forwarded-prefix").filter(|_| self.rewrite_target.is_some()) {
            request.push(Header { name: "X-Forwarded-Prefix".into(), value: prefix.into() });
        }
        let response = header_lines(reader, "response-headers");
        let modifier = |set: Vec<Header>| Some(HeaderModifier { set, ..HeaderModifier::default() });
        if !request.is_empty() {
            let kind = FilterKind::RequestHeaderModifier;
            self.filters.push(Filter { kind, request_header_modifier: modifier(request), ..Filter::default() });
        }
        if !response.is_empty() {
            let kind = FilterKind::ResponseHeaderModifier;
            self.filters.push(Filter { kind, response_header_modifier: modifier(response), ..Filter::default() });
        }
        let host = reader.parse("upstream-vhost", "a host without variables", |text| {
            Some(text).filter(|text| !text.contains(['$', '/', ' ']))
        });
        if let Some(host) = host.filter(|host| *host != "$host") {
            let rewrite = UrlRewrite { hostname: Some(host.into()), path: None };
            self.filters.push(Filter { kind: FilterKind::UrlRewrite, url_rewrite: Some(rewrite), ..Filter::default() });
        }
    }

    fn backends(&mut self, reader: &mut Reader<'_>, defaults: &Defaults) {
        self.policy.connect_timeout = Some(reader.seconds("proxy-connect-timeout").unwrap_or(defaults.connect_timeout));
        self.policy.read_timeout = Some(reader.seconds("proxy-read-timeout").unwrap_or(defaults.read_timeout));
        self.policy.send_timeout = Some(reader.seconds("proxy-send-timeout").unwrap_or(defaults.send_timeout));
        self.policy.body_limit = match reader.size("proxy-body-size") {
            Some(0) => None,
            Some(size) => Some(size),
            None => defaults.body_limit,
        };
        self.retry = retry(reader);
        let protocol = reader.text("backend-protocol").map(str::to_ascii_uppercase);
        let known = |is_http2, is_tls| Some(Protocol { is_http2, is_tls });
        self.protocol = match protocol.as_deref() {
            None => None,
            Some("HTTP") => known(false, false),
            Some("HTTPS") => known(false, true),
            Some("GRPC") => known(true, false),
            Some("GRPCS") => known(true, true),
            Some("FCGI") => {
                let why = "annotation backend-protocol: FastCGI is not supported; serve the application by HTTP";
                reader.find(Reason::BackendInvalid, why.to_owned());
                self.broken = Some(why.into());
                None
            }
            Some("AUTO_HTTP") => {
                reader.reject(
                    "backend-protocol",
                    "the protocol cannot depend on the client; HTTP is used; the value must be HTTP or HTTPS",
                );
                known(false, false)
            }
            Some(_) => {
                reader.reject("backend-protocol", "the value must be HTTP, HTTPS, GRPC or GRPCS");
                None
            }
        };
    }
}

/// A template, and its text.
fn template<E: std::fmt::Display>(
    reader: &mut Reader<'_>,
    key: &str,
    parse: impl FnOnce(&str) -> Result<Template, E>,
) -> Option<(Box<str>, Template)> {
    let text = reader.text(key)?;
    match parse(text) {
        Ok(template) => Some((text.into(), template)),
        Err(error) => {
            reader.reject(key, error);
            None
        }
    }
}

/// Lines `Name: value` of our own annotations.
fn header_lines(reader: &mut Reader<'_>, key: &str) -> Vec<Header> {
    let mut headers = Vec::new();
    for line in reader.text(key).unwrap_or_default().lines().filter(|line| !line.trim().is_empty()) {
        let pair = line.split_once(':').map(|(name, value)| (name.trim(), value.trim()));
        let is_header = |(name, value): &(&str, &str)| {
            http::HeaderName::from_bytes(name.as_bytes()).is_ok() && http::HeaderValue::from_str(value).is_ok()
        };
        match pair.filter(is_header) {
            Some((name, value)) => headers.push(Header { name: name.into(), value: value.into() }),
            None => reader.reject(key, format_args!("the line `{}` is not of the form `Name: value`", line.trim())),
        }
    }
    headers
}

/// `proxy-next-upstream`: statuses that lead to another attempt. Without both annotations the gateway decides.
fn retry(reader: &mut Reader<'_>) -> Option<Retry> {
    let tries = reader.number("proxy-next-upstream-tries");
    let conditions = reader.text("proxy-next-upstream");
    if tries.is_none() && conditions.is_none() {
        return None;
    }
    let mut words = conditions.unwrap_or("error timeout").split_whitespace();
    if words.clone().any(|word| word == "off") {
        return Some(Retry::default());
    }
    let codes = words.clone().filter_map(|word| word.strip_prefix("http_")?.parse().ok()).collect();
    let known = |word: &str| {
        matches!(word, "error" | "timeout")
            || word.strip_prefix("http_").is_some_and(|code| code.parse::<u16>().is_ok())
    };
    if !words.all(known) {
        reader.reject("proxy-next-upstream", "only error, timeout, http_CODE and off are supported");
    }
    let attempts = match tries {
        Some(0) => MOST_RETRIES,
        Some(tries) => (tries - 1).min(MOST_RETRIES),
        None => 2,
    };
    Some(Retry { codes, attempts, backoff: None })
}

/// Words that commas separate.
fn words(text: &str) -> Vec<Box<str>> {
    parts(text).map(Into::into).collect()
}
