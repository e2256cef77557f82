//! Session persistence: how the requests of a client reach the same backend (experimental).

use super::schema::{Schema, choice, object, optional, required, string};
use super::shapes::{duration, header_name};

pub(super) fn session_persistence() -> Schema {
    let lifetimes = choice(&["Permanent", "Session"]).default("Session");
    let cookie = object([
        optional("lifetimeType", "Whether the cookie outlives the client's session.", lifetimes),
        optional("name", "The name of the cookie.", header_name()),
        optional("path", "The path of the cookie.", string().max_length(1024).default("/")),
    ]);
    let header = object([required("name", "The name of the header.", header_name())]);
    object([
        optional("absoluteTimeout", "How long a session lasts at most.", duration()),
        optional("cookie", "The cookie, for the type Cookie.", cookie),
        optional("header", "The header, for the type Header.", header),
        optional("type", "What identifies the session.", choice(&["Cookie", "Header"]).default("Cookie")),
    ])
    .rule(
        "AbsoluteTimeout must be specified when cookie lifetimeType is Permanent",
        "has(self.absoluteTimeout) || !has(self.cookie) || !has(self.cookie.lifetimeType) || \
         self.cookie.lifetimeType != 'Permanent'",
    )
    .rule("cookie must be nil if type is not Cookie", "self.type == 'Cookie' || !has(self.cookie)")
    .rule("cookie must be specified for Cookie type", "has(self.cookie) || self.type != 'Cookie'")
    .rule("header must be nil if type is not Header", "self.type == 'Header' || !has(self.header)")
    .rule("header must be specified for Header type", "has(self.header) || self.type != 'Header'")
}
