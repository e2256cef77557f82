//! Names: as they are on the wire, folded to lower case, with the place of each label.

use super::{LABEL_MAX, NAME_MAX};

/// A name, in lower case, that knows where its labels are. As long as the longest, so that it needs no heap.
#[derive(Clone)]
pub struct Name {
    lower: [u8; NAME_MAX + 1],
    labels: [u8; 128],
    len: u8,
    count: u8,
}

/// Bytes that are no name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this is not a name")]
pub struct BadName;

impl Name {
    /// Reads an uncompressed name at the beginning of bytes.
    ///
    /// # Errors
    /// When it is cut, too long, or has a label that is not plain: pointers have no place in a question.
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

    /// How long it is on the wire, with its end.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        usize::from(self.len)
    }

    /// It, on the wire and in lower case.
    #[must_use]
    pub fn wire(&self) -> &[u8] {
        &self.lower[..self.wire_len()]
    }

    /// How many labels it has.
    #[must_use]
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// Where a label begins; one past the last is the end of the name.
    #[must_use]
    pub fn offset(&self, label: usize) -> usize {
        if label < self.count() { usize::from(self.labels[label]) } else { self.wire_len() - 1 }
    }

    /// A label, without its length.
    #[must_use]
    pub fn label(&self, label: usize) -> &[u8] {
        &self.lower[self.offset(label) + 1..self.offset(label + 1)]
    }

    /// Labels on the wire, from one up to another that is not among them.
    #[must_use]
    pub fn labels(&self, from: usize, to: usize) -> &[u8] {
        &self.lower[self.offset(from)..self.offset(to)]
    }

    /// The name from a label on, with its end.
    #[must_use]
    pub fn suffix(&self, label: usize) -> &[u8] {
        &self.lower[self.offset(label)..self.wire_len()]
    }

    /// Whether it ends with this name, which is on the wire and in lower case and has so many labels.
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

/// A name as people write it, on the wire; a dot at the end makes no difference. The spelling is kept.
///
/// # Errors
/// When a label is empty or too long, the whole is too long, or a backslash leads nowhere.
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

/// What stands behind a backslash: a byte in three digits, or itself.
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

/// A name on the wire as people write it, with the dot at its end.
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
