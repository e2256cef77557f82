//! Kubernetes channels over WebSocket: the first byte of a message is the channel.
//!
//! `channel.k8s.io`, v4 and v5 carry bytes; the `base64` variants carry text. v5 adds the message 255 and a channel, which closes that channel. `Tunnel`
//! has no channels: messages are the bytes of another protocol.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, Bytes, BytesMut};

use super::{Code, Piece, Reader, close_frame, ping, pong, write_message};
use crate::streams::wire::{Decode, Encode, Event, Fault};

/// The close signal of v5.
const CLOSE: u8 = 255;
/// The longest base64 message, in bytes; it is read whole.
const TEXT: usize = 1024 * 1024;

/// The message format of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A channel and bytes.
    Binary,
    /// A channel and bytes, and a close signal.
    BinaryWithClose,
    /// A channel as a digit, and bytes in base64.
    Base64,
    /// Bytes of stream 0.
    Tunnel,
}

/// Decodes channel messages.
#[derive(Debug)]
pub struct Decoder {
    form: Form,
    /// The number of channels.
    channels: u32,
    reader: Reader,
    /// The state of the current message.
    message: Message,
    /// The payload of the last ping, for unsolicited pongs.
    last_ping: Bytes,
}

#[derive(Debug)]
enum Message {
    /// Nothing was read yet.
    Fresh,
    /// Data of this channel.
    Of(u32),
    /// A close signal; the channel is in its second byte.
    Close(Option<u8>),
    /// Incomplete text.
    Text(BytesMut),
}

impl Decoder {
    /// Decodes channels 0 to `channels` - 1.
    #[must_use]
    pub fn new(form: Form, channels: u32) -> Self {
        Self { form, channels, reader: Reader::default(), message: Message::Fresh, last_ping: Bytes::new() }
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

    /// Data of a channel; data of an unknown one is discarded, as in Kubernetes.
    fn data(&self, id: u32, bytes: Bytes) -> Event {
        if id < self.channels && !bytes.is_empty() { Event::Data { id, bytes } } else { Event::Alive }
    }

    /// A part of a close signal.
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
                self.last_ping = payload.clone();
                Ok(Some(Event::Answer(pong(&payload))))
            }
            Some(Piece::Pong) => Ok(Some(Event::Alive)),
            Some(Piece::Close(code)) => {
                let code = code.unwrap_or(Code::Normal as u16);
                Ok(Some(Event::Close(close_frame(code, ""))))
            }
        }
    }

    /// Clients disconnect when a ping is not answered within a minute; while their data is not read, an unsolicited pong keeps them connected.
    fn keepalive(&self) -> Option<Bytes> {
        Some(pong(&self.last_ping))
    }
}

fn fault(code: Code, why: &str) -> Fault {
    Fault { why: why.to_owned(), close_frame: close_frame(code as u16, why) }
}

/// Encodes channel messages.
#[derive(Clone, Copy, Debug)]
pub struct Encoder(
    /// The message format.
    pub Form,
);

impl Encoder {
    /// Encodes a message of a channel, possibly empty.
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
    /// The end of a channel is not encoded: clients only handle the end of the connection.
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

    fn close_frame(&self) -> Bytes {
        close_frame(Code::Normal as u16, "")
    }
}
