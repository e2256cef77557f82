//! Upgrades HTTP connections: negotiates WebSocket or SPDY and starts the session task.
//!
//! In: request headers and the streams of a session. Out: the response `101 Switching Protocols`. The task starts when the connection is upgraded and
//! ends with it.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http::header::{CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::Agent;
use super::body::Body;
use super::request::{BadQuery, HttpError};
use crate::streams::command::{self, Client};
use crate::streams::drive::drive;
use crate::streams::status::{Outcome, Report};
use crate::streams::ws::channel::{self, Form};
use crate::streams::ws::handshake::{self, listed};
use crate::streams::{Mux, forward, spdy};
use crate::workloads::{Attach, Exit, PodId, Running};

const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
const PORT_FORWARD: &str = "portforward.k8s.io";
/// The queue of streams that the client opened.
const OPENED_QUEUE: usize = 16;

/// The delay before the first output with v5.channel.k8s.io. kubectl 1.30 to 1.33 discards data that arrives before it has created its streams
/// (kubernetes issue 131189), so the output of a short command would be lost.
const V5_OUTPUT_DELAY: Duration = Duration::from_millis(100);

/// WebSocket subprotocols of exec and attach.
const CHANNELS: [(&str, Form, Report); 5] = [
    ("v5.channel.k8s.io", Form::BinaryWithClose, Report::Status),
    ("v4.channel.k8s.io", Form::Binary, Report::Status),
    ("v4.base64.channel.k8s.io", Form::Base64, Report::Status),
    ("channel.k8s.io", Form::Binary, Report::Text),
    ("base64.channel.k8s.io", Form::Base64, Report::Text),
];

/// SPDY protocol versions of exec and attach, and whether they support terminal sizes.
const VERSIONS: [(&str, Report, bool); 4] = [
    ("v4.channel.k8s.io", Report::Status, true),
    ("v3.channel.k8s.io", Report::Text, true),
    ("v2.channel.k8s.io", Report::Text, false),
    ("channel.k8s.io", Report::Text, false),
];

/// The negotiated protocol and its name, which may be empty.
#[derive(Clone, Copy)]
pub(super) enum Protocol {
    WebSocket { name: &'static str, form: Form, report: Report },
    Spdy { name: &'static str, report: Report, resize: bool },
}

impl Protocol {
    /// Negotiates the protocol of exec and attach.
    pub(super) fn of_command(headers: &HeaderMap) -> Result<Self, HttpError> {
        if handshake::wants(headers, "websocket") {
            let offered = handshake::offered(headers);
            if offered.is_empty() {
                return Ok(Self::WebSocket { name: "", form: Form::Binary, report: Report::Text });
            }
            let known = |offer: &String| CHANNELS.iter().find(|(name, ..)| name == offer);
            let &(name, form, report) =
                offered.iter().find_map(known).ok_or_else(|| unknown(&offered, CHANNELS.map(|(name, ..)| name)))?;
            return Ok(Self::WebSocket { name, form, report });
        }
        let (name, accepted) = negotiate(headers, VERSIONS.map(|(name, ..)| name))?;
        let (_, report, resize) = VERSIONS[accepted];
        Ok(Self::Spdy { name, report, resize })
    }
}

/// The first SPDY protocol of the client that is supported.
fn negotiate<const N: usize>(
    headers: &HeaderMap,
    known: [&'static str; N],
) -> Result<(&'static str, usize), HttpError> {
    if !handshake::wants(headers, "SPDY/3.1") {
        return Err((StatusCode::BAD_REQUEST, "Upgrade request required".to_owned()));
    }
    let offered: Vec<String> = listed(headers, &STREAM_PROTOCOL).map(str::to_owned).collect();
    if offered.is_empty() {
        let text = "unable to upgrade: header X-Stream-Protocol-Version does not exist in request";
        return Err((StatusCode::BAD_REQUEST, text.to_owned()));
    }
    let index = offered.iter().find_map(|offer| known.iter().position(|name| name == offer));
    index.map(|index| (known[index], index)).ok_or_else(|| unknown(&offered, known))
}

fn unknown<const N: usize>(offered: &[String], known: [&str; N]) -> HttpError {
    let (offered, known) = (offered.join(" "), known.join(" "));
    let text = format!(
        "unable to upgrade: unable to negotiate protocol: client supports [{offered}], server accepts [{known}]"
    );
    (StatusCode::FORBIDDEN, text)
}

/// Switches to WebSocket.
fn to_websocket(headers: &HeaderMap, name: &'static str) -> Result<Response<Body>, HttpError> {
    let accept = handshake::accept(headers).map_err(|why| (StatusCode::BAD_REQUEST, why.to_owned()))?;
    let accept = HeaderValue::from_str(&accept).map_err(|_| (StatusCode::BAD_REQUEST, "bad key".to_owned()))?;
    let mut response = switch("websocket");
    response.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, accept);
    if !name.is_empty() {
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
    }
    Ok(response)
}

/// Switches to SPDY.
fn to_spdy(name: &'static str) -> Response<Body> {
    let mut response = switch("SPDY/3.1");
    response.headers_mut().insert(STREAM_PROTOCOL, HeaderValue::from_static(name));
    response
}

fn switch(protocol: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::Whole(None));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static(protocol));
    response
}

impl Agent {
    /// A session permit.
    pub(super) fn session_permit(&self) -> Result<OwnedSemaphorePermit, HttpError> {
        let full = "too many streams are open on this node, please try again later";
        Arc::clone(&self.sessions).try_acquire_owned().map_err(|_| (StatusCode::SERVICE_UNAVAILABLE, full.to_owned()))
    }
}

/// Runs a session once the connection is upgraded.
fn spawn<F: Future<Output = ()> + Send>(
    on_upgrade: OnUpgrade,
    permit: OwnedSemaphorePermit,
    then: impl FnOnce(TokioIo<Upgraded>) -> F + Send + 'static,
) {
    tokio::spawn(async move {
        match on_upgrade.await {
            Ok(upgraded) => then(TokioIo::new(upgraded)).await,
            Err(error) => tracing::debug!(%error, "failed to upgrade connection"),
        }
        drop(permit);
    });
}

/// Starts an exec or attach session.
pub(super) fn command(
    agent: &Agent,
    headers: &HeaderMap,
    on_upgrade: OnUpgrade,
    protocol: Protocol,
    how: Attach,
    running: Result<Running, Outcome>,
    outcome: impl Fn(Exit) -> Outcome + Send + Sync + 'static,
) -> Result<Response<Body>, HttpError> {
    let (permit, idle, creation) = (agent.session_permit()?, agent.idle, agent.creation);
    let (opened, mut opening) = mpsc::channel(OPENED_QUEUE);
    match protocol {
        Protocol::WebSocket { name, form, report } => {
            let response = to_websocket(headers, name)?;
            let mux = Mux::new(channel::Encoder(form));
            let client = channels(&mux, form, how, report);
            spawn(on_upgrade, permit, move |io| async move {
                let carried = drive(io, Arc::clone(&mux), channel::Decoder::new(form, 5), opened, idle);
                tokio::join!(carried, async {
                    if form == Form::BinaryWithClose {
                        tokio::time::sleep(V5_OUTPUT_DELAY).await;
                    }
                    run_session(client, &mux, running, outcome).await;
                });
            });
            Ok(response)
        }
        Protocol::Spdy { name, report, resize } => {
            spawn(on_upgrade, permit, move |io| async move {
                let mux = Mux::new(spdy::Encoder);
                let carried = drive(io, Arc::clone(&mux), spdy::Decoder::new(|_| true), opened, idle);
                tokio::join!(carried, async {
                    let client = command::streams_of(&mut opening, how, resize, report, creation).await;
                    run_session(client, &mux, running, outcome).await;
                });
            });
            Ok(to_spdy(name))
        }
    }
}

/// The channels of a session; sends the empty message that clients wait for.
fn channels(mux: &Arc<Mux>, form: Form, how: Attach, report: Report) -> Option<Client> {
    let first = if how.stdout {
        1
    } else if how.stderr {
        2
    } else {
        3
    };
    let mut hello = BytesMut::new();
    channel::Encoder(form).message(first, &[], &mut hello);
    mux.answer(hello.freeze());
    let channel = |id, wanted: bool| wanted.then(|| mux.add(id)).flatten();
    Some(Client {
        stdin: channel(0, how.stdin),
        stdout: channel(1, how.stdout),
        stderr: channel(2, how.stderr),
        error: mux.add(3)?,
        resize: channel(4, how.tty),
        report,
    })
}

async fn run_session(
    client: Option<Client>,
    mux: &Arc<Mux>,
    running: Result<Running, Outcome>,
    outcome: impl Fn(Exit) -> Outcome,
) {
    match (client, running) {
        (None, _) => mux.close(),
        (Some(client), Ok(running)) => command::run(client, mux, running, outcome).await,
        (Some(client), Err(outcome)) => command::refuse(client, mux, &outcome).await,
    }
}

/// Starts a port-forward session.
pub(super) fn forward(
    agent: &Agent,
    headers: &HeaderMap,
    on_upgrade: OnUpgrade,
    pod: PodId,
    ports: Result<Vec<u16>, BadQuery>,
) -> Result<Response<Body>, HttpError> {
    let (permit, idle, creation) = (agent.session_permit()?, agent.idle, agent.creation);
    let workloads = Arc::clone(&agent.workloads);
    if !handshake::wants(headers, "websocket") {
        let (name, _) = negotiate(headers, [PORT_FORWARD])?;
        spawn(on_upgrade, permit, move |io| async move {
            let mux = Mux::new(spdy::Encoder);
            let (opened, opening) = mpsc::channel(OPENED_QUEUE);
            let carried = drive(io, Arc::clone(&mux), spdy::Decoder::new(forward::accepts), opened, idle);
            tokio::join!(carried, forward::streams(workloads, pod, mux, opening, creation));
        });
        return Ok(to_spdy(name));
    }
    let offered = handshake::offered(headers);
    if offered.iter().any(|name| name == TUNNEL) {
        let response = to_websocket(headers, TUNNEL)?;
        spawn(on_upgrade, permit, move |io| async move {
            let outer = Mux::new(channel::Encoder(Form::Tunnel));
            let Some(tunnel) = outer.add(0) else { return };
            let (unused, _) = mpsc::channel(1);
            let carried = drive(io, Arc::clone(&outer), channel::Decoder::new(Form::Tunnel, 1), unused, idle);
            tokio::join!(carried, async {
                let mux = Mux::new(spdy::Encoder);
                let (opened, opening) = mpsc::channel(OPENED_QUEUE);
                let inner = drive(tunnel, Arc::clone(&mux), spdy::Decoder::new(forward::accepts), opened, idle);
                tokio::join!(inner, forward::streams(workloads, pod, mux, opening, creation));
                outer.close();
            });
        });
        return Ok(response);
    }
    let forms = [("v4.channel.k8s.io", Form::Binary), ("v4.base64.channel.k8s.io", Form::Base64)];
    let (name, form) = if offered.is_empty() {
        ("", Form::Binary)
    } else {
        let known = |offer: &String| forms.iter().find(|(name, _)| name == offer);
        *offered.iter().find_map(known).ok_or_else(|| unknown(&offered, [TUNNEL, forms[0].0, forms[1].0]))?
    };
    let ports = ports?;
    let response = to_websocket(headers, name)?;
    spawn(on_upgrade, permit, move |io| async move {
        let mux = Mux::new(channel::Encoder(form));
        let (unused, _) = mpsc::channel(1);
        let count = u32::try_from(2 * ports.len()).unwrap_or(u32::MAX);
        let carried = drive(io, Arc::clone(&mux), channel::Decoder::new(form, count), unused, idle);
        tokio::join!(carried, forward::channels(workloads, pod, mux, ports));
    });
    Ok(response)
}
