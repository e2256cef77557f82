//! Sticky sessions by a cookie that the gateway sets.

use std::time::Duration;

use jiff::Timestamp;

/// Sticky sessions by a cookie. Its value identifies the backend and the endpoint; it is always `HttpOnly`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CookieAffinity {
    /// Name of the cookie.
    pub name: Box<str>,
    /// Its path; none for the path of the rule.
    pub path: Option<Box<str>>,
    /// Its domain.
    pub domain: Option<Box<str>>,
    /// How long it lasts (`Max-Age`).
    pub max_age: Option<Duration>,
    /// How long it lasts (`Expires`).
    pub expires: Option<Duration>,
    /// Whether it is sent over TLS only; none when that depends on the connection on which it is set.
    pub secure: Option<bool>,
    /// Whether other sites send it.
    pub same_site: Option<SameSite>,
    /// Whether a session gets another endpoint, and a new cookie, after its endpoint has failed; otherwise it returns to
    /// that endpoint.
    pub change_on_failure: bool,
    /// Whether sessions keep their endpoint when endpoints are added (`persistent`); otherwise some of them move.
    pub is_persistent: bool,
}

/// Whether other sites send a cookie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SameSite {
    /// They do.
    None,
    /// With links only.
    Lax,
    /// They do not.
    Strict,
}

impl CookieAffinity {
    /// A session cookie with a name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            path: None,
            domain: None,
            max_age: None,
            expires: None,
            secure: None,
            same_site: None,
            change_on_failure: false,
            is_persistent: false,
        }
    }

    /// The value of `Set-Cookie`.
    #[must_use]
    pub fn set_cookie(&self, value: &str, is_tls: bool, now: Timestamp) -> String {
        let mut text = format!("{}={value}", self.name);
        let mut attribute = |name: &str, value: &str| {
            for part in ["; ", name, "=", value] {
                text.push_str(part);
            }
        };
        let expires = self.expires.and_then(|after| now.checked_add(after).ok());
        if let Some(expires) = expires {
            attribute("Expires", &expires.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string());
        }
        if let Some(age) = self.max_age {
            attribute("Max-Age", &age.as_secs().to_string());
        }
        if let Some(domain) = &self.domain {
            attribute("Domain", domain);
        }
        attribute("Path", self.path.as_deref().unwrap_or("/"));
        if let Some(site) = self.same_site {
            attribute("SameSite", site.as_str());
        }
        if self.secure.unwrap_or(is_tls) {
            text.push_str("; Secure");
        }
        text.push_str("; HttpOnly");
        text
    }
}

impl SameSite {
    /// Its name in a cookie.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Lax => "Lax",
            Self::Strict => "Strict",
        }
    }
}
