//! Requests that a policy refuses: the reason, and the response to the client.

use http::header::LOCATION;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use crate::body::ResponseBody;
use crate::cause::Cause;
use crate::error_pages;

/// Why a request was refused; the label of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// All requests are: access was to be restricted in a way that cannot be enforced.
    Closed,
    /// The address of the client.
    Source,
    /// Too many requests.
    Rate,
    /// Too many requests at a time.
    Concurrency,
    /// No valid user name and password.
    Password,
    /// The server for external authentication denied it.
    ExternalAuth,
    /// Whether the request may pass could not be found out.
    AuthUnavailable,
    /// The request body is too long.
    Body,
}

impl Reason {
    /// All reasons, in the order of their numbers.
    pub(crate) const ALL: [Self; 8] = [
        Self::Closed,
        Self::Source,
        Self::Rate,
        Self::Concurrency,
        Self::Password,
        Self::ExternalAuth,
        Self::AuthUnavailable,
        Self::Body,
    ];

    /// Its name in metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Source => "source",
            Self::Rate => "rate",
            Self::Concurrency => "concurrency",
            Self::Password => "password",
            Self::ExternalAuth => "external-auth",
            Self::AuthUnavailable => "auth-unavailable",
            Self::Body => "body",
        }
    }
}

/// A request that is refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(super) reason: Reason,
    status: StatusCode,
    text: &'static str,
    headers: HeaderMap,
}

impl Refusal {
    pub(super) fn new(reason: Reason, status: StatusCode, text: &'static str) -> Self {
        Self { reason, status, text, headers: HeaderMap::new() }
    }

    /// Adds a header to the response.
    pub(super) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    #[cfg(test)]
    pub(super) const fn status(&self) -> StatusCode {
        self.status
    }

    /// The response.
    pub(super) fn answer(self, is_grpc: bool) -> Response<ResponseBody> {
        let cause = Cause::Refused(self.reason);
        let mut answer = match is_grpc {
            true => error_pages::grpc(cause, self.grpc_status(), self.text),
            false => error_pages::page(cause, self.status, self.text),
        };
        answer.headers_mut().extend(self.headers);
        answer
    }

    /// The status of gRPC: `PERMISSION_DENIED`, `UNAUTHENTICATED`, `RESOURCE_EXHAUSTED` or `UNAVAILABLE`.
    fn grpc_status(&self) -> u8 {
        match self.reason {
            Reason::Source => 7,
            Reason::ExternalAuth if self.status == StatusCode::FORBIDDEN => 7,
            Reason::Password | Reason::ExternalAuth => 16,
            Reason::Rate | Reason::Concurrency | Reason::Body => 8,
            Reason::Closed | Reason::AuthUnavailable => 14,
        }
    }
}

/// A status that a policy names.
pub(super) fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap_or(StatusCode::SERVICE_UNAVAILABLE)
}

/// A redirect.
pub(super) fn redirect(code: u16, location: String) -> Response<ResponseBody> {
    let Ok(location) = HeaderValue::try_from(location) else {
        return error_pages::page(Cause::Rejected, StatusCode::BAD_REQUEST, "The request cannot be redirected.");
    };
    let mut answer = Response::new(ResponseBody::own(None, Cause::Redirect));
    *answer.status_mut() = status(code);
    answer.headers_mut().insert(LOCATION, location);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_numbered_in_order() {
        for (number, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number);
        }
    }

    #[test]
    fn calls_get_a_grpc_status() {
        for (reason, code, expected) in [
            (Reason::Source, 403, "7"),
            (Reason::Rate, 503, "8"),
            (Reason::Concurrency, 429, "8"),
            (Reason::Password, 401, "16"),
            (Reason::ExternalAuth, 401, "16"),
            (Reason::ExternalAuth, 403, "7"),
            (Reason::AuthUnavailable, 500, "14"),
            (Reason::Closed, 503, "14"),
            (Reason::Body, 413, "8"),
        ] {
            let refusal = || Refusal::new(reason, status(code), "no");
            let answer = refusal().answer(true);
            assert_eq!(
                (answer.status().as_u16(), &answer.headers()["grpc-status"]),
                (200, &HeaderValue::from_static(expected))
            );
            assert_eq!(refusal().answer(false).status().as_u16(), code);
        }
    }
}
