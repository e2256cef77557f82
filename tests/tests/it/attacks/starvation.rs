//! Two accounts that keep the server as busy as they can, and those who must not notice.

use tempfile::TempDir;
use testbed::starvation::{NODES, Samples, Scenario, node_tokens};
use testbed::{Home, Server};

/// Services that the administrator lists.
const SERVICES: usize = 200;
/// Renewals of each node.
const ROUNDS: usize = 15;

#[test]
fn b06_two_thousand_slow_requests_and_a_tight_loop_fail_no_request_of_nodes_and_administrators() {
    let folder = TempDir::new().expect("a directory");
    let tokens = folder.path().join("tokens.csv");
    std::fs::write(&tokens, node_tokens()).expect("a file of tokens");
    let arguments = ["--token-auth-file", tokens.to_str().expect("a path")];
    let server = Server::start_with(Home::temporary(), &arguments);
    let scenario = Scenario::prepare(server.home(), SERVICES);

    let attack = scenario.attack();
    // One that fails, is rejected or takes too long ends the test.
    let samples = scenario.observe(ROUNDS);
    let outcome = attack.end();

    assert_eq!((samples.renewals.len(), samples.lists.len()), (NODES * ROUNDS, 8 * ROUNDS));
    assert!(outcome.slow >= 2000, "{outcome:?}");
    assert!(outcome.answered > 0, "the account of the tight loop is served, too: {outcome:?}");
    eprintln!("{outcome:?}; {}", describe(samples));
}

/// The latency, which depends on the machine and is measured by `bench`.
fn describe(samples: Samples) -> String {
    let percentiles = |mut samples: Vec<std::time::Duration>| {
        samples.sort_unstable();
        let at = |percent: usize| samples[(samples.len() * percent).div_ceil(100) - 1];
        format!("p50 {:?}, p99 {:?}, at most {:?}", at(50), at(99), at(100))
    };
    format!("renewals: {}; lists: {}", percentiles(samples.renewals), percentiles(samples.lists))
}
