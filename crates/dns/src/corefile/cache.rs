//! `cache [TTL] [ZONES…] { … }`

use std::time::Duration;

use super::ParseError;
use super::blocks::Directive;
use super::directives::{once, unknown_option};
use super::lex::Token;
use super::values::{Words, all_zones, duration, fallthrough, number};
use crate::config::{Block, Cache, CacheLimits, Prefetch};

const OPTIONS: &[&str] = &["denial", "disable", "keepttl", "prefetch", "servfail", "serve_stale", "success"];
/// Longest TTL of cached SERVFAIL answers.
const MAX_SERVFAIL: Duration = Duration::from_secs(300);
/// Maximum number of cached answers; more is a typing error.
const MAX_CAPACITY: u64 = 10_000_000;

pub(super) fn cache(directive: &Directive<'_>, block: &mut Block) -> Result<(), ParseError> {
    once(directive.name, block.cache.is_some())?;
    let mut out = Cache::default();
    let mut listed = &directive.args[..];
    if let Some(ttl) = listed.first().filter(|token| token.text.bytes().all(|byte| byte.is_ascii_digit())) {
        let ttl = number(ttl, u64::from(u32::MAX >> 1))?;
        (out.success.max_ttl, out.denial.max_ttl) = (ttl, ttl);
        listed = &listed[1..];
    }
    out.zones = all_zones(listed)?;
    for line in &directive.body {
        let mut words = Words::of(line);
        option(directive.name, &mut words, &mut out)?;
        words.end()?;
    }
    block.cache = Some(out);
    Ok(())
}

fn option(directive: &Token, words: &mut Words<'_>, out: &mut Cache) -> Result<(), ParseError> {
    match words.name().text.as_str() {
        "success" => keep(words, &mut out.success)?,
        "denial" => keep(words, &mut out.denial)?,
        "keepttl" => out.keep_ttl = true,
        "servfail" => {
            let token = words.want("a duration")?;
            out.servfail = duration(token)?;
            if out.servfail > MAX_SERVFAIL {
                return Err(token.error("SERVFAIL can be cached for 5 minutes at most", "write 5m or less"));
            }
        }
        "prefetch" => out.prefetch = Some(prefetch(words)?),
        "serve_stale" => serve_stale(words, out)?,
        "disable" => {
            let what = words.want("success or denial")?;
            let keep = match what.text.as_str() {
                "success" => &mut out.success,
                "denial" => &mut out.denial,
                other => return Err(what.error(format!("unknown `disable {other}`"), "write success or denial")),
            };
            keep.disabled = fallthrough(words)?;
        }
        _ => return Err(unknown_option(directive, words.name(), OPTIONS)),
    }
    Ok(())
}

/// `CAPACITY [TTL] [MINTTL]`
fn keep(words: &mut Words<'_>, out: &mut CacheLimits) -> Result<(), ParseError> {
    out.capacity = number(words.want("a number of answers")?, MAX_CAPACITY)?;
    if let Some(max_ttl) = words.next() {
        out.max_ttl = number(max_ttl, u64::from(u32::MAX >> 1))?;
    }
    if let Some(min_ttl) = words.next() {
        out.min_ttl = number(min_ttl, u64::from(out.max_ttl))?;
    }
    Ok(())
}

/// `AMOUNT [DURATION [PERCENT%]]`
fn prefetch(words: &mut Words<'_>) -> Result<Prefetch, ParseError> {
    let hits = number(words.want("a number of hits")?, u64::from(u32::MAX))?;
    let gap = words.next().map_or(Ok(Duration::from_secs(60)), duration)?;
    let percent = match words.next() {
        None => 10,
        Some(token) => {
            let digits = Token { text: token.text.trim_end_matches('%').into(), ..token.clone() };
            number::<u8>(&digits, 90)?.max(10)
        }
    };
    Ok(Prefetch { hits, gap, percent })
}

/// `[DURATION] [immediate|verify]`
fn serve_stale(words: &mut Words<'_>, out: &mut Cache) -> Result<(), ParseError> {
    out.serve_stale = Some(Duration::from_secs(3600));
    out.stale_verify = false;
    if words.is_empty() {
        return Ok(());
    }
    let immediate = words.next_if("immediate");
    if !immediate && !words.next_if("verify") {
        out.serve_stale = Some(duration(words.want("a duration")?)?).filter(|limit| !limit.is_zero());
        if words.next_if("immediate") {
            return Ok(());
        }
        out.stale_verify = words.next_if("verify");
        return Ok(());
    }
    out.stale_verify = !immediate;
    Ok(())
}
