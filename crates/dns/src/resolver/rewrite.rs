//! `rewrite`: queries for another name, whose answers are changed back.
//!
//! In: a name and the rules of a block. Out: the name to query; later the records with the original names.

use super::Record;
use super::answer::Unpacked;
use super::message::skip_name;
use crate::config::{AnswerRewrite, Change, Name, NameMatch, Rewrite};

/// Rewritten query.
#[derive(Clone, Debug)]
pub(super) struct Rewritten<'r> {
    /// Name to query.
    pub(super) name: Name,
    /// Rules applied in order, each with the name before and after.
    steps: Vec<(&'r Rewrite, Name, Name)>,
    /// Bounds of TTLs.
    ttl: Option<(u32, u32)>,
}

/// Applies rules to a lower-cased name; `None` if none matches.
pub(super) fn apply<'r>(rules: &'r [Rewrite], lower: &[u8]) -> Option<Rewritten<'r>> {
    if rules.is_empty() {
        return None;
    }
    let mut out = Rewritten { name: Name::from_wire(lower)?, steps: Vec::new(), ttl: None };
    for rule in rules {
        let fits = match &rule.change {
            Change::Name { matching, to, .. } => match rewritten_name(matching, to, &out.name) {
                Some(new) => {
                    out.steps.push((rule, std::mem::replace(&mut out.name, new.clone()), new));
                    true
                }
                None => false,
            },
            Change::Ttl { matching, min, max } => {
                let fits = rewritten_name(matching, "", &out.name).is_some() || matches(matching, &out.name);
                out.ttl = if fits { Some((*min, *max)) } else { out.ttl };
                fits
            }
        };
        if fits && !rule.continues {
            break;
        }
    }
    (!out.steps.is_empty() || out.ttl.is_some()).then_some(out)
}

fn matches(matching: &NameMatch, name: &Name) -> bool {
    let text = name.to_string();
    match matching {
        NameMatch::Exact(wanted) => wanted == name,
        NameMatch::Prefix(prefix) => text.starts_with(prefix.as_str()),
        NameMatch::Suffix(suffix) => text.ends_with(suffix.as_str()),
        NameMatch::Substring(part) => text.contains(part.as_str()),
        NameMatch::Regex(expression) => expression.is_match(&text),
    }
}

/// New name, if the rule matches and the result is a valid name.
fn rewritten_name(matching: &NameMatch, to: &str, name: &Name) -> Option<Name> {
    if !matches(matching, name) {
        return None;
    }
    let text = name.to_string();
    let new = match matching {
        NameMatch::Exact(_) => to.to_owned(),
        NameMatch::Prefix(prefix) => format!("{to}{}", &text[prefix.len()..]),
        NameMatch::Suffix(suffix) => format!("{}{to}", &text[..text.len() - suffix.len()]),
        NameMatch::Substring(part) => text.replace(part.as_str(), to),
        NameMatch::Regex(expression) => filled(expression, &text, to)?,
    };
    Name::parse(&new).ok()
}

/// Replacement with `{1}` for the first group.
fn filled(expression: &regex::Regex, text: &str, to: &str) -> Option<String> {
    let found = expression.captures(text)?;
    let mut out = to.to_owned();
    for (index, group) in found.iter().enumerate() {
        out = out.replace(&format!("{{{index}}}"), group.map_or("", |group| group.as_str()));
    }
    Some(out)
}

impl Rewritten<'_> {
    /// Reverts names and applies TTL bounds to an answer.
    pub(super) fn revert(&self, answer: &mut Unpacked) {
        for record in answer.sections.iter_mut().flatten() {
            if let Some((min, max)) = self.ttl {
                record.ttl = record.ttl.clamp(min, max);
            }
            for (rule, before, after) in self.steps.iter().rev() {
                let Change::Name { matching, to, answer } = &rule.change else { continue };
                if let Some(owner) = undone(&record.owner, false, matching, to, answer, before, after) {
                    record.owner = owner;
                }
                revert_data(record, |name| undone(name, true, matching, to, answer, before, after));
            }
        }
    }
}

/// Original form of a name in an answer, in wire form.
fn undone(
    wire: &[u8],
    in_data: bool,
    matching: &NameMatch,
    to: &str,
    answer: &AnswerRewrite,
    before: &Name,
    after: &Name,
) -> Option<Vec<u8>> {
    let name = Name::from_wire(wire)?;
    let owner_of_question = (!in_data && name == *after).then(|| before.clone());
    let back = match answer {
        AnswerRewrite::Question => owner_of_question,
        AnswerRewrite::Auto => owner_of_question.or_else(|| reversed(matching, to, &name)),
        AnswerRewrite::Rules(rules) => rules
            .iter()
            .filter(|rule| rule.value == in_data)
            .find_map(|rule| Name::parse(&filled(&rule.from, &name.to_string(), &rule.to)?).ok())
            .or(owner_of_question),
    };
    back.map(|name| name.as_wire().to_vec())
}

/// Applies the rule in reverse.
fn reversed(matching: &NameMatch, to: &str, name: &Name) -> Option<Name> {
    let to = to.to_owned();
    match matching {
        NameMatch::Exact(from) => (name.to_string() == to).then(|| from.clone()),
        NameMatch::Prefix(from) => rewritten_name(&NameMatch::Prefix(to), from, name),
        NameMatch::Suffix(from) => rewritten_name(&NameMatch::Suffix(to), from, name),
        NameMatch::Substring(from) => rewritten_name(&NameMatch::Substring(to), from, name),
        NameMatch::Regex(_) => None,
    }
}

/// Changes the name in the RDATA of CNAME, NS, PTR, DNAME, MX and SRV records.
fn revert_data(record: &mut Record, change: impl Fn(&[u8]) -> Option<Vec<u8>>) {
    let at = match record.rtype {
        2 | 5 | 12 | 39 => 0,
        15 => 2,
        33 => 6,
        _ => return,
    };
    let Some(name) = record.data.get(at..) else { return };
    let Some(new) = skip_name(name, 0).filter(|end| *end == name.len()).and_then(|_| change(name)) else { return };
    record.data.truncate(at);
    record.data.extend(new);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corefile::{EmptyEnvironment, parse};

    fn rules(lines: &str) -> Vec<Rewrite> {
        let config = parse("Corefile", &format!(". {{\n{lines}\n}}"), &EmptyEnvironment)
            .unwrap_or_else(|refused| panic!("{refused}"));
        config.blocks.into_iter().next().expect("a block").rewrites
    }

    fn name(text: &str) -> Name {
        Name::parse(text).expect("a name")
    }

    fn becomes(lines: &str, from: &str) -> Option<String> {
        apply(&rules(lines), name(from).as_wire()).map(|rewritten| rewritten.name.to_string())
    }

    #[test]
    fn names_are_rewritten() {
        for (rule, from, want) in [
            ("rewrite name a.example b.example", "a.example", Some("b.example.")),
            ("rewrite name a.example b.example", "x.a.example", None),
            ("rewrite name prefix old- new-", "old-web.example", Some("new-web.example.")),
            (
                "rewrite name suffix .example .default.svc.cluster.local",
                "web.example",
                Some("web.default.svc.cluster.local."),
            ),
            ("rewrite name substring staging prod", "a.staging.b", Some("a.prod.b.")),
            ("rewrite name regex ^(.*)[.](.*)[.]x[.]$ {2}.{1}.y", "a.b.x", Some("b.a.y.")),
            ("rewrite continue name suffix .a .b\nrewrite name suffix .b .c", "x.a", Some("x.c.")),
            ("rewrite stop name suffix .a .b\nrewrite name suffix .b .c", "x.a", Some("x.b.")),
            ("rewrite name suffix .a ..", "x.a", None),
        ] {
            assert_eq!(becomes(rule, from).as_deref(), want, "{rule}");
        }
    }

    fn record(owner: &str, rtype: u16, target: &str) -> Record {
        Record {
            owner: name(owner).as_wire().to_vec(),
            rtype,
            class: 1,
            ttl: 500,
            data: name(target).as_wire().to_vec(),
        }
    }

    fn reverted(lines: &str, query_name: &str, answer: Record) -> (String, String, u32) {
        let rules = rules(lines);
        let rewritten = apply(&rules, name(query_name).as_wire()).expect("a rule fits");
        let mut unpacked = Unpacked { sections: [vec![answer], vec![], vec![]], ..Unpacked::default() };
        rewritten.revert(&mut unpacked);
        let record = &unpacked.sections[0][0];
        let text = |wire: &[u8]| Name::from_wire(wire).expect("a name").to_string();
        (text(&record.owner), text(&record.data), record.ttl)
    }

    #[test]
    fn answer_names_are_reverted() {
        let plain = reverted("rewrite name a.example b.example", "a.example", record("b.example", 5, "c.example"));
        assert_eq!(plain, ("a.example.".into(), "c.example.".into(), 500));
        let auto = reverted("rewrite name suffix .a .b answer auto", "x.a", record("y.b", 5, "z.b"));
        assert_eq!(auto, ("y.a.".into(), "z.a.".into(), 500));
        let answer_rules =
            "rewrite name regex (.*)[.]a[.] {1}.b answer name (.*)[.]b[.] {1}.a answer value (.*)[.]b[.] {1}.v";
        assert_eq!(reverted(answer_rules, "x.a", record("x.b", 5, "y.b")), ("x.a.".into(), "y.v.".into(), 500));
        let ttl = reverted("rewrite ttl suffix example 30-300", "a.example", record("a.example", 5, "c"));
        assert_eq!(ttl.2, 300);
    }
}
