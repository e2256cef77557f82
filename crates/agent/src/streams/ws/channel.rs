//! Kubernetes' channels over WebSocket: the first byte of a message says which stream the rest belongs to.
//!
//! `channel.k8s.io` and its fourth and fifth version carry bytes; the `base64` forms carry text for clients that cannot. The fifth
//! version has one more message, 255 and a channel: nothing more will come on that channel. `Tunnel` has no channels at all: the
//! messages are the bytes of another protocol.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, Bytes, BytesMut};

use super::{Code, Piece, Reader, close_frame, ping, pong, write_message};
use crate::streams::wire::{Decode, Encode, Event, Fault};

/// The message that ends a channel.
const CLOSE: u8 = 255;
/// The longest message in base64: it can only be read whole.
const TEXT: usize = 1024 * 1024;

/// What the messages of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A channel and bytes.
    Binary,
    /// A channel and bytes, and a message that ends a channel.
    BinaryWithClose,
    /// A channel as a digit, and bytes in base64.
    Base64,
    /// Bytes of stream 0.
    Tunnel,
}

/// Reads messages of channels.
#[derive(Debug)]
pub struct Decoder {
    form: Form,
    /// How many channels there are.
    channels: u32,
    reader: Reader,
    /// What the message that is being read is.
    message: Message,
    /// The payload of the last ping, which an answer without a question repeats.
    asked: Bytes,
}

#[derive(Debug)]
enum Message {
    /// Its first byte was not read.
    Fresh,
    /// The rest of it belongs to this channel.
    Of(u32),
    /// It ends the channel that its second byte says.
    Close(Option<u8>),
    /// It is text that was not read to its end.
    Text(BytesMut),
}

impl Decoder {
    /// Reads channels 0 to `channels`, without that one.
    #[must_use]
    pub fn new(form: Form, channels: u32) -> Self {
        Self { form, channels, reader: Reader::default(), message: Message::Fresh, asked: Bytes::new() }
    }

    fn part(&mut self, text: bool, last: bool, mut bytes: Bytes) -> Result<Event, Fault> {
        if text != (self.form == Form::Base64) {
            return Err(fault(Code::Unsupported, "this protocol has another kind of message"));
        }
        let event = match &mut self.message {
            Message::Fresh if bytes.is_empty() => Event::Alive,
            Message::Fresh if self.form == Form::Tunnel => {
                self.message = Message::Of(0);
                Event::Data { id: 0, bytes }
            }
            Message::Fresh if self.form == Form::Base64 => {
                self.message = Message::Text(BytesMut::from(bytes));
                Event::Alive
            }
            Message::Fresh => match bytes.get_u8() {
                CLOSE if self.form == Form::BinaryWithClose => {
                    self.message = Message::Close(None);
                    return self.ended(&bytes, last);
                }
                channel => {
                    self.message = Message::Of(channel.into());
                    self.data(channel.into(), bytes)
                }
            },
            Message::Of(id) => {
                let id = *id;
                self.data(id, bytes)
            }
            Message::Close(_) => return self.ended(&bytes, last),
            Message::Text(held) if held.len() + bytes.len() > TEXT => {
                return Err(fault(Code::TooLong, "a message in base64 is longer than 1 MiB"));
            }
            Message::Text(held) => {
                held.extend_from_slice(&bytes);
                Event::Alive
            }
        };
        if !last {
            return Ok(event);
        }
        match std::mem::replace(&mut self.message, Message::Fresh) {
            Message::Text(text) => self.text(&text),
            _ => Ok(event),
        }
    }

    /// Bytes of a channel; those of one that is not there are thrown away, as others do.
    fn data(&self, id: u32, bytes: Bytes) -> Event {
        if id < self.channels && !bytes.is_empty() { Event::Data { id, bytes } } else { Event::Alive }
    }

    /// A part of the message that ends a channel.
    fn ended(&mut self, bytes: &[u8], last: bool) -> Result<Event, Fault> {
        let Message::Close(have) = &mut self.message else { return Ok(Event::Alive) };
        for byte in bytes {
            if have.replace(*byte).is_some() {
                return Err(fault(Code::Invalid, "more than one channel follows a close signal"));
            }
        }
        if !last {
            return Ok(Event::Alive);
        }
        let channel = have.map(u32::from);
        self.message = Message::Fresh;
        match channel.filter(|id| *id < self.channels) {
            Some(id) => Ok(Event::Finish { id }),
            None => Err(fault(Code::Invalid, "a close signal for a channel that is not there")),
        }
    }

    fn text(&self, text: &[u8]) -> Result<Event, Fault> {
        let Some((channel, rest)) = text.split_first() else { return Ok(Event::Alive) };
        let id = u32::from(channel.wrapping_sub(b'0'));
        let bytes = STANDARD.decode(rest).map_err(|_| fault(Code::Invalid, "a message is not base64"))?;
        Ok(self.data(id, bytes.into()))
    }
}

impl Decode for Decoder {
    fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Event>, Fault> {
        match self.reader.next(input).map_err(|(code, why)| fault(code, why))? {
            None => Ok(None),
            Some(Piece::Message { text, last, bytes, .. }) => self.part(text, last, bytes).map(Some),
            Some(Piece::Ping(payload)) => {
                self.asked = payload.clone();
                Ok(Some(Event::Answer(pong(&payload))))
            }
            Some(Piece::Pong) => Ok(Some(Event::Alive)),
            Some(Piece::Close(code)) => {
                let code = code.unwrap_or(Code::Normal as u16);
                Ok(Some(Event::Goodbye(close_frame(code, ""))))
            }
        }
    }

    /// A client that asks and hears nothing for a minute gives up: while its bytes are not read, it is answered unasked.
    fn patience(&self) -> Option<Bytes> {
        Some(pong(&self.asked))
    }
}

fn fault(code: Code, why: &str) -> Fault {
    Fault { why: why.to_owned(), farewell: close_frame(code as u16, why) }
}

/// Writes messages of channels.
#[derive(Clone, Copy, Debug)]
pub struct Encoder(
    /// What the messages are.
    pub Form,
);

impl Encoder {
    /// A message of a channel, which may be empty.
    pub fn message(self, id: u32, bytes: &[u8], out: &mut BytesMut) {
        let channel = u8::try_from(id).unwrap_or(CLOSE);
        match self.0 {
            Form::Binary | Form::BinaryWithClose => write_message(false, &[channel], bytes, out),
            Form::Base64 => {
                let text = STANDARD.encode(bytes);
                write_message(true, &[b'0'.wrapping_add(channel)], text.as_bytes(), out);
            }
            Form::Tunnel => write_message(false, &[], bytes, out),
        }
    }
}

impl Encode for Encoder {
    /// The end of a channel is not told: clients know of none but the end of the connection.
    fn data(&self, id: u32, bytes: &[u8], _: bool, out: &mut BytesMut) {
        if !bytes.is_empty() {
            self.message(id, bytes, out);
        }
    }

    fn reset(&self, _: u32) -> Option<Bytes> {
        None
    }

    fn refuse(&self, _: u32) -> Option<Bytes> {
        None
    }

    fn credit(&self, _: u32, _: u32) -> Option<Bytes> {
        None
    }

    fn ping(&self) -> Bytes {
        ping()
    }

    fn farewell(&self) -> Bytes {
        close_frame(Code::Normal as u16, "")
    }
}
