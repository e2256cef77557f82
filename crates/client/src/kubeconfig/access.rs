//! Reading a kubeconfig: the address of a server, and the credentials for it.
//!
//! In: a file as `kubectl` reads it. Out: an [`Access`]: the address, the TLS settings, and the headers that identify the client.
//! Unsupported settings (credential plugins, proxies) are rejected by name; ignoring them would cause an unrelated error, or another
//! identity than the configured one.

use std::path::{Path, PathBuf};

use api::value::ValueExt as _;
use base64::Engine as _;
use http::{HeaderName, HeaderValue, Uri, header};
use serde_json::{Value, json};

use super::error::KubeconfigError;
use super::tls::{self, Tls};
use crate::http::ClientError;

/// Settings of a user that are rejected, and the alternatives.
const REFUSED_USER: [(&str, &str); 4] = [
    ("exec", "credentials from a program are not supported; use a certificate, a token or a tokenFile"),
    ("auth-provider", "authentication providers are not supported; use a certificate, a token or a tokenFile"),
    ("username", "passwords are not supported; use a certificate, a token or a tokenFile"),
    ("as-user-extra", "acting with extra attributes is not supported"),
];

/// A server, and the credentials for it.
pub struct Access {
    /// `host:port`.
    pub(crate) address: String,
    /// The path prefix of a server behind a prefix; without a slash at its end.
    pub(crate) prefix: String,
    /// The Unix socket of a server on this machine, which authenticates clients by their user; none: it is reached by `address`.
    pub(crate) socket: Option<PathBuf>,
    /// The TLS settings; none for `http://`.
    pub(crate) tls: Option<Tls>,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// A file with a token that may change.
    token_file: Option<PathBuf>,
}

impl Access {
    /// Reads the current context of a kubeconfig.
    ///
    /// # Errors
    /// When the file cannot be read, is incomplete, or requires something that is not supported.
    pub fn read(path: &Path) -> Result<Self, ClientError> {
        let refuse = |why| ClientError::Kubeconfig { path: path.display().to_string(), why };
        let bytes = std::fs::read(path).map_err(|error| refuse(error.into()))?;
        let (config, _) = api::yaml::from_yaml(&bytes).map_err(|error| refuse(error.into()))?;
        Self::from_config(&config, path.parent().unwrap_or(Path::new("."))).map_err(refuse)
    }

    /// The current context of a kubeconfig that was read already; `origin` names it in errors.
    ///
    /// # Errors
    /// When it is incomplete, or requires something that is not supported.
    pub fn from_value(config: &Value, origin: &str) -> Result<Self, ClientError> {
        let refuse = |why| ClientError::Kubeconfig { path: origin.to_owned(), why };
        Self::from_config(config, Path::new(".")).map_err(refuse)
    }

    /// A server on this machine, by its socket.
    #[must_use]
    pub fn local(socket: &Path) -> Self {
        Self {
            address: "localhost".to_owned(),
            prefix: String::new(),
            socket: Some(socket.to_owned()),
            tls: None,
            headers: Vec::new(),
            token_file: None,
        }
    }

    /// The server: `host:port`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The path of the API on the server, without a slash at its end.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The name that the certificate of the server must have; none without TLS.
    #[must_use]
    pub fn tls_server_name(&self) -> Option<String> {
        self.tls.as_ref().map(|tls| tls.name.to_str().into_owned())
    }

    /// A server and a user, from the entries of a kubeconfig.
    ///
    /// # Errors
    /// When they are incomplete, or require something that is not supported.
    pub fn from_parts(cluster: &Value, user: &Value) -> Result<Self, ClientError> {
        let config = json!({
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": user}],
        });
        let refuse = |why| ClientError::Kubeconfig { path: "in memory".to_owned(), why };
        Self::from_config(&config, Path::new(".")).map_err(refuse)
    }

    fn from_config(config: &Value, folder: &Path) -> Result<Self, KubeconfigError> {
        let current = config.text("current-context");
        if current.is_empty() {
            return Err(KubeconfigError::NoCurrentContext);
        }
        let context = named(config, "contexts", current, "context")?;
        let cluster = named(config, "clusters", context.text("cluster"), "cluster")?;
        // A context without a user is anonymous, which some servers allow.
        let user = match context.text("user") {
            "" => &Value::Null,
            name => named(config, "users", name, "user")?,
        };
        refuse_unsupported(cluster, user)?;
        let server = Server::parse(cluster.text("server"))?;
        let name = match cluster.text("tls-server-name") {
            "" => server.host,
            name => name.to_owned(),
        };
        let tls = server.secure.then(|| tls::connect_as(name, cluster, user, folder)).transpose()?;
        let token_file = Some(user.text("tokenFile")).filter(|file| !file.is_empty());
        Ok(Self {
            address: server.address,
            prefix: server.prefix,
            socket: None,
            tls,
            headers: identity(user)?,
            token_file: token_file.map(|file| folder.join(file)),
        })
    }

    /// The headers of a request that identify the client.
    ///
    /// # Errors
    /// When the token file cannot be read or has no token.
    pub fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>, KubeconfigError> {
        let mut headers = self.headers.clone();
        if let Some(file) = &self.token_file {
            // Read each time: such tokens are replaced long before they expire.
            let token = std::fs::read_to_string(file);
            let token = token.map_err(|error| KubeconfigError::TokenFile(file.clone(), error))?;
            headers.push((header::AUTHORIZATION, secret(&format!("Bearer {}", token.trim()))?));
        }
        Ok(headers)
    }
}

/// The parts of a server's URL.
struct Server {
    secure: bool,
    host: String,
    address: String,
    prefix: String,
}

impl Server {
    fn parse(url: &str) -> Result<Self, KubeconfigError> {
        let refuse = || KubeconfigError::Server(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| refuse())?;
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(refuse()),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(refuse)?;
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let prefix = uri.path().trim_end_matches('/').to_owned();
        let address = format!("{host}:{port}");
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { secure, host, address, prefix })
    }
}

fn named<'a>(config: &'a Value, list: &'static str, name: &str, part: &str) -> Result<&'a Value, KubeconfigError> {
    let found = config.items(list).iter().find(|item| item.text("name") == name);
    found.map(|item| item.at(part)).ok_or_else(|| KubeconfigError::NoEntry { list, name: name.to_owned() })
}

fn refuse_unsupported(cluster: &Value, user: &Value) -> Result<(), KubeconfigError> {
    if !cluster.text("proxy-url").is_empty() {
        return Err(KubeconfigError::Proxy);
    }
    for (key, why) in REFUSED_USER {
        let part = user.at(key);
        if !part.is_null() && part.as_str() != Some("") {
            let name = [part.text("command"), part.text("name")].into_iter().find(|name| !name.is_empty());
            return Err(KubeconfigError::UnsupportedUser { key, name: name.map(str::to_owned), why });
        }
    }
    Ok(())
}

/// The headers that a user's entry requires.
fn identity(user: &Value) -> Result<Vec<(HeaderName, HeaderValue)>, KubeconfigError> {
    let mut headers = Vec::new();
    let mut add = |name: &'static str, text: &str| {
        headers.push((HeaderName::from_static(name), secret(text)?));
        Ok::<(), KubeconfigError>(())
    };
    // As in kubectl, the file has precedence.
    if !user.text("token").is_empty() && user.text("tokenFile").is_empty() {
        add("authorization", &format!("Bearer {}", user.text("token").trim()))?;
    }
    for (key, name) in [("as", "impersonate-user"), ("as-uid", "impersonate-uid")] {
        if !user.text(key).is_empty() {
            add(name, user.text(key))?;
        }
    }
    for group in user.items("as-groups").iter().filter_map(Value::as_str) {
        add("impersonate-group", group)?;
    }
    Ok(headers)
}

fn secret(text: &str) -> Result<HeaderValue, KubeconfigError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| KubeconfigError::Header)?;
    value.set_sensitive(true);
    Ok(value)
}

/// A certificate or key: embedded, or in a file relative to the kubeconfig.
pub(super) fn material(part: &Value, key: &'static str, folder: &Path) -> Result<Option<Vec<u8>>, KubeconfigError> {
    let embedded = part.at(&format!("{key}-data")).as_str().unwrap_or_default();
    if !embedded.is_empty() {
        let bytes = base64::engine::general_purpose::STANDARD.decode(embedded.trim());
        return bytes.map(Some).map_err(|error| KubeconfigError::Base64(key, error));
    }
    match part.text(key) {
        "" => Ok(None),
        file => {
            let file = folder.join(file);
            std::fs::read(&file).map(Some).map_err(|error| KubeconfigError::File(key, file, error))
        }
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Access({}{})", self.address, self.prefix)
    }
}
