//! `acl`, `ratelimit`, `hosts` and `template`.

use std::net::IpAddr;
use std::time::Duration;

use super::ParseError;
use super::blocks::Directive;
use super::directives::{once, unknown_option};
use super::lex::Token;
use super::values::{Words, all_zones, duration, expression, fallthrough, name, network, number, qtype};
use crate::config::{Acl, Action, Block, Fallthrough, Hosts, Name, RateLimit, Template};

/// `acl [ZONES…] { ACTION [type TYPE…] [net RANGE…] }`
pub(super) fn acl(directive: &Directive<'_>, block: &mut Block) -> Result<(), ParseError> {
    let zones = all_zones(&directive.args)?;
    for line in &directive.body {
        let action = match line[0].text.as_str() {
            "allow" => Action::Allow,
            "block" => Action::Block,
            "filter" => Action::Filter,
            "drop" => Action::Drop,
            _ => return Err(unknown_option(directive.name, line[0], &["allow", "block", "filter", "drop"])),
        };
        let mut rule = Acl { zones: zones.clone(), action, qtypes: Vec::new(), networks: Vec::new() };
        let mut section = "";
        for token in &line[1..] {
            match (token.text.as_str(), section) {
                (word @ ("type" | "net"), _) => section = word,
                ("*", "type" | "net") => {}
                (_, "type") => rule.qtypes.push(qtype(token)?),
                (_, "net") => rule.networks.push(network(token)?),
                (other, _) => {
                    return Err(
                        token.error(format!("`{other}` is neither type nor net"), "write `type A` or `net 10.0.0.0/8`")
                    );
                }
            }
        }
        block.acl.push(rule);
    }
    Ok(())
}

/// `ratelimit RATE [BURST] { except RANGE… }`: replies per second to one client. Not a CoreDNS directive.
pub(super) fn ratelimit(directive: &Directive<'_>, block: &mut Block) -> Result<(), ParseError> {
    const MOST: u64 = 1_000_000;
    once(directive.name, block.rate_limit.is_some())?;
    let mut words = Words::after(directive.name, &directive.args);
    let rate = words.want("a number of answers per second")?;
    let per_second: u32 = number(rate, MOST)?;
    if per_second == 0 {
        return Err(rate.error("a rate of 0 refuses every query", "write a larger number, or `acl` with `block`"));
    }
    let burst = words.next().map_or(Ok(per_second), |token| number(token, MOST))?;
    words.end()?;
    let mut exempt = Vec::new();
    for line in &directive.body {
        if line[0].text != "except" {
            return Err(unknown_option(directive.name, line[0], &["except"]));
        }
        exempt.extend(line[1..].iter().map(|token| network(token)).collect::<Result<Vec<_>, _>>()?);
    }
    block.rate_limit = Some(RateLimit { per_second, burst, exempt });
    Ok(())
}

/// `hosts [FILE [ZONES…]] { ADDRESS NAME… | ttl N | no_reverse | reload D | fallthrough [ZONES…] }`
pub(super) fn hosts(directive: &Directive<'_>, block: &mut Block) -> Result<(), ParseError> {
    once(directive.name, block.hosts.is_some())?;
    let mut words = Words::after(directive.name, &directive.args);
    let mut out = Hosts {
        file: words.next().map(|token| token.text.clone().into()),
        entries: Vec::new(),
        zones: all_zones(words.all())?,
        ttl: 3600,
        reverse: true,
        reload: Duration::from_secs(5),
        fallthrough: Fallthrough::Never,
    };
    // Inline entries only, or `/etc/hosts` if there are none.
    if out.file.is_none() && !directive.body.iter().any(|line| line[0].text.parse::<IpAddr>().is_ok()) {
        out.file = Some("/etc/hosts".into());
    }
    for line in &directive.body {
        let mut words = Words::of(line);
        match words.name().text.as_str() {
            "ttl" => out.ttl = number(words.want("a number of seconds")?, 65535)?,
            "no_reverse" => out.reverse = false,
            "reload" => out.reload = duration(words.want("a duration")?)?,
            "fallthrough" => out.fallthrough = fallthrough(&mut words)?,
            text => {
                let Ok(address) = text.parse() else {
                    let known = ["ADDRESS NAME…", "fallthrough", "no_reverse", "reload", "ttl"];
                    return Err(unknown_option(directive.name, line[0], &known));
                };
                let names = words.all().iter().map(|token| name(token)).collect::<Result<Vec<Name>, _>>()?;
                if names.is_empty() {
                    return Err(line[0].error(format!("{address} has no name"), "write one after it"));
                }
                out.entries.push((address, names));
            }
        }
        words.end()?;
    }
    block.hosts = Some(out);
    Ok(())
}

/// `template CLASS TYPE [ZONES…] { match REGEX… | rcode CODE | ederror N [TEXT] | fallthrough [ZONES…] }`
pub(super) fn template(directive: &Directive<'_>, block: &mut Block) -> Result<(), ParseError> {
    let mut words = Words::after(directive.name, &directive.args);
    let class = class(words.want("a class")?)?;
    let wanted = words.want("a type")?;
    let qtype = if wanted.text.eq_ignore_ascii_case("ANY") { None } else { Some(qtype(wanted)?) };
    let mut out = Template {
        class,
        qtype,
        zones: all_zones(words.all())?,
        matching: Vec::new(),
        rcode: 0,
        extended_error: None,
        fallthrough: Fallthrough::Never,
    };
    let mut has_rcode = false;
    for line in &directive.body {
        let mut words = Words::of(line);
        match words.name().text.as_str() {
            "match" => {
                for token in words.all() {
                    out.matching.push(expression(token)?);
                }
            }
            "rcode" => {
                out.rcode = rcode(words.want("a code")?)?;
                has_rcode = true;
            }
            "ederror" => {
                let code = number(words.want("a number")?, 65535)?;
                out.extended_error = Some((code, words.next().map(|token| token.text.clone()).unwrap_or_default()));
            }
            "fallthrough" => out.fallthrough = fallthrough(&mut words)?,
            _ => {
                return Err(unknown_option(directive.name, line[0], &["ederror", "fallthrough", "match", "rcode"]));
            }
        }
        words.end()?;
    }
    if !has_rcode {
        return Err(directive.name.error("`template` without `rcode`", "add one, as in `rcode NXDOMAIN`"));
    }
    block.templates.push(out);
    Ok(())
}

fn class(token: &Token) -> Result<Option<u16>, ParseError> {
    match token.text.to_ascii_uppercase().as_str() {
        "IN" => Ok(Some(1)),
        "CH" => Ok(Some(3)),
        "HS" => Ok(Some(4)),
        "ANY" => Ok(None),
        other => Err(token.error(format!("`{other}` is not a class"), "write IN or ANY")),
    }
}

fn rcode(token: &Token) -> Result<u8, ParseError> {
    const NAMES: [&str; 6] = ["NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"];
    let text = token.text.to_ascii_uppercase();
    let code = NAMES.iter().position(|name| *name == text).and_then(|code| u8::try_from(code).ok());
    code.ok_or_else(|| token.error(format!("`{text}` is not an RCODE"), format!("write one of {}", NAMES.join(", "))))
}
