//! Registered programs, as a table.

use std::fmt::Write as _;

use api::adopted;
use api::value::ValueExt as _;
use serde_json::Value;

use cli::api_client::ApiClient;

/// All adopted workloads that have a Pod: registered and discovered ones.
pub(super) async fn list(api: &mut ApiClient) -> anyhow::Result<String> {
    let pods = api.get("/api/v1/pods").await?.unwrap_or_default();
    let head = ["NAMESPACE", "NAME", "READY", "ADDRESS", "NODE", "BY", "LABELS"].map(str::to_owned);
    let rows = pods.items("items").iter().filter_map(row);
    let rows: Vec<[String; 7]> = std::iter::once(head).chain(rows).collect();
    if rows.len() == 1 {
        return Ok("Nothing is registered. `waypost register NAME --port PORT` registers a program that listens on this machine.\n".to_owned());
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    let mut out = String::new();
    for row in &rows {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        // Text can always be appended to.
        let _ = writeln!(out, "{}", cells.join("   ").trim_end());
    }
    Ok(out)
}

fn row(pod: &Value) -> Option<[String; 7]> {
    let how = adopted::how(pod)?;
    let labels = pod.map("metadata.labels").into_iter().flatten();
    let labels: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    let or_none = |text: String| if text.is_empty() { "<none>".to_owned() } else { text };
    Some([
        pod.text("metadata.namespace").to_owned(),
        pod.text("metadata.name").to_owned(),
        if is_ready(pod) { "yes" } else { "no" }.to_owned(),
        or_none(addresses(pod)),
        pod.text("spec.nodeName").to_owned(),
        how.to_owned(),
        or_none(labels.join(",")),
    ])
}

/// Its address.
pub(super) fn addresses(pod: &Value) -> String {
    let port = pod
        .items("spec.containers")
        .iter()
        .flat_map(|one| one.items("ports"))
        .map(|port| port.int("containerPort"))
        .next();
    let ips = pod.items("status.podIPs").iter().map(|ip| match (port, ip.text("ip")) {
        (None, ip) => ip.to_owned(),
        (Some(port), ip) if ip.contains(':') => format!("[{ip}]:{port}"),
        (Some(port), ip) => format!("{ip}:{port}"),
    });
    ips.collect::<Vec<_>>().join(",")
}

/// Whether it is ready.
pub(super) fn is_ready(pod: &Value) -> bool {
    let mut all = pod.items("status.conditions").iter();
    all.any(|one| one.text("type") == "Ready" && one.text("status") == "True")
}
