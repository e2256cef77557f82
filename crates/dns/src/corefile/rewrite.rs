//! `rewrite [continue|stop] name|ttl …`
//!
//! In: the directive, on one line or as a block. Out: changes to names and TTLs. Other fields cannot be changed.

use super::Refused;
use super::blocks::Directive;
use super::directives::unknown_option;
use super::lex::Token;
use super::read::{Words, expression, name, number};
use crate::config::{Answer, AnswerRule, Block, Change, Matching, Name, Rewrite};

const HOW: [&str; 5] = ["exact", "prefix", "suffix", "substring", "regex"];
const MAX_TTL: u64 = (u32::MAX >> 1) as u64;

pub(super) fn rewrite(directive: &Directive<'_>, block: &mut Block) -> Result<(), Refused> {
    let mut words = Words::after(directive.name, &directive.args);
    let go_on = words.next_if("continue");
    if !go_on {
        words.next_if("stop");
    }
    // The block form says the rule and its answer rules on lines of their own.
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
            return Err(field.refuse(what, "remove it; supported are name and ttl"));
        }
    };
    words.end()?;
    block.rewrites.push(Rewrite { go_on, change });
    Ok(())
}

fn matching(words: &mut Words<'_>) -> Result<(Matching, &'static str), Refused> {
    let first = words.want("a name")?;
    let how = HOW.iter().find(|how| **how == first.text && !words.is_empty()).copied();
    let pattern = if how.is_some() { words.want("a pattern")? } else { first };
    let lower = pattern.text.to_ascii_lowercase();
    let how = how.unwrap_or("exact");
    let matching = match how {
        "prefix" => Matching::Prefix(lower),
        "suffix" => Matching::Suffix(dotted(&lower)),
        "substring" => Matching::Substring(lower),
        "regex" => Matching::Regex(expression(pattern)?),
        _ => Matching::Exact(name(pattern)?),
    };
    Ok((matching, how))
}

/// Names end with a dot when rules look at them.
fn dotted(text: &str) -> String {
    if text.ends_with('.') { text.to_owned() } else { format!("{text}.") }
}

fn name_rule(words: &mut Words<'_>) -> Result<Change, Refused> {
    let (matching, how) = matching(words)?;
    let target = words.want("the new name")?;
    let lower = target.text.to_ascii_lowercase();
    let to = match how {
        "exact" => {
            Name::parse(&lower)
                .map_err(|error| target.refuse(format!("`{lower}` is no name: {error}"), "write one"))?;
            dotted(&lower)
        }
        "suffix" | "regex" => dotted(&lower),
        _ => lower,
    };
    let mut answer = Answer::default();
    while words.next_if("answer") {
        let kind = words.want("auto, name or value")?;
        let value = match kind.text.as_str() {
            "auto" => {
                answer = Answer::Auto;
                continue;
            }
            "name" => false,
            "value" => true,
            other => return Err(kind.refuse(format!("`answer {other}` is not known"), "write auto, name or value")),
        };
        if value && words.next_if("auto") {
            answer = Answer::Auto;
            continue;
        }
        let from = expression(words.want("an expression")?)?;
        let to = dotted(&words.want("the name it becomes")?.text);
        let rule = AnswerRule { from, to, value };
        match &mut answer {
            Answer::Rules(rules) => rules.push(rule),
            _ => answer = Answer::Rules(vec![rule]),
        }
    }
    Ok(Change::Name { matching, to, answer })
}

/// `ttl [HOW] NAME SECONDS|LEAST-MOST|LEAST-|-MOST`
fn ttl_rule(words: &mut Words<'_>) -> Result<Change, Refused> {
    let (matching, _) = matching(words)?;
    let range = words.want("seconds")?;
    let part = |text: &str, default: u32| match text {
        "" => Ok(default),
        text => number(&Token { text: text.into(), ..range.clone() }, MAX_TTL),
    };
    let (least, most) = match range.text.split_once('-') {
        None => {
            let exact = number(range, MAX_TTL)?;
            (exact, exact)
        }
        Some(("", "")) => return Err(range.refuse("a TTL range without numbers", "write one as in 30-300")),
        Some((least, most)) => (part(least, 0)?, part(most, u32::MAX >> 1)?),
    };
    if least > most {
        return Err(range.refuse(format!("the range {} is empty", range.text), "write the smaller number first"));
    }
    Ok(Change::Ttl { matching, least, most })
}
