//! Metrics of a proxy from its metrics port, which is the same for all: `127.0.0.1:10249` of its node.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use anyhow::Context as _;
use testbed::net::Node;

/// Where metrics are.
const METRICS: (&str, u16) = ("127.0.0.1", 10249);

/// The time that writing all rules has taken so far, by the proxy's own clock, of both families together. `None` when it
/// does not say.
///
/// # Errors
/// When there is no answer.
pub fn full_syncs(node: &Node) -> anyhow::Result<Option<f64>> {
    let text = node.in_namespace(read).context("asking the proxy for its metrics")?;
    let full = sum(&text, "kubeproxy_sync_full_proxy_rules_duration_seconds_sum");
    // In iptables mode every pass is counted here, and the full ones alone only when there were others.
    Ok(full.filter(|full| *full > 0.0).or_else(|| sum(&text, "kubeproxy_sync_proxy_rules_duration_seconds_sum")))
}

fn read() -> std::io::Result<String> {
    let mut connection = TcpStream::connect(METRICS)?;
    connection.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut text = String::new();
    connection.read_to_string(&mut text)?;
    Ok(text)
}

/// All values of a name, whatever their labels.
fn sum(text: &str, name: &str) -> Option<f64> {
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']))?;
        rest.rsplit(' ').next()?.parse::<f64>().ok()
    });
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_all_labels_are_added() {
        let text = "# HELP a_sum x\na_sum{f=\"4\"} 1.5\na_sum{f=\"6\"} 2\na_summary 9\na_sum 0.5\n";
        assert_eq!(sum(text, "a_sum"), Some(4.0));
        assert_eq!(sum(text, "b_sum"), None);
    }
}
