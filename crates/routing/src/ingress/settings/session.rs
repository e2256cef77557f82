//! Sticky sessions.

use std::time::Duration;

use crate::ingress::reader::Reader;
use crate::policy::{CookieAffinity, SameSite};

/// The name of the cookie without `session-cookie-name`.
const NAME: &str = "INGRESSCOOKIE";

pub(super) fn read(reader: &mut Reader<'_>) -> Option<CookieAffinity> {
    reader.parse("affinity", "cookie", |text| (text == "cookie").then_some(()))?;
    let name = reader.parse("session-cookie-name", "the name of a cookie", |text| {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        Some(text).filter(|text| text.bytes().all(is_token))
    });
    let mut cookie = CookieAffinity::new(name.unwrap_or(NAME));
    let attribute = |text: &str| Some(text).filter(|text| !text.contains([';', ',', '\r', '\n'])).map(Into::into);
    cookie.path = reader.parse("session-cookie-path", "a path", attribute);
    cookie.domain = reader.parse("session-cookie-domain", "a domain", attribute);
    let seconds = |text: &str| text.parse().ok().map(Duration::from_secs);
    cookie.max_age = reader.parse("session-cookie-max-age", "a number of seconds", seconds);
    cookie.expires = reader.parse("session-cookie-expires", "a number of seconds", seconds);
    cookie.secure = reader.flag("session-cookie-secure");
    cookie.same_site = reader.parse("session-cookie-samesite", "None, Lax or Strict", |text| {
        Some(match text.to_ascii_lowercase().as_str() {
            "none" => SameSite::None,
            "lax" => SameSite::Lax,
            "strict" => SameSite::Strict,
            _ => return None,
        })
    });
    cookie.change_on_failure = reader.flag("session-cookie-change-on-failure").unwrap_or_default();
    let mode = reader.parse("affinity-mode", "balanced or persistent", |text| {
        matches!(text, "balanced" | "persistent").then_some(text == "persistent")
    });
    cookie.is_persistent = mode.unwrap_or_default();
    Some(cookie)
}
