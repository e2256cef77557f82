//! Multiplexes many streams over one connection.
//!
//! In: events of the read loop (`drive`), and bytes written to a [`Stream`]. Out: bytes to read from it, and batches for the write loop. Buffers are
//! bounded: [`HOLD`] bytes per stream and direction, and [`HOLD_ALL`] received bytes per connection; beyond that the sender blocks. Flow control
//! windows of the peer are respected only after it has sent a window update or setting: the common SPDY client never does, and would never receive
//! more than the initial window.

mod stream;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::task::Waker;

use bytes::{Buf as _, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

pub use stream::Stream;

use super::wire::Encode;

/// The buffer of a stream per direction, in bytes: the initial window of SPDY.
pub(super) const HOLD: usize = 64 * 1024;
/// The receive buffers of all streams of a connection together, in bytes.
pub(super) const HOLD_ALL: usize = 4 * 1024 * 1024;
/// The most concurrent streams.
pub(super) const STREAMS: usize = 1024;
/// The queue of control frames; while it is full nothing is read.
const ANSWERS: usize = 256;
/// The most bytes of one stream per round, in round-robin order.
const PIECE: usize = 16 * 1024;
/// The size of a write, in bytes.
const BATCH: usize = 64 * 1024;

/// The streams of a connection.
pub struct Mux {
    state: Mutex<State>,
    encoder: Box<dyn Encode>,
    /// Notified when there is something to write.
    pub(super) to_write: Notify,
    /// Notified when a receive buffer may have room.
    pub(super) room: Notify,
    ended: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    streams: BTreeMap<u32, Half>,
    answers: VecDeque<Bytes>,
    /// The stream that was served last.
    turn: u32,
    held: usize,
    /// Bytes consumed for which no window update was sent yet.
    unacknowledged: usize,
    /// Whether the peer uses flow control.
    windows: bool,
    first_window: i64,
    /// The send window of the connection.
    window: i64,
    phase: Phase,
}

#[derive(Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    /// All buffers are written, then this frame.
    Closing(Bytes),
    /// Only this frame is written.
    Failing(Bytes),
    /// The last frame is written.
    Closed,
}

/// One stream.
#[derive(Default)]
struct Half {
    inbound: VecDeque<Bytes>,
    held: usize,
    unacknowledged: usize,
    /// The peer has finished sending.
    inbound_done: bool,
    reader: Option<Waker>,
    outbound: BytesMut,
    /// This side has finished sending.
    outbound_done: bool,
    finish_sent: bool,
    writer: Option<Waker>,
    window: i64,
    /// Reset by the peer or by the end of the connection.
    broken: bool,
    /// The [`Stream`] was dropped.
    dropped: bool,
}

/// The next action of the write loop.
pub(super) enum Next {
    /// Write the buffer.
    Write,
    /// Wait for data.
    Wait,
    /// End the connection.
    End,
}

impl Mux {
    /// A connection without streams.
    pub fn new(encoder: impl Encode + 'static) -> Arc<Self> {
        let state = State { first_window: window(HOLD), window: window(HOLD), ..State::default() };
        Arc::new(Self {
            state: Mutex::new(state),
            encoder: Box::new(encoder),
            to_write: Notify::new(),
            room: Notify::new(),
            ended: watch::Sender::new(false),
        })
    }

    /// Adds a stream; nothing when there are too many, or the ID is in use.
    pub fn add(self: &Arc<Self>, id: u32) -> Option<Stream> {
        let mut state = self.state.lock();
        if state.streams.len() >= STREAMS || state.streams.contains_key(&id) {
            return None;
        }
        let half = Half { window: state.first_window, ..Half::default() };
        state.streams.insert(id, half);
        Some(Stream::new(Arc::clone(self), id))
    }

    /// Closes the connection after all data is written.
    pub fn close(&self) {
        let close_frame = self.encoder.close_frame();
        let mut state = self.state.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Closing(close_frame);
        }
        self.to_write.notify_one();
    }

    /// Resolves when the connection has ended.
    pub async fn ended(&self) {
        // The sender is a field of `self`.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Closes the connection at once with this frame.
    pub(super) fn fail(&self, close_frame: Bytes) {
        let mut state = self.state.lock();
        if state.phase != Phase::Closed {
            state.phase = Phase::Failing(close_frame);
        }
        self.to_write.notify_one();
    }

    /// Marks the connection as ended: all streams are reset.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.phase = Phase::Closed;
        for half in state.streams.values_mut() {
            half.broken = true;
            half.wake();
        }
        drop(state);
        self.ended.send_replace(true);
        self.room.notify_one();
        self.to_write.notify_one();
    }

    /// Queues a control frame, which is written before data.
    pub(crate) fn answer(&self, bytes: Bytes) {
        self.state.lock().answers.push_back(bytes);
        self.to_write.notify_one();
    }

    /// Sends a ping.
    pub(super) fn ping(&self) {
        self.answer(self.encoder.ping());
    }

    /// The regular close frame.
    pub(super) fn close_frame(&self) -> Bytes {
        self.encoder.close_frame()
    }

    /// Refuses a stream.
    pub(super) fn refuse(&self, id: u32) {
        if let Some(bytes) = self.encoder.refuse(id) {
            self.answer(bytes);
        }
    }

    /// Whether the queue of control frames has room.
    pub(super) fn may_answer(&self) -> bool {
        self.state.lock().answers.len() < ANSWERS
    }

    /// Whether data for a stream fits into the buffers, or is discarded.
    pub(super) fn may_deliver(&self, id: u32) -> bool {
        let state = self.state.lock();
        state.streams.get(&id).is_none_or(|half| half.discards() || half.held < HOLD && state.held < HOLD_ALL)
    }

    /// Delivers data to a stream, or discards it when it is not read any more.
    pub(super) fn deliver(&self, id: u32, bytes: Bytes) {
        let mut state = self.state.lock();
        let count = bytes.len();
        match state.streams.get_mut(&id) {
            Some(half) if !half.discards() && count > 0 => {
                half.inbound.push_back(bytes);
                half.held += count;
                half.wake_reader();
                state.held += count;
            }
            // Discarded data counts for the window of the connection.
            _ => self.count_consumed(&mut state, count),
        }
    }

    /// The peer has finished sending on a stream.
    pub(super) fn finish(&self, id: u32) {
        self.change(id, |half| {
            half.inbound_done = true;
            half.wake_reader();
        });
    }

    /// The stream is unidirectional: nothing may be sent on it.
    pub(super) fn mute(&self, id: u32) {
        self.change(id, |half| {
            half.outbound_done = true;
            half.finish_sent = true;
        });
    }

    /// The peer reset a stream.
    pub(super) fn break_stream(&self, id: u32) {
        self.change(id, |half| {
            half.broken = true;
            half.outbound.clear();
            half.wake();
        });
        // Its buffer no longer blocks the read loop.
        self.room.notify_one();
    }

    /// A window update of the peer; false when the window overflows.
    pub(super) fn credit(&self, id: u32, bytes: u32) -> bool {
        let mut state = self.state.lock();
        state.windows = true;
        let bytes = i64::from(bytes);
        let sum = if id == 0 {
            state.window += bytes;
            state.window
        } else {
            state.streams.get_mut(&id).map_or(0, |half| {
                half.window += bytes;
                half.window
            })
        };
        self.to_write.notify_one();
        sum <= i64::from(i32::MAX)
    }

    /// The peer set the initial window.
    pub(super) fn first_window(&self, bytes: u32) {
        let mut state = self.state.lock();
        state.windows = true;
        let change = i64::from(bytes) - state.first_window;
        state.first_window += change;
        for half in state.streams.values_mut() {
            half.window += change;
        }
        self.to_write.notify_one();
    }

    /// Fills a buffer with the next data to write: control frames first, then streams round robin.
    pub(super) fn next(&self, out: &mut BytesMut) -> Next {
        let mut state = self.state.lock();
        if let Phase::Failing(close_frame) = &mut state.phase {
            out.extend_from_slice(close_frame);
            state.phase = Phase::Closed;
            return Next::Write;
        }
        if state.phase == Phase::Closed {
            return Next::End;
        }
        while out.len() < BATCH
            && let Some(answer) = state.answers.pop_front()
        {
            out.extend_from_slice(&answer);
        }
        let ids: Vec<u32> = turns(&state.streams, state.turn);
        for id in ids {
            if out.len() >= BATCH {
                break;
            }
            self.take(&mut state, id, out);
        }
        self.room.notify_one();
        if !out.is_empty() {
            return Next::Write;
        }
        let State { phase, streams, .. } = &mut *state;
        match phase {
            Phase::Closing(close_frame) if streams.values().all(Half::is_written) => {
                out.extend_from_slice(close_frame);
                *phase = Phase::Closed;
                Next::Write
            }
            _ => Next::Wait,
        }
    }

    /// Appends the next data of one stream.
    fn take(&self, state: &mut State, id: u32, out: &mut BytesMut) {
        let State { streams, windows, window: all, turn, .. } = state;
        let Some(half) = streams.get_mut(&id) else { return };
        let allowed = if *windows { usize::try_from(half.window.min(*all)).unwrap_or(0) } else { PIECE };
        let count = half.outbound.len().min(PIECE).min(allowed);
        let finish = half.outbound_done && !half.finish_sent && count == half.outbound.len();
        if count > 0 || finish {
            self.encoder.data(id, &half.outbound[..count], finish, out);
            half.outbound.advance(count);
            half.window -= window(count);
            *all -= window(count);
            half.finish_sent |= finish;
            *turn = id;
            if let Some(waker) = half.writer.take() {
                waker.wake();
            }
        }
        if half.dropped && (half.broken || half.is_written()) {
            streams.remove(&id);
        }
    }

    /// Applies a function to a stream, if it exists.
    fn change(&self, id: u32, how: impl FnOnce(&mut Half)) {
        if let Some(half) = self.state.lock().streams.get_mut(&id) {
            how(half);
        }
    }

    /// Counts consumed bytes, and sends a window update after half a window.
    fn count_consumed(&self, state: &mut State, count: usize) {
        state.unacknowledged += count;
        if state.unacknowledged >= HOLD / 2
            && let Some(credit) = self.encoder.credit(0, u32::try_from(state.unacknowledged).unwrap_or(u32::MAX))
        {
            state.unacknowledged = 0;
            state.answers.push_back(credit);
            self.to_write.notify_one();
        }
    }
}

impl Half {
    /// Whether received data is discarded.
    fn discards(&self) -> bool {
        self.dropped || self.broken || self.inbound_done
    }

    /// Whether all data was written.
    fn is_written(&self) -> bool {
        self.broken || self.outbound.is_empty() && (self.finish_sent || !self.outbound_done)
    }

    fn wake_reader(&mut self) {
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }

    fn wake(&mut self) {
        self.wake_reader();
        if let Some(waker) = self.writer.take() {
            waker.wake();
        }
    }
}

/// Stream IDs in round-robin order.
fn turns(streams: &BTreeMap<u32, Half>, last: u32) -> Vec<u32> {
    let after = streams.range((Bound::Excluded(last), Bound::Unbounded));
    after.chain(streams.range(..=last)).map(|(id, _)| *id).collect()
}

fn window(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
