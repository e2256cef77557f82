//! Exec and attach: the streams of a process on one side, those of a client on the other, and how it ended.
//!
//! In: a [`Running`] process and a [`Client`], whatever protocol brought it. Out: bytes both ways, sizes of the terminal, and a report
//! on the error stream. The end of the client's input is the end of the process's input and of nothing else. When the client is
//! gone the process's handle is dropped, which ends a process that `exec` started.

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

/// How long the output of a process that has ended may be silent before it is given up: a child that it left behind may hold it open
/// for ever.
const SILENCE: Duration = Duration::from_secs(1);
/// The longest message about a size.
const SIZE: usize = 4096;

/// The streams of a client.
pub struct Client {
    /// What it types.
    pub stdin: Option<Stream>,
    /// What it reads.
    pub stdout: Option<Stream>,
    /// What it reads, too.
    pub stderr: Option<Stream>,
    /// Sizes of its terminal.
    pub resize: Option<Stream>,
    /// Where it hears how it ended.
    pub error: Stream,
    /// In which words.
    pub report: Report,
}

/// Waits for the streams that a client of SPDY announced. Nothing when it does not open them in time, or is gone.
pub(crate) async fn streams_of(
    opened: &mut mpsc::Receiver<Opened>,
    how: Attach,
    resize: bool,
    report: Report,
    patience: Duration,
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
            // A second one of the same kind is let go, which the client sees as a reset.
            if place.is_none() {
                have += 1;
                *place = Some(stream);
            }
        }
        Some(())
    };
    timeout(patience, all).await.ok()??;
    error.map(|error| Client { stdin, stdout, stderr, resize: sizes, error, report })
}

/// Tells a client how something ended that never began.
pub(crate) async fn refuse(mut client: Client, mux: &Mux, outcome: &Outcome) {
    tell(&mut client.error, client.report, outcome).await;
    for mut stream in [client.stdout, client.stderr].into_iter().flatten() {
        let _ = stream.shutdown().await;
    }
    mux.close();
}

/// Carries bytes between a client and a process until one of them ends.
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
        tell(&mut error, report, &outcome(exit)).await;
        // Their ends are on the way; letting go of them now does not take that back.
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
        () = mux.ended() => tracing::debug!("a client left before its command ended"),
    }
}

async fn tell(error: &mut Stream, report: Report, outcome: &Outcome) {
    // Whoever is gone is not told.
    let _ = error.write_all(&report.of(outcome)).await;
    let _ = error.shutdown().await;
}

/// Carries what a client types, and its end.
async fn input(from: Option<Stream>, to: Option<Input>) {
    let (Some(mut from), Some(mut to)) = (from, to) else { return };
    let mut buffer = BytesMut::with_capacity(8192);
    loop {
        buffer.clear();
        match from.read_buf(&mut buffer).await {
            // A client that is gone has not said that this is all.
            Err(_) => return,
            Ok(0) => break,
            Ok(_) => {}
        }
        if to.write_all(&buffer).await.is_err() || to.flush().await.is_err() {
            // The process reads no more. What is typed is still taken, so that nothing behind it has to wait.
            let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
            return;
        }
    }
    let _ = to.shutdown().await;
}

/// Carries what a process writes until it writes no more. Gives the stream back, its half ended.
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
            tokio::time::sleep(SILENCE).await;
        };
        let read = tokio::select! {
            read = from.read_buf(&mut buffer) => read,
            () = silence => break,
        };
        // A terminal whose last user is gone says so by an error.
        if !matches!(read, Ok(1..)) || to.write_all(&buffer).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
    Some(to)
}

#[derive(Deserialize)]
struct Told {
    #[serde(rename = "Width", default)]
    width: u16,
    #[serde(rename = "Height", default)]
    height: u16,
}

/// Carries sizes, one JSON object after the other.
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
            // Not a size: no more are looked for, but nothing behind them has to wait.
            let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
            return;
        }
    }
}

/// The sizes in some bytes, and how many bytes they were; nothing when what follows is none.
fn read_sizes(bytes: &[u8]) -> (Vec<Size>, Option<usize>) {
    let mut found = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(bytes).into_iter::<Told>();
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
    fn sizes_come_whole_in_parts_and_together() {
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
