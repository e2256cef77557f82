//! A webhook: an HTTPS server that responds to AdmissionReviews or other reviews, and keeps their requests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use jiff::Timestamp;
use parking_lot::Mutex;
use rest::pki::{self, ServingNames};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

/// Makes the response to a review.
type Respond = dyn Fn(&Value) -> Response + Send + Sync;

/// What is sent back.
pub struct Response {
    /// The status code with its text, and further headers.
    pub status: &'static str,
    /// The body.
    pub body: String,
}

impl Response {
    /// A successful response.
    #[must_use]
    pub fn ok(body: &Value) -> Self {
        Self { status: "200 OK", body: body.to_string() }
    }
}

/// A webhook at loopback. Its threads end with the process.
pub struct Webhook {
    address: SocketAddr,
    ca_pem: String,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl Webhook {
    /// Starts listening, and responds to AdmissionReviews: `answer` makes the `response` of a `request`; `uid` is added.
    #[must_use]
    pub fn start(answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        Self::respond(move |review| {
            let mut response = answer(&review["request"]);
            response["uid"] = review["request"]["uid"].clone();
            Response::ok(&json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
        })
    }

    /// Starts listening, and responds to any review.
    #[must_use]
    pub fn respond(respond: impl Fn(&Value) -> Response + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let names = ServingNames { ips: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)], dns: Vec::new() };
        let pki = pki::load_or_create(folder.path(), &names, Timestamp::now()).expect("certificates");
        let mut config = ServerConfig::clone(&pki.server_config());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (config, respond, seen) = (Arc::new(config), Arc::new(respond), requests.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, respond, seen) = (config.clone(), respond.clone(), seen.clone());
                thread::spawn(move || {
                    let connection = ServerConnection::new(config).expect("a configuration");
                    // A client may end its connection at any time.
                    let _ = serve(StreamOwned::new(connection, stream), &*respond, &seen);
                });
            }
        });
        Self { address, ca_pem: pki.ca_pem().to_owned(), requests }
    }

    /// The `clientConfig` of a configuration.
    #[must_use]
    pub fn client_config(&self) -> Value {
        json!({"url": format!("https://{}/review", self.address), "caBundle": base64(self.ca_pem.as_bytes())})
    }

    /// The requests of the reviews so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Value> {
        self.requests.lock().clone()
    }
}

/// Answers the requests of a connection.
fn serve(
    stream: StreamOwned<ServerConnection, TcpStream>,
    respond: &Respond,
    seen: &Mutex<Vec<Value>>,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut length, mut line) = (0, String::new());
        while stream.read_line(&mut line)? > 0 && line != "\r\n" {
            if let Some(("content-length", value)) = line.to_ascii_lowercase().trim_end().split_once(": ") {
                length = value.parse().expect("a length");
            }
            line.clear();
        }
        if line.is_empty() {
            return Ok(());
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        let review: Value = serde_json::from_slice(&body).expect("a review");
        let Response { status, body } = respond(&review);
        seen.lock().push(review["request"].clone());
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.get_mut().write_all(format!("{head}{body}").as_bytes())?;
        stream.get_mut().flush()?;
    }
}

/// In the encoding of patches and certificates.
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
