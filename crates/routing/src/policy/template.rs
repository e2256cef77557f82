//! Text with variables of the request, in the notation of nginx: `$scheme://$host$request_uri`, `/$1`, `${host}`.

use std::net::IpAddr;

use http::HeaderMap;

use crate::request_path;

/// Text with variables of the request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    source: Box<str>,
    parts: Box<[Part]>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Text(Box<str>),
    Variable(Variable),
}

/// A variable of the request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Variable {
    /// `http` or `https`.
    Scheme,
    /// The host of the request, without port.
    Host,
    /// The host of the request, with its port if it has one.
    Authority,
    /// Path and query as the client sent them.
    RequestUri,
    /// The same, percent-encoded for use as a parameter.
    EscapedRequestUri,
    /// The path.
    Path,
    /// The query, without `?`.
    Query,
    /// `?` if there is a query.
    QuestionMark,
    /// The method.
    Method,
    /// The address of the client.
    Client,
    /// The port of the listener.
    Port,
    /// A header of the request.
    Header(Box<str>),
    /// A parameter of the query.
    Parameter(Box<str>),
    /// A capture of a regular expression.
    Capture(usize),
}

/// What the variables stand for.
#[derive(Clone, Copy, Debug)]
pub struct RequestValues<'a> {
    /// Scheme of the request.
    pub scheme: &'a str,
    /// Host of the request, possibly with its port.
    pub authority: &'a str,
    /// Method of the request.
    pub method: &'a str,
    /// Its path.
    pub path: &'a str,
    /// Its query.
    pub query: Option<&'a str>,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// The address of the client.
    pub client: IpAddr,
    /// The port of the listener.
    pub port: u16,
    /// Captures of a regular expression, the whole match first.
    pub captures: &'a [&'a str],
}

/// A text cannot be a template.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TemplateError {
    /// It has a variable that is not known.
    #[error("the variable `${0}` is not supported")]
    Unknown(Box<str>),
    /// It is not a URL.
    #[error("`{0}` is not a URL of the scheme http or https")]
    NotUrl(Box<str>),
    /// It has characters that no header may have.
    #[error("the value has control characters")]
    Control,
}

impl Template {
    /// Parses a text.
    ///
    /// # Errors
    /// When it has an unknown variable or control characters.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        if text.chars().any(char::is_control) {
            return Err(TemplateError::Control);
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            if !before.is_empty() {
                parts.push(Part::Text(before.into()));
            }
            let (name, after) = split_name(after);
            parts.push(Part::Variable(Variable::named(name).ok_or_else(|| TemplateError::Unknown(name.into()))?));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.into()));
        }
        Ok(Self { source: text.into(), parts: parts.into() })
    }

    /// Parses a URL with variables.
    ///
    /// # Errors
    /// When its scheme is neither `http` nor `https` nor a variable, or as [`Template::parse`].
    pub fn url(text: &str) -> Result<Self, TemplateError> {
        let has_host =
            |prefix| text.strip_prefix(prefix).is_some_and(|rest: &str| !rest.is_empty() && !rest.starts_with('/'));
        if !["http://", "https://", "$scheme://"].into_iter().any(has_host) {
            return Err(TemplateError::NotUrl(text.into()));
        }
        Self::parse(text)
    }

    /// `$request_uri`.
    #[must_use]
    pub fn request_uri() -> Self {
        Self { source: "$request_uri".into(), parts: [Part::Variable(Variable::RequestUri)].into() }
    }

    /// The text with its variables.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The text, if it has no variables.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match &*self.parts {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The text with the values of a request. It has no control characters, whatever the request has.
    #[must_use]
    pub fn render(&self, values: &RequestValues<'_>) -> String {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Variable(variable) => variable.write(values, &mut out),
            }
        }
        out.retain(|c| !c.is_control());
        out
    }
}

/// The name at the start of a text, in braces or not, and what follows it. A capture is one digit, so that `$10` is `$1`
/// and `0`.
fn split_name(text: &str) -> (&str, &str) {
    if let Some((name, after)) = text.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
        return (name, after);
    }
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return text.split_at(1);
    }
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    text.split_at(end)
}

impl Variable {
    /// The variable with a name of nginx.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "scheme" | "pass_access_scheme" => Self::Scheme,
            "host" | "server_name" => Self::Host,
            "http_host" | "best_http_host" => Self::Authority,
            "request_uri" => Self::RequestUri,
            "escaped_request_uri" => Self::EscapedRequestUri,
            "uri" | "document_uri" => Self::Path,
            "args" | "query_string" => Self::Query,
            "is_args" => Self::QuestionMark,
            "request_method" => Self::Method,
            "remote_addr" | "the_real_ip" => Self::Client,
            "server_port" | "pass_port" | "pass_server_port" => Self::Port,
            _ => {
                if let Some(header) = name.strip_prefix("http_").filter(|header| !header.is_empty()) {
                    Self::Header(header.replace('_', "-").into())
                } else if let Some(parameter) = name.strip_prefix("arg_").filter(|parameter| !parameter.is_empty()) {
                    Self::Parameter(parameter.into())
                } else {
                    Self::Capture(name.parse().ok()?)
                }
            }
        })
    }

    fn write(&self, values: &RequestValues<'_>, out: &mut String) {
        match self {
            Self::Scheme => out.push_str(values.scheme),
            Self::Host => out.push_str(without_port(values.authority)),
            Self::Authority => out.push_str(values.authority),
            Self::RequestUri => out.push_str(&request_uri(values)),
            Self::EscapedRequestUri => request_path::encode(request_uri(values).as_bytes(), b"", out),
            Self::Path => out.push_str(values.path),
            Self::Query => out.push_str(values.query.unwrap_or_default()),
            Self::QuestionMark if values.query.is_some_and(|query| !query.is_empty()) => out.push('?'),
            Self::QuestionMark => (),
            Self::Method => out.push_str(values.method),
            Self::Client => out.push_str(&values.client.to_canonical().to_string()),
            Self::Port => out.push_str(&values.port.to_string()),
            Self::Header(name) => {
                out.push_str(values.headers.get(&**name).and_then(|value| value.to_str().ok()).unwrap_or_default());
            }
            Self::Parameter(name) => out.push_str(parameter(values.query.unwrap_or_default(), name)),
            Self::Capture(place) => out.push_str(values.captures.get(*place).copied().unwrap_or_default()),
        }
    }
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

fn request_uri(values: &RequestValues<'_>) -> String {
    values.query.map_or_else(|| values.path.to_owned(), |query| format!("{}?{query}", values.path))
}

/// The first parameter of a query with a name in any case, as it was sent.
fn parameter<'a>(query: &'a str, name: &str) -> &'a str {
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.filter(|(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, value)| value).next().unwrap_or_default()
}
