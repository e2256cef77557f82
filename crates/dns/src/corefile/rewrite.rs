//! `rewrite [continue|stop] name|ttl …`, on one line or as a block. Other fields are not supported.

use super::ParseError;
use super::blocks::Directive;
use super::directives::unknown_option;
use super::lex::Token;
use super::values::{Words, expression, name, number};
use crate::config::{AnswerRewrite, AnswerRule, Block, Change, Name, NameMatch, Rewrite};

const HOW: [&str; 5] = ["exact", "prefix", "suffix", "substring", "regex"];
const MAX_TTL: u64 = (u32::MAX >> 1) as u64;

pub(super) fn rewrite(directive: &Directive<'_>, block: &mut Block) -> Result<(), ParseError> {
    let mut words = Words::after(directive.name, &directive.args);
    let continues = words.next_if("continue");
    if !continues {
        words.next_if("stop");
    }
    // The block form has the rule and its answer rules on separate lines.
    let lines: Vec<&Token> = directive.body.iter().flatten().copied().collect();
    if words.is_empty() {
        words = Words::after(directive.name, &lines);
    } else if let Some(line) = directive.body.first() {
        return Err(unknown_option(directive.name, line[0], &[]));
    }
    let field = words.want("a field")?;
    let change = match field.text.as_str() {
        "name" => name_rule(&mut words)?,
        "ttl" => ttl_rule(&mut words)?,
        other => {
            let what = format!("`rewrite {other}` is not supported");
            return Err(field.error(what, "remove it; supported are name and ttl"));
        }
    };
    words.end()?;
    block.rewrites.push(Rewrite { continues, change });
    Ok(())
}

fn matching(words: &mut Words<'_>) -> Result<(NameMatch, &'static str), ParseError> {
    let first = words.want("a name")?;
    let how = HOW.iter().find(|how| **how == first.text && !words.is_empty()).copied();
    let pattern = if how.is_some() { words.want("a pattern")? } else { first };
    let lower = pattern.text.to_ascii_lowercase();
    let how = how.unwrap_or("exact");
    let matching = match how {
        "prefix" => NameMatch::Prefix(lower),
        "suffix" => NameMatch::Suffix(dotted(&lower)),
        "substring" => NameMatch::Substring(lower),
        "regex" => NameMatch::Regex(expression(pattern)?),
        _ => NameMatch::Exact(name(pattern)?),
    };
    Ok((matching, how))
}

/// Rules match names with a trailing dot.
fn dotted(text: &str) -> String {
    if text.ends_with('.') { text.to_owned() } else { format!("{text}.") }
}

fn name_rule(words: &mut Words<'_>) -> Result<Change, ParseError> {
    let (matching, how) = matching(words)?;
    let target = words.want("the new name")?;
    let lower = target.text.to_ascii_lowercase();
    let to = match how {
        "exact" => {
            Name::parse(&lower)
                .map_err(|error| target.error(format!("`{lower}` is not a name: {error}"), "write one"))?;
            dotted(&lower)
        }
        "suffix" | "regex" => dotted(&lower),
        _ => lower,
    };
    let mut answer = AnswerRewrite::default();
    while words.next_if("answer") {
        let kind = words.want("auto, name or value")?;
        let value = match kind.text.as_str() {
            "auto" => {
                answer = AnswerRewrite::Auto;
                continue;
            }
            "name" => false,
            "value" => true,
            other => return Err(kind.error(format!("unknown `answer {other}`"), "write auto, name or value")),
        };
        if value && words.next_if("auto") {
            answer = AnswerRewrite::Auto;
            continue;
        }
        let from = expression(words.want("an expression")?)?;
        let to = dotted(&words.want("the name it becomes")?.text);
        let rule = AnswerRule { from, to, value };
        match &mut answer {
            AnswerRewrite::Rules(rules) => rules.push(rule),
            _ => answer = AnswerRewrite::Rules(vec![rule]),
        }
    }
    Ok(Change::Name { matching, to, answer })
}

/// `ttl [MATCH] NAME SECONDS|MIN-MAX|MIN-|-MAX`
fn ttl_rule(words: &mut Words<'_>) -> Result<Change, ParseError> {
    let (matching, _) = matching(words)?;
    let range = words.want("seconds")?;
    let part = |text: &str, default: u32| match text {
        "" => Ok(default),
        text => number(&Token { text: text.into(), ..range.clone() }, MAX_TTL),
    };
    let (min, max) = match range.text.split_once('-') {
        None => {
            let exact = number(range, MAX_TTL)?;
            (exact, exact)
        }
        Some(("", "")) => return Err(range.error("a TTL range without numbers", "write one as in 30-300")),
        Some((min, max)) => (part(min, 0)?, part(max, u32::MAX >> 1)?),
    };
    if min > max {
        return Err(range.error(format!("the range {} is empty", range.text), "write the smaller number first"));
    }
    Ok(Change::Ttl { matching, min, max })
}
