//! Tokens to values: numbers, durations, names, addresses, zones.
//!
//! In: tokens after a directive or option. Out: values, or an error that states what was expected.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;

use super::ParseError;
use super::lex::Token;
use crate::config::{Fallthrough, Name, reverse_zones};

/// Cursor over the tokens of one line.
pub(super) struct Words<'t> {
    name: &'t Token,
    rest: &'t [&'t Token],
}

impl<'t> Words<'t> {
    /// Tokens after `name`.
    pub(super) fn after(name: &'t Token, rest: &'t [&'t Token]) -> Self {
        Self { name, rest }
    }

    /// Line of a body.
    pub(super) fn of(line: &'t [&'t Token]) -> Self {
        Self { name: line[0], rest: &line[1..] }
    }

    pub(super) fn name(&self) -> &'t Token {
        self.name
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn next(&mut self) -> Option<&'t Token> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// Consumes the next token if it equals `text`.
    pub(super) fn next_if(&mut self, text: &str) -> bool {
        let fits = self.rest.first().is_some_and(|token| token.text == text);
        if fits {
            self.rest = &self.rest[1..];
        }
        fits
    }

    /// Next token, which is required.
    pub(super) fn want(&mut self, what: &str) -> Result<&'t Token, ParseError> {
        self.next().ok_or_else(|| {
            self.name.error(format!("`{}` lacks {what}", self.name.text), format!("write {what} after it"))
        })
    }

    /// All remaining tokens.
    pub(super) fn all(&mut self) -> &'t [&'t Token] {
        std::mem::take(&mut self.rest)
    }

    /// Rejects remaining tokens.
    pub(super) fn end(&self) -> Result<(), ParseError> {
        self.rest.first().map_or(Ok(()), |extra| {
            let what = format!("`{}` does not take `{}`", self.name.text, extra.text);
            Err(extra.error(what, "remove it"))
        })
    }
}

pub(super) fn number<T: TryFrom<u64>>(token: &Token, max: u64) -> Result<T, ParseError> {
    let value = token.text.parse::<u64>().ok().filter(|value| *value <= max);
    value
        .and_then(|value| T::try_from(value).ok())
        .ok_or_else(|| token.error(format!("`{}` is not a number from 0 to {max}", token.text), "write such a number"))
}

/// `5s`, `1m30s`; a plain number is in seconds.
pub(super) fn duration(token: &Token) -> Result<Duration, ParseError> {
    if let Ok(seconds) = token.text.parse::<u32>() {
        return Ok(Duration::from_secs(seconds.into()));
    }
    let nanos = api::duration::parse(&token.text).ok().and_then(|nanos| u64::try_from(nanos).ok());
    nanos
        .map(Duration::from_nanos)
        .ok_or_else(|| token.error(format!("`{}` is not a duration", token.text), "write one as in 500ms, 5s or 1m30s"))
}

pub(super) fn name(token: &Token) -> Result<Name, ParseError> {
    Name::parse(&token.text).map_err(|error| {
        token.error(format!("`{}` is not a domain name: {error}", token.text), "write one as in example.org")
    })
}

/// Zone, or the reverse zones of an address range.
pub(super) fn zones(token: &Token) -> Result<Vec<Name>, ParseError> {
    if token.text.contains('/') {
        return Ok(reverse_zones(network(token)?));
    }
    Ok(vec![name(token)?])
}

pub(super) fn all_zones(tokens: &[&Token]) -> Result<Vec<Name>, ParseError> {
    let lists = tokens.iter().map(|token| zones(token)).collect::<Result<Vec<_>, _>>()?;
    Ok(lists.into_iter().flatten().collect())
}

/// `fallthrough [ZONES…]`
pub(super) fn fallthrough(words: &mut Words<'_>) -> Result<Fallthrough, ParseError> {
    if words.is_empty() { Ok(Fallthrough::Always) } else { all_zones(words.all()).map(Fallthrough::Zones) }
}

/// Address range; a plain address is a range of one.
pub(super) fn network(token: &Token) -> Result<IpNet, ParseError> {
    let text = token.text.as_str();
    let network = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    network.ok_or_else(|| {
        token.error(format!("`{text}` is not an address range"), "write one as in 10.96.0.0/16 or fd00:10:96::/112")
    })
}

/// `:9153`, `127.0.0.1:9153`, `[::1]:9153`, `localhost:9153`
pub(super) fn listen(token: &Token) -> Result<SocketAddr, ParseError> {
    let text = token.text.as_str();
    let full = match text.strip_prefix(':') {
        Some(port) => format!("[::]:{port}"),
        None => text.replacen("localhost:", "127.0.0.1:", 1),
    };
    full.parse().map_err(|_| {
        token.error(format!("`{text}` is not a listen address"), "write one as in :8080 or 127.0.0.1:8080")
    })
}

pub(super) fn expression(token: &Token) -> Result<regex::Regex, ParseError> {
    regex::RegexBuilder::new(&token.text).size_limit(1 << 20).build().map_err(|error| {
        let why = error.to_string().lines().last().unwrap_or_default().trim().to_owned();
        token.error(format!("`{}` is not a regular expression: {why}", token.text), "correct it")
    })
}

/// Number of a record type.
pub(super) fn qtype(token: &Token) -> Result<u16, ParseError> {
    let found = token.text.to_ascii_uppercase().parse::<domain::base::iana::Rtype>();
    found
        .map(domain::base::iana::Rtype::to_int)
        .map_err(|_| token.error(format!("`{}` is not a record type", token.text), "write one as in A, AAAA or TYPE65"))
}

/// Comma-separated list for errors.
pub(super) fn list(words: &[&str]) -> String {
    words.join(", ")
}
