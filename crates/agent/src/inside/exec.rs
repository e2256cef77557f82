//! Exec: a command in a container with its streams.
//!
//! With a terminal, the command starts when the terminal size is known: many programs read it only once.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::FutureExt as _;
use kernel::process::Spawned;
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::command;
use crate::ready::register;
use crate::workloads::{Exec, Exit, Input, Output, Refusal, Running, Size};

/// How long to wait for the first terminal size. Clients send it first, if they have one.
const FIRST_SIZE: Duration = Duration::from_millis(500);

/// Starts the command, or defers the start until the terminal has a size.
pub(super) async fn begin(program: PathBuf, instance: PathBuf, how: Exec) -> Result<Running, Refusal> {
    let failed = |error: io::Error| Refusal::Failed(error.to_string());
    let (theirs, mut ours) = if how.tty { terminal() } else { pipes(&how) }.map_err(failed)?;
    let (words, tty) = (how.command, how.tty);
    let begun = async move {
        let begun = tokio::task::spawn_blocking(move || command::begin(&program, &instance, &words, tty, theirs));
        begun.await.map_err(io::Error::other)?
    };
    let exit = match ours.sized.take() {
        None => ended(Ok(begun.await.map_err(failed)?)).boxed(),
        Some(sized) => async move {
            // A client without a terminal size drops the sender, which ends the wait, too.
            let _ = timeout(FIRST_SIZE, sized).await;
            ended(begun.await).await
        }
        .boxed(),
    };
    Ok(Running { exit, stdin: ours.stdin, stdout: ours.stdout, stderr: ours.stderr, resize: ours.resize })
}

/// The exit status of a process, if it was started.
async fn ended(begun: io::Result<Spawned>) -> Exit {
    let ended = async {
        let mut spawned = begun?;
        command::end(&mut spawned).await
    };
    match ended.await {
        Ok(code) => Exit::Code(code),
        Err(error) => Exit::Failed(error.to_string()),
    }
}

struct Ours {
    stdin: Option<Input>,
    stdout: Option<Output>,
    stderr: Option<Output>,
    resize: Option<mpsc::Sender<Size>>,
    /// Resolves when the terminal has its first size.
    sized: Option<oneshot::Receiver<()>>,
}

fn nothing() -> io::Result<OwnedFd> {
    Ok(File::options().read(true).write(true).open("/dev/null")?.into())
}

fn pipes(how: &Exec) -> io::Result<([OwnedFd; 3], Ours)> {
    let mut ours = Ours { stdin: None, stdout: None, stderr: None, resize: None, sized: None };
    let mut theirs = [nothing()?, nothing()?, nothing()?];
    if how.stdin {
        let (reader, writer) = io::pipe()?;
        theirs[0] = reader.into();
        ours.stdin = Some(Box::new(pipe::Sender::from_owned_fd(writer.into())?));
    }
    for (place, wanted) in [(1, how.stdout), (2, how.stderr)] {
        if wanted {
            let (reader, writer) = io::pipe()?;
            theirs[place] = writer.into();
            let reader: Output = Box::new(pipe::Receiver::from_owned_fd(reader.into())?);
            *(if place == 1 { &mut ours.stdout } else { &mut ours.stderr }) = Some(reader);
        }
    }
    Ok((theirs, ours))
}

fn terminal() -> io::Result<([OwnedFd; 3], Ours)> {
    use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let theirs = ioctl_tiocgptpeer(&ours, flags)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    let (sender, mut sizes) = mpsc::channel::<Size>(4);
    let (size_sender, sized) = oneshot::channel();
    let other = ours.try_clone()?;
    tokio::spawn(async move {
        let mut size_sender = Some(size_sender);
        while let Some(Size { width, height }) = sizes.recv().await {
            let size = Winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
            let _ = tcsetwinsize(&other, size);
            // The command may have been started without it.
            let _ = size_sender.take().map(|size_sender| size_sender.send(()));
        }
    });
    let both = Interest::READABLE | Interest::WRITABLE;
    let reader = Terminal(register(ours.try_clone()?, both)?);
    let writer = Terminal(register(ours, both)?);
    let streams = [theirs.try_clone()?, theirs.try_clone()?, theirs];
    let ours = Ours {
        stdin: Some(Box::new(writer)),
        stdout: Some(Box::new(reader)),
        stderr: None,
        resize: Some(sender),
        sized: Some(sized),
    };
    Ok((streams, ours))
}

/// The master end of a terminal.
struct Terminal(AsyncFd<OwnedFd>);

impl AsyncRead for Terminal {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(cx))?;
            let mut bytes = [0; 8192];
            let room = buffer.remaining().min(bytes.len());
            let read = guard.try_io(|fd| Ok(rustix::io::read(fd, bytes.get_mut(..room).unwrap_or_default())?));
            match read {
                Ok(Ok(length)) => {
                    buffer.put_slice(bytes.get(..length).unwrap_or_default());
                    return Poll::Ready(Ok(()));
                }
                // EIO: the other end is closed.
                Ok(Err(error)) if error.raw_os_error() == Some(5) => return Poll::Ready(Ok(())),
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for Terminal {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(cx))?;
            match guard.try_io(|fd| Ok(rustix::io::write(fd, bytes)?)) {
                Ok(written) => return Poll::Ready(written),
                Err(_would_block) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
