//! Attach: connects to the socket of the shim.

use std::path::PathBuf;

use api::value::ValueExt as _;
use futures_util::FutureExt as _;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use crate::shim::{
    END_OF_INPUT, EXIT_FILE, ExitRecord, INPUT, RESIZE, SOCKET, START_FILE, StartRecord, frame, short_path,
};
use crate::workloads::{Attach, Exit, Refusal, Running, Size};
use crate::{files, ready};

/// The buffer for a slow reader, in bytes.
const BUFFER: usize = 64 * 1024;

/// Attaches.
pub(super) async fn begin(instance: PathBuf, spec: &Value, how: Attach) -> Result<Running, Refusal> {
    if how.tty && !spec.flag("tty") {
        return Err(Refusal::Bad("Unable to use a TTY - container did not allocate one".to_owned()));
    }
    let failed = |error: &dyn std::fmt::Display| Refusal::Failed(format!("attaching to the container: {error}"));
    let folder = std::fs::File::open(&instance).map_err(|error| failed(&error))?;
    let stream = UnixStream::connect(short_path(&folder, SOCKET)).await.map_err(|error| failed(&error))?;
    let (reader, writer) = stream.into_split();
    let (stdout, to_stdout) = pair(how.stdout);
    let (stderr, to_stderr) = pair(how.stderr && !how.tty);
    tokio::spawn(copy_output(reader, to_stdout, to_stderr));
    let wants_input = how.stdin && spec.flag("stdin");
    let (stdin, from_stdin) = pair(wants_input);
    let (resize, sizes) = mpsc::channel(4);
    tokio::spawn(copy_input(writer, from_stdin, sizes));
    let exit = async move {
        if let Some(begun) = files::get::<StartRecord>(&instance.join(START_FILE))
            && let Ok(Some(handle)) = begun.shim().open()
        {
            let _ = ready::exited(handle).await;
        }
        match files::get::<ExitRecord>(&instance.join(EXIT_FILE)) {
            Some(ended) => Exit::Code(ended.code),
            None => Exit::Failed("the shim of the container was killed".to_owned()),
        }
    };
    Ok(Running {
        stdin: stdin.map(|stdin| Box::new(stdin) as _),
        stdout: stdout.map(|stdout| Box::new(stdout) as _),
        stderr: stderr.map(|stderr| Box::new(stderr) as _),
        resize: how.tty.then_some(resize),
        exit: exit.boxed(),
    })
}

fn pair(wanted: bool) -> (Option<DuplexStream>, Option<DuplexStream>) {
    if !wanted {
        return (None, None);
    }
    let (one, other) = tokio::io::duplex(BUFFER);
    (Some(one), Some(other))
}

/// Copies output frames to stdout and stderr.
async fn copy_output(mut from: OwnedReadHalf, mut out: Option<DuplexStream>, mut err: Option<DuplexStream>) {
    let mut head = [0; 5];
    while from.read_exact(&mut head).await.is_ok() {
        let [kind, length @ ..] = head;
        let mut body = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap_or(0)];
        if from.read_exact(&mut body).await.is_err() {
            return;
        }
        let to = if kind == 1 { &mut out } else { &mut err };
        if let Some(stream) = to
            && stream.write_all(&body).await.is_err()
        {
            // This stream was closed; the other one continues.
            *to = None;
        }
    }
}

/// Copies stdin and terminal sizes to the shim.
async fn copy_input(mut to: OwnedWriteHalf, mut input: Option<DuplexStream>, mut sizes: mpsc::Receiver<Size>) {
    let mut buffer = vec![0; 16 * 1024];
    let mut sized = true;
    while input.is_some() || sized {
        let read = async {
            match &mut input {
                Some(input) => input.read(&mut buffer).await.unwrap_or(0),
                None => std::future::pending().await,
            }
        };
        let message = tokio::select! {
            length = read => match buffer.get(..length) {
                Some(bytes) if length > 0 => frame(INPUT, bytes),
                _ => {
                    input = None;
                    frame(END_OF_INPUT, &[])
                }
            },
            size = sizes.recv(), if sized => match size {
                Some(Size { width, height }) => {
                    let [a, b] = width.to_be_bytes();
                    let [c, d] = height.to_be_bytes();
                    frame(RESIZE, &[a, b, c, d])
                }
                None => {
                    sized = false;
                    continue;
                }
            },
        };
        if to.write_all(&message).await.is_err() {
            return;
        }
    }
    // Keep the write half open: dropping it would end the connection that the other half still reads.
    std::future::pending::<()>().await;
}
