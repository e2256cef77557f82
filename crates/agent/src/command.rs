//! Commands in running containers: probes, hooks, `kubectl exec`.
//!
//! In: a running container and a command line. Out: a process inside, with its streams. A helper process (`waypost shim exec`) enters the
//! namespaces and executes the command ([`enter`]), because setns needs a single-threaded process. Dropping the handle kills the command.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use kernel::process::enter::Place;
use kernel::process::{Handle, Identity, Spawned};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;

use crate::shim::{EXIT_FILE, Program, SPEC_FILE, START_FILE, ShimSpec, StartRecord};
use crate::{files, ready};

/// The exit code of a command that could not be started, as in shells.
pub const NOT_BEGUN: i32 = 126;

/// How much output of a command is kept, in bytes; up to one read more.
const MAX_BYTES: usize = 10 << 10;

/// The input of the helper process.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    who: (i32, u64),
    groups: Vec<PathBuf>,
    program: Program,
}

/// Numbers for unique file names.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// The running process of an instance.
#[must_use]
pub fn running(instance: &Path) -> Option<StartRecord> {
    let begun: StartRecord = files::get(&instance.join(START_FILE))?;
    (!instance.join(EXIT_FILE).exists() && begun.process().is_there()).then_some(begun)
}

/// Starts a command in the container of an instance.
///
/// # Errors
/// When the container is not running, or the process cannot be started.
pub fn begin(
    program: &Path,
    instance: &Path,
    words: &[String],
    terminal: bool,
    streams: [OwnedFd; 3],
) -> io::Result<Spawned> {
    let gone = || io::Error::new(io::ErrorKind::NotFound, "the container is not running");
    let spec: ShimSpec = files::get(&instance.join(SPEC_FILE)).ok_or_else(gone)?;
    let begun = running(instance).ok_or_else(gone)?;
    let who = begun.process();
    let groups = spec.procs_files();
    let program_inside = Program { words: words.to_vec(), terminal, ..spec.program };
    let entry = Entry { who: (who.pid, who.began), groups, program: program_inside };
    let file = instance.join(format!("exec-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)));
    files::put(&file, &entry)?;
    Spawned::begin(program, &[OsStr::new("shim"), OsStr::new("exec"), file.as_ref()], streams)
}

/// The helper process: enters the container, executes the command and returns its exit code. Single-threaded.
#[must_use]
pub fn enter(file: &Path) -> i32 {
    let entry: Option<Entry> = files::get(file);
    let _ = std::fs::remove_file(file);
    let Some(entry) = entry else { return NOT_BEGUN };
    let who = Identity { pid: entry.who.0, began: entry.who.1 };
    let place = Place { who, groups: entry.groups };
    place.run(&entry.program.to_kernel()).unwrap_or_else(|error| {
        let _ = rustix::io::write(rustix::stdio::stderr(), format!("{error}\n").as_bytes());
        if error.0.contains("No such file") { 127 } else { NOT_BEGUN }
    })
}

/// Waits for the exit of a process; returns its exit code.
///
/// # Errors
/// When it cannot be waited for.
pub async fn end(spawned: &mut Spawned) -> io::Result<i32> {
    ready::exited(Handle(spawned.handle.0.try_clone()?)).await?;
    spawned.wait()
}

/// Runs a command in a container; returns its exit code and its output, truncated.
///
/// # Errors
/// When it cannot be started.
pub async fn run(program: &Path, instance: &Path, words: &[String]) -> io::Result<(i32, String)> {
    let (reader, writer) = io::pipe()?;
    let nothing: OwnedFd = std::fs::File::open("/dev/null")?.into();
    let streams = [nothing, writer.try_clone()?.into(), writer.into()];
    let (program, instance, words) = (program.to_owned(), instance.to_owned(), words.to_vec());
    let begun = tokio::task::spawn_blocking(move || begin(&program, &instance, &words, false, streams));
    let mut spawned = begun.await.map_err(io::Error::other)??;
    let mut reader = tokio::net::unix::pipe::Receiver::from_owned_fd(reader.into())?;
    let mut said = Vec::new();
    let mut buffer = [0; 4096];
    let code = {
        let read = async {
            while let Ok(length @ 1..) = reader.read(&mut buffer).await {
                if said.len() < MAX_BYTES {
                    said.extend_from_slice(buffer.get(..length).unwrap_or_default());
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            code = end(&mut spawned) => code?,
            () = read => NOT_BEGUN,
        }
    };
    drain(&reader, &mut said);
    Ok((code, String::from_utf8_lossy(&said).into_owned()))
}

/// Reads the output that is left in the pipe. A child that keeps writing neither blocks this nor grows the buffer without limit.
fn drain(reader: &tokio::net::unix::pipe::Receiver, said: &mut Vec<u8>) {
    let mut buffer = [0; 4096];
    while said.len() < MAX_BYTES
        && let Ok(length @ 1..) = reader.try_read(&mut buffer)
    {
        said.extend_from_slice(buffer.get(..length).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[tokio::test]
    async fn output_left_in_the_pipe_is_read_up_to_a_limit() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        writer.write_all(&[b'x'; 48 << 10]).expect("it has room");
        let reader = tokio::net::unix::pipe::Receiver::from_owned_fd(reader.into()).expect("a pipe");
        reader.readable().await.expect("there is something");
        let mut said = Vec::new();
        drain(&reader, &mut said);
        assert!((MAX_BYTES..=MAX_BYTES + 4096).contains(&said.len()), "{} bytes", said.len());
    }
}
