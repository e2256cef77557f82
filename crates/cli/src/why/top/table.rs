//! Totals as a table or as JSON.

use serde_json::{Value, json};

use super::super::report::NoReport;
use super::totals::{Backend, Port, Service, Totals, Traffic};

/// The text of an unknown value.
const UNKNOWN: &str = "not measured";

/// A table of at most `lines` lines.
pub(super) fn text(totals: &Totals, lines: usize) -> String {
    let rows: Vec<[String; 4]> = totals.services.iter().flat_map(service).collect();
    let heads = ["SERVICE", "BACKEND", "CONNECTIONS", "BYTES"].map(str::to_owned);
    let notes = notes(totals);
    let room = lines.saturating_sub(notes.len() + 2).max(1);
    let shown = &rows[..rows.len().min(room)];
    let mut widths = [0; 4];
    for row in std::iter::once(&heads).chain(shown) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let [one, two, three, _] = widths;
    let line = |row: &[String; 4]| {
        let [service, backend, connections, bytes] = row;
        format!("{service:one$}   {backend:two$}   {connections:three$}   {bytes}").trim_end().to_owned()
    };
    let mut out: Vec<String> = std::iter::once(&heads).chain(shown).map(line).collect();
    if rows.len() > shown.len() {
        out.push(format!("… {} more lines", rows.len() - shown.len()));
    }
    out.extend(notes);
    out.join("\n") + "\n"
}

fn service(service: &Service) -> Vec<[String; 4]> {
    let row = |name: String, backend: String, traffic: Traffic| {
        [name, backend, number(traffic.connections), traffic.bytes.map_or_else(|| UNKNOWN.to_owned(), size)]
    };
    let mut rows = vec![row(service.name.clone(), String::new(), service.traffic())];
    for port in &service.ports {
        for backend in &port.backends {
            let gone = if backend.planned { "" } else { " (gone)" };
            rows.push(row(format!("  {}", port.name), format!("{}{gone}", backend.address), backend.traffic));
        }
        if port.backends.is_empty() {
            rows.push([format!("  {}", port.name), "none".to_owned(), String::new(), String::new()]);
        }
    }
    rows
}

fn number(count: Option<u64>) -> String {
    count.map_or_else(|| UNKNOWN.to_owned(), |count| count.to_string())
}

/// A number of bytes with its unit.
fn size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let Some(power) = bytes.checked_ilog2().map(|log| log / 10).filter(|power| *power > 0) else {
        return format!("{bytes} B");
    };
    // One decimal, truncated.
    let tenths = (u128::from(bytes) * 10) >> (power * 10);
    let unit = units.get(power as usize - 1).copied().unwrap_or_default();
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

/// Notes about nodes.
fn notes(totals: &Totals) -> Vec<String> {
    let mut notes: Vec<String> = totals
        .nodes
        .iter()
        .filter_map(|(node, mode)| Some(format!("node {node}: not measured: {}", mode.as_ref().err()?)))
        .collect();
    if totals.nodes.is_empty() {
        notes.push(
            "not measured: there is no Node; run `waypost up` as root, or `waypost node --roles proxy,agent`"
                .to_owned(),
        );
    }
    let uncounted = totals.services.iter().any(|service| {
        let Traffic { connections, bytes } = service.traffic();
        connections.is_some() && bytes.is_none()
    });
    if uncounted {
        notes.push(
            "bytes are not counted on every node; `sysctl net.netfilter.nf_conntrack_acct=1` there begins it"
                .to_owned(),
        );
    }
    notes
}

/// As JSON.
pub(super) fn json(totals: &Totals) -> Value {
    let traffic = |traffic: Traffic| (json!(traffic.connections), json!(traffic.bytes));
    let backend = |one: &Backend| {
        let (connections, bytes) = traffic(one.traffic);
        json!({"address": one.address, "planned": one.planned, "connections": connections, "bytes": bytes})
    };
    let port = |one: &Port| json!({"port": one.name, "backends": one.backends.iter().map(backend).collect::<Vec<_>>()});
    let service = |one: &Service| {
        let (connections, bytes) = traffic(one.traffic());
        let ports: Vec<Value> = one.ports.iter().map(port).collect();
        json!({"service": one.name, "connections": connections, "bytes": bytes, "ports": ports})
    };
    let node = |(node, mode): &(String, Result<String, NoReport>)| json!({"node": node, "measured": mode.is_ok(), "mode": mode.as_ref().ok(), "why": mode.as_ref().err().map(ToString::to_string)});
    json!({
        "measured": totals.is_measured(),
        "nodes": totals.nodes.iter().map(node).collect::<Vec<_>>(),
        "services": totals.services.iter().map(service).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        let pairs = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1 << 20, "1.0 MiB"),
            (u64::MAX, "15.9 EiB"),
        ];
        for (bytes, want) in pairs {
            assert_eq!(size(bytes), want);
        }
    }

    #[test]
    fn a_short_terminal_shows_the_number_of_omitted_lines() {
        let traffic = Traffic { connections: Some(1), bytes: None };
        let backend = |number: usize| Backend { address: format!("10.0.0.{number}:80"), traffic, planned: number != 2 };
        let port = Port { name: "80/TCP".to_owned(), backends: (1..=9).map(backend).collect() };
        let web = Service { name: "default/web".to_owned(), ports: vec![port] };
        let totals = Totals { nodes: vec![("n1".to_owned(), Ok("nftables".to_owned()))], services: vec![web] };
        let all = text(&totals, usize::MAX);
        assert!(all.contains("10.0.0.2:80 (gone)") && all.contains("not measured"), "{all}");
        assert!(all.contains("nf_conntrack_acct"), "{all}");
        let short = text(&totals, 7);
        assert_eq!(short.lines().count(), 7, "{short}");
        assert!(short.contains("… 6 more lines"), "{short}");
    }

    #[test]
    fn without_nodes_nothing_is_measured() {
        assert!(text(&Totals::default(), 9).contains("not measured: there is no Node"));
        assert_eq!(json(&Totals::default())["measured"], false);
    }
}
