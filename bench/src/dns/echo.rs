//! The physical limit: an echo server that sets the QR bit, with the same system calls and as many threads as ours. It runs as a
//! separate process, so that its processor time is measured like that of the others.

use std::net::SocketAddr;

use anyhow::Context as _;
use kernel::datagrams::{Batch, Socket, pin};

/// As much as may wait for a thread.
const RECEIVE_BUFFER: usize = 4 << 20;
/// The first byte of the flags of a message, and the mark of an answer in it.
const FLAGS: usize = 2;
const ANSWER: u8 = 0x80;

/// Echoes until it is killed.
///
/// # Errors
/// When it cannot listen, or no longer.
pub fn serve(at: SocketAddr) -> anyhow::Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let sockets: std::io::Result<Vec<Socket>> = (0..threads).map(|_| Socket::bind(at, RECEIVE_BUFFER)).collect();
    let sockets = sockets.with_context(|| format!("listening on {at}"))?;
    std::thread::scope(|scope| {
        let echoes = sockets.iter().enumerate().map(|(number, socket)| {
            scope.spawn(move || {
                // Where it runs only makes it faster or slower.
                let _ = pin(number);
                echo(socket)
            })
        });
        let echoes: Vec<_> = echoes.collect();
        echoes.into_iter().try_for_each(|one| one.join().map_err(|_| anyhow::anyhow!("an echo fell silent"))?)
    })
}

fn echo(socket: &Socket) -> anyhow::Result<()> {
    let mut batch = Batch::new();
    loop {
        let count = socket.receive(&mut batch).context("receiving")?;
        for slot in 0..count {
            if let Some((bytes, _, reply)) = batch.exchange(slot) {
                reply.extend_from_slice(bytes);
                if let Some(flags) = reply.get_mut(FLAGS) {
                    *flags |= ANSWER;
                }
            }
        }
        socket.send(&mut batch);
    }
}
