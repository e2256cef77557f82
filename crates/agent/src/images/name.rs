//! Image references: `web` is `docker.io/library/web:latest`.
//!
//! In: a reference as written. Out: its canonical form, or its parts for a registry, validated before any request.

use thiserror::Error;

/// The default registry.
const DEFAULT_HOST: &str = "docker.io";
/// The API host of the default registry.
const DEFAULT_API: &str = "registry-1.docker.io";
/// The longest repository name.
const MAX_REPOSITORY: usize = 255;
/// The longest tag.
const MAX_TAG: usize = 128;

/// Whether an image name stands for a program of this machine instead of an OCI image.
#[must_use]
pub fn is_host_image(image: &str) -> bool {
    matches!(image, "" | "host")
}

/// An invalid image reference.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{name:?} is not a valid image name: {why}")]
pub struct BadName {
    name: String,
    why: &'static str,
}

/// A parsed image reference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// The registry host, with its port if specified.
    pub host: String,
    /// The repository, without the host.
    pub repository: String,
    /// The tag; ignored when there is a digest.
    pub tag: String,
    /// The digest: 64 hexadecimal digits of a SHA-256.
    pub digest: Option<String>,
}

impl Reference {
    /// Parses a reference.
    ///
    /// # Errors
    /// When it is invalid.
    pub fn parse(name: &str) -> Result<Self, BadName> {
        let bad = |why| BadName { name: name.to_owned(), why };
        let (rest, digest) = match name.split_once('@') {
            Some((rest, digest)) => {
                let hex = digest.strip_prefix("sha256:").ok_or_else(|| bad("a digest begins with sha256:"))?;
                if !is_digest(hex) {
                    return Err(bad("a digest is sha256: and 64 digits from 0 to 9 and a to f"));
                }
                (rest, Some(hex.to_owned()))
            }
            None => (name, None),
        };
        let (host, path) = split_host(rest);
        let (repository, tag) = match path.rsplit_once(':') {
            Some((repository, tag)) if !tag.contains('/') => (repository.to_owned(), tag.to_owned()),
            _ => (path, "latest".to_owned()),
        };
        let good_part = |part: &str| {
            let ends = |end: Option<char>| end.is_some_and(|end| end.is_ascii_lowercase() || end.is_ascii_digit());
            ends(part.chars().next())
                && ends(part.chars().next_back())
                && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c))
                && !part.contains("..")
        };
        if repository.len() > MAX_REPOSITORY || !repository.split('/').all(good_part) {
            return Err(bad("path components consist of a-z, 0-9 and single . _ - between them"));
        }
        let good_tag = tag.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
            && !tag.starts_with(['.', '-'])
            && (1..=MAX_TAG).contains(&tag.len());
        if !good_tag {
            return Err(bad("a tag consists of at most 128 letters, digits and . _ -"));
        }
        let authority = host.parse::<http::uri::Authority>();
        if !authority.is_ok_and(|authority| !authority.host().is_empty() && !host.contains('@')) {
            return Err(bad("the host is invalid"));
        }
        Ok(Self { host: host.to_owned(), repository, tag, digest })
    }

    /// The API host and port.
    #[must_use]
    pub fn api_host(&self) -> &str {
        if self.host == DEFAULT_HOST { DEFAULT_API } else { &self.host }
    }

    /// The manifest to request: the digest, or else the tag.
    #[must_use]
    pub fn wanted(&self) -> String {
        self.digest.as_ref().map_or_else(|| self.tag.clone(), |digest| format!("sha256:{digest}"))
    }

    /// The name without tag and digest.
    #[must_use]
    pub fn plain(&self) -> String {
        format!("{}/{}", self.host, self.repository)
    }
}

/// Whether a text is a SHA-256 in hexadecimal digits, and so safe as a file name.
#[must_use]
pub(super) fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Splits a reference into host and path.
fn split_host(name: &str) -> (&str, String) {
    let is_host = |host: &str| host.contains(['.', ':']) || host == "localhost" || host.contains(char::is_uppercase);
    match name.split_once('/') {
        Some((host, path)) if is_host(host) => match host {
            "docker.io" | "index.docker.io" if !path.contains('/') => (DEFAULT_HOST, format!("library/{path}")),
            "index.docker.io" => (DEFAULT_HOST, path.to_owned()),
            _ => (host, path.to_owned()),
        },
        Some(_) => (DEFAULT_HOST, name.to_owned()),
        None => (DEFAULT_HOST, format!("library/{name}")),
    }
}

/// The canonical form of a reference.
#[must_use]
pub fn full(name: &str) -> String {
    let (host, path) = split_host(name);
    let last = path.rsplit('/').next().unwrap_or_default();
    // With a digest no tag is added.
    let tagged = last.contains([':', '@']);
    if tagged { format!("{host}/{path}") } else { format!("{host}/{path}:latest") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_have_one_canonical_form() {
        for (short, long) in [
            ("web", "docker.io/library/web:latest"),
            ("web:v1", "docker.io/library/web:v1"),
            ("me/web", "docker.io/me/web:latest"),
            ("docker.io/web", "docker.io/library/web:latest"),
            ("index.docker.io/me/web", "docker.io/me/web:latest"),
            ("example.com:5000/web", "example.com:5000/web:latest"),
            ("localhost/web:x", "localhost/web:x"),
            ("docker.io/library/web:latest", "docker.io/library/web:latest"),
        ] {
            assert_eq!(full(short), long);
            let parts = Reference::parse(short).expect("a name");
            assert_eq!(format!("{}:{}", parts.plain(), parts.tag), long);
        }
        let digest = "0123456789abcdef".repeat(4);
        let exact = Reference::parse(&format!("web:v1@sha256:{digest}")).expect("a name");
        assert_eq!((exact.wanted(), exact.api_host()), (format!("sha256:{digest}"), "registry-1.docker.io"));
        assert_eq!(Reference::parse("[::1]:5000/a/b:x").expect("a name").api_host(), "[::1]:5000");
    }

    #[test]
    fn invalid_references_are_refused() {
        let long = format!("x/{}", "a".repeat(300));
        for bad in [
            "",
            "Web",
            "a/../b",
            "a//b",
            "web:",
            "web:a/b:c d",
            "web:-x",
            "web@sha256:12",
            "web@sha512:00",
            "a b",
            "user@example.com/web",
            "example.com/.hidden",
            &long,
        ] {
            assert!(Reference::parse(bad).is_err(), "{bad}");
        }
    }
}
