//! Who may send requests: passwords, and another server that decides.

use std::sync::Arc;

use super::{RequestValues, Template, TemplateError};

/// Basic authentication. Requests without valid credentials fail with 401 and the realm; the header `Authorization` is not
/// sent to backends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BasicAuth {
    /// The realm.
    pub realm: Box<str>,
    /// `namespace/name` of the Secret.
    pub secret: Arc<str>,
    /// Where it has the passwords.
    pub format: PasswordFormat,
}

/// Where a Secret has user names and passwords.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PasswordFormat {
    /// Lines `user:hash` (htpasswd) in the key `auth`.
    File,
    /// Keys are users, values are hashes.
    Map,
}

/// Another server that authorises each request, by a request without body for each of them.
///
/// Success is a response with 2xx. 401 and 403 are passed on, with `WWW-Authenticate` for 401; any other status, and no
/// response, is 500.
///
/// Sent to the server are the headers of the request without `Content-Length` and those by which proxies describe a request,
/// and `X-Original-URL` (`$scheme://$http_host$request_uri`), `X-Original-Method`, `X-Real-IP`, `X-Forwarded-For`,
/// `X-Forwarded-Host` and `X-Auth-Request-Redirect`; `Host` is that of the URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExternalAuth {
    /// Where the server is.
    pub url: Template,
    /// The method; GET unless given.
    pub method: Option<Box<str>>,
    /// Where clients are redirected (302) instead of receiving 401.
    pub signin: Option<Template>,
    /// Headers of the response that are copied to the request, in place of the client's.
    pub response_headers: Vec<Box<str>>,
    /// The value of `X-Auth-Request-Redirect`.
    pub request_redirect: Template,
    /// Whether `Set-Cookie` of the server reaches the client whatever the backend answers; otherwise with 200, 201, 204,
    /// 206, 301, 302, 303, 304, 307 and 308 only.
    pub always_set_cookie: bool,
}

/// The parameter of a sign-in page with the page to return to.
const RETURN_PARAMETER: &str = "rd";

impl ExternalAuth {
    /// Authorisation by a server, with the defaults of everything else.
    ///
    /// # Errors
    /// When the URL is not one of `http` or `https`, or has unknown variables.
    pub fn new(url: &str) -> Result<Self, TemplateError> {
        Ok(Self {
            url: Template::url(url)?,
            method: None,
            signin: None,
            response_headers: Vec::new(),
            request_redirect: Template::request_uri(),
            always_set_cookie: false,
        })
    }

    /// Whether variables of the request are part of the host or the port: the client would choose where the node connects to.
    #[must_use]
    pub fn is_chosen_by_clients(&self) -> bool {
        self.parts().1.contains('$')
    }

    /// The same with this host in place of `$host` as host of the URL; none if clients choose the host or the port by other
    /// variables.
    #[must_use]
    pub fn at_host(&self, host: &str) -> Option<Self> {
        let (scheme, authority, rest) = self.parts();
        let port = authority.strip_prefix("${host}").or_else(|| authority.strip_prefix("$host"));
        let authority = match port {
            Some(port) if port.is_empty() || port.starts_with(':') => format!("{host}{port}"),
            _ => authority.to_owned(),
        };
        let url = Template::url(&format!("{scheme}://{authority}{rest}")).ok()?;
        Some(Self { url, ..self.clone() }).filter(|auth| !auth.is_chosen_by_clients())
    }

    /// The URL: scheme, host with port, and everything after it.
    fn parts(&self) -> (&str, &str, &str) {
        let (scheme, rest) = self.url.source().split_once("://").unwrap_or_default();
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        (scheme, authority, rest)
    }

    /// The location of a sign-in page. The page to return to is added as a parameter, `rd` unless another name is given,
    /// if the URL does not have it already.
    ///
    /// # Errors
    /// When the URL is not one of `http` or `https`, or has unknown variables.
    pub fn signin_page(url: &str, parameter: Option<&str>) -> Result<Template, TemplateError> {
        let parameter = parameter.unwrap_or(RETURN_PARAMETER);
        let query = url.split_once('?').map(|(_, query)| query);
        let has = |query: &str| {
            query
                .split('&')
                .any(|pair| pair.strip_prefix(parameter).is_some_and(|rest| rest.starts_with('=') && rest != "="))
        };
        let separator = match query {
            Some(query) if has(query) => return Template::url(url),
            Some("") => "",
            Some(_) => "&",
            None => "?",
        };
        Template::url(&format!("{url}{separator}{parameter}=$scheme://$http_host$escaped_request_uri"))
    }

    /// Where a client that received 401 from the server is redirected.
    #[must_use]
    pub fn signin_location(&self, values: &RequestValues<'_>) -> Option<String> {
        self.signin.as_ref().map(|signin| signin.render(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_host_is_replaced() {
        for (url, expected) in [
            ("https://$host/oauth2/auth?for=$host", Some("https://a.example/oauth2/auth?for=$host")),
            ("http://${host}:4180", Some("http://a.example:4180")),
            ("$scheme://$host?x", Some("$scheme://a.example?x")),
            ("http://b.example/", Some("http://b.example/")),
            ("http://$host.evil.example/", None),
            ("http://x$host/", None),
            ("http://$http_host/", None),
            ("http://$host:$server_port/", None),
        ] {
            let auth = ExternalAuth::new(url).unwrap();
            assert_eq!(
                auth.at_host("a.example").map(|auth| auth.url.source().to_owned()).as_deref(),
                expected,
                "{url}"
            );
        }
    }
}
