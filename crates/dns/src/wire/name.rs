//! Domain name of a query: lower-cased wire form with label offsets.

use super::{LABEL_MAX, NAME_MAX};

/// Lower-cased name with label offsets; fixed size, so that it needs no heap.
#[derive(Clone)]
pub struct Name {
    lower: [u8; NAME_MAX + 1],
    labels: [u8; 128],
    len: u8,
    count: u8,
}

/// Invalid domain name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid domain name")]
pub struct BadName;

impl Name {
    /// Parses an uncompressed name at the start of `bytes`.
    ///
    /// # Errors
    /// When it is incomplete, too long, or contains a compression pointer.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadName> {
        let mut name = Self { lower: [0; NAME_MAX + 1], labels: [0; 128], len: 0, count: 0 };
        let (mut at, mut count) = (0usize, 0usize);
        loop {
            let len = usize::from(*bytes.get(at).ok_or(BadName)?);
            if len == 0 {
                break;
            }
            let end = at + 1 + len;
            if len > LABEL_MAX || end >= NAME_MAX {
                return Err(BadName);
            }
            let label = bytes.get(at + 1..end).ok_or(BadName)?;
            name.lower[at] = bytes[at];
            for (to, from) in name.lower[at + 1..end].iter_mut().zip(label) {
                *to = from.to_ascii_lowercase();
            }
            name.labels[count] = u8::try_from(at).expect("shorter than the longest name");
            count += 1;
            at = end;
        }
        name.count = u8::try_from(count).expect("at most 127 labels fit");
        name.len = u8::try_from(at + 1).expect("at most 255");
        Ok(name)
    }

    /// Length in wire form including the root label.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        usize::from(self.len)
    }

    /// Lower-cased wire form.
    #[must_use]
    pub fn wire(&self) -> &[u8] {
        &self.lower[..self.wire_len()]
    }

    /// Number of labels.
    #[must_use]
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// Offset of a label; one past the last is the root label.
    #[must_use]
    pub fn offset(&self, label: usize) -> usize {
        if label < self.count() { usize::from(self.labels[label]) } else { self.wire_len() - 1 }
    }

    /// Label without its length byte.
    #[must_use]
    pub fn label(&self, label: usize) -> &[u8] {
        &self.lower[self.offset(label) + 1..self.offset(label + 1)]
    }

    /// Labels `from..to` in wire form.
    #[must_use]
    pub fn labels(&self, from: usize, to: usize) -> &[u8] {
        &self.lower[self.offset(from)..self.offset(to)]
    }

    /// Name from a label to the end.
    #[must_use]
    pub fn suffix(&self, label: usize) -> &[u8] {
        &self.lower[self.offset(label)..self.wire_len()]
    }

    /// Whether it equals or is below a name of `labels` labels in lower-cased wire form.
    #[must_use]
    pub fn is_below(&self, zone: &[u8], labels: usize) -> bool {
        self.count() >= labels && self.suffix(self.count() - labels) == zone
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&to_text(self.wire()))
    }
}

/// Converts text to wire form, with or without trailing dot. Case is preserved.
///
/// # Errors
/// When a label is empty or too long, the name is too long, or an escape is incomplete.
pub fn from_text(text: &str) -> Result<Vec<u8>, BadName> {
    let mut out = Vec::with_capacity(text.len() + 2);
    if text == "." || text.is_empty() {
        return Ok(vec![0]);
    }
    let mut label = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'.' => end_label(&mut out, &mut label)?,
            b'\\' => label.push(escaped(&mut bytes)?),
            _ => label.push(byte),
        }
    }
    if !label.is_empty() {
        end_label(&mut out, &mut label)?;
    }
    out.push(0);
    if out.len() > NAME_MAX { Err(BadName) } else { Ok(out) }
}

fn end_label(out: &mut Vec<u8>, label: &mut Vec<u8>) -> Result<(), BadName> {
    let len = u8::try_from(label.len()).map_err(|_| BadName)?;
    if label.is_empty() || label.len() > LABEL_MAX {
        return Err(BadName);
    }
    out.push(len);
    out.append(label);
    Ok(())
}

/// Decodes an escape: `\DDD` or `\X`.
fn escaped(bytes: &mut std::str::Bytes<'_>) -> Result<u8, BadName> {
    let first = bytes.next().ok_or(BadName)?;
    if !first.is_ascii_digit() {
        return Ok(first);
    }
    let mut number = u16::from(first - b'0');
    for _ in 0..2 {
        let digit = bytes.next().filter(u8::is_ascii_digit).ok_or(BadName)?;
        number = number * 10 + u16::from(digit - b'0');
    }
    u8::try_from(number).map_err(|_| BadName)
}

/// Converts wire form to text with trailing dot.
#[must_use]
pub fn to_text(wire: &[u8]) -> String {
    let mut out = String::new();
    let mut at = 0;
    while let Some(len) = wire.get(at).map(|len| usize::from(*len)).filter(|len| *len > 0) {
        for byte in wire.get(at + 1..at + 1 + len).unwrap_or_default() {
            match byte {
                b'.' | b'\\' | b'"' | b'(' | b')' | b';' | b'@' | b'$' => {
                    out.push('\\');
                    out.push(char::from(*byte));
                }
                0x21..=0x7e => out.push(char::from(*byte)),
                _ => out.push_str(&format!("\\{byte:03}")),
            }
        }
        out.push('.');
        at += 1 + len;
    }
    if out.is_empty() { ".".to_owned() } else { out }
}
