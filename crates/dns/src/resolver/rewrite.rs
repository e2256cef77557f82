//! Questions are asked under another name, and their answers come back under the old one.
//!
//! In: a name, and the rules of a block. Out: the name to ask for; later the records, changed back so that a client sees answers to what
//! it asked.

use super::Record;
use super::answer::Unpacked;
use super::message::skip_name;
use crate::config::{Answer, Change, Matching, Name, Rewrite};

/// What the rules made of a question.
#[derive(Clone, Debug)]
pub(super) struct Rewritten<'r> {
    /// The name to ask for.
    pub(super) name: Name,
    /// The rules that changed it, first to last, each with the name before and after.
    steps: Vec<(&'r Rewrite, Name, Name)>,
    /// Bounds for TTLs.
    ttl: Option<(u32, u32)>,
}

/// Applies rules to a lower-cased name; `None` when none fits.
pub(super) fn apply<'r>(rules: &'r [Rewrite], lower: &[u8]) -> Option<Rewritten<'r>> {
    if rules.is_empty() {
        return None;
    }
    let mut out = Rewritten { name: Name::from_wire(lower)?, steps: Vec::new(), ttl: None };
    for rule in rules {
        let fits = match &rule.change {
            Change::Name { matching, to, .. } => match renamed(matching, to, &out.name) {
                Some(new) => {
                    out.steps.push((rule, std::mem::replace(&mut out.name, new.clone()), new));
                    true
                }
                None => false,
            },
            Change::Ttl { matching, least, most } => {
                let fits = renamed(matching, "", &out.name).is_some() || matches(matching, &out.name);
                out.ttl = if fits { Some((*least, *most)) } else { out.ttl };
                fits
            }
        };
        if fits && !rule.go_on {
            break;
        }
    }
    (!out.steps.is_empty() || out.ttl.is_some()).then_some(out)
}

fn matches(matching: &Matching, name: &Name) -> bool {
    let text = name.to_string();
    match matching {
        Matching::Exact(wanted) => wanted == name,
        Matching::Prefix(prefix) => text.starts_with(prefix.as_str()),
        Matching::Suffix(suffix) => text.ends_with(suffix.as_str()),
        Matching::Substring(part) => text.contains(part.as_str()),
        Matching::Regex(expression) => expression.is_match(&text),
    }
}

/// The new name, when the rule fits and gives one that is a name.
fn renamed(matching: &Matching, to: &str, name: &Name) -> Option<Name> {
    if !matches(matching, name) {
        return None;
    }
    let text = name.to_string();
    let new = match matching {
        Matching::Exact(_) => to.to_owned(),
        Matching::Prefix(prefix) => format!("{to}{}", &text[prefix.len()..]),
        Matching::Suffix(suffix) => format!("{}{to}", &text[..text.len() - suffix.len()]),
        Matching::Substring(part) => text.replace(part.as_str(), to),
        Matching::Regex(expression) => filled(expression, &text, to)?,
    };
    Name::parse(&new).ok()
}

/// The replacement with `{1}` for what the first group found.
fn filled(expression: &regex::Regex, text: &str, to: &str) -> Option<String> {
    let found = expression.captures(text)?;
    let mut out = to.to_owned();
    for (index, group) in found.iter().enumerate() {
        out = out.replace(&format!("{{{index}}}"), group.map_or("", |group| group.as_str()));
    }
    Some(out)
}

impl Rewritten<'_> {
    /// Changes an answer back.
    pub(super) fn revert(&self, answer: &mut Unpacked) {
        for record in answer.sections.iter_mut().flatten() {
            if let Some((least, most)) = self.ttl {
                record.ttl = record.ttl.clamp(least, most);
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

/// A name of an answer before a rule changed it, in wire form.
fn undone(
    wire: &[u8],
    in_data: bool,
    matching: &Matching,
    to: &str,
    answer: &Answer,
    before: &Name,
    after: &Name,
) -> Option<Vec<u8>> {
    let name = Name::from_wire(wire)?;
    let owner_of_question = (!in_data && name == *after).then(|| before.clone());
    let back = match answer {
        Answer::Question => owner_of_question,
        Answer::Auto => owner_of_question.or_else(|| reversed(matching, to, &name)),
        Answer::Rules(rules) => rules
            .iter()
            .filter(|rule| rule.value == in_data)
            .find_map(|rule| Name::parse(&filled(&rule.from, &name.to_string(), &rule.to)?).ok())
            .or(owner_of_question),
    };
    back.map(|name| name.as_wire().to_vec())
}

/// The rule the other way round.
fn reversed(matching: &Matching, to: &str, name: &Name) -> Option<Name> {
    let to = to.to_owned();
    match matching {
        Matching::Exact(from) => (name.to_string() == to).then(|| from.clone()),
        Matching::Prefix(from) => renamed(&Matching::Prefix(to), from, name),
        Matching::Suffix(from) => renamed(&Matching::Suffix(to), from, name),
        Matching::Substring(from) => renamed(&Matching::Substring(to), from, name),
        Matching::Regex(_) => None,
    }
}

/// Changes the name in the data of a record, for types that are an alias or a target.
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
    use crate::corefile::{Alone, parse};

    fn rules(lines: &str) -> Vec<Rewrite> {
        let config =
            parse("Corefile", &format!(". {{\n{lines}\n}}"), &Alone).unwrap_or_else(|refused| panic!("{refused}"));
        config.blocks.into_iter().next().expect("a block").rewrites
    }

    fn name(text: &str) -> Name {
        Name::parse(text).expect("a name")
    }

    fn becomes(lines: &str, from: &str) -> Option<String> {
        apply(&rules(lines), name(from).as_wire()).map(|rewritten| rewritten.name.to_string())
    }

    #[test]
    fn names_become_others() {
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

    fn reverted(lines: &str, asked: &str, answer: Record) -> (String, String, u32) {
        let rules = rules(lines);
        let rewritten = apply(&rules, name(asked).as_wire()).expect("a rule fits");
        let mut unpacked = Unpacked { sections: [vec![answer], vec![], vec![]], ..Unpacked::default() };
        rewritten.revert(&mut unpacked);
        let record = &unpacked.sections[0][0];
        let text = |wire: &[u8]| Name::from_wire(wire).expect("a name").to_string();
        (text(&record.owner), text(&record.data), record.ttl)
    }

    #[test]
    fn answers_come_back_under_the_old_name() {
        let plain = reverted("rewrite name a.example b.example", "a.example", record("b.example", 5, "c.example"));
        assert_eq!(plain, ("a.example.".into(), "c.example.".into(), 500));
        let auto = reverted("rewrite name suffix .a .b answer auto", "x.a", record("y.b", 5, "z.b"));
        assert_eq!(auto, ("y.a.".into(), "z.a.".into(), 500));
        let by_rule =
            "rewrite name regex (.*)[.]a[.] {1}.b answer name (.*)[.]b[.] {1}.a answer value (.*)[.]b[.] {1}.v";
        assert_eq!(reverted(by_rule, "x.a", record("x.b", 5, "y.b")), ("x.a.".into(), "y.v.".into(), 500));
        let ttl = reverted("rewrite ttl suffix example 30-300", "a.example", record("a.example", 5, "c"));
        assert_eq!(ttl.2, 300);
    }
}
