//! Domain name of the configuration: lower-cased wire form.
//!
//! In: text, or the name of a query. Out: bytes that are compared label by label with names of messages.

use std::fmt;

/// Longest name in wire form.
pub(super) const MAX_NAME: usize = 255;
/// Longest label.
pub(super) const MAX_LABEL: usize = 63;

/// Name in lower-cased wire form with root label.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Box<[u8]>);

/// Why a text is not a domain name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadName {
    /// Empty label.
    #[error("empty label")]
    EmptyLabel,
    /// Label of more than 63 bytes.
    #[error("label longer than {MAX_LABEL} bytes")]
    LongLabel,
    /// More than 255 bytes.
    #[error("name longer than {MAX_NAME} bytes")]
    LongName,
    /// Character that is not allowed in names of the configuration.
    #[error("invalid character")]
    Character,
}

impl Name {
    /// Root.
    #[must_use]
    pub fn root() -> Self {
        Self(Box::from([0]))
    }

    /// Parses text, with or without trailing dot.
    ///
    /// # Errors
    /// When it is not a valid name.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        if text == "." {
            return Ok(Self::root());
        }
        let mut wire = Vec::with_capacity(text.len() + 2);
        for label in text.strip_suffix('.').unwrap_or(text).split('.') {
            match label.len() {
                0 => return Err(BadName::EmptyLabel),
                1..=MAX_LABEL => wire.push(u8::try_from(label.len()).expect("at most 63")),
                _ => return Err(BadName::LongLabel),
            }
            if !label.bytes().all(|byte| byte.is_ascii_graphic() && !br#"\"(){};@$#,"#.contains(&byte)) {
                return Err(BadName::Character);
            }
            wire.extend(label.bytes().map(|byte| byte.to_ascii_lowercase()));
        }
        wire.push(0);
        if wire.len() > MAX_NAME { Err(BadName::LongName) } else { Ok(Self(wire.into())) }
    }

    /// Parses an uncompressed name in wire form.
    #[must_use]
    pub fn from_wire(wire: &[u8]) -> Option<Self> {
        let mut at = 0;
        loop {
            let length = usize::from(*wire.get(at)?);
            at += 1 + length;
            match length {
                0 if at == wire.len() && at <= MAX_NAME => return Some(Self(wire.to_ascii_lowercase().into())),
                1..=MAX_LABEL => {}
                _ => return None,
            }
        }
    }

    /// Wire form.
    #[must_use]
    pub fn as_wire(&self) -> &[u8] {
        &self.0
    }

    /// Wire form without the root label.
    #[must_use]
    pub fn without_root(&self) -> &[u8] {
        &self.0[..self.0.len() - 1]
    }

    /// Number of labels without the root.
    #[must_use]
    pub fn labels(&self) -> usize {
        suffixes(&self.0).count() - 1
    }

    /// Whether a lower-cased name in wire form is equal to or below this one.
    #[must_use]
    pub fn covers(&self, lower: &[u8]) -> bool {
        suffixes(lower).any(|suffix| suffix == &*self.0)
    }

    /// Prepends labels in wire form.
    ///
    /// # Errors
    /// When the result is too long.
    pub fn join(labels: &[u8], rest: &Self) -> Result<Self, BadName> {
        let wire = [labels, &rest.0].concat();
        if wire.len() > MAX_NAME {
            return Err(BadName::LongName);
        }
        Self::from_wire(&wire).ok_or(BadName::EmptyLabel)
    }

    /// Labels before a suffix, if the name ends with it.
    #[must_use]
    pub fn strip_suffix(&self, suffix: &Self) -> Option<&[u8]> {
        suffix.covers(&self.0).then(|| &self.0[..self.0.len() - suffix.0.len()])
    }
}

/// The name and all its parents down to the root.
fn suffixes(wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(wire);
    std::iter::from_fn(move || {
        let current = rest?;
        let length = usize::from(*current.first()?);
        rest = if length == 0 { None } else { current.get(1 + length..) };
        Some(current)
    })
}

impl fmt::Display for Name {
    /// With trailing dot; unprintable bytes as `\DDD`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.len() == 1 {
            return f.write_str(".");
        }
        for suffix in suffixes(&self.0).take_while(|suffix| suffix.len() > 1) {
            for byte in &suffix[1..=usize::from(suffix[0])] {
                match byte {
                    b'.' | b'\\' => write!(f, "\\{}", char::from(*byte))?,
                    byte if byte.is_ascii_graphic() => write!(f, "{}", char::from(*byte))?,
                    byte => write!(f, "\\{byte:03}")?,
                }
            }
            f.write_str(".")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn text_and_wire_agree() {
        assert_eq!(name("A.bC.").as_wire(), b"\x01a\x02bc\0");
        assert_eq!(name("a.bc").to_string(), "a.bc.");
        assert_eq!((name(".").to_string().as_str(), name(".").labels()), (".", 0));
        assert_eq!(Name::from_wire(b"\x01A\0"), Some(name("a")));
        for bad in [&b"\x01"[..], b"\x01a", b"\x01a\0x", b"", b"\xc0\x0c", b"\x40a\0"] {
            assert_eq!(Name::from_wire(bad), None, "{bad:?}");
        }
        assert_eq!(Name::from_wire(b"\x03a.\x07\0").expect("odd bytes").to_string(), "a\\.\\007.");
    }

    #[test]
    fn text_that_is_no_name_is_refused() {
        for (text, want) in [
            ("", BadName::EmptyLabel),
            ("a..b", BadName::EmptyLabel),
            (&"x".repeat(64), BadName::LongLabel),
            (&["x".repeat(60).as_str(); 5].join("."), BadName::LongName),
            ("a b", BadName::Character),
            ("a{b", BadName::Character),
        ] {
            assert_eq!(Name::parse(text), Err(want), "{text}");
        }
        assert!(Name::parse(&["x".repeat(63).as_str(); 3].join(".")).is_ok());
    }

    #[test]
    fn suffixes_are_whole_labels() {
        assert!(name("local").covers(name("cluster.local").as_wire()));
        assert!(name("cluster.local").covers(name("cluster.local").as_wire()));
        assert!(!name("luster.local").covers(name("cluster.local").as_wire()));
        assert!(!name("a.local").covers(name("local").as_wire()));
        assert!(Name::root().covers(name("x").as_wire()) && Name::root().covers(&[0]));
        assert_eq!(name("a.b.c").strip_suffix(&name("c")), Some(&b"\x01a\x01b"[..]));
        assert_eq!(Name::join(b"\x01a", &name("b")).expect("short"), name("a.b"));
    }
}
