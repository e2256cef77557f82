//! Parsers of directives, and checks across directives.
//!
//! In: raw blocks. Out: blocks of the configuration. Directives that are not in the table are rejected.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::blocks::{Directive, RawBlock};
use super::lex::Token;
use super::values::{Words, all_zones, duration, list, listen, name, number, zones};
use super::{ParseError, Position, cache, forward, kubernetes, rewrite, rules};
use crate::config::{Autopath, Block, Health, Key, Log, LogClass, Name, Reload};

type Parser = fn(&Directive<'_>, &mut Block) -> Result<(), ParseError>;

/// Supported directives.
const PARSERS: &[(&str, Parser)] = &[
    ("acl", rules::acl),
    ("autopath", autopath),
    ("bind", bind),
    ("bufsize", bufsize),
    ("cache", cache::cache),
    ("errors", errors),
    ("forward", forward::forward),
    ("health", health),
    ("hosts", rules::hosts),
    ("kubernetes", kubernetes::kubernetes),
    ("loadbalance", loadbalance),
    ("log", log),
    ("loop", detect_loop),
    ("prometheus", prometheus),
    ("ratelimit", rules::ratelimit),
    ("ready", ready),
    ("reload", reload),
    ("rewrite", rewrite::rewrite),
    ("template", rules::template),
];

/// Directives of CoreDNS that are not supported, with a hint.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("any", "remove it: ANY gets a small answer here anyway"),
    ("auto", "serve the zone with another server and `forward` its names there"),
    ("debug", "remove it and use -v"),
    ("dnstap", "remove it and use `log` or the metrics"),
    ("etcd", "serve the zone with another server and `forward` its names there"),
    ("file", "serve the zone with another server and `forward` its names there"),
    ("k8s_external", "remove it: names of load balancers are not served"),
    ("minimal", "remove it: answers are minimal here anyway"),
    ("multisocket", "remove it: there is a socket for each core anyway"),
    ("proxy", "write `forward` instead"),
    ("secondary", "serve the zone with another server and `forward` its names there"),
    ("tls", "remove it: only plain DNS is served"),
    ("transfer", "remove it: zones are not given away"),
    ("upstream", "remove it: aliases are followed anyway"),
];

/// Parses a block.
pub(super) fn block(raw: &RawBlock<'_>) -> Result<Block, ParseError> {
    let mut out = Block { line: raw.keys[0].position.line, ..Block::default() };
    for token in &raw.keys {
        for text in token.text.split(',').filter(|text| !text.is_empty()) {
            out.keys.extend(keys(token, text)?);
        }
    }
    for directive in &raw.directives {
        let parser = PARSERS.iter().find(|(name, _)| *name == directive.name.text);
        let (_, parser) = parser.ok_or_else(|| unknown(directive.name))?;
        parser(directive, &mut out)?;
    }
    Ok(out)
}

/// Checks that need more than one block or directive.
pub(super) fn check_together(file: &str, blocks: &[Block]) -> Result<(), ParseError> {
    let fail = |line, problem: String, hint: &str| {
        Err(ParseError { position: Position { file: file.into(), line }, problem, hint: hint.into() })
    };
    let mut seen: Vec<(&Key, Vec<&str>)> = Vec::new();
    if let Some(second) = blocks.iter().filter(|block| block.kubernetes.is_some()).nth(1) {
        let next = "name all zones of the cluster in one block";
        return fail(second.line, "`kubernetes` is in two blocks".into(), next);
    }
    for block in blocks {
        let mut bind: Vec<&str> = block.bind.iter().map(String::as_str).collect();
        if bind.is_empty() {
            bind.push("0.0.0.0");
        }
        for key in &block.keys {
            if seen.iter().any(|(other, others)| *other == key && others.iter().any(|one| bind.contains(one))) {
                let what = format!("duplicate key {}:{}", key.zone, key.port);
                return fail(block.line, what, "put both into one block");
            }
            seen.push((key, bind.clone()));
        }
        let from_pods = block.autopath.as_ref().is_some_and(|autopath| autopath.file.is_none());
        if from_pods && block.kubernetes.is_none() {
            let next = "add `kubernetes` to the block, or name a resolv.conf";
            return fail(block.line, "`autopath @kubernetes` without `kubernetes`".into(), next);
        }
    }
    if blocks.is_empty() {
        return fail(1, "no server block".into(), "write a block, as in `.:53 { … }`");
    }
    Ok(())
}

fn unknown(token: &Token) -> ParseError {
    let text = &token.text;
    if let Some((_, next)) = UNSUPPORTED.iter().find(|(name, _)| name == text) {
        return token.error(format!("the directive `{text}` is not supported"), *next);
    }
    let names: Vec<&str> = PARSERS.iter().map(|(name, _)| *name).collect();
    let next = names.iter().find(|name| is_near(name, text)).map_or_else(
        || format!("remove it; supported are {} and import", list(&names)),
        |near| format!("did you mean `{near}`?"),
    );
    token.error(format!("unknown directive `{text}`"), next)
}

/// Whether two words differ by one inserted, removed, replaced or transposed letter.
pub(super) fn is_near(one: &str, other: &str) -> bool {
    let (a, b) = (one.as_bytes(), other.as_bytes());
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[same..], &b[same..]);
    let tail = |list: &[u8], skip: usize| list.get(skip..).map(<[u8]>::to_vec);
    tail(a, 1) == tail(b, 1) && !a.is_empty()
        || tail(a, 1).as_deref() == Some(b)
        || tail(b, 1).as_deref() == Some(a)
        || (a.len() > 1 && b.len() > 1 && a[0] == b[1] && a[1] == b[0] && a[2..] == b[2..])
}

/// `zone`, `zone:port`, `dns://zone:port`, `10.0.0.0/8:53`
fn keys(token: &Token, text: &str) -> Result<Vec<Key>, ParseError> {
    let rest = match text.split_once("://") {
        Some(("dns", rest)) => rest,
        Some((scheme, _)) => {
            let what = format!("`{text}`: {scheme} is not served");
            return Err(token.error(what, "only plain DNS is: write dns:// or nothing"));
        }
        None => text,
    };
    let (zone, port) = match rest.rsplit_once(':') {
        // A colon within an IPv6 range does not separate a port.
        Some((zone, port)) if !port.contains('/') && (!zone.contains(':') || zone.contains('/')) => (zone, Some(port)),
        _ => (rest, None),
    };
    let port = match port.map(str::parse) {
        None => 53,
        Some(Ok(port)) => port,
        Some(Err(_)) => return Err(token.error(format!("`{text}` has no usable port"), "write one as in .:53")),
    };
    let zone = Token { text: if zone.is_empty() { ".".into() } else { zone.into() }, ..token.clone() };
    Ok(zones(&zone)?.into_iter().map(|zone| Key { zone, port }).collect())
}

/// Rejects a body of a directive that has none.
fn no_body(directive: &Directive<'_>) -> Result<(), ParseError> {
    directive.body.first().map_or(Ok(()), |line| Err(unknown_option(directive.name, line[0], &[])))
}

pub(super) fn unknown_option(directive: &Token, option: &Token, known: &[&str]) -> ParseError {
    let what = format!("`{}` does not take the option `{}`", directive.text, option.text);
    let next = if known.is_empty() { "remove it".into() } else { format!("remove it; supported are {}", list(known)) };
    option.error(what, next)
}

/// Rejects a directive that is repeated.
pub(super) fn once(directive: &Token, already: bool) -> Result<(), ParseError> {
    if already {
        return Err(directive.error(format!("duplicate directive `{}`", directive.text), "keep one of them"));
    }
    Ok(())
}

fn words<'t>(directive: &'t Directive<'t>) -> Words<'t> {
    Words::after(directive.name, &directive.args)
}

fn any(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port)
}

/// Parses an optional listen address as only argument.
fn listen_or(directive: &Directive<'_>, default: SocketAddr) -> Result<SocketAddr, ParseError> {
    let mut words = words(directive);
    let address = words.next().map_or(Ok(default), listen)?;
    words.end()?;
    Ok(address)
}

fn errors(directive: &Directive<'_>, out: &mut Block) -> Result<(), ParseError> {
    words(directive).end()?;
    no_body(directive)?;
    out.errors = true;
    Ok(())
}

fn health(directive: &Directive<'_>, out: &mut Block) -> Result<(), ParseError> {
    once(directive.name, out.health.is_some())?;
    let address = listen_or(directive, any(8080))?;
    let mut lameduck = Duration::ZERO;
    for line in &directive.body {
        let mut words = Words::of(line);
        match words.name().text.as_str() {
            "lameduck" => lameduck = duration(words.want("a duration")?)?,
            _ => return Err(unknown_option(directive.name, line[0], &["lameduck"])),
        }
        words.end()?;
    }
    out.health = Some(Health { address, lameduck });
    Ok(())
}

fn ready(directive: &Directive<'_>, out: &mut Block) -> Result<(), ParseError> {
    once(directive.name, out.ready.is_some())?;
    no_body(directive)?;
    out.ready = Some(listen_or(directive, any(8181))?);
    Ok(())
}

fn prometheus(directive: &Directive<'_>, out: &mut Block) -> Result<(), ParseError> {
    once(directive.name, out.prometheus.is_some())?;
    no_body(directive)?;
    let localhost = SocketAddr::from(([127, 0, 0, 1], 9153));
    out.prometheus = Some(listen_or(directive, localhost)?);
    Ok(())
}

fn detect_loop(directive: &Directive<'_>, out: &mut Block) -> Result<(), ParseError> {
    words(directive).end()?;
    no_body(directive)?;
    out.detect_loop = true;
    Ok(())
}

fn reload(directive: &Directive<'_>, out: &mut Block) -> Result<(), ParseError> {
    no_body(directive)?;
    let mut words = words(directive);
    let interval = words.next().map_or(Ok(Duration::from_secs(30)), duration)?;
    let jitter = words.next().map_or(Ok(interval / 2), duration)?;
    words.end()?;
    out.reload = Some(Reload { interval, jitter });
    Ok(())
}

fn loadbalance(directive: &Directive<'_>, out: &mut Block) -> Result<(), ParseError> {
    no_body(directive)?;
    let mut words = words(directive);
    match words.next() {
        None => {}
        Some(policy) if policy.text == "round_robin" => {}
        Some(policy) => {
            let what = format!("the policy `{}` of `loadbalance` is not supported", policy.text);
            return Err(policy.error(what, "write `loadbalance round_robin`"));
        }
    }
    words.end()?;
    out.loadbalance = true;
    Ok(())
}

fn bind(directive: &Directive<'_>, out: &mut Block) -> Result<(), ParseError> {
    let mut words = words(directive);
    out.bind.push(words.want("an address or an interface")?.text.clone());
    out.bind.extend(words.all().iter().map(|token| token.text.clone()));
    for line in &directive.body {
        let mut words = Words::of(line);
        if words.name().text != "except" {
            return Err(unknown_option(directive.name, line[0], &["except"]));
        }
        out.bind_except.extend(words.all().iter().map(|token| token.text.clone()));
    }
    Ok(())
}

fn bufsize(directive: &Directive<'_>, out: &mut Block) -> Result<(), ParseError> {
    no_body(directive)?;
    let mut words = words(directive);
    let size = words.next();
    let value = size.map_or(Ok(1232), |token| number::<u16>(token, 4096))?;
    words.end()?;
    if value < 512 {
        return Err(directive
            .name
            .error(format!("a `bufsize` of {value} is too small"), "write a number from 512 to 4096"));
    }
    out.bufsize = Some(value);
    Ok(())
}

fn autopath(directive: &Directive<'_>, out: &mut Block) -> Result<(), ParseError> {
    once(directive.name, out.autopath.is_some())?;
    no_body(directive)?;
    let Some((source, listed)) = directive.args.split_last() else {
        return Err(directive.name.error("`autopath` lacks a source", "write @kubernetes or a resolv.conf after it"));
    };
    let file = match source.text.strip_prefix('@') {
        None => Some(source.text.clone().into()),
        Some("kubernetes") => None,
        Some(_) => {
            let what = format!("`{}` gives no search path", source.text);
            return Err(source.error(what, "write @kubernetes or a resolv.conf"));
        }
    };
    out.autopath = Some(Autopath { zones: all_zones(listed)?, file });
    Ok(())
}

fn log(directive: &Directive<'_>, out: &mut Block) -> Result<(), ParseError> {
    let mut names = Vec::new();
    for token in &directive.args {
        if token.quoted || token.text.contains('{') {
            return Err(
                token.error("`log` with a format of its own", "remove the format: lines have CoreDNS's common format")
            );
        }
        names.push(name(token)?);
    }
    if names.is_empty() {
        names.push(Name::root());
    }
    let mut classes = Vec::new();
    for line in &directive.body {
        let mut words = Words::of(line);
        if words.name().text != "class" {
            return Err(unknown_option(directive.name, line[0], &["class"]));
        }
        for token in words.all() {
            classes.push(match token.text.as_str() {
                "all" => LogClass::All,
                "success" => LogClass::Success,
                "denial" => LogClass::Denial,
                "error" => LogClass::Error,
                other => {
                    return Err(token.error(format!("`{other}` is not a class"), "write all, success, denial or error"));
                }
            });
        }
    }
    if classes.is_empty() {
        classes.push(LogClass::All);
    }
    out.log.push(Log { names, classes });
    Ok(())
}
