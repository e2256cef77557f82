//! Reads the kernel state of one machine: its rules and its conntrack entries.
//!
//! In: nothing, or rules to load. Out: text as the tools print it, for tests to search.

use super::host::Host;

impl Host {
    /// Loads rules by `nft -f`; a refusal fails the test.
    #[track_caller]
    pub fn nft(&self, rules: &str) {
        let run = self.run_with("nft -f -", rules);
        assert!(run.ok, "nft refused on {}:\n{rules}\n{}", self.name(), run.err);
    }

    /// All rules, as `nft list ruleset` prints them.
    #[must_use]
    #[track_caller]
    pub fn ruleset(&self) -> String {
        self.run("nft list ruleset").success()
    }

    /// The flows that this machine tracks, one per line, such as `ipv4 2 tcp 6 117 TIME_WAIT src=… dst=… sport=…`.
    #[must_use]
    pub fn conntrack(&self) -> Vec<String> {
        // The kernel's own list if it has one; otherwise the tool, which uses netlink.
        let listed = self.in_namespace(|| std::fs::read_to_string("/proc/thread-self/net/nf_conntrack"));
        let text = listed.unwrap_or_else(|_| {
            let list = |family: &str| self.run(format!("conntrack -L -o extended -f {family}").as_str()).success();
            list("ipv4") + &list("ipv6")
        });
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    /// How many tracked flows contain all of these, such as `["udp", "dport=53", "src=10.244.1.2"]`.
    #[must_use]
    pub fn conntrack_count(&self, parts: &[&str]) -> usize {
        let has_all = |line: &String| parts.iter().all(|part| line.split(' ').any(|word| word == *part));
        self.conntrack().iter().filter(|line| has_all(line)).count()
    }
}
