//! Registry credentials from `imagePullSecrets` or the command line.
//!
//! In: Secrets of the types `kubernetes.io/dockerconfigjson` and `kubernetes.io/dockercfg`. Out: the credentials for an
//! image, the longest matching path first. Passwords are never logged.

use api::value::ValueExt as _;
use base64::Engine as _;
use serde_json::Value;

use super::name::Reference;

/// Credentials for one registry.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    /// The user.
    pub user: String,
    /// The password, or a token in its place.
    pub password: String,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Credential").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Credential {
    /// The value of the `Authorization` header.
    pub(super) fn basic(&self) -> String {
        let both = format!("{}:{}", self.user, self.password);
        format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(both))
    }
}

/// The credentials for an image, the most specific first.
#[must_use]
pub fn for_image(secrets: &[Value], image: &Reference) -> Vec<Credential> {
    let mut found: Vec<(usize, Credential)> = Vec::new();
    for secret in secrets {
        let entries = entries(secret);
        for (key, entry) in entries.iter().flat_map(|entries| entries.iter()) {
            if let (Some(length), Some(credential)) = (fits(key, image), credential(entry)) {
                found.push((length, credential));
            }
        }
    }
    // Stable sort: of equal matches, the first Secret wins.
    found.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
    let mut out: Vec<Credential> = Vec::new();
    for (_, credential) in found {
        if !out.contains(&credential) {
            out.push(credential);
        }
    }
    out
}

fn entries(secret: &Value) -> Option<serde_json::Map<String, Value>> {
    let read = |key: &str| {
        let encoded = secret.at("data").get(key)?.as_str()?;
        let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).ok()?;
        serde_json::from_slice::<Value>(&bytes).ok()
    };
    match read(".dockerconfigjson") {
        Some(config) => config.at("auths").as_object().cloned(),
        None => read(".dockercfg")?.as_object().cloned(),
    }
}

fn credential(entry: &Value) -> Option<Credential> {
    let (user, password) = (entry.text("username"), entry.text("password"));
    if !user.is_empty() || !password.is_empty() {
        return Some(Credential { user: user.to_owned(), password: password.to_owned() });
    }
    let bytes = base64::engine::general_purpose::STANDARD.decode(entry.text("auth").trim()).ok()?;
    let both = String::from_utf8(bytes).ok()?;
    let (user, password) = both.split_once(':')?;
    Some(Credential { user: user.to_owned(), password: password.trim_end_matches('\0').to_owned() })
}

/// Whether a key such as `https://example.com:5000/team` matches an image, and the length of its path.
fn fits(key: &str, image: &Reference) -> Option<usize> {
    let key = key.split_once("://").map_or(key, |(_, rest)| rest);
    let (host, path) = key.split_once('/').unwrap_or((key, ""));
    // Docker Hub keys end with an API version.
    let path = path.trim_end_matches('/');
    let path = if matches!(path, "v1" | "v2") { "" } else { path };
    let hub = |host: &str| matches!(host, "docker.io" | "index.docker.io" | "registry-1.docker.io");
    let same_host = (hub(host) && hub(&image.host)) || host_fits(host, &image.host);
    let below = path.is_empty()
        || image.repository == path
        || image.repository.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
    (same_host && below).then_some(path.len())
}

/// Compares hosts with ports; `*` in a key matches (a part of) one label.
fn host_fits(key: &str, host: &str) -> bool {
    let (key, host) = (key.to_lowercase(), host.to_lowercase());
    if key == host {
        return true;
    }
    let split = |host: &str| match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => (name.to_owned(), Some(port.to_owned())),
        _ => (host.to_owned(), None),
    };
    let ((key, key_port), (host, host_port)) = (split(&key), split(&host));
    let (keys, hosts): (Vec<&str>, Vec<&str>) = (key.split('.').collect(), host.split('.').collect());
    key_port == host_port && keys.len() == hosts.len() && keys.iter().zip(&hosts).all(|(key, host)| label(key, host))
}

fn label(key: &str, host: &str) -> bool {
    match key.split_once('*') {
        None => key == host,
        Some((start, end)) => host.len() >= start.len() + end.len() && host.starts_with(start) && host.ends_with(end),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret(auths: &Value) -> Value {
        let text = json!({"auths": auths}).to_string();
        json!({"data": {".dockerconfigjson": base64::engine::general_purpose::STANDARD.encode(text)}})
    }

    fn users(auths: &Value, image: &str) -> Vec<String> {
        let image = Reference::parse(image).expect("a name");
        for_image(&[secret(auths)], &image).into_iter().map(|found| found.user).collect()
    }

    #[test]
    fn credentials_match_by_host_and_path() {
        let one = |user: &str| json!({"username": user, "password": "p"});
        let auths = json!({
            "https://index.docker.io/v1/": one("hub"),
            "example.com:5000": one("host"),
            "example.com:5000/team": one("team"),
            "*.example.org": one("wild"),
            "https://example.net/v2/": one("versioned"),
        });
        for (image, wanted) in [
            ("web", &["hub"][..]),
            ("docker.io/me/web", &["hub"]),
            ("example.com:5000/web", &["host"]),
            ("example.com:5000/team/web", &["team", "host"]),
            ("example.com:5000/teammate/web", &["host"]),
            ("example.com/web", &[]),
            ("a.example.org/web", &["wild"]),
            ("a.b.example.org/web", &[]),
            ("example.org/web", &[]),
            ("example.net/web", &["versioned"]),
            ("evil-example.com:5000/web", &[]),
        ] {
            assert_eq!(users(&auths, image), wanted, "{image}");
        }
    }

    #[test]
    fn both_secret_types_are_read_and_passwords_are_not_printed() {
        let both = base64::engine::general_purpose::STANDARD.encode("me:pass:word");
        let old = json!({"example.com": {"auth": both}}).to_string();
        let old = json!({"data": {".dockercfg": base64::engine::general_purpose::STANDARD.encode(old)}});
        let image = Reference::parse("example.com/web").expect("a name");
        let found = for_image(&[json!({"data": {"x": "y"}}), old], &image);
        assert_eq!(found, [Credential { user: "me".to_owned(), password: "pass:word".to_owned() }]);
        assert!(!format!("{found:?}").contains("pass:word"));
        assert_eq!(found[0].basic(), "Basic bWU6cGFzczp3b3Jk");
    }
}
