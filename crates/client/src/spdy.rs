//! SPDY header blocks: length-prefixed names and values, compressed by zlib with the dictionary of the protocol.
//!
//! All blocks of one direction share a compression context, so every block must be decoded in order.

use bytes::{BufMut as _, Bytes, BytesMut};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// Headers of a stream: lower-case names and values, in order.
pub type Headers = Vec<(String, String)>;

/// The longest decompressed block, in bytes; prevents decompression bombs.
const BLOCK: usize = 64 * 1024;

/// The first part of the dictionary; each word is prefixed with its length.
const WORDS: &str = "options|head|post|put|delete|trace|accept|accept-charset|accept-encoding|accept-language|accept-rang\
    es|age|allow|authorization|cache-control|connection|content-base|content-encoding|content-language|c\
    ontent-length|content-location|content-md5|content-range|content-type|date|etag|expect|expires|from|\
    host|if-match|if-modified-since|if-none-match|if-range|if-unmodified-since|last-modified|location|ma\
    x-forwards|pragma|proxy-authenticate|proxy-authorization|range|referer|retry-after|server|te|trailer\
    |transfer-encoding|upgrade|user-agent|vary|via|warning|www-authenticate|method|get|status|200 OK|ver\
    sion|HTTP/1.1|url|public|set-cookie|keep-alive|origin";

/// The last part of the dictionary.
const TAIL: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Au\
    thoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidd\
    en404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr Ma\
    y Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,imag\
    e/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,publicpri\
    vatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

/// The dictionary of SPDY/3.
fn dictionary() -> Vec<u8> {
    let mut out = Vec::new();
    for word in WORDS.split('|') {
        out.put_u32(u32::try_from(word.len()).unwrap_or_default());
        out.put_slice(word.as_bytes());
    }
    out.put_slice(TAIL.as_bytes());
    out
}

/// Decodes blocks.
#[derive(Debug)]
pub struct Unpacker {
    zlib: Decompress,
    dictionary: Vec<u8>,
}

impl Default for Unpacker {
    fn default() -> Self {
        Self { zlib: Decompress::new(true), dictionary: dictionary() }
    }
}

impl Unpacker {
    /// The headers of a block.
    ///
    /// # Errors
    /// When the block is invalid.
    pub fn unpack(&mut self, block: &[u8]) -> Result<Headers, &'static str> {
        parse(&self.inflate(block)?)
    }

    fn inflate(&mut self, mut block: &[u8]) -> Result<Vec<u8>, &'static str> {
        const BAD: &str = "a block of headers that cannot be unpacked";
        let mut out = Vec::new();
        let mut piece = [0; 4096];
        loop {
            let (read, written) = (self.zlib.total_in(), self.zlib.total_out());
            let done = self.zlib.decompress(block, &mut piece, FlushDecompress::Sync);
            let read = usize::try_from(self.zlib.total_in() - read).map_err(|_| BAD)?;
            let written = usize::try_from(self.zlib.total_out() - written).map_err(|_| BAD)?;
            block = block.get(read..).ok_or(BAD)?;
            out.extend_from_slice(&piece[..written]);
            if out.len() > BLOCK {
                return Err("a block of headers that is too long");
            }
            match done {
                Err(error) if error.needs_dictionary().is_some() => {
                    self.zlib.set_dictionary(&self.dictionary).map_err(|_| BAD)?;
                }
                Err(_) | Ok(Status::StreamEnd) => return Err(BAD),
                // A full buffer may have more behind it.
                Ok(_) if written == piece.len() || read > 0 && !block.is_empty() => {}
                Ok(_) if block.is_empty() => return Ok(out),
                Ok(_) => return Err(BAD),
            }
        }
    }
}

fn parse(mut block: &[u8]) -> Result<Headers, &'static str> {
    let mut headers = Headers::new();
    for _ in 0..number(&mut block)? {
        let name = text(&mut block)?;
        if name.is_empty() || name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err("a header whose name is empty or not in lower case");
        }
        if headers.iter().any(|(have, _)| *have == name) {
            return Err("duplicate header");
        }
        headers.push((name, text(&mut block)?));
    }
    if block.is_empty() { Ok(headers) } else { Err("a block of headers with something behind it") }
}

fn number(block: &mut &[u8]) -> Result<u32, &'static str> {
    let (number, rest) = block.split_first_chunk().ok_or("a block of headers that ends too early")?;
    *block = rest;
    Ok(u32::from_be_bytes(*number))
}

fn text(block: &mut &[u8]) -> Result<String, &'static str> {
    let length = usize::try_from(number(block)?).unwrap_or(usize::MAX);
    let (text, rest) = block.split_at_checked(length).ok_or("a block of headers that ends too early")?;
    *block = rest;
    String::from_utf8(text.to_vec()).map_err(|_| "a header that is not text")
}

/// Encodes blocks.
#[derive(Debug)]
pub struct Packer {
    zlib: Compress,
}

impl Default for Packer {
    fn default() -> Self {
        let mut zlib = Compress::new(Compression::fast(), true);
        zlib.set_dictionary(&dictionary()).expect("a new compression takes a dictionary");
        Self { zlib }
    }
}

impl Packer {
    /// Encodes a block.
    pub fn pack(&mut self, headers: &[(&str, &str)]) -> Bytes {
        let mut plain = BytesMut::new();
        let length = |text: &str| u32::try_from(text.len()).unwrap_or(u32::MAX);
        plain.put_u32(u32::try_from(headers.len()).unwrap_or(u32::MAX));
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.put_u32(length(text));
            plain.put_slice(text.as_bytes());
        }
        let before = self.zlib.total_in();
        let mut out = Vec::new();
        loop {
            out.reserve(256.max(plain.len()));
            let read = usize::try_from(self.zlib.total_in() - before).unwrap_or(plain.len());
            let done = self.zlib.compress_vec(&plain[read..], &mut out, FlushCompress::Sync);
            // A flush is complete when the buffer is not full.
            if done.is_err() || out.len() < out.capacity() {
                return out.into();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_has_the_checksum_of_the_protocol() {
        let dictionary = dictionary();
        assert_eq!(dictionary.len(), 1423);
        let sum = |(a, b): (u32, u32), byte: &u8| ((a + u32::from(*byte)) % 65521, (b + a + u32::from(*byte)) % 65521);
        let (a, b) = dictionary.iter().fold((1, 0), sum);
        // Every zlib stream that was made with it begins with this.
        assert_eq!(b << 16 | a, 0xe3c6a7c2);
    }

    #[test]
    fn header_blocks_share_one_compression_context() {
        let (mut packer, mut unpacker) = (Packer::default(), Unpacker::default());
        for round in 0..50 {
            let port = (8000 + round).to_string();
            let headers = [("streamtype", "data"), ("port", &port), ("requestid", "0")];
            let wanted: Headers = headers.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
            assert_eq!(unpacker.unpack(&packer.pack(&headers)), Ok(wanted));
        }
        assert_eq!(unpacker.unpack(&packer.pack(&[])), Ok(Headers::new()));
    }

    #[test]
    fn decompressed_header_blocks_are_limited() {
        let long = "x".repeat(BLOCK * 4);
        let block = Packer::default().pack(&[("streamtype", &long)]);
        assert!(block.len() < 4096);
        assert_eq!(Unpacker::default().unpack(&block), Err("a block of headers that is too long"));
    }

    #[test]
    fn invalid_header_blocks_are_errors() {
        for (headers, why) in [
            (&[("Upper", "")][..], "a header whose name is empty or not in lower case"),
            (&[("", "x")], "a header whose name is empty or not in lower case"),
            (&[("a", "1"), ("a", "2")], "duplicate header"),
        ] {
            assert_eq!(Unpacker::default().unpack(&Packer::default().pack(headers)), Err(why));
        }
        assert_eq!(Unpacker::default().unpack(b"not zlib"), Err("a block of headers that cannot be unpacked"));
        assert_eq!(Unpacker::default().unpack(b""), Err("a block of headers that ends too early"));
    }
}
