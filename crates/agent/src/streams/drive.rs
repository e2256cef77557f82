//! The two loops of a connection: one reads frames and gives them to streams, the other writes what streams have.
//!
//! In: an upgraded connection and the protocol on it. Out: streams that the peer opens, through a channel; everything else happens in
//! the [`Mux`]. The loops end when the peer is gone or broke the rules, when nothing moved for too long, or when our side closed
//! the connection and everything was written.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::mux::{Mux, Next, Stream};
use super::wire::{Decode, Event, Headers};

/// How long the peer may take to read our last words, and we wait for it to hang up.
const LINGER: Duration = Duration::from_secs(5);
/// How often a silent peer is asked whether it is there, and one that we do not read from is told that we are.
const ASK: Duration = Duration::from_secs(10);
/// How much is read at once.
const READ: usize = 16 * 1024;

/// A stream that the peer opened.
pub(crate) struct Opened {
    pub(crate) stream: Stream,
    pub(crate) headers: Headers,
}

/// Why the reading loop ended.
enum End {
    /// The peer hung up.
    Gone,
    /// These are our last words.
    Farewell(Bytes),
}

/// Carries a connection to its end.
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
    let farewell = {
        let mut writing = std::pin::pin!(write(&mut to, &mux));
        let reading = read(&mut from, &mut buffer, &mux, &mut decoder, opened, idle);
        tokio::select! {
            end = reading => match end {
                End::Gone => None,
                End::Farewell(bytes) => {
                    mux.fail(bytes);
                    // A peer that does not read its farewell does without.
                    timeout(LINGER, writing).await.is_ok_and(|written| written).then_some(())
                }
            },
            written = &mut writing => written.then_some(()),
        }
    };
    mux.end();
    if farewell.is_some() {
        // Hanging up on bytes that nobody read would take back our own last ones.
        let _ = timeout(LINGER, async {
            buffer.clear();
            while let Ok(1..) = from.read_buf(&mut buffer).await {
                buffer.clear();
            }
        })
        .await;
    }
}

/// Writes until the connection ends. Says whether it ended well.
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
    let mut heard = Instant::now();
    loop {
        loop {
            match decoder.decode(buffer) {
                Ok(Some(Event::Goodbye(bytes))) => return End::Farewell(bytes),
                Ok(Some(event)) => {
                    if let Err(end) = take(event, mux, decoder, &opened).await {
                        return end;
                    }
                }
                Ok(None) => break,
                Err(fault) => {
                    tracing::debug!(why = %fault.why, "a client broke the rules of its protocol");
                    return End::Farewell(fault.farewell);
                }
            }
        }
        buffer.reserve(READ);
        match timeout(ASK, from.read_buf(buffer)).await {
            Ok(Ok(1..)) => heard = Instant::now(),
            Ok(_) => return End::Gone,
            Err(_) if heard.elapsed() >= idle => return End::Farewell(mux.farewell()),
            // Asking also finds out about a connection that nobody told us is broken.
            Err(_) if mux.may_answer() => mux.ping(),
            Err(_) => {}
        }
    }
}

/// Does what an event says; waits where there is no room for it.
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
            // Whoever takes no more streams drops them: the peer sees a reset.
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
                return Err(End::Farewell(mux.farewell()));
            }
        }
        Event::Window(bytes) => mux.first_window(bytes),
        Event::Alive | Event::Goodbye(_) => {}
    }
    Ok(())
}

/// Waits until there is room. The peer, which may wonder, is told that we are there; that also finds a connection that is gone.
async fn wait(mux: &Mux, decoder: &impl Decode, has_room: impl Fn() -> bool) {
    while !has_room() {
        if timeout(ASK, mux.room.notified()).await.is_err() && mux.may_answer() {
            match decoder.patience() {
                Some(bytes) => mux.answer(bytes),
                None => mux.ping(),
            }
        }
    }
}
