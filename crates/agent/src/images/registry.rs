//! A registry, asked for one image: the distribution API of the OCI (`/v2/…`), with tokens where it wants them.
//!
//! In: the name of an image, credentials or none. Out: documents and blobs, each checked against its digest before anybody believes it.
//! Asked are the host in the name of the image, and those to which that host itself sends us.

mod blob;
mod challenge;
mod web;

use http::{HeaderMap, HeaderValue, Response, header};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::Value;
use thiserror::Error;

pub(super) use self::blob::download;
use self::challenge::Challenge;
pub(super) use self::web::Web;
use super::credentials::Credential;
use super::layers::sha256;
use super::manifest::{ACCEPTED, Descriptor, ManifestError};
use super::name::Reference;
use super::{BadName, ImageError};

/// The longest document: what registries themselves take.
const LONGEST_DOCUMENT: usize = 4 << 20;
/// The longest answer of a server of tokens.
const LONGEST_TOKEN: usize = 1 << 20;
/// How much of what a registry says of an error is shown.
const SHOWN: usize = 200;

/// Why an image was not pulled.
#[derive(Debug, Error)]
pub enum PullError {
    /// Nobody answers.
    #[error("the registry {host} cannot be reached: {why}")]
    Unreachable {
        /// Which.
        host: String,
        /// Why.
        why: String,
    },
    /// It says no.
    #[error("the registry {host} answers {status} for {what}{said}: {next}")]
    Refused {
        /// Which.
        host: String,
        /// Its code.
        status: u16,
        /// What it was asked for.
        what: String,
        /// Its own words.
        said: String,
        /// What people can do.
        next: &'static str,
    },
    /// It sent something else.
    #[error("the registry {host} sent {what} with the digest sha256:{found}: it is not used")]
    Another {
        /// Which.
        host: String,
        /// What it was asked for.
        what: String,
        /// What came.
        found: String,
    },
    /// An answer broke off.
    #[error("{what} from the registry {host} broke off: {why}")]
    Broken {
        /// Which.
        host: String,
        /// What was being read.
        what: String,
        /// How.
        why: String,
    },
    /// An address that is not asked.
    #[error("{address} is not asked: {why}")]
    Address {
        /// Which.
        address: String,
        /// Why not.
        why: String,
    },
    /// What it has is no image for us.
    #[error("{0}")]
    Manifest(#[from] ManifestError),
    /// It is too large.
    #[error("it is too large: {0}")]
    TooLarge(String),
    /// Its name is none.
    #[error("{0}")]
    Name(#[from] BadName),
    /// What came cannot be kept.
    #[error("{0}")]
    Image(#[from] ImageError),
    /// The disk.
    #[error("the disk: {0}")]
    Disk(#[from] std::io::Error),
}

impl PullError {
    /// Whether other credentials may help.
    pub(super) const fn is_about_credentials(&self) -> bool {
        matches!(self, Self::Refused { status: 401 | 403, .. })
    }

    /// Whether trying the same again may help at once.
    const fn is_passing(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Broken { .. } | Self::Refused { status: 429 | 500.., .. })
    }
}

/// Somebody who asks a registry for one image.
pub(super) struct Session<'a> {
    web: &'a Web,
    image: &'a Reference,
    credential: Option<&'a Credential>,
    /// What the registry wants to see.
    authorization: Mutex<Option<HeaderValue>>,
}

impl<'a> Session<'a> {
    pub(super) const fn new(web: &'a Web, image: &'a Reference, credential: Option<&'a Credential>) -> Self {
        Self { web, image, credential, authorization: Mutex::new(None) }
    }

    fn host(&self) -> &'a str {
        self.image.api_host()
    }

    /// A manifest or index, by its digest or the image's tag; with its digest.
    pub(super) async fn manifest(&self, exactly: Option<&Descriptor>) -> Result<(bytes::Bytes, String), PullError> {
        let wanted = exactly.map_or_else(|| self.image.wanted(), |exactly| format!("sha256:{}", exactly.digest));
        let what = format!("{}:{wanted}", self.image.repository).replace(":sha256:", "@sha256:");
        let path = format!("/v2/{}/manifests/{wanted}", self.image.repository);
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static(ACCEPTED));
        let answer = self.get(&path, &headers, &what).await?;
        let said = answer.headers().get("docker-content-digest").and_then(|said| said.to_str().ok()).map(str::to_owned);
        let bytes = web::short(answer, self.host(), LONGEST_DOCUMENT).await?;
        let found = sha256(&bytes);
        let must = wanted.strip_prefix("sha256:").map(str::to_owned);
        let must = must.or_else(|| said?.strip_prefix("sha256:").map(str::to_owned));
        match must {
            Some(must) if must != found => Err(PullError::Another { host: self.host().to_owned(), what, found }),
            _ => Ok((bytes, found)),
        }
    }

    /// A blob that is short, such as a configuration.
    pub(super) async fn short_blob(&self, blob: &Descriptor) -> Result<bytes::Bytes, PullError> {
        if blob.size > LONGEST_DOCUMENT as u64 {
            return Err(PullError::TooLarge(format!("its configuration has {} bytes", blob.size)));
        }
        let answer = self.blob(blob, &HeaderMap::new()).await?;
        let bytes = web::short(answer, self.host(), LONGEST_DOCUMENT).await?;
        let found = sha256(&bytes);
        let what = self.name_of(blob);
        if found == blob.digest {
            Ok(bytes)
        } else {
            Err(PullError::Another { host: self.host().to_owned(), what, found })
        }
    }

    fn name_of(&self, blob: &Descriptor) -> String {
        format!("{}, blob sha256:{}", self.image.repository, blob.digest)
    }

    async fn blob(&self, blob: &Descriptor, headers: &HeaderMap) -> Result<Response<Incoming>, PullError> {
        let path = format!("/v2/{}/blobs/sha256:{}", self.image.repository, blob.digest);
        self.get(&path, headers, &self.name_of(blob)).await
    }

    /// Asks, and shows who we are when that is wanted.
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
            // The first time, or because a token has become old.
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
        let bytes = web::short(answer, host, LONGEST_TOKEN).await.unwrap_or_default();
        let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let first = value.pointer("/errors/0/message").or_else(|| value.pointer("/details")).and_then(Value::as_str);
        let said: String = first.unwrap_or_default().chars().filter(|c| !c.is_control()).take(SHOWN).collect();
        let known = self.credential.is_some();
        let next = match status {
            401 | 403 if known => "the credentials are wrong, or may not read this repository; see imagePullSecrets",
            401 | 403 => "it does not exist, or takes credentials: name a Secret in imagePullSecrets",
            404 => "check the name and the tag",
            429 => "it is asked too often: wait, or name credentials in imagePullSecrets",
            500.. => "it has a fault of its own: wait, or ask who runs it",
            _ => "this is not understood",
        };
        let said = if said.is_empty() { said } else { format!(" ({said})") };
        PullError::Refused { host: host.to_owned(), status, what: what.to_owned(), said, next }
    }

    /// What to show to a registry that asks who we are; nothing when there is nothing to show.
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
        let bytes = web::short(answer, &at.authority, LONGEST_TOKEN).await?;
        let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let token = ["token", "access_token"].iter().find_map(|name| value.get(name)?.as_str());
        Ok(token.and_then(|token| header(format!("Bearer {token}"))))
    }
}

/// A value for a query.
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
