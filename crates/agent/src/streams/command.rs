//! Exec and attach sessions: copies between the streams of a process and those of a client, and reports the exit status.
//!
//! In: a [`Running`] process and a [`Client`] of any protocol. Out: stdin, stdout, stderr, terminal sizes, and a status on the error stream. The end of
//! the client's stdin closes only the stdin of the process. When the client disconnects the process handle is dropped, which kills a process that
//! `exec` started.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::drive::Opened;
use super::mux::{Mux, Stream};
use super::status::{Outcome, Report};
use super::wire::header;
use crate::workloads::{Attach, Exit, Input, Output, Running, Size};

/// After the exit of a process its output is closed when nothing is written for this long: a child may keep it open.
const OUTPUT_IDLE: Duration = Duration::from_secs(1);
/// The longest terminal size message, in bytes.
const SIZE: usize = 4096;

/// The streams of a client.
pub struct Client {
    /// stdin
    pub stdin: Option<Stream>,
    /// stdout
    pub stdout: Option<Stream>,
    /// stderr
    pub stderr: Option<Stream>,
    /// Terminal sizes.
    pub resize: Option<Stream>,
    /// The error stream, for the exit status.
    pub error: Stream,
    /// The format of the exit status.
    pub report: Report,
}

/// Waits until a SPDY client has opened its streams; nothing on timeout or disconnect.
pub(crate) async fn streams_of(
    opened: &mut mpsc::Receiver<Opened>,
    how: Attach,
    resize: bool,
    report: Report,
    limit: Duration,
) -> Option<Client> {
    let wanted =
        1 + [how.stdin, how.stdout, how.stderr, how.tty && resize].into_iter().filter(|wanted| *wanted).count();
    let (mut stdin, mut stdout, mut stderr, mut sizes, mut error) = (None, None, None, None, None);
    let all = async {
        let mut have = 0;
        while have < wanted {
            let Opened { stream, headers } = opened.recv().await?;
            let place = match header(&headers, "streamtype") {
                Some("error") => &mut error,
                Some("stdin") => &mut stdin,
                Some("stdout") => &mut stdout,
                Some("stderr") => &mut stderr,
                Some("resize") => &mut sizes,
                _ => continue,
            };
            // A duplicate is dropped, which resets it.
            if place.is_none() {
                have += 1;
                *place = Some(stream);
            }
        }
        Some(())
    };
    timeout(limit, all).await.ok()??;
    error.map(|error| Client { stdin, stdout, stderr, resize: sizes, error, report })
}

/// Reports an error to the client and closes the session.
pub(crate) async fn refuse(mut client: Client, mux: &Mux, outcome: &Outcome) {
    report_status(&mut client.error, client.report, outcome).await;
    for mut stream in [client.stdout, client.stderr].into_iter().flatten() {
        let _ = stream.shutdown().await;
    }
    mux.close();
}

/// Copies streams between a client and a process until one of them ends.
pub(crate) async fn run(client: Client, mux: &Arc<Mux>, running: Running, outcome: impl Fn(Exit) -> Outcome) {
    let Client { stdin, stdout, stderr, resize, mut error, report } = client;
    let (ended, has_ended) = watch::channel(false);
    let exit = async {
        let exit = running.exit.await;
        ended.send_replace(true);
        exit
    };
    let work = async {
        let out = output(running.stdout, stdout, has_ended.clone());
        let err = output(running.stderr, stderr, has_ended);
        let (exit, out, err) = tokio::join!(exit, out, err);
        report_status(&mut error, report, &outcome(exit)).await;
        // Both are shut down: dropping them does not reset them.
        drop((out, err, error));
        mux.close();
    };
    let others = async {
        tokio::join!(input(stdin, running.stdin), sizes(resize, running.resize));
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = work => {}
        () = others => {}
        () = mux.ended() => tracing::debug!("client disconnected before the command exited"),
    }
}

async fn report_status(error: &mut Stream, report: Report, outcome: &Outcome) {
    // The client may have disconnected.
    let _ = error.write_all(&report.of(outcome)).await;
    let _ = error.shutdown().await;
}

/// Copies stdin, and its end.
async fn input(from: Option<Stream>, to: Option<Input>) {
    let (Some(mut from), Some(mut to)) = (from, to) else { return };
    let mut buffer = BytesMut::with_capacity(8192);
    loop {
        buffer.clear();
        match from.read_buf(&mut buffer).await {
            // A disconnect is not the end of stdin.
            Err(_) => return,
            Ok(0) => break,
            Ok(_) => {}
        }
        if to.write_all(&buffer).await.is_err() || to.flush().await.is_err() {
            // The process closed its stdin: discard input so that the connection is not blocked.
            let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
            return;
        }
    }
    let _ = to.shutdown().await;
}

/// Copies an output stream to its end; returns the client stream, shut down.
async fn output(from: Option<Output>, to: Option<Stream>, mut ended: watch::Receiver<bool>) -> Option<Stream> {
    let mut to = to?;
    let Some(mut from) = from else {
        let _ = to.shutdown().await;
        return Some(to);
    };
    let mut buffer = BytesMut::with_capacity(8192);
    loop {
        buffer.clear();
        let silence = async {
            let _ = ended.wait_for(|ended| *ended).await;
            tokio::time::sleep(OUTPUT_IDLE).await;
        };
        let read = tokio::select! {
            read = from.read_buf(&mut buffer) => read,
            () = silence => break,
        };
        // A terminal reports EIO when its last process closed it.
        if !matches!(read, Ok(1..)) || to.write_all(&buffer).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
    Some(to)
}

#[derive(Deserialize)]
struct TerminalSize {
    #[serde(rename = "Width", default)]
    width: u16,
    #[serde(rename = "Height", default)]
    height: u16,
}

/// Forwards terminal sizes, a sequence of JSON objects.
async fn sizes(from: Option<Stream>, to: Option<mpsc::Sender<Size>>) {
    let Some(mut from) = from else { return };
    let mut buffer = BytesMut::new();
    while let Ok(1..) = from.read_buf(&mut buffer).await {
        let (found, read) = read_sizes(&buffer);
        let _ = buffer.split_to(read.unwrap_or(buffer.len()));
        for size in found {
            if let Some(to) = &to
                && to.send(size).await.is_err()
            {
                break;
            }
        }
        if read.is_none() || buffer.len() > SIZE {
            // Invalid: discard the rest so that the connection is not blocked.
            let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
            return;
        }
    }
}

/// The sizes in a buffer and the bytes consumed; `None` when the rest is invalid.
fn read_sizes(bytes: &[u8]) -> (Vec<Size>, Option<usize>) {
    let mut found = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(bytes).into_iter::<TerminalSize>();
    loop {
        let before = reader.byte_offset();
        match reader.next() {
            None => return (found, Some(reader.byte_offset())),
            Some(Ok(told)) => found.push(Size { width: told.width, height: told.height }),
            Some(Err(error)) if error.is_eof() => return (found, Some(before)),
            Some(Err(_)) => return (found, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_across_buffers() {
        let size = |width, height| Size { width, height };
        let one = br#"{"Width":80,"Height":24}"#;
        assert_eq!(read_sizes(one), (vec![size(80, 24)], Some(one.len())));
        assert_eq!(read_sizes(&one[..10]), (vec![], Some(0)));
        let two = b"{\"Width\":1,\"Height\":2}\n{\"Width\":3,\"Height\":4}\n{";
        assert_eq!(read_sizes(two), (vec![size(1, 2), size(3, 4)], Some(two.len() - 2)));
        assert_eq!(read_sizes(b"{\"Width\":1,\"Height\":2}nonsense"), (vec![size(1, 2)], None));
        assert_eq!(read_sizes(b"{\"Width\":70000}"), (vec![], None));
    }
}
