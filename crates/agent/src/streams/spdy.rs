//! SPDY/3.1 as a server speaks it: frames in, events out; what streams have, in frames. Pure, no I/O.
//!
//! Nobody browses by SPDY any more, but kubectl spoke it for exec, attach and port-forward until version 1.31, still falls back to it,
//! and tunnels it through WebSocket for port-forward. What is here is the whole protocol as a server that opens no streams itself
//! needs it. Data is passed on in pieces, as it comes; a control frame is read whole and may have 64 KiB.

pub mod headers;
#[cfg(test)]
mod tests;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use super::wire::{Decode, Encode, Event, Fault, Headers};
use headers::{Packer, Unpacker};

/// The longest control frame.
const CONTROL: usize = 64 * 1024;
/// Ours, so that the peer sends it back: it asks with odd numbers.
const PING: u32 = 2;
const FIN: u8 = 1;
const ONE_WAY: u8 = 2;
/// The setting that says how large windows are at first.
const INITIAL_WINDOW: u32 = 7;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const SETTINGS: u16 = 4;
const PING_FRAME: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
const WINDOW_UPDATE: u16 = 9;

/// Why a stream ends at once.
const PROTOCOL_ERROR: u32 = 1;
const INVALID_STREAM: u32 = 2;
const REFUSED_STREAM: u32 = 3;
const CANCEL: u32 = 5;

/// Whether a stream with these headers is welcome.
pub type Welcome = fn(&Headers) -> bool;

/// Reads frames.
#[derive(Debug)]
pub struct Decoder {
    welcome: Welcome,
    unpacker: Unpacker,
    packer: Packer,
    /// The last stream that was opened.
    last: u32,
    data: Option<Data>,
    /// The peer said that it opens no more streams.
    leaving: bool,
}

/// A data frame whose bytes are coming.
#[derive(Debug)]
struct Data {
    id: u32,
    left: usize,
    finish: bool,
    /// There is no such stream.
    lost: bool,
}

impl Decoder {
    /// Reads the frames of a client whose streams must be `welcome`.
    #[must_use]
    pub fn new(welcome: Welcome) -> Self {
        let (unpacker, packer) = (Unpacker::default(), Packer::default());
        Self { welcome, unpacker, packer, last: 0, data: None, leaving: false }
    }

    /// The next piece of a data frame.
    fn piece(&mut self, input: &mut BytesMut) -> Option<Event> {
        let data = self.data.as_mut()?;
        let id = data.id;
        if data.left > 0 {
            let count = data.left.min(input.len());
            if count == 0 {
                return None;
            }
            data.left -= count;
            let bytes = input.split_to(count).freeze();
            return Some(if data.lost { Event::Alive } else { Event::Data { id, bytes } });
        }
        let Data { finish, lost, .. } = *data;
        self.data = None;
        Some(if finish && !lost { Event::Finish { id } } else { Event::Alive })
    }

    fn control(&mut self, kind: u16, flags: u8, body: &[u8]) -> Result<Event, Fault> {
        let short = || self.fault("a control frame of the wrong length");
        match kind {
            SYN_STREAM => {
                let (head, block) = body.split_at_checked(10).ok_or_else(short)?;
                self.open(flags, word(head, 0), block)
            }
            SYN_REPLY | HEADERS => {
                let (head, block) = body.split_at_checked(4).ok_or_else(short)?;
                // What they say is of no use here, but the blocks after this one need it.
                self.unpacker.unpack(block).map_err(|why| self.fault(why))?;
                let id = word(head, 0);
                Ok(if flags & FIN != 0 { Event::Finish { id } } else { Event::Alive })
            }
            RST_STREAM if body.len() == 8 => Ok(Event::Reset { id: word(body, 0) }),
            SETTINGS if body.len() >= 4 => self.settings(&body[4..]),
            // The answer to one of ours is even.
            PING_FRAME if body.len() == 4 && word_all(body).is_multiple_of(2) => Ok(Event::Alive),
            PING_FRAME if body.len() == 4 => Ok(Event::Answer(frame(PING_FRAME, body))),
            GOAWAY if body.len() == 8 => {
                self.leaving = true;
                Ok(Event::Alive)
            }
            WINDOW_UPDATE if body.len() == 8 => {
                let (id, bytes) = (word(body, 0), word(body, 4));
                let odd_one = bytes == 0 && id != 0;
                Ok(if odd_one { Event::Answer(reset(id, PROTOCOL_ERROR)) } else { Event::Credit { id, bytes } })
            }
            RST_STREAM | SETTINGS | PING_FRAME | GOAWAY | WINDOW_UPDATE => Err(short()),
            // The protocol says so: what is not known is passed over.
            _ => Ok(Event::Alive),
        }
    }

    fn open(&mut self, flags: u8, id: u32, block: &[u8]) -> Result<Event, Fault> {
        let headers = self.unpacker.unpack(block).map_err(|why| self.fault(why))?;
        if id.is_multiple_of(2) || id <= self.last {
            return Err(self.fault("a stream whose number is even or not higher than those before"));
        }
        self.last = id;
        if self.leaving || !(self.welcome)(&headers) {
            return Ok(Event::Answer(reset(id, if self.leaving { REFUSED_STREAM } else { CANCEL })));
        }
        let mut body = BytesMut::new();
        body.put_u32(id);
        body.put_slice(&self.packer.pack(&[]));
        let (finished, one_way) = (flags & FIN != 0, flags & ONE_WAY != 0);
        Ok(Event::Open { id, headers, finished, one_way, reply: frame(SYN_REPLY, &body) })
    }

    fn settings(&self, entries: &[u8]) -> Result<Event, Fault> {
        if !entries.len().is_multiple_of(8) {
            return Err(self.fault("settings of the wrong length"));
        }
        let of = |entry: &[u8]| (word(entry, 0) & 0x00ff_ffff == INITIAL_WINDOW).then(|| word(entry, 4));
        Ok(entries.chunks_exact(8).find_map(of).map_or(Event::Alive, Event::Window))
    }

    fn fault(&self, why: &str) -> Fault {
        Fault { why: why.to_owned(), farewell: goaway(self.last, 1) }
    }
}

impl Decode for Decoder {
    fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Event>, Fault> {
        if self.data.is_some() {
            return Ok(self.piece(input));
        }
        let Some(head) = input.first_chunk::<8>() else { return Ok(None) };
        let (flags, length) = (head[4], usize::try_from(word(head, 4) & 0x00ff_ffff).unwrap_or(CONTROL + 1));
        if head[0] & 0x80 == 0 {
            let id = word(head, 0);
            if id == 0 {
                return Err(self.fault("data of stream 0"));
            }
            input.advance(8);
            let lost = id.is_multiple_of(2) || id > self.last;
            self.data = Some(Data { id, left: length, finish: flags & FIN != 0, lost });
            return Ok(Some(if lost { Event::Answer(reset(id, INVALID_STREAM)) } else { Event::Alive }));
        }
        if u16::from_be_bytes([head[0] & 0x7f, head[1]]) != 3 {
            return Err(self.fault("a frame of another version than 3"));
        }
        if length > CONTROL {
            return Err(self.fault("a control frame that is too long"));
        }
        if input.len() < 8 + length {
            return Ok(None);
        }
        let kind = u16::from_be_bytes([head[2], head[3]]);
        input.advance(8);
        let body = input.split_to(length);
        self.control(kind, flags, &body).map(Some)
    }
}

/// Four bytes as a number of 31 bits, which numbers of streams are; the others fit too.
fn word(bytes: &[u8], at: usize) -> u32 {
    word_all(bytes.get(at..).unwrap_or_default()) & 0x7fff_ffff
}

fn word_all(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// A control frame without flags.
fn frame(kind: u16, body: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(8 + body.len());
    out.put_u16(0x8003);
    out.put_u16(kind);
    out.put_u32(u32::try_from(body.len()).unwrap_or_default());
    out.put_slice(body);
    out.freeze()
}

fn pair(kind: u16, first: u32, second: u32) -> Bytes {
    frame(kind, &[first.to_be_bytes(), second.to_be_bytes()].concat())
}

fn reset(id: u32, why: u32) -> Bytes {
    pair(RST_STREAM, id, why)
}

fn goaway(last: u32, why: u32) -> Bytes {
    pair(GOAWAY, last, why)
}

/// Writes frames.
#[derive(Clone, Copy, Debug)]
pub struct Encoder;

impl Encode for Encoder {
    fn data(&self, id: u32, bytes: &[u8], finish: bool, out: &mut BytesMut) {
        let length = u32::try_from(bytes.len()).unwrap_or_default() & 0x00ff_ffff;
        out.put_u32(id & 0x7fff_ffff);
        out.put_u32(length | u32::from(if finish { FIN } else { 0 }) << 24);
        out.put_slice(bytes);
    }

    fn reset(&self, id: u32) -> Option<Bytes> {
        Some(reset(id, CANCEL))
    }

    fn refuse(&self, id: u32) -> Option<Bytes> {
        Some(reset(id, REFUSED_STREAM))
    }

    fn credit(&self, id: u32, bytes: u32) -> Option<Bytes> {
        Some(pair(WINDOW_UPDATE, id, bytes & 0x7fff_ffff))
    }

    fn ping(&self) -> Bytes {
        frame(PING_FRAME, &PING.to_be_bytes())
    }

    /// Every stream that was opened has been taken care of.
    fn farewell(&self) -> Bytes {
        goaway(0x7fff_ffff, 0)
    }
}
