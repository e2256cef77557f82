//! A registry client for one image: the OCI distribution API (`/v2/…`) with token authentication.
//!
//! In: an image reference and optional credentials. Out: manifests and blobs, verified against their digests. Only the host of the reference and hosts
//! that it redirects to are contacted.

mod blob;
mod challenge;
mod web;

use http::{HeaderMap, HeaderValue, Response, header};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::Value;
use thiserror::Error;

pub(super) use self::blob::download_blob;
use self::challenge::Challenge;
pub(super) use self::web::HttpClient;
use super::credentials::Credential;
use super::layers::sha256;
use super::manifest::{ACCEPTED, Descriptor, ManifestError};
use super::name::Reference;
use super::{BadName, ImageError};

/// The largest manifest, in bytes; the limit of registries.
const MAX_MANIFEST: usize = 4 << 20;
/// The largest token response, in bytes.
const MAX_TOKEN_RESPONSE: usize = 1 << 20;
/// The longest registry error message that is shown.
const MAX_MESSAGE: usize = 200;

/// Why a pull failed.
#[derive(Debug, Error)]
pub enum PullError {
    /// The registry is unreachable.
    #[error("registry {host} is unreachable: {why}")]
    Unreachable {
        /// The registry.
        host: String,
        /// The error.
        why: String,
    },
    /// The registry returned an error status.
    #[error("registry {host} returned {status} for {what}{said}: {next}")]
    Refused {
        /// The registry.
        host: String,
        /// The status code.
        status: u16,
        /// The requested object.
        what: String,
        /// The message of the registry.
        said: String,
        /// The next step.
        next: &'static str,
    },
    /// The digest of the content differs.
    #[error("registry {host} sent {what} with the digest sha256:{found}: content rejected")]
    DigestMismatch {
        /// The registry.
        host: String,
        /// The requested object.
        what: String,
        /// The actual digest.
        found: String,
    },
    /// A response is incomplete.
    #[error("incomplete response of registry {host} for {what}: {why}")]
    Broken {
        /// The registry.
        host: String,
        /// The requested object.
        what: String,
        /// The error.
        why: String,
    },
    /// A URL is not allowed.
    #[error("{address} is not requested: {why}")]
    Address {
        /// The registry.
        address: String,
        /// The reason.
        why: String,
    },
    /// The manifest cannot be used.
    #[error("{0}")]
    Manifest(#[from] ManifestError),
    /// The image is too large.
    #[error("the image is too large: {0}")]
    TooLarge(String),
    /// The reference is invalid.
    #[error("{0}")]
    Name(#[from] BadName),
    /// The image cannot be stored.
    #[error("{0}")]
    Image(#[from] ImageError),
    /// A file system operation failed.
    #[error("writing the image: {0}")]
    Disk(#[from] std::io::Error),
}

impl PullError {
    /// Whether other credentials may help.
    pub(super) const fn is_about_credentials(&self) -> bool {
        matches!(self, Self::Refused { status: 401 | 403, .. })
    }

    /// Whether an immediate retry may succeed.
    const fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Broken { .. } | Self::Refused { status: 429 | 500.., .. })
    }
}

/// A session with a registry for one image.
pub(super) struct Session<'a> {
    web: &'a HttpClient,
    image: &'a Reference,
    credential: Option<&'a Credential>,
    /// The `Authorization` header.
    authorization: Mutex<Option<HeaderValue>>,
}

impl<'a> Session<'a> {
    pub(super) const fn new(web: &'a HttpClient, image: &'a Reference, credential: Option<&'a Credential>) -> Self {
        Self { web, image, credential, authorization: Mutex::new(None) }
    }

    fn host(&self) -> &'a str {
        self.image.api_host()
    }

    /// A manifest or index by digest or tag, with its digest.
    pub(super) async fn manifest(&self, exactly: Option<&Descriptor>) -> Result<(bytes::Bytes, String), PullError> {
        let wanted = exactly.map_or_else(|| self.image.wanted(), |exactly| format!("sha256:{}", exactly.digest));
        let what = format!("{}:{wanted}", self.image.repository).replace(":sha256:", "@sha256:");
        let path = format!("/v2/{}/manifests/{wanted}", self.image.repository);
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static(ACCEPTED));
        let answer = self.get(&path, &headers, &what).await?;
        let said = answer.headers().get("docker-content-digest").and_then(|said| said.to_str().ok()).map(str::to_owned);
        let bytes = web::short(answer, self.host(), MAX_MANIFEST).await?;
        let found = sha256(&bytes);
        let must = wanted.strip_prefix("sha256:").map(str::to_owned);
        let must = must.or_else(|| said?.strip_prefix("sha256:").map(str::to_owned));
        match must {
            Some(must) if must != found => Err(PullError::DigestMismatch { host: self.host().to_owned(), what, found }),
            _ => Ok((bytes, found)),
        }
    }

    /// A small blob, such as a configuration.
    pub(super) async fn short_blob(&self, blob: &Descriptor) -> Result<bytes::Bytes, PullError> {
        if blob.size > MAX_MANIFEST as u64 {
            return Err(PullError::TooLarge(format!("its configuration has {} bytes", blob.size)));
        }
        let answer = self.blob(blob, &HeaderMap::new()).await?;
        let bytes = web::short(answer, self.host(), MAX_MANIFEST).await?;
        let found = sha256(&bytes);
        let what = self.name_of(blob);
        if found == blob.digest {
            Ok(bytes)
        } else {
            Err(PullError::DigestMismatch { host: self.host().to_owned(), what, found })
        }
    }

    fn name_of(&self, blob: &Descriptor) -> String {
        format!("{}, blob sha256:{}", self.image.repository, blob.digest)
    }

    async fn blob(&self, blob: &Descriptor, headers: &HeaderMap) -> Result<Response<Incoming>, PullError> {
        let path = format!("/v2/{}/blobs/sha256:{}", self.image.repository, blob.digest);
        self.get(&path, headers, &self.name_of(blob)).await
    }

    /// A GET request; authenticates when challenged.
    async fn get(&self, path: &str, headers: &HeaderMap, what: &str) -> Result<Response<Incoming>, PullError> {
        let at = self.web.at(self.host(), path)?;
        let headers = || {
            let mut headers = headers.clone();
            headers
                .insert(header::USER_AGENT, HeaderValue::from_static(concat!("waypost/", env!("CARGO_PKG_VERSION"))));
            if let Some(shown) = self.authorization.lock().clone() {
                headers.insert(header::AUTHORIZATION, shown);
            }
            headers
        };
        let mut answer = self.web.get(&at, &headers()).await?;
        if answer.status() == 401 {
            // The first request, or an expired token.
            let wanted = answer.headers().get_all(header::WWW_AUTHENTICATE).iter();
            if let Some(challenge) = challenge::read(wanted.filter_map(|text| text.to_str().ok()))
                && let Some(shown) = self.answer_to(challenge).await?
            {
                *self.authorization.lock() = Some(shown);
                answer = self.web.get(&at, &headers()).await?;
            }
        }
        if answer.status().is_success() {
            return Ok(answer);
        }
        Err(self.refusal(answer, self.host(), what).await)
    }

    async fn refusal(&self, answer: Response<Incoming>, host: &str, what: &str) -> PullError {
        let status = answer.status().as_u16();
        let bytes = web::short(answer, host, MAX_TOKEN_RESPONSE).await.unwrap_or_default();
        let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let first = value.pointer("/errors/0/message").or_else(|| value.pointer("/details")).and_then(Value::as_str);
        let said: String = first.unwrap_or_default().chars().filter(|c| !c.is_control()).take(MAX_MESSAGE).collect();
        let known = self.credential.is_some();
        let next = match status {
            401 | 403 if known => {
                "the credentials are wrong or lack read access to this repository; check imagePullSecrets"
            }
            401 | 403 => "the repository does not exist or requires credentials: add a Secret to imagePullSecrets",
            404 => "check the name and the tag",
            429 => "rate limit exceeded: wait, or add credentials to imagePullSecrets",
            500.. => "server error: retry later, or contact the operator of the registry",
            _ => "unexpected status",
        };
        let said = if said.is_empty() { said } else { format!(" ({said})") };
        PullError::Refused { host: host.to_owned(), status, what: what.to_owned(), said, next }
    }

    /// The `Authorization` header for a challenge; nothing without credentials for basic authentication.
    async fn answer_to(&self, challenge: Challenge) -> Result<Option<HeaderValue>, PullError> {
        let header = |text: String| {
            let mut value = HeaderValue::try_from(text).ok()?;
            value.set_sensitive(true);
            Some(value)
        };
        let Challenge::Bearer { realm, service, scope } = challenge else {
            return Ok(self.credential.and_then(|credential| header(credential.basic())));
        };
        let scope = scope.unwrap_or_else(|| format!("repository:{}:pull", self.image.repository));
        let mut query = format!("scope={}", escaped(&scope));
        if let Some(service) = service {
            query = format!("service={}&{query}", escaped(&service));
        }
        let at = self.web.address(&format!("{realm}{}{query}", if realm.contains('?') { '&' } else { '?' }))?;
        let mut headers = HeaderMap::new();
        if let Some(shown) = self.credential.and_then(|credential| header(credential.basic())) {
            headers.insert(header::AUTHORIZATION, shown);
        }
        let answer = self.web.get(&at, &headers).await?;
        if !answer.status().is_success() {
            return Err(self.refusal(answer, &at.authority, &format!("a token for {}", self.image.repository)).await);
        }
        let bytes = web::short(answer, &at.authority, MAX_TOKEN_RESPONSE).await?;
        let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let token = ["token", "access_token"].iter().find_map(|name| value.get(name)?.as_str());
        Ok(token.and_then(|token| header(format!("Bearer {token}"))))
    }
}

/// Percent-encodes a query value.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' => out.push(byte.into()),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}
