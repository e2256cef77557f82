//! A small registry: the distribution API over plain HTTP, with tokens, and with faults on demand. It records its requests.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use base64::Engine as _;
use parking_lot::Mutex;
use serde_json::{Value, json};
use testbed::net::Node;

/// The only token that it gives.
const TOKEN: &str = "sesame";

/// Faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Blobs break off in the middle, this many times.
    Breaks(u32),
    /// Blobs are others than they should be, and as long.
    Lies,
    /// Everything is answered with this.
    Answers(u16),
    /// Blobs are served elsewhere: by the same server under another name.
    Redirects,
    /// Redirects endlessly.
    Circles,
    /// No response, until the client disconnects.
    Silence,
}

/// A request.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    pub(super) path: String,
    pub(super) host: String,
    pub(super) authorization: String,
    pub(super) range: String,
}

#[derive(Default)]
struct State {
    blobs: Mutex<BTreeMap<String, Vec<u8>>>,
    manifests: Mutex<BTreeMap<String, Vec<u8>>>,
    asked: Mutex<Vec<Asked>>,
    fault: Mutex<Option<Fault>>,
    /// Who may have tokens; anonymous when there is none.
    user: Option<(&'static str, &'static str)>,
}

/// See the module. It ends when it is dropped.
pub(super) struct Registry {
    pub(super) at: SocketAddr,
    state: Arc<State>,
    listener: TcpListener,
    thread: Option<JoinHandle<()>>,
}

/// The digest of bytes, in the OCI notation.
pub(super) fn digest(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    "sha256:".to_owned() + &digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
}

/// A layer: how it is sent, and the digest of what it unpacks to.
#[derive(Clone)]
pub(super) struct Layer {
    pub(super) sent: Vec<u8>,
    pub(super) diff: String,
}

impl Registry {
    /// At an address of a machine.
    pub(super) fn start(node: &Node, ip: &str, user: Option<(&'static str, &'static str)>) -> Self {
        let listener = node.in_namespace(|| TcpListener::bind((ip, 0))).expect("a port");
        let at = listener.local_addr().expect("an address");
        let state = Arc::new(State { user, ..State::default() });
        let served = state.clone();
        let kept = listener.try_clone().expect("a listener");
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let state = served.clone();
                std::thread::spawn(move || state.serve(stream, at));
            }
        });
        Self { at, state, listener: kept, thread: Some(thread) }
    }

    /// The full name of an image here.
    pub(super) fn name(&self, repository: &str) -> String {
        format!("{}/{repository}", self.at)
    }

    pub(super) fn set(&self, fault: Option<Fault>) {
        *self.state.fault.lock() = fault;
    }

    /// The requests since the last call.
    pub(super) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.state.asked.lock())
    }

    fn blob(&self, bytes: &[u8]) -> Value {
        let digest = digest(bytes);
        self.state.blobs.lock().insert(digest.clone(), bytes.to_vec());
        json!({"digest": digest, "size": bytes.len()})
    }

    /// Takes a document in, by its digest and by a tag; answers where it is.
    fn manifest(&self, repository: &str, tag: &str, document: &Value) -> Value {
        let bytes = document.to_string().into_bytes();
        let digest = digest(&bytes);
        let mut manifests = self.state.manifests.lock();
        let size = bytes.len();
        manifests.insert(format!("/v2/{repository}/manifests/{digest}"), bytes.clone());
        manifests.insert(format!("/v2/{repository}/manifests/{tag}"), bytes);
        json!({"digest": digest, "size": size})
    }

    /// Takes in an image of layers, below an index of several kinds of machines; answers the digest of that.
    pub(super) fn push(&self, repository: &str, tag: &str, layers: &[Layer], config: &Value) -> String {
        let diffs: Vec<&String> = layers.iter().map(|layer| &layer.diff).collect();
        let architecture = std::env::consts::ARCH.replace("x86_64", "amd64").replace("aarch64", "arm64");
        let config = json!({
            "os": "linux", "architecture": architecture, "config": config, "rootfs": {"type": "layers", "diff_ids": diffs},
        });
        let parts: Vec<Value> = layers.iter().map(|layer| self.blob(&layer.sent)).collect();
        let image = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": self.blob(config.to_string().as_bytes()), "layers": parts,
        });
        let mut ours = self.manifest(repository, "", &image);
        ours["platform"] = json!({"os": "linux", "architecture": architecture});
        let other = json!({
            "digest": format!("sha256:{}", "0".repeat(64)), "size": 1, "platform": {"os": "plan9", "architecture": "mips"},
        });
        let index = json!({"schemaVersion": 2, "manifests": [other, ours]});
        self.manifest(repository, tag, &index)["digest"].as_str().expect("a digest").to_owned()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // Wakes the thread that waits in `accept`.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl State {
    fn serve(&self, stream: TcpStream, at: SocketAddr) {
        let mut asked = Asked::default();
        let mut lines = BufReader::new(stream.try_clone().expect("a connection")).lines().map_while(Result::ok);
        let Some(first) = lines.next() else { return };
        first.split(' ').nth(1).unwrap_or_default().clone_into(&mut asked.path);
        for line in lines.take_while(|line| !line.is_empty()) {
            let (name, value) = line.split_once(": ").unwrap_or_default();
            match name.to_ascii_lowercase().as_str() {
                "host" => value.clone_into(&mut asked.host),
                "authorization" => value.clone_into(&mut asked.authorization),
                "range" => value.clone_into(&mut asked.range),
                _ => {}
            }
        }
        self.asked.lock().push(asked.clone());
        // A client may disconnect in the middle.
        let _ = self.answer(stream, &asked, at);
    }

    fn answer(&self, mut to: TcpStream, asked: &Asked, at: SocketAddr) -> std::io::Result<()> {
        let fault = *self.fault.lock();
        let path = asked.path.split('?').next().unwrap_or_default();
        if fault == Some(Fault::Silence) {
            std::io::copy(&mut to, &mut std::io::sink())?;
            self.asked.lock().push(Asked { path: "went away".to_owned(), ..Asked::default() });
            return Ok(());
        }
        if let Some(Fault::Answers(code)) = fault {
            return refuse(&mut to, code, "", "a fault that was asked for");
        }
        if path == "/token" {
            let encode =
                |(user, password)| base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
            let wanted = self.user.map(|user| format!("Basic {}", encode(user)));
            return match wanted {
                Some(wanted) if asked.authorization != wanted => refuse(&mut to, 401, "", "who are you?"),
                _ => send(&mut to, "200 OK", "", json!({"token": TOKEN}).to_string().as_bytes()),
            };
        }
        let blob = path.split("/blobs/").nth(1);
        if !path.starts_with("/elsewhere/") && asked.authorization != format!("Bearer {TOKEN}") {
            let repository = path.trim_start_matches("/v2/").split(['/']).next().unwrap_or_default();
            let challenge = format!(
                "WWW-Authenticate: Bearer realm=\"http://{at}/token\",service=\"test\",scope=\"repository:{repository}:pull\"\r\n"
            );
            return refuse(&mut to, 401, &challenge, "authentication required");
        }
        match (fault, blob) {
            (Some(Fault::Circles), Some(_)) => {
                return send(&mut to, "307 Found", &format!("Location: {path}\r\n"), b"");
            }
            (Some(Fault::Redirects), Some(_)) if !path.starts_with("/elsewhere/") => {
                let location = format!("Location: http://localhost:{}/elsewhere{path}\r\n", at.port());
                return send(&mut to, "307 Temporary Redirect", &location, b"");
            }
            _ => {}
        }
        let bytes = match blob {
            Some(digest) => self.blobs.lock().get(digest).cloned(),
            None => self.manifests.lock().get(path).cloned(),
        };
        let Some(mut bytes) = bytes else { return refuse(&mut to, 404, "", "manifest unknown") };
        if blob.is_none() {
            return send(&mut to, "200 OK", &format!("Docker-Content-Digest: {}\r\n", digest(&bytes)), &bytes);
        }
        if fault == Some(Fault::Lies) {
            bytes.iter_mut().for_each(|byte| *byte ^= 1);
        }
        self.send_blob(&mut to, &asked.range, &bytes)
    }

    fn send_blob(&self, to: &mut TcpStream, range: &str, bytes: &[u8]) -> std::io::Result<()> {
        let start: usize = range.trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap_or(0);
        let rest = bytes.get(start..).unwrap_or_default();
        let (status, extra) = match start {
            0 => ("200 OK", String::new()),
            _ => {
                ("206 Partial Content", format!("Content-Range: bytes {start}-{}/{}\r\n", bytes.len() - 1, bytes.len()))
            }
        };
        let breaks = match &mut *self.fault.lock() {
            Some(Fault::Breaks(left)) if *left > 0 && rest.len() > 1000 => {
                *left -= 1;
                true
            }
            _ => false,
        };
        if breaks {
            write!(to, "HTTP/1.1 {status}\r\n{extra}Content-Length: {}\r\nConnection: close\r\n\r\n", rest.len())?;
            return to.write_all(&rest[..rest.len() / 2]);
        }
        send(to, status, &extra, rest)
    }
}

fn refuse(to: &mut TcpStream, code: u16, extra: &str, why: &str) -> std::io::Result<()> {
    let body = json!({"errors": [{"code": "X", "message": why}]}).to_string();
    send(to, &format!("{code} No"), extra, body.as_bytes())
}

fn send(to: &mut TcpStream, status: &str, extra: &str, body: &[u8]) -> std::io::Result<()> {
    write!(to, "HTTP/1.1 {status}\r\n{extra}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len())?;
    to.write_all(body)
}
