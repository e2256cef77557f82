//! Why the gateway answers a request itself, or forwards a connection nowhere: the field `reason` of the access log.

use crate::policy::Reason;

/// Why there is no complete response of a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// The rule redirects.
    Redirect,
    /// A CORS preflight was answered.
    Preflight,
    /// An ACME challenge was answered.
    Challenge,
    /// The request is ambiguous, or cannot be expressed in the protocol of the backend.
    Rejected,
    /// The request body did not arrive completely.
    RequestTimeout,
    /// No rule matches.
    NoRoute,
    /// The host belongs to another listener than the server name of the connection.
    Misdirected,
    /// The rule or its backend is invalid.
    InvalidRule,
    /// The Service has no usable endpoint.
    NoEndpoints,
    /// An endpoint refused the connection.
    ConnectFailed,
    /// An endpoint did not accept the connection in time.
    ConnectTimeout,
    /// The connection to the endpoint failed before a response, or its TLS handshake did.
    UpstreamFailed,
    /// The endpoint did not respond in time.
    UpstreamTimeout,
    /// The endpoint did not send its response completely.
    ResponseIncomplete,
    /// The policy of the rule refused it.
    Refused(Reason),
}

impl Cause {
    /// Its name in the access log.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Redirect => "redirect",
            Self::Preflight => "preflight",
            Self::Challenge => "acme-challenge",
            Self::Rejected => "rejected",
            Self::RequestTimeout => "request-timeout",
            Self::NoRoute => "no-route",
            Self::Misdirected => "misdirected",
            Self::InvalidRule => "invalid-rule",
            Self::NoEndpoints => "no-endpoints",
            Self::ConnectFailed => "connect-failed",
            Self::ConnectTimeout => "connect-timeout",
            Self::UpstreamFailed => "upstream-failed",
            Self::UpstreamTimeout => "upstream-timeout",
            Self::ResponseIncomplete => "response-incomplete",
            Self::Refused(reason) => reason.name(),
        }
    }
}
