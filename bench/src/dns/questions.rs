//! The query sets: five files of queries for dnsperf, generated from the size of the load alone.
//!
//! In: a size. Out: lines of a name and a type, and how many of them ask for what does not exist, by which an answerer is known
//! to have understood.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::objects::{self, Size, ZONE};

/// How many queries a file has.
const LINES: usize = 20_000;
/// How many external names are queried; all fit into any server's cache.
const OUTSIDE: usize = 1000;
/// A step that meets every Service, whatever their number: a prime above it.
const STEP: usize = 1_000_003;

/// A kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Addresses of Services.
    Hits,
    /// The query mix of a cluster, all kinds.
    Mixed,
    /// What resolvers ask for on their way along the search path.
    Search,
    /// Ports.
    Ports,
    /// External names, all of them cached.
    Forwards,
}

/// All kinds, in the order they are measured.
pub const MIXES: [Mix; 5] = [Mix::Hits, Mix::Mixed, Mix::Search, Mix::Ports, Mix::Forwards];

/// A file for dnsperf.
pub struct Questions {
    /// Where it is.
    pub path: PathBuf,
    /// The fraction of its queries that are for names that do not exist.
    pub missing: f64,
}

/// One query, and whether the name exists.
type Line = (String, &'static str, bool);

impl Mix {
    /// Its name in keys.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Hits => "hits",
            Self::Mixed => "mixed",
            Self::Search => "search",
            Self::Ports => "srv",
            Self::Forwards => "forwards",
        }
    }

    /// Its name in the report.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Hits => "addresses of Services",
            Self::Mixed => "all kinds mixed",
            Self::Search => "search path, four of five names missing",
            Self::Ports => "SRV",
            Self::Forwards => "names of others, cached",
        }
    }

    /// Writes its file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(self, size: Size, home: &Path) -> anyhow::Result<Questions> {
        let path = home.join(format!("{}.questions", self.key()));
        let lines: Vec<Line> = (0..LINES).map(|index| self.line(size, index)).collect();
        let mut text = String::new();
        for (name, kind, _) in &lines {
            let _ = writeln!(text, "{name} {kind}");
        }
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        let missing = lines.iter().filter(|(_, _, exists)| !exists).count();
        #[expect(clippy::cast_precision_loss, reason = "both are small")]
        Ok(Questions { path, missing: missing as f64 / LINES as f64 })
    }

    fn line(self, size: Size, index: usize) -> Line {
        let number = index.wrapping_mul(STEP) % size.services;
        match self {
            Self::Hits => (objects::full_name(with_address(number)), "A", true),
            Self::Search => search(number, index),
            Self::Ports => (format!("_http._tcp.{}", objects::full_name(with_address(number))), "SRV", true),
            Self::Forwards => (outside(index), "A", true),
            Self::Mixed => match index % 20 {
                0..=7 => (objects::full_name(with_address(number)), "A", true),
                8..=11 => (objects::full_name(with_address(number)), "AAAA", true),
                12..=15 => (format!("{}.{}.{ZONE}", outside(index), objects::namespace(number)), "A", false),
                16 => (objects::full_name(headless(number, size)), "A", true),
                17 => (format!("_http._tcp.{}", objects::full_name(with_address(number))), "SRV", true),
                18 => (reverse(size, with_address(number)), "PTR", true),
                _ => (outside(index), "A", true),
            },
        }
    }
}

/// An external name with three steps along the search path before the name itself, and a Service of another namespace with one:
/// four of five do not exist.
fn search(number: usize, index: usize) -> Line {
    let (outside, team, number) = (outside(index / 5), objects::namespace(number + 1), with_address(number));
    match index % 5 {
        0 => (format!("{outside}.{team}.{ZONE}"), "A", false),
        1 => (format!("{outside}.{ZONE}"), "A", false),
        2 => (format!("{outside}.cluster.local"), "A", false),
        3 => (
            format!("{}.{team}.{ZONE}", objects::full_name(number).trim_end_matches(ZONE).trim_end_matches('.')),
            "A",
            false,
        ),
        _ => (objects::full_name(number), "A", true),
    }
}

/// This Service or the one before it, whichever has an address.
fn with_address(number: usize) -> usize {
    number - usize::from(objects::is_headless(number))
}

/// The next headless Service; with too few of them, the first Service.
fn headless(number: usize, size: Size) -> usize {
    (number..number + 10).find(|number| objects::is_headless(*number) && *number < size.services).unwrap_or(0)
}

fn outside(index: usize) -> String {
    format!("host-{:04}.example.org", index % OUTSIDE)
}

fn reverse(size: Size, number: usize) -> String {
    let [a, b, c, d] = objects::vip(size, number).octets();
    format!("{d}.{c}.{b}.{a}.in-addr.arpa")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { services: 100, endpoints: 3 };

    #[test]
    fn the_part_of_missing_names_is_what_the_file_has() {
        let home = tempfile::tempdir().expect("a directory");
        let missing = |mix: Mix| mix.write(SIZE, home.path()).expect("a file").missing;
        assert_eq!(MIXES.map(missing), [0.0, 0.2, 0.8, 0.0, 0.0]);
    }

    #[test]
    fn names_are_full_and_no_address_is_asked_of_what_has_none() {
        assert_eq!(search(9, 3).0, "svc-000008.team-08.team-10.svc.cluster.local");
        assert_eq!(Mix::Hits.line(SIZE, 0).0, "svc-000000.team-00.svc.cluster.local");
        assert!((0..1000).all(|index| !Mix::Hits.line(SIZE, index).0.contains("9.team")));
        assert_eq!(reverse(SIZE, 3), "3.1.96.10.in-addr.arpa");
        assert!(objects::is_headless(headless(3, SIZE)));
    }
}
