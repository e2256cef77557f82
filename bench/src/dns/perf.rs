//! dnsperf as load generator: at maximum throughput, or at a fixed query rate with the latency of each response.
//!
//! In: a server and a file of queries. Out: dnsperf's results, parsed from its output.
#![expect(clippy::disallowed_methods, reason = "a benchmark runs the programs that it measures with")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use crate::kubernetes;

/// Response codes that are valid for these queries.
const EXPECTED: [&str; 2] = ["NOERROR", "NXDOMAIN"];

/// How to ask.
#[derive(Clone, Debug)]
pub struct Perf {
    program: PathBuf,
    /// How long, in seconds.
    pub seconds: u16,
    /// From how many sockets.
    pub clients: u16,
    /// How many queries may be outstanding.
    pub outstanding: u16,
}

/// The result of a run at maximum throughput.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// How many queries were answered.
    pub answered: f64,
    /// How many were not.
    pub lost: f64,
    /// How many answers a second.
    pub rate: f64,
    /// How often each code came.
    pub codes: Vec<(String, f64)>,
}

impl Perf {
    /// Finds the program.
    ///
    /// # Errors
    /// When it is not there.
    pub fn find(seconds: u16, clients: u16, outstanding: u16) -> anyhow::Result<Self> {
        let program = kubernetes::program("dnsperf").ok().context("dnsperf is missing: install the package dnsperf")?;
        Ok(Self { program, seconds, clients, outstanding })
    }

    /// Sends every query once, to warm the caches.
    ///
    /// # Errors
    /// When dnsperf fails.
    pub fn once(&self, to: SocketAddr, questions: &Path) -> anyhow::Result<()> {
        self.run(to, questions, &["-n", "1"]).map(drop)
    }

    /// Sends queries at maximum throughput.
    ///
    /// # Errors
    /// When dnsperf fails, or its output format has changed.
    pub fn flat_out(&self, to: SocketAddr, questions: &Path) -> anyhow::Result<Run> {
        let seconds = self.seconds.to_string();
        let text = self.run(to, questions, &["-l", &seconds, "-q", &self.outstanding.to_string()])?;
        parse(&text).with_context(|| format!("dnsperf said something else than expected:\n{text}"))
    }

    /// Sends queries at a fixed rate per second; returns the latency of each response, in seconds.
    ///
    /// # Errors
    /// When dnsperf fails.
    pub fn paced(&self, to: SocketAddr, questions: &Path, rate: u32) -> anyhow::Result<Vec<f64>> {
        let text = self.run(to, questions, &["-v", "-l", &self.seconds.to_string(), "-Q", &rate.to_string()])?;
        let delays: Vec<f64> = text.lines().filter_map(delay).collect();
        ensure!(!delays.is_empty(), "dnsperf told of no answer:\n{text}");
        Ok(delays)
    }

    fn run(&self, to: SocketAddr, questions: &Path, more: &[&str]) -> anyhow::Result<String> {
        let output = Command::new(&self.program)
            .args(["-s", &to.ip().to_string(), "-p", &to.port().to_string(), "-c", &self.clients.to_string(), "-d"])
            .arg(questions)
            .args(more)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("starting {}", self.program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success(),
            "dnsperf failed with {}:\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(text)
    }
}

impl Run {
    /// Whether the responses were as expected: no other response codes, and the expected number of NXDOMAIN.
    ///
    /// # Errors
    /// When they were not.
    pub fn check(&self, missing: f64) -> anyhow::Result<()> {
        for (code, count) in &self.codes {
            ensure!(EXPECTED.contains(&code.as_str()), "{count} questions were answered with {code}");
        }
        let count = self.codes.iter().find(|(code, _)| code == EXPECTED[1]).map_or(0.0, |(_, count)| *count);
        let part = count / self.answered.max(1.0);
        ensure!((part - missing).abs() < 0.02, "{part:.3} of the names were said to be missing, not {missing:.3}");
        Ok(())
    }
}

/// The time of one answer: `> NOERROR name type seconds`.
fn delay(line: &str) -> Option<f64> {
    line.strip_prefix("> ")?.rsplit(' ').next()?.parse().ok()
}

/// The statistics at the end.
fn parse(text: &str) -> Option<Run> {
    let field = |name: &str| text.lines().find_map(|line| line.trim_start().strip_prefix(name)).map(str::trim);
    let number = |name: &str| field(name)?.split(' ').next()?.parse::<f64>().ok();
    let codes = field("Response codes:")?.split(", ").filter_map(|code| {
        let mut words = code.split(' ');
        Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
    });
    Some(Run {
        answered: number("Queries completed:")?,
        lost: number("Queries lost:")?,
        rate: number("Queries per second:")?,
        codes: codes.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Statistics:\n\n  Queries sent:         50\n  Queries completed:    40 (80.00%)\n  Queries lost:         \
                        10 (20.00%)\n\n  Response codes:       NOERROR 30 (75.00%), NXDOMAIN 10 (25.00%)\n  Average packet size:  \
                        request 21, response 0\n  Run time (s):         1.000188\n  Queries per second:   39.992\n";

    #[test]
    fn statistics_are_read_and_checked() {
        let run = parse(TEXT).expect("statistics");
        assert_eq!((run.answered, run.lost, run.rate), (40.0, 10.0, 39.992));
        assert!(run.check(0.25).is_ok() && run.check(0.0).is_err());
        let wrong = Run { codes: vec![("SERVFAIL".to_owned(), 1.0)], ..run };
        assert!(wrong.check(0.0).is_err_and(|error| error.to_string().contains("SERVFAIL")));
        assert_eq!(parse("Statistics:\n"), None);
    }

    #[test]
    fn only_answers_have_a_time() {
        assert_eq!(delay("> NOERROR c.d SRV 0.000313"), Some(0.000_313));
        assert_eq!(delay("> T c.d SRV"), None);
        assert_eq!(delay("[Status] Testing complete 1"), None);
    }
}
