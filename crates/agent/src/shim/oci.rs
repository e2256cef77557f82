//! Containers by an OCI runtime: `create`, `start`, and `delete` after the exit.
//!
//! The runtime exits after `create`; the shim is a child subreaper and so becomes the parent of the container's first process.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

use kernel::process::run_with_streams;
use rustix::process::Pid;

use super::log::Stream;
use super::{Ends, RuntimeSpec, ShimSpec, short_path};

/// The PID file of the first process.
const NUMBER: &str = "pid";
/// The log file of the runtime.
const COMPLAINTS: &str = "runtime.log";
/// The console socket.
const TERMINAL: &str = "terminal";

/// Starts the container of a bundle.
pub(super) fn begin(folder: &Path, spec: &ShimSpec, theirs: [OwnedFd; 3], ours: Ends) -> io::Result<(Pid, Ends)> {
    let RuntimeSpec::Oci { runtime, state, bundle, id, hidden } = &spec.how else {
        return Err(io::Error::other("this order is for another runtime"));
    };
    let (number, complaints) = (folder.join(NUMBER), folder.join(COMPLAINTS));
    let handle = std::fs::File::open(folder)?;
    let door = short_path(&handle, TERMINAL);
    let listener = spec.program.terminal.then(|| UnixListener::bind(&door)).transpose()?;
    let socket = folder.join(TERMINAL);
    let mut words: Vec<&OsStr> = vec![OsStr::new("--root"), state.as_ref(), OsStr::new("--log"), complaints.as_ref()];
    words.extend([OsStr::new("create"), OsStr::new("--bundle"), bundle.as_ref()]);
    words.extend([OsStr::new("--pid-file"), number.as_ref()]);
    if listener.is_some() {
        words.extend([OsStr::new("--console-socket"), socket.as_ref()]);
    }
    words.push(id.as_ref());
    // A container with this ID may be left by a shim that was killed.
    if state.join(id).exists() {
        remove(spec);
    }
    let failed = |what: &str| {
        let said = std::fs::read_to_string(&complaints).unwrap_or_default();
        io::Error::other(format!("{} {what}: {}", runtime.display(), said.trim()))
    };
    if !run_with_streams(runtime, &words, theirs, hidden.as_deref())? {
        remove(spec);
        return Err(failed("create"));
    }
    let ours = match &listener {
        Some(listener) => receive_terminal(listener)?,
        None => ours,
    };
    let pid = std::fs::read_to_string(&number)?.trim().parse().ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| failed("create wrote no PID file"))?;
    let start: [&OsStr; 6] = [
        OsStr::new("--root"),
        state.as_ref(),
        OsStr::new("--log"),
        complaints.as_ref(),
        OsStr::new("start"),
        id.as_ref(),
    ];
    if !run_with_streams(runtime, &start, quiet()?, hidden.as_deref())? {
        let why = failed("start");
        remove(spec);
        return Err(why);
    }
    Ok((pid, ours))
}

/// Streams on `/dev/null`.
fn quiet() -> io::Result<[OwnedFd; 3]> {
    let nothing = || Ok::<_, io::Error>(std::fs::File::options().read(true).write(true).open("/dev/null")?.into());
    Ok([nothing()?, nothing()?, nothing()?])
}

/// Deletes the container in the OCI runtime, if it has one.
pub(super) fn remove(spec: &ShimSpec) {
    if let RuntimeSpec::Oci { runtime, state, id, hidden, .. } = &spec.how {
        let words: [&OsStr; 5] =
            [OsStr::new("--root"), state.as_ref(), OsStr::new("delete"), OsStr::new("--force"), id.as_ref()];
        let _ = quiet().and_then(|quiet| run_with_streams(runtime, &words, quiet, hidden.as_deref()));
    }
}

/// Receives the master end of the terminal from the runtime.
fn receive_terminal(listener: &UnixListener) -> io::Result<Ends> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let (stream, _) = listener.accept()?;
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut name = [0; 4096];
    recvmsg(&stream, &mut [io::IoSliceMut::new(&mut name)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let received = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    let terminal = received.ok_or_else(|| io::Error::other("the runtime sent no terminal"))?;
    Ok(Ends { input: Some(terminal.try_clone()?), outputs: vec![(Stream::Out, terminal)], terminal: true })
}
