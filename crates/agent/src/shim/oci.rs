//! Containers by a runtime of the Open Container Initiative: `create`, `start`, and `delete` when it has ended.
//!
//! The runtime ends after `create` and leaves the container's first process to this one, which is a reaper for that reason.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

use kernel::process::run_with_streams;
use rustix::process::Pid;

use super::log::Stream;
use super::{Ends, How, Order, short_path};

/// Where the number of the first process is written.
const NUMBER: &str = "pid";
/// What the runtime complains of.
const COMPLAINTS: &str = "runtime.log";
/// Where it brings a terminal.
const TERMINAL: &str = "terminal";

/// Begins the container of a bundle.
pub(super) fn begin(folder: &Path, order: &Order, theirs: [OwnedFd; 3], ours: Ends) -> io::Result<(Pid, Ends)> {
    let How::Oci { runtime, state, bundle, id, hidden } = &order.how else {
        return Err(io::Error::other("this order is for another runtime"));
    };
    let (number, complaints) = (folder.join(NUMBER), folder.join(COMPLAINTS));
    let handle = std::fs::File::open(folder)?;
    let door = short_path(&handle, TERMINAL);
    let listener = order.program.terminal.then(|| UnixListener::bind(&door)).transpose()?;
    let socket = folder.join(TERMINAL);
    let mut words: Vec<&OsStr> = vec![OsStr::new("--root"), state.as_ref(), OsStr::new("--log"), complaints.as_ref()];
    words.extend([OsStr::new("create"), OsStr::new("--bundle"), bundle.as_ref()]);
    words.extend([OsStr::new("--pid-file"), number.as_ref()]);
    if listener.is_some() {
        words.extend([OsStr::new("--console-socket"), socket.as_ref()]);
    }
    words.push(id.as_ref());
    // One of this name may be there, whose supervisor was killed before it could say so.
    if state.join(id).exists() {
        remove(order);
    }
    let failed = |what: &str| {
        let said = std::fs::read_to_string(&complaints).unwrap_or_default();
        io::Error::other(format!("{} {what}: {}", runtime.display(), said.trim()))
    };
    if !run_with_streams(runtime, &words, theirs, hidden.as_deref())? {
        remove(order);
        return Err(failed("create"));
    }
    let ours = match &listener {
        Some(listener) => receive_terminal(listener)?,
        None => ours,
    };
    let pid = std::fs::read_to_string(&number)?.trim().parse().ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| failed("create wrote no process number"))?;
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
        remove(order);
        return Err(why);
    }
    Ok((pid, ours))
}

/// Streams that lead nowhere.
fn quiet() -> io::Result<[OwnedFd; 3]> {
    let nothing = || Ok::<_, io::Error>(std::fs::File::options().read(true).write(true).open("/dev/null")?.into());
    Ok([nothing()?, nothing()?, nothing()?])
}

/// Has the runtime forget the container, if a runtime has it.
pub(super) fn remove(order: &Order) {
    if let How::Oci { runtime, state, id, hidden, .. } = &order.how {
        let words: [&OsStr; 5] =
            [OsStr::new("--root"), state.as_ref(), OsStr::new("delete"), OsStr::new("--force"), id.as_ref()];
        let _ = quiet().and_then(|quiet| run_with_streams(runtime, &words, quiet, hidden.as_deref()));
    }
}

/// The runtime makes a terminal inside the container and sends our end of it.
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
