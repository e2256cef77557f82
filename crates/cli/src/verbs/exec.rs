//! `waypost exec`: a command in a container, with its streams, its terminal and its exit code.
//!
//! The protocol is `v5.channel.k8s.io` over WebSocket: the first byte of a message is the channel. `run -it` attaches with the same
//! protocol ([`attach`]).

use std::io::{Read as _, Write as _};

use anyhow::{Context as _, bail, ensure};
use api::value::ValueExt as _;
use bytes::{BufMut as _, Bytes, BytesMut};
use clap::Args;
use client::http::socket::Socket;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::client::{Client, Query};
use super::connect::Connection;
use super::{Ended, pods};
use crate::terminal::{self, Raw};

/// The protocol.
const PROTOCOL: &str = "v5.channel.k8s.io";
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const RESIZE: u8 = 4;
/// The channel in the next byte is closed.
const CLOSE: u8 = 255;
/// Read buffer, in bytes.
const READ: usize = 16 * 1024;

/// Settings of the verb.
#[derive(Args, Debug)]
pub struct Arguments {
    /// A Pod, or KIND/NAME of an object that has Pods
    #[arg(value_name = "POD")]
    pod: String,
    /// Pass standard input to the command
    #[arg(short = 'i', long)]
    stdin: bool,
    /// Allocate a terminal for the command
    #[arg(short, long)]
    tty: bool,
    /// The container
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
    /// The command, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
    #[command(flatten)]
    connection: Connection,
}

/// The streams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streams {
    pub(super) stdin: bool,
    pub(super) tty: bool,
}

/// Runs the verb.
pub(super) async fn exec(arguments: Arguments) -> anyhow::Result<()> {
    let mut client = arguments.connection.client()?;
    let (_, pod) = pods::best(&mut client, std::slice::from_ref(&arguments.pod)).await?;
    let container = pods::container(&pod, arguments.container.as_deref())?;
    let mut streams = Streams { stdin: arguments.stdin, tty: arguments.tty };
    if streams.tty && (!terminal::is_typed() || !streams.stdin) {
        terminal::note("no terminal: -t needs -i and a terminal on standard input");
        streams.tty = false;
    }
    let mut query = query(&container, streams);
    for word in &arguments.command {
        // An empty argument is an argument.
        query = if word.is_empty() { query.add_empty("command") } else { query.add("command", word) };
    }
    let path = query.on(&format!("{}/exec", pod_path(&pod)));
    attach(&client, &path, streams).await
}

/// The path of a Pod.
pub(super) fn pod_path(pod: &Value) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", pod.text("metadata.namespace"), pod.text("metadata.name"))
}

/// The query parameters of a container and its streams.
pub(super) fn query(container: &str, streams: Streams) -> Query {
    let yes = |wanted: bool| if wanted { "true" } else { "false" };
    Query::new()
        .add("container", container)
        .add("stdin", yes(streams.stdin))
        .add("stdout", "true")
        // A terminal combines stdout and stderr.
        .add("stderr", yes(!streams.tty))
        .add("tty", yes(streams.tty))
}

/// Copies streams until the command ends; returns its exit code.
pub(super) async fn attach(client: &Client, path: &str, streams: Streams) -> anyhow::Result<()> {
    let socket = client.socket(path, PROTOCOL).await?;
    let raw = if streams.tty { Some(Raw::begin()?) } else { None };
    let ended = copy(socket, streams).await;
    drop(raw);
    match code(&ended?) {
        Ok(0) => Ok(()),
        Ok(code) => Err(Ended(u8::try_from(code).unwrap_or(1)).into()),
        Err(error) => Err(error),
    }
}

/// Copies streams; returns the status.
async fn copy(socket: Socket, streams: Streams) -> anyhow::Result<Vec<u8>> {
    let Socket { sender, mut receiver } = socket;
    if streams.stdin {
        send_stdin(sender.clone());
    }
    if streams.tty {
        tokio::spawn(send_sizes(sender.clone()));
    }
    let mut status = Vec::new();
    while let Some(message) = receiver.recv().await {
        match message.split_first() {
            Some((&STDOUT, bytes)) => terminal::write(bytes)?,
            Some((&STDERR, bytes)) => {
                let mut stderr = std::io::stderr().lock();
                let _ = stderr.write_all(bytes).and_then(|()| stderr.flush());
            }
            Some((&STATUS, bytes)) => status.extend_from_slice(bytes),
            _ => {}
        }
    }
    drop(sender);
    Ok(status)
}

/// Sends standard input, and its end. In a thread, since reading a terminal blocks; it ends with the process.
fn send_stdin(to: mpsc::Sender<Bytes>) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; READ];
        let mut stdin = std::io::stdin().lock();
        loop {
            let message = match stdin.read(&mut buffer) {
                Ok(0) | Err(_) => Bytes::from_static(&[CLOSE, STDIN]),
                Ok(count) => message(STDIN, &buffer[..count]),
            };
            let over = message[0] == CLOSE;
            if to.blocking_send(message).is_err() || over {
                return;
            }
        }
    });
}

fn message(channel: u8, bytes: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(bytes.len() + 1);
    out.put_u8(channel);
    out.put_slice(bytes);
    out.freeze()
}

/// Sends the size of the terminal, now and when it changes.
async fn send_sizes(to: mpsc::Sender<Bytes>) {
    let Ok(mut changes) = signal(SignalKind::window_change()) else { return };
    loop {
        if let Some((width, height)) = terminal::size() {
            let size = format!("{{\"Width\":{width},\"Height\":{height}}}");
            if to.send(message(RESIZE, size.as_bytes())).await.is_err() {
                return;
            }
        }
        changes.recv().await;
    }
}

/// The exit code in a status, or the error.
fn code(status: &[u8]) -> anyhow::Result<i64> {
    ensure!(!status.is_empty(), "the connection ended before the command did");
    let Ok(status) = serde_json::from_slice::<Value>(status) else {
        bail!("{}", String::from_utf8_lossy(status));
    };
    if status.text("status") == "Success" {
        return Ok(0);
    }
    let causes = status.items("details.causes");
    let exit = causes.iter().find(|cause| cause.text("reason") == "ExitCode").map(|cause| cause.text("message"));
    exit.and_then(|text| text.parse().ok()).with_context(|| status.text("message").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_read_from_the_status() {
        assert_eq!(code(br#"{"status":"Success"}"#).expect("a code"), 0);
        let failed = br#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#;
        assert_eq!(code(failed).expect("a code"), 3);
        let error = code(br#"{"status":"Failure","message":"no such file"}"#).expect_err("no code");
        assert_eq!(error.to_string(), "no such file");
        assert!(code(b"").is_err());
    }
}
