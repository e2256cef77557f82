//! How much of an Ingress is served. One Ingress must not take the memory of all nodes.
//!
//! In: an Ingress. Out: its rules and paths within the limits, and for each host what the others have in common, so that it can
//! be closed where access to it is restricted.

use std::collections::HashMap;

use api::view::Ingress;
use api::view::ingress::{IngressBackend, IngressPath, IngressRule};

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
    /// Their number.
    pub(super) number: usize,
    /// The text that all of them begin with.
    pub(super) common: Box<str>,
    /// The backend of one of them.
    pub(super) backend: IngressBackend,
}

/// The paths that are not served, by host in lower case.
pub(in crate::ingress) fn excess(ingress: &Ingress) -> HashMap<Box<str>, Excess> {
    let mut found = HashMap::<Box<str>, Excess>::new();
    let all = ingress.spec.rules.iter().enumerate();
    let all = all.flat_map(|(place, rule)| rule.http.paths.iter().map(move |path| (place, rule, path)));
    let beyond = all.enumerate().filter(|(index, (place, ..))| *index >= MOST_PATHS || *place >= MOST_RULES);
    for (_, (_, rule, path)) in beyond {
        let literal = Pattern::text_before(&path.path);
        let excess = found.entry(rule.host.to_ascii_lowercase().into()).or_insert_with(|| Excess {
            number: 0,
            common: literal.into(),
            backend: path.backend.clone(),
        });
        excess.number += 1;
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
