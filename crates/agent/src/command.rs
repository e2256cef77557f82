//! Commands in running containers: probes, hooks, `kubectl exec`.
//!
//! In: a container that runs, and words. Out: a process inside, whose streams are at hand. A small process of ours goes in and becomes
//! it ([`enter`]); the agent, which has many threads, could not. When the handle to it is dropped, it is killed.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use kernel::process::enter::Place;
use kernel::process::{Handle, Identity, Spawned};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;

use crate::shim::{BEGUN, Begun, ENDED, ORDER, Order, Program};
use crate::{files, ready};

/// How a process that could not be begun ends; 126 and 127 are what shells say.
pub const NOT_BEGUN: i32 = 126;

/// How much of what a command prints is kept, and a read more.
const LONGEST: usize = 10 << 10;

/// What the process between is told.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    who: (i32, u64),
    groups: Vec<PathBuf>,
    program: Program,
}

/// Numbers for files.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// What runs in a folder of an instance now.
#[must_use]
pub fn running(instance: &Path) -> Option<Begun> {
    let begun: Begun = files::get(&instance.join(BEGUN))?;
    (!instance.join(ENDED).exists() && begun.process().is_there()).then_some(begun)
}

/// Begins a command in the container of an instance.
///
/// # Errors
/// When the container does not run, or the process cannot be begun.
pub fn begin(
    program: &Path,
    instance: &Path,
    words: &[String],
    terminal: bool,
    streams: [OwnedFd; 3],
) -> io::Result<Spawned> {
    let gone = || io::Error::new(io::ErrorKind::NotFound, "the container does not run");
    let order: Order = files::get(&instance.join(ORDER)).ok_or_else(gone)?;
    let begun = running(instance).ok_or_else(gone)?;
    let who = begun.process();
    let doors = order.doors();
    let program_inside = Program { words: words.to_vec(), terminal, ..order.program };
    let entry = Entry { who: (who.pid, who.began), groups: doors, program: program_inside };
    let file = instance.join(format!("exec-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)));
    files::put(&file, &entry)?;
    Spawned::begin(program, &[OsStr::new("shim"), OsStr::new("exec"), file.as_ref()], streams)
}

/// The process between: goes in, becomes the command, and answers its exit code. Has no other thread.
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

/// Waits for the end of a process, and answers its exit code.
///
/// # Errors
/// When it cannot be waited for.
pub async fn end(spawned: &mut Spawned) -> io::Result<i32> {
    ready::ended(Handle(spawned.handle.0.try_clone()?)).await?;
    spawned.wait()
}

/// Runs a command in a container to its end; answers its exit code and what it printed, cut.
///
/// # Errors
/// When it cannot be begun.
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
                if said.len() < LONGEST {
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

/// Takes what was printed just before the end. A child that goes on printing neither keeps us here nor fills the memory.
fn drain(reader: &tokio::net::unix::pipe::Receiver, said: &mut Vec<u8>) {
    let mut buffer = [0; 4096];
    while said.len() < LONGEST
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
    async fn what_a_command_leaves_in_its_pipe_is_read_up_to_a_limit() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        writer.write_all(&[b'x'; 48 << 10]).expect("it has room");
        let reader = tokio::net::unix::pipe::Receiver::from_owned_fd(reader.into()).expect("a pipe");
        reader.readable().await.expect("there is something");
        let mut said = Vec::new();
        drain(&reader, &mut said);
        assert!((LONGEST..=LONGEST + 4096).contains(&said.len()), "{} bytes", said.len());
    }
}
