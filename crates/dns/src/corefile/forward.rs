//! `forward FROM TO… { … }`

use std::net::{IpAddr, SocketAddr};

use super::ParseError;
use super::blocks::Directive;
use super::directives::unknown_option;
use super::lex::Token;
use super::values::{Words, all_zones, duration, name, number, zones};
use crate::config::{Block, Forward, ForwardTarget, Policy, Server, Tls};

/// Maximum number of upstreams of one directive.
const MAX_UPSTREAMS: usize = 15;

const OPTIONS: &[&str] = &[
    "except",
    "expire",
    "failfast_all_unhealthy_upstreams",
    "force_tcp",
    "health_check",
    "max_concurrent",
    "max_fails",
    "policy",
    "prefer_udp",
    "read_timeout",
    "tls",
    "tls_servername",
];

pub(super) fn forward(directive: &Directive<'_>, block: &mut Block) -> Result<(), ParseError> {
    let mut words = Words::after(directive.name, &directive.args);
    let from = zones(words.want("a name")?)?;
    let to = words.all().iter().map(|token| upstream(token)).collect::<Result<Vec<_>, _>>()?;
    if to.is_empty() || to.len() > MAX_UPSTREAMS {
        let what = format!("`forward` to {} upstreams", to.len());
        return Err(directive.name.error(what, format!("name 1 to {MAX_UPSTREAMS} after the zone")));
    }
    for from in from {
        let mut out = Forward::new(from, to.clone());
        for line in &directive.body {
            let mut words = Words::of(line);
            option(directive.name, &mut words, &mut out)?;
            words.end()?;
        }
        block.forwards.push(out);
    }
    Ok(())
}

/// `192.0.2.1`, `[fd00::1]:5353`, `tls://192.0.2.1%dns.example`, `/etc/resolv.conf`
fn upstream(token: &Token) -> Result<ForwardTarget, ParseError> {
    let text = token.text.as_str();
    let (tls, rest) = match text.split_once("://") {
        Some(("dns", rest)) => (false, rest),
        Some(("tls", rest)) => (true, rest),
        Some((scheme, _)) => {
            return Err(token.error(format!("`{text}`: {scheme} is not supported"), "write dns:// or tls://"));
        }
        None if text.contains('/') => return Ok(ForwardTarget::File(text.into())),
        None => (false, text),
    };
    let (rest, server_name) = match rest.split_once('%') {
        Some((address, tail)) if tls => {
            let (name, port) = tail.split_once(':').map_or((tail, None), |(name, port)| (name, Some(port)));
            (port.map_or_else(|| address.to_owned(), |port| format!("{address}:{port}")), Some(name.to_owned()))
        }
        _ => (rest.to_owned(), None),
    };
    let port = if tls { 853 } else { 53 };
    let bare = rest.trim_start_matches('[').trim_end_matches(']');
    let address = rest.parse().ok().or_else(|| bare.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, port)));
    match address {
        Some(address) => Ok(ForwardTarget::Server(Server { address, tls, server_name })),
        None => Err(token.error(
            format!("`{text}` is not an upstream address"),
            "write one as in 192.0.2.1, [fd00::1]:53, tls://192.0.2.1 or /etc/resolv.conf",
        )),
    }
}

fn option(directive: &Token, words: &mut Words<'_>, out: &mut Forward) -> Result<(), ParseError> {
    match words.name().text.as_str() {
        "except" => out.except.extend(all_zones(words.all())?),
        "force_tcp" => out.force_tcp = true,
        "prefer_udp" => out.prefer_udp = true,
        "failfast_all_unhealthy_upstreams" => out.failfast = true,
        "expire" => out.expire = duration(words.want("a duration")?)?,
        "read_timeout" => out.read_timeout = duration(words.want("a duration")?)?,
        "max_fails" => out.max_fails = number(words.want("a number")?, u64::from(u32::MAX))?,
        "max_concurrent" => out.max_concurrent = number(words.want("a number")?, 1_000_000)?,
        "policy" => {
            let policy = words.want("a policy")?;
            out.policy = match policy.text.as_str() {
                "random" => Policy::Random,
                "round_robin" => Policy::RoundRobin,
                "sequential" => Policy::Sequential,
                other => {
                    let what = format!("unknown `policy {other}`");
                    return Err(policy.error(what, "write random, round_robin or sequential"));
                }
            };
        }
        "health_check" => health_check(words, out)?,
        "tls" => out.tls = tls(words, &out.tls)?,
        "tls_servername" => out.tls.server_name = Some(words.want("a name")?.text.clone()),
        _ => return Err(unknown_option(directive, words.name(), OPTIONS)),
    }
    Ok(())
}

/// `health_check DURATION [no_rec] [domain NAME]`
fn health_check(words: &mut Words<'_>, out: &mut Forward) -> Result<(), ParseError> {
    out.health_check = duration(words.want("a duration")?)?;
    loop {
        if words.next_if("no_rec") {
            out.health_recursion = false;
        } else if words.next_if("domain") {
            out.health_domain = name(words.want("a name")?)?;
        } else {
            return Ok(());
        }
    }
}

/// `tls`, `tls CA`, `tls CERT KEY`, `tls CERT KEY CA`
fn tls(words: &mut Words<'_>, old: &Tls) -> Result<Tls, ParseError> {
    let name = words.name();
    let files = words.all();
    let path = |index: usize| files[index].text.clone().into();
    let (identity, authority) = match files.len() {
        0 => (None, None),
        1 => (None, Some(path(0))),
        2 => (Some((path(0), path(1))), None),
        3 => (Some((path(0), path(1))), Some(path(2))),
        _ => return Err(name.error("`tls` takes at most three files", "write `tls CERT KEY CA`")),
    };
    Ok(Tls { identity, authority, server_name: old.server_name.clone() })
}
