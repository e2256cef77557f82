//! A server that sends the bytes of a script, and records the requests.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::super::{Remote, Timing};

/// What the server does after the headers of a response.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// Sends this, in pieces of so many bytes.
    Say(String, usize),
    /// Ends the response; the connection stays open.
    End,
    /// Closes the connection.
    Cut,
    /// Waits until the test continues.
    Wait,
    /// Sends nothing more and keeps the connection open.
    Hang,
}

/// One response.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    code: u16,
    headers: &'static str,
    acts: Vec<Act>,
    /// Not even the headers are sent.
    mute: bool,
}

impl Scene {
    pub(super) fn ok() -> Self {
        Self { code: 200, headers: "", acts: Vec::new(), mute: false }
    }

    pub(super) fn mute() -> Self {
        Self { mute: true, acts: vec![Act::Hang], ..Self::ok() }
    }

    pub(super) fn refuse(code: u16, message: &str) -> Self {
        let status = format!(r#"{{"kind":"Status","metadata":{{}},"message":"{message}","code":{code}}}"#);
        Self { code, ..Self::ok() }.say(&status).then(Act::End)
    }

    pub(super) fn header(mut self, header: &'static str) -> Self {
        self.headers = header;
        self
    }

    pub(super) fn say(self, text: &str) -> Self {
        self.then(Act::Say(text.to_owned(), usize::MAX))
    }

    pub(super) fn line(self, text: &str) -> Self {
        self.say(&format!("{text}\n"))
    }

    pub(super) fn then(mut self, act: Act) -> Self {
        self.acts.push(act);
        self
    }
}

/// See the module.
pub(super) struct Fake {
    pub(super) address: String,
    /// `GET /api/v1/services?…` of every request so far.
    asked: Arc<Mutex<Vec<String>>>,
    /// Lets an [`Act::Wait`] continue.
    pub(super) go_on: Arc<Notify>,
    home: tempfile::TempDir,
    task: tokio::task::AbortHandle,
}

impl Fake {
    /// Starts a server with these responses; after the last one it hangs.
    pub(super) async fn start(scenes: impl IntoIterator<Item = Scene>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let go_on = Arc::new(Notify::new());
        let scenes = Arc::new(Mutex::new(scenes.into_iter().collect::<VecDeque<_>>()));
        let (heard, bell) = (asked.clone(), go_on.clone());
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, scenes.clone(), heard.clone(), bell.clone()));
            }
        });
        let fake =
            Self { address, asked, go_on, home: tempfile::tempdir().expect("a directory"), task: task.abort_handle() };
        fake.write_kubeconfig(&fake.address);
        fake
    }

    pub(super) fn write_kubeconfig(&self, address: &str) {
        let text = format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: \"http://{address}\"}}}}]\n\
             users: [{{name: u, user: {{token: t}}}}]\n"
        );
        std::fs::write(self.home.path().join("kubeconfig"), text).expect("written");
    }

    /// The server as a source, with short timeouts.
    pub(super) fn remote(&self) -> Remote {
        let short = Duration::from_millis(300);
        let timing = Timing {
            connect: Duration::from_secs(5),
            response: Duration::from_secs(1),
            idle: Duration::from_secs(5),
            min_backoff: Duration::from_millis(5),
            max_backoff: Duration::from_millis(50),
            not_served: short,
            ..Timing::default()
        };
        Remote::new(&self.home.path().join("kubeconfig")).expect("a kubeconfig").with_timing(timing)
    }

    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    scenes: Arc<Mutex<VecDeque<Scene>>>,
    asked: Arc<Mutex<Vec<String>>>,
    bell: Arc<Notify>,
) {
    while let Some(request) = read_request(&mut stream).await {
        asked.lock().push(request);
        let scene = scenes.lock().pop_front();
        let scene = scene.unwrap_or_else(Scene::mute);
        if play(&mut stream, scene, &bell).await.is_none() {
            return;
        }
    }
}

/// The request line, and the body if there is one.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut read = Vec::new();
    let end = loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&read[..end]).to_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split('\r').next()?.parse().ok());
    while read.len() < end + length.unwrap_or(0) {
        stream.read_buf(&mut read).await.ok()?;
    }
    assert!(head.contains("authorization: bearer t\r\n"), "{head}");
    let text = String::from_utf8_lossy(&read).into_owned();
    let line = text.split(" HTTP/1.1").next().unwrap_or_default();
    Some(format!("{line}{}", &text[end..]))
}

/// Sends one response; `None` when the connection is to be closed.
async fn play(stream: &mut TcpStream, scene: Scene, bell: &Notify) -> Option<()> {
    if !scene.mute {
        let head = format!("HTTP/1.1 {} X\r\n{}transfer-encoding: chunked\r\n\r\n", scene.code, scene.headers);
        stream.write_all(head.as_bytes()).await.ok()?;
    }
    for act in scene.acts {
        match act {
            Act::Say(text, size) => {
                for piece in text.as_bytes().chunks(size) {
                    stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).await.ok()?;
                    stream.write_all(piece).await.ok()?;
                    stream.write_all(b"\r\n").await.ok()?;
                }
            }
            Act::End => stream.write_all(b"0\r\n\r\n").await.ok()?,
            Act::Cut => return None,
            Act::Wait => bell.notified().await,
            Act::Hang => std::future::pending().await,
        }
    }
    Some(())
}
