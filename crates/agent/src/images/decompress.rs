//! Decompression of layers: gzip and zstd by magic number, otherwise uncompressed.
//!
//! In: compressed bytes. Out: a reader with a size limit.

use std::io::{self, BufRead, BufReader, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The largest decompressed size, in bytes; prevents decompression bombs.
pub(super) const MAX_SIZE: u64 = 64 << 30;
/// The largest zstd window, in bytes; limits the memory of the decoder.
const MAX_WINDOW: u64 = 128 << 20;

/// A reader of the decompressed bytes.
pub(super) fn decompressed<'a>(from: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut from = BufReader::with_capacity(64 << 10, from);
    let start = from.fill_buf()?;
    let plain: Box<dyn Read + 'a> = match start {
        [0x1f, 0x8b, ..] => Box::new(flate2::bufread::MultiGzDecoder::new(from)),
        // A zstd frame or a skippable frame.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Box::new(Zstd::new(from)),
        _ => Box::new(from),
    };
    Ok(Box::new(Limited { inner: plain, left: MAX_SIZE }))
}

/// A sequence of zstd frames; skippable frames are ignored.
struct Zstd<R> {
    from: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(from: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MAX_WINDOW);
        Self { from, decoder, in_frame: false }
    }

    /// Advances to the next frame; false at the end.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.from.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.from) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let skipped = io::copy(&mut (&mut self.from).take(length.into()), &mut io::sink())?;
                    if skipped != u64::from(length) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.in_frame && !self.next_frame()? {
                return Ok(0);
            }
            self.in_frame = true;
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let decoded = self.decoder.decode_blocks(&mut self.from, BlockDecodingStrategy::UptoBlocks(1));
                decoded.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            }
            match self.decoder.read(buffer)? {
                0 if buffer.is_empty() => return Ok(0),
                0 => self.in_frame = false,
                length => return Ok(length),
            }
        }
    }
}

/// A reader with a size limit.
struct Limited<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.left = self
            .left
            .checked_sub(length as u64)
            .ok_or_else(|| io::Error::other(format!("it decompresses to more than {} GiB", MAX_SIZE >> 30)))?;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        decompressed(bytes)?.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn all_compressions_give_the_same_bytes() {
        let text: Vec<u8> = (0..100_000_u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&text).expect("compressed");
        let gzip = gzip.finish().expect("compressed");
        let zstd = compress_to_vec(&text[..], CompressionLevel::Fastest);
        assert!(read(&text).expect("plain") == text && read(&gzip).expect("gzip") == text);
        assert!(read(&zstd).expect("zstd") == text);
        // Two members, two frames, and a frame to skip on each side.
        let skip = [&[0x53, 0x2a, 0x4d, 0x18, 5, 0, 0, 0][..], b"12345"].concat();
        let twice = [&text[..], &text[..]].concat();
        assert!(read(&[&gzip[..], &gzip].concat()).expect("gzip") == twice);
        assert!(read(&[&skip[..], &zstd, &skip, &zstd, &skip].concat()).expect("zstd") == twice);
        for cut in [&gzip[..gzip.len() / 2], &zstd[..zstd.len() / 2], &skip[..skip.len() - 1]] {
            assert!(read(cut).is_err(), "half of it is an error");
        }
        assert_eq!(read(b"").expect("nothing"), b"");
    }

    #[test]
    fn decompression_bombs_are_refused() {
        let mut limited = Limited { inner: io::repeat(0), left: 10_000 };
        let error = io::copy(&mut limited, &mut io::sink()).expect_err("refused");
        assert!(error.to_string().contains("more than"), "{error}");
    }
}
