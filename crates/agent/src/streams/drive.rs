//! The read loop and the write loop of a connection.
//!
//! In: an upgraded connection and its protocol. Out: streams that the peer opens, through a channel; all other state is in the [`Mux`]. The loops end
//! on disconnect, protocol error or idle timeout, or when this side closed the connection and everything was written.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::mux::{Mux, Next, Stream};
use super::wire::{Decode, Event, Headers};

/// How long to wait for the peer to read the close frame and to close the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The keepalive interval: an idle peer is pinged, and one whose data is not read gets an unsolicited answer.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// The size of a read, in bytes.
const READ: usize = 16 * 1024;

/// A stream that the peer opened.
pub(crate) struct Opened {
    pub(crate) stream: Stream,
    pub(crate) headers: Headers,
}

/// Why the read loop ended.
enum End {
    /// The peer disconnected.
    Disconnected,
    /// The connection is closed with this frame.
    Close(Bytes),
}

/// Runs the loops of a connection.
pub(crate) async fn drive<I>(
    io: I,
    mux: Arc<Mux>,
    mut decoder: impl Decode,
    opened: mpsc::Sender<Opened>,
    idle: Duration,
) where
    I: AsyncRead + AsyncWrite,
{
    let (mut from, mut to) = tokio::io::split(io);
    let mut buffer = BytesMut::new();
    let closing = {
        let mut writing = std::pin::pin!(write(&mut to, &mux));
        let reading = read(&mut from, &mut buffer, &mux, &mut decoder, opened, idle);
        tokio::select! {
            end = reading => match end {
                End::Disconnected => None,
                End::Close(bytes) => {
                    mux.fail(bytes);
                    // The peer may not read the close frame.
                    timeout(CLOSE_TIMEOUT, writing).await.is_ok_and(|written| written).then_some(())
                }
            },
            written = &mut writing => written.then_some(()),
        }
    };
    mux.end();
    if closing.is_some() {
        // Closing with unread data would send a TCP reset and lose the close frame.
        let _ = timeout(CLOSE_TIMEOUT, async {
            buffer.clear();
            while let Ok(1..) = from.read_buf(&mut buffer).await {
                buffer.clear();
            }
        })
        .await;
    }
}

/// Writes until the connection ends; true when it was shut down cleanly.
async fn write(to: &mut (impl AsyncWrite + Unpin), mux: &Mux) -> bool {
    let mut buffer = BytesMut::new();
    loop {
        match mux.next(&mut buffer) {
            Next::Write => {
                if to.write_all(&buffer).await.is_err() || to.flush().await.is_err() {
                    return false;
                }
                buffer.clear();
            }
            Next::Wait => mux.to_write.notified().await,
            Next::End => return to.shutdown().await.is_ok(),
        }
    }
}

async fn read(
    from: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
    mux: &Arc<Mux>,
    decoder: &mut impl Decode,
    opened: mpsc::Sender<Opened>,
    idle: Duration,
) -> End {
    let mut last_read = Instant::now();
    loop {
        loop {
            match decoder.decode(buffer) {
                Ok(Some(Event::Close(bytes))) => return End::Close(bytes),
                Ok(Some(event)) => {
                    if let Err(end) = take(event, mux, decoder, &opened).await {
                        return end;
                    }
                }
                Ok(None) => break,
                Err(fault) => {
                    tracing::debug!(why = %fault.why, "closing connection after a protocol error");
                    return End::Close(fault.close_frame);
                }
            }
        }
        buffer.reserve(READ);
        match timeout(KEEPALIVE, from.read_buf(buffer)).await {
            Ok(Ok(1..)) => last_read = Instant::now(),
            Ok(_) => return End::Disconnected,
            Err(_) if last_read.elapsed() >= idle => return End::Close(mux.close_frame()),
            // A ping also detects a dead connection.
            Err(_) if mux.may_answer() => mux.ping(),
            Err(_) => {}
        }
    }
}

/// Handles an event; waits while buffers are full.
async fn take(event: Event, mux: &Arc<Mux>, decoder: &impl Decode, opened: &mpsc::Sender<Opened>) -> Result<(), End> {
    match event {
        Event::Open { id, headers, finished, one_way, reply } => {
            wait(mux, decoder, || mux.may_answer()).await;
            let Some(stream) = mux.add(id) else {
                mux.refuse(id);
                return Ok(());
            };
            mux.answer(reply);
            if finished {
                mux.finish(id);
            }
            if one_way {
                mux.mute(id);
            }
            // If the receiver is gone, the stream is dropped, which resets it.
            let _ = opened.send(Opened { stream, headers }).await;
        }
        Event::Data { id, bytes } => {
            wait(mux, decoder, || mux.may_deliver(id)).await;
            mux.deliver(id, bytes);
        }
        Event::Finish { id } => mux.finish(id),
        Event::Reset { id } => mux.break_stream(id),
        Event::Answer(bytes) => {
            wait(mux, decoder, || mux.may_answer()).await;
            mux.answer(bytes);
        }
        Event::Credit { id, bytes } => {
            if !mux.credit(id, bytes) {
                return Err(End::Close(mux.close_frame()));
            }
        }
        Event::Window(bytes) => mux.first_window(bytes),
        Event::Alive | Event::Close(_) => {}
    }
    Ok(())
}

/// Waits until buffers have room; meanwhile sends keepalives, which also detect a dead connection.
async fn wait(mux: &Mux, decoder: &impl Decode, has_room: impl Fn() -> bool) {
    while !has_room() {
        if timeout(KEEPALIVE, mux.room.notified()).await.is_err() && mux.may_answer() {
            match decoder.keepalive() {
                Some(bytes) => mux.answer(bytes),
                None => mux.ping(),
            }
        }
    }
}
