//! Filters of a rule or backend, compiled: in, filters as written; out, changes of heads of requests and responses, and
//! responses of the gateway itself (redirects, preflight requests of CORS).
//!
//! Values that cannot be sent are errors when a rule is compiled, so that a request meets none. A rule with a filter that
//! cannot be applied is broken: its requests fail, because a filter is never skipped.

mod cors;
mod headers;
mod mirror;
mod paths;
mod redirect;
mod rewrite;

use api::view::gateway_api::{Filter, FilterKind};
use http::HeaderMap;

pub use cors::CorsPolicy;
pub use mirror::MirrorShare;
pub use redirect::{Redirect, RedirectRequest};
pub use rewrite::Rewrite;

use headers::Modifier;

/// Why filters cannot be applied.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum FilterError {
    /// A kind that is not implemented, or the filter of another API.
    #[error("filters[{index}]: the type {kind} is not supported; remove the filter")]
    Unsupported {
        /// The place of the filter.
        index: usize,
        /// Its type.
        kind: &'static str,
    },
    /// The member that belongs to the type is absent.
    #[error("filters[{index}].{field} is missing")]
    Missing {
        /// The place of the filter.
        index: usize,
        /// The member.
        field: &'static str,
    },
    /// A filter that can be there only once, or not together with another one.
    #[error("filters[{index}]: a rule can have one {kind}, and not RequestRedirect together with URLRewrite")]
    Repeated {
        /// The place of the filter.
        index: usize,
        /// Its type.
        kind: &'static str,
    },
    /// A value that cannot be sent.
    #[error("filters[{index}].{field}: {value:?} cannot be used; {reason}")]
    Value {
        /// The place of the filter.
        index: usize,
        /// The field.
        field: &'static str,
        /// The value.
        value: Box<str>,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// A value that cannot be sent, before the place of its filter is known.
struct BadValue {
    field: &'static str,
    value: Box<str>,
    reason: &'static str,
}

/// Compiled filters.
#[derive(Debug, Default)]
pub struct Filters {
    request: Modifier,
    response: Modifier,
    /// A redirect as the response.
    pub redirect: Option<Redirect>,
    /// Changes of the Host header and the path.
    pub rewrite: Option<Rewrite>,
    /// Shares of the mirrors, in the order of the filters.
    pub mirrors: Vec<MirrorShare>,
    /// Cross-origin resource sharing.
    pub cors: Option<CorsPolicy>,
}

impl Filters {
    /// Compiles filters.
    ///
    /// # Errors
    /// If one of them cannot be applied.
    pub fn compile(filters: &[Filter]) -> Result<Self, FilterError> {
        let mut compiled = Self::default();
        let mut seen: Vec<FilterKind> = Vec::with_capacity(filters.len());
        for (index, filter) in filters.iter().enumerate() {
            if filter.kind != FilterKind::RequestMirror && seen.contains(&filter.kind) {
                return Err(FilterError::Repeated { index, kind: name(filter.kind) });
            }
            seen.push(filter.kind);
            compiled.add(index, filter)?;
            if compiled.redirect.is_some() && compiled.rewrite.is_some() {
                return Err(FilterError::Repeated { index, kind: name(filter.kind) });
            }
        }
        Ok(compiled)
    }

    fn add(&mut self, index: usize, filter: &Filter) -> Result<(), FilterError> {
        let missing = |field| FilterError::Missing { index, field };
        let bad = |BadValue { field, value, reason }| FilterError::Value { index, field, value, reason };
        match filter.kind {
            FilterKind::RequestHeaderModifier => {
                let given = filter.request_header_modifier.as_ref().ok_or(missing("requestHeaderModifier"))?;
                self.request = Modifier::new(given).map_err(bad)?;
            }
            FilterKind::ResponseHeaderModifier => {
                let given = filter.response_header_modifier.as_ref().ok_or(missing("responseHeaderModifier"))?;
                self.response = Modifier::new(given).map_err(bad)?;
            }
            FilterKind::RequestMirror => {
                let given = filter.request_mirror.as_ref().ok_or(missing("requestMirror"))?;
                self.mirrors.push(MirrorShare::new(given));
            }
            FilterKind::RequestRedirect => {
                let given = filter.request_redirect.as_ref().ok_or(missing("requestRedirect"))?;
                self.redirect = Some(Redirect::new(given).map_err(bad)?);
            }
            FilterKind::UrlRewrite => {
                let given = filter.url_rewrite.as_ref().ok_or(missing("urlRewrite"))?;
                self.rewrite = Some(Rewrite::new(given).map_err(bad)?);
            }
            FilterKind::Cors => {
                let given = filter.cors.as_ref().ok_or(missing("cors"))?;
                self.cors = Some(CorsPolicy::new(given).map_err(bad)?);
            }
            FilterKind::ExternalAuth | FilterKind::ExtensionRef | FilterKind::Unknown => {
                return Err(FilterError::Unsupported { index, kind: name(filter.kind) });
            }
        }
        Ok(())
    }

    /// Changes the headers of a request.
    pub fn modify_request(&self, headers: &mut HeaderMap) {
        self.request.apply(headers);
    }

    /// Changes the headers of a response.
    pub fn modify_response(&self, headers: &mut HeaderMap) {
        self.response.apply(headers);
    }
}

const fn name(kind: FilterKind) -> &'static str {
    match kind {
        FilterKind::RequestHeaderModifier => "RequestHeaderModifier",
        FilterKind::ResponseHeaderModifier => "ResponseHeaderModifier",
        FilterKind::RequestMirror => "RequestMirror",
        FilterKind::RequestRedirect => "RequestRedirect",
        FilterKind::UrlRewrite => "URLRewrite",
        FilterKind::Cors => "CORS",
        FilterKind::ExternalAuth => "ExternalAuth",
        FilterKind::ExtensionRef => "ExtensionRef",
        FilterKind::Unknown => "of a later version",
    }
}

#[cfg(test)]
mod tests;
