//! SPDY/3.1, server side: frames to events, and data to frames. Pure, no I/O.
//!
//! kubectl used SPDY for exec, attach and port-forward until version 1.31, still falls back to it, and tunnels it through WebSocket for port-forward.
//! This is the complete protocol for a server that opens no streams. Data is passed on as it arrives; control frames are read whole, up to 64 KiB.

#[cfg(test)]
mod tests;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use client::spdy::{Packer, Unpacker};

use super::wire::{Decode, Encode, Event, Fault, Headers};

/// The longest control frame, in bytes.
const CONTROL: usize = 64 * 1024;
/// The ID of the server's pings: even; those of the client are odd.
const PING: u32 = 2;
const FIN: u8 = 1;
const ONE_WAY: u8 = 2;
/// SETTINGS_INITIAL_WINDOW_SIZE
const INITIAL_WINDOW: u32 = 7;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const SETTINGS: u16 = 4;
const PING_FRAME: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
const WINDOW_UPDATE: u16 = 9;

/// RST_STREAM status codes.
const PROTOCOL_ERROR: u32 = 1;
const INVALID_STREAM: u32 = 2;
const REFUSED_STREAM: u32 = 3;
const CANCEL: u32 = 5;

/// Whether a stream with these headers is accepted.
pub type Accepts = fn(&Headers) -> bool;

/// Decodes frames.
#[derive(Debug)]
pub struct Decoder {
    accepts: Accepts,
    unpacker: Unpacker,
    packer: Packer,
    /// The last stream ID.
    last: u32,
    data: Option<Data>,
    /// Whether the peer sent GOAWAY.
    leaving: bool,
}

/// A data frame that is being read.
#[derive(Debug)]
struct Data {
    id: u32,
    left: usize,
    finish: bool,
    /// Whether the stream is unknown.
    unknown: bool,
}

impl Decoder {
    /// Decodes the frames of a client; streams must be accepted by `accepts`.
    #[must_use]
    pub fn new(accepts: Accepts) -> Self {
        let (unpacker, packer) = (Unpacker::default(), Packer::default());
        Self { accepts, unpacker, packer, last: 0, data: None, leaving: false }
    }

    /// The next part of a data frame.
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
            return Some(if data.unknown { Event::Alive } else { Event::Data { id, bytes } });
        }
        let Data { finish, unknown, .. } = *data;
        self.data = None;
        Some(if finish && !unknown { Event::Finish { id } } else { Event::Alive })
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
                // Not used, but the compression context of later blocks depends on it.
                self.unpacker.unpack(block).map_err(|why| self.fault(why))?;
                let id = word(head, 0);
                Ok(if flags & FIN != 0 { Event::Finish { id } } else { Event::Alive })
            }
            RST_STREAM if body.len() == 8 => Ok(Event::Reset { id: word(body, 0) }),
            SETTINGS if body.len() >= 4 => self.settings(&body[4..]),
            // An even ID answers a ping of the server.
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
            // Unknown control frames are ignored, as the protocol requires.
            _ => Ok(Event::Alive),
        }
    }

    fn open(&mut self, flags: u8, id: u32, block: &[u8]) -> Result<Event, Fault> {
        let headers = self.unpacker.unpack(block).map_err(|why| self.fault(why))?;
        if id.is_multiple_of(2) || id <= self.last {
            return Err(self.fault("a stream whose number is even or not higher than those before"));
        }
        self.last = id;
        if self.leaving || !(self.accepts)(&headers) {
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
        Fault { why: why.to_owned(), close_frame: goaway(self.last, 1) }
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
            let unknown = id.is_multiple_of(2) || id > self.last;
            self.data = Some(Data { id, left: length, finish: flags & FIN != 0, unknown });
            return Ok(Some(if unknown { Event::Answer(reset(id, INVALID_STREAM)) } else { Event::Alive }));
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

/// A 31-bit number, such as a stream ID.
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

/// Encodes frames.
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

    /// GOAWAY with status OK.
    fn close_frame(&self) -> Bytes {
        goaway(0x7fff_ffff, 0)
    }
}
