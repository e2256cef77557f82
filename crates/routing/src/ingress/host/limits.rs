//! How much of an Ingress is served. One Ingress must not take the memory of all nodes.
//!
//! In: an Ingress. Out: its rules and paths within the limits, and for each host what the others have in common, so that it can
//! be closed where access to it is restricted.

use std::collections::HashMap;

use api::view::Ingress;
use api::view::ingress::{IngressPath, IngressRule};

use crate::policy::Pattern;

/// The most rules, and therefore hosts, of an Ingress.
pub(in crate::ingress) const MOST_RULES: usize = 1000;
/// The most paths of an Ingress.
pub(in crate::ingress) const MOST_PATHS: usize = 1000;
/// The most regular expressions of an Ingress, and of a namespace on a host.
pub(in crate::ingress) const MOST_EXPRESSIONS: usize = 256;
/// The most bytes of them on a host.
const MOST_EXPRESSION_BYTES: usize = 32 << 10;
/// The most aliases of an Ingress.
pub(in crate::ingress) const MOST_ALIASES: usize = 64;

/// The rules that are served.
pub(in crate::ingress) fn rules(ingress: &Ingress) -> impl Iterator<Item = &IngressRule> + Clone {
    ingress.spec.rules.iter().take(MOST_RULES)
}

/// The paths that are served.
pub(super) fn paths(ingress: &Ingress) -> impl Iterator<Item = (&IngressRule, &IngressPath)> + Clone {
    rules(ingress).flat_map(|rule| rule.http.paths.iter().map(move |path| (rule, path))).take(MOST_PATHS)
}

/// Paths of a host that are not served.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::ingress) struct Excess {
    /// The text that all of them begin with.
    pub(super) common: Box<str>,
    /// Their places: that of the rule, and that of the path in the rule.
    places: Vec<(usize, usize)>,
}

impl Excess {
    /// The paths.
    pub(super) fn paths<'a>(&self, ingress: &'a Ingress) -> impl ExactSizeIterator<Item = &'a IngressPath> {
        self.places.iter().map(|(rule, path)| &ingress.spec.rules[*rule].http.paths[*path])
    }
}

/// The paths that are not served, by host in lower case.
pub(in crate::ingress) fn excess(ingress: &Ingress) -> HashMap<Box<str>, Excess> {
    let mut found = HashMap::<Box<str>, Excess>::new();
    let all = ingress.spec.rules.iter().enumerate();
    let all = all.flat_map(|(rule, one)| (0..one.http.paths.len()).map(move |path| (rule, path)));
    let beyond = all.enumerate().filter(|(index, (rule, _))| *index >= MOST_PATHS || *rule >= MOST_RULES);
    for (_, (place, path)) in beyond {
        let rule = &ingress.spec.rules[place];
        let literal = Pattern::text_before(&rule.http.paths[path].path);
        let excess = found
            .entry(rule.host.to_ascii_lowercase().into())
            .or_insert_with(|| Excess { common: literal.into(), places: Vec::new() });
        excess.places.push((place, path));
        excess.common = common(&excess.common, literal).into();
    }
    found
}

fn common<'a>(one: &'a str, other: &str) -> &'a str {
    let end = one.char_indices().zip(other.chars()).find(|((_, a), b)| a != b).map(|((at, _), _)| at);
    one.get(..end.unwrap_or_else(|| one.len().min(other.len()))).unwrap_or_default()
}

/// Counts the expressions of a namespace on a host.
#[derive(Default)]
pub(super) struct Budget {
    number: usize,
    bytes: usize,
}

impl Budget {
    /// Whether there may be this one, too.
    pub(super) fn admits(&mut self, expression: &str) -> bool {
        self.number += 1;
        self.bytes += expression.len();
        self.number <= MOST_EXPRESSIONS && self.bytes <= MOST_EXPRESSION_BYTES
    }
}
