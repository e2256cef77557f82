//! Many streams over one connection: what each holds, who waits for it, what goes out next.
//!
//! In: events of the reading loop (`drive`), and bytes that the holders of a [`Stream`] write. Out: bytes for them to read, and
//! batches for the writing loop. All of it is bounded: a stream holds at most [`HOLD`] bytes each way, all of them together at most
//! [`HOLD_ALL`] of what came; who brings more waits. Windows of the peer are kept to once it has shown that it knows of windows:
//! the common SPDY client never grants any, and would wait for ever for the rest of what does not fit into the first one.

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

/// How many bytes one stream holds each way: the window that SPDY grants from the start.
pub(super) const HOLD: usize = 64 * 1024;
/// How many bytes that came all streams of a connection hold together.
pub(super) const HOLD_ALL: usize = 4 * 1024 * 1024;
/// How many streams there may be at once.
pub(super) const STREAMS: usize = 1024;
/// How many answers may wait to be written before nothing more is read.
const ANSWERS: usize = 256;
/// The longest piece of one stream before it is the turn of the next.
const PIECE: usize = 16 * 1024;
/// How much is written at once.
const BATCH: usize = 64 * 1024;

/// The streams of a connection.
pub struct Mux {
    state: Mutex<State>,
    encoder: Box<dyn Encode>,
    /// There is something to write.
    pub(super) to_write: Notify,
    /// There may be room for what was read.
    pub(super) room: Notify,
    ended: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    streams: BTreeMap<u32, Half>,
    answers: VecDeque<Bytes>,
    /// The stream whose turn it was last.
    turn: u32,
    held: usize,
    /// Bytes read by holders that the peer was not yet told of.
    unsaid: usize,
    /// The peer knows of windows.
    windows: bool,
    first_window: i64,
    /// What all streams together may send.
    window: i64,
    phase: Phase,
}

#[derive(Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    /// Everything is written, then these bytes.
    Closing(Bytes),
    /// Only these bytes are written.
    Failing(Bytes),
    /// The last bytes are written.
    Closed,
}

/// One stream.
#[derive(Default)]
struct Half {
    inbound: VecDeque<Bytes>,
    held: usize,
    unsaid: usize,
    /// Nothing more will come.
    inbound_done: bool,
    reader: Option<Waker>,
    outbound: BytesMut,
    /// Nothing more will be written here.
    outbound_done: bool,
    finish_sent: bool,
    writer: Option<Waker>,
    window: i64,
    /// The peer, or the connection, ended it.
    broken: bool,
    /// Nobody holds it.
    dropped: bool,
}

/// What the writing loop does next.
pub(super) enum Next {
    /// Writes what is in the buffer.
    Write,
    /// Waits until there is something.
    Wait,
    /// Ends the connection.
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

    /// Adds a stream; nothing when there are too many, or it is there.
    pub fn add(self: &Arc<Self>, id: u32) -> Option<Stream> {
        let mut state = self.state.lock();
        if state.streams.len() >= STREAMS || state.streams.contains_key(&id) {
            return None;
        }
        let half = Half { window: state.first_window, ..Half::default() };
        state.streams.insert(id, half);
        Some(Stream::new(Arc::clone(self), id))
    }

    /// Ends the connection once everything was written.
    pub fn close(&self) {
        let farewell = self.encoder.farewell();
        let mut state = self.state.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Closing(farewell);
        }
        self.to_write.notify_one();
    }

    /// Done when the connection has ended, for whatever reason.
    pub async fn ended(&self) {
        // The sender lives as long as we do.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Writes nothing more but these bytes.
    pub(super) fn fail(&self, farewell: Bytes) {
        let mut state = self.state.lock();
        if state.phase != Phase::Closed {
            state.phase = Phase::Failing(farewell);
        }
        self.to_write.notify_one();
    }

    /// Ends the connection here: every stream of it is broken.
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

    /// Puts an answer into the queue of what is written first.
    pub(crate) fn answer(&self, bytes: Bytes) {
        self.state.lock().answers.push_back(bytes);
        self.to_write.notify_one();
    }

    /// Asks whether the peer is there.
    pub(super) fn ping(&self) {
        self.answer(self.encoder.ping());
    }

    /// The end that an idle connection gets.
    pub(super) fn farewell(&self) -> Bytes {
        self.encoder.farewell()
    }

    /// Refuses a stream that there is no room for.
    pub(super) fn refuse(&self, id: u32) {
        if let Some(bytes) = self.encoder.refuse(id) {
            self.answer(bytes);
        }
    }

    /// Whether answers may be queued: not when the peer reads none of them.
    pub(super) fn may_answer(&self) -> bool {
        self.state.lock().answers.len() < ANSWERS
    }

    /// Whether bytes for a stream fit, or will be thrown away.
    pub(super) fn may_deliver(&self, id: u32) -> bool {
        let state = self.state.lock();
        state.streams.get(&id).is_none_or(|half| half.is_deaf() || half.held < HOLD && state.held < HOLD_ALL)
    }

    /// Gives bytes to a stream, or throws them away when nobody would read them.
    pub(super) fn deliver(&self, id: u32, bytes: Bytes) {
        let mut state = self.state.lock();
        let count = bytes.len();
        match state.streams.get_mut(&id) {
            Some(half) if !half.is_deaf() && count > 0 => {
                half.inbound.push_back(bytes);
                half.held += count;
                half.wake_reader();
                state.held += count;
            }
            // They used up a part of the window of all streams.
            _ => self.say_read(&mut state, count),
        }
    }

    /// Nothing more will come on a stream.
    pub(super) fn finish(&self, id: u32) {
        self.change(id, |half| {
            half.inbound_done = true;
            half.wake_reader();
        });
    }

    /// Nothing may be sent on a stream.
    pub(super) fn mute(&self, id: u32) {
        self.change(id, |half| {
            half.outbound_done = true;
            half.finish_sent = true;
        });
    }

    /// The peer ended a stream both ways.
    pub(super) fn break_stream(&self, id: u32) {
        self.change(id, |half| {
            half.broken = true;
            half.outbound.clear();
            half.wake();
        });
        // What it held is let go by whoever holds it; nobody must wait for room in it.
        self.room.notify_one();
    }

    /// The peer can take more. Says whether that is a number that can be.
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

    /// The peer said which window streams begin with.
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

    /// Fills a buffer with what is to be written next: answers first, then each stream in its turn.
    pub(super) fn next(&self, out: &mut BytesMut) -> Next {
        let mut state = self.state.lock();
        if let Phase::Failing(farewell) = &mut state.phase {
            out.extend_from_slice(farewell);
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
            Phase::Closing(farewell) if streams.values().all(Half::is_written) => {
                out.extend_from_slice(farewell);
                *phase = Phase::Closed;
                Next::Write
            }
            _ => Next::Wait,
        }
    }

    /// Takes a piece of one stream.
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

    /// Changes a stream, if there is one.
    fn change(&self, id: u32, how: impl FnOnce(&mut Half)) {
        if let Some(half) = self.state.lock().streams.get_mut(&id) {
            how(half);
        }
    }

    /// Counts bytes that no stream holds any more, and tells the peer when they are many.
    fn say_read(&self, state: &mut State, count: usize) {
        state.unsaid += count;
        if state.unsaid >= HOLD / 2
            && let Some(credit) = self.encoder.credit(0, u32::try_from(state.unsaid).unwrap_or(u32::MAX))
        {
            state.unsaid = 0;
            state.answers.push_back(credit);
            self.to_write.notify_one();
        }
    }
}

impl Half {
    /// Nobody will read what comes.
    fn is_deaf(&self) -> bool {
        self.dropped || self.broken || self.inbound_done
    }

    /// Everything that was to be written is.
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

/// The streams in the order of their turns.
fn turns(streams: &BTreeMap<u32, Half>, last: u32) -> Vec<u32> {
    let after = streams.range((Bound::Excluded(last), Bound::Unbounded));
    after.chain(streams.range(..=last)).map(|(id, _)| *id).collect()
}

fn window(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
