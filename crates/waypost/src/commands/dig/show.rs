//! A resolution as text or as JSON.

use std::fmt::Write as _;
use std::net::SocketAddr;

use dns::explain::{Explained, Origin};
use dns::wire::{IN, Record, to_text};
use serde_json::{Value, json};

use super::Resolution;
use super::step::{Difference, Step, code_text, type_text};

/// As text: remarks begin with `;`, records are in columns.
pub(super) fn text(resolution: &Resolution) -> String {
    let mut out = String::new();
    let conf = &resolution.search.conf;
    let domains = if conf.searches.is_empty() { "nothing".to_owned() } else { conf.searches.join(" ") };
    line(&mut out, &format!("; as {} asks: search {domains}, ndots {}", resolution.search.whose, conf.ndots()));
    for note in &resolution.search.notes {
        line(&mut out, &format!("; note: {note}"));
    }
    for (index, step) in resolution.steps.iter().enumerate() {
        out.push('\n');
        write_step(&mut out, index + 1, step, resolution.server);
    }
    out
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("text can always be appended to");
}

fn write_step(out: &mut String, number: usize, step: &Step, server: Option<SocketAddr>) {
    let code = if step.is_outside_zones() { "not ours".to_owned() } else { code_text(step.zone.rcode) };
    line(out, &format!("{number}. {} {} {code}", step.name, type_text(step.qtype)));
    for row in columns(&step.zone.answer.iter().map(|one| (&one.record, origins(one))).collect::<Vec<_>>()) {
        line(out, &row);
    }
    if step.zone.answer.is_empty() || step.zone.forwarded.is_some() {
        line(out, &format!("   ; {}", step.zone.why));
    }
    let Some(server) = server else { return };
    match &step.server {
        None => {}
        Some(Err(error)) => {
            line(out, &format!("   ; query to server {server} failed: {error:#}; it is not queried again"));
        }
        Some(Ok(reply)) => match step.difference() {
            Some(difference) => write_difference(out, server, &difference),
            None if step.zone.forwarded.is_none() => {
                line(out, &format!("   ; server {server} returns the same records"));
            }
            None => {
                line(out, &format!("   ; server {server} returns {}", code_text(reply.rcode)));
                let own = |record: &&Record| !step.zone.answer.iter().any(|one| one.record.data == record.data);
                let others: Vec<_> =
                    reply.answer.iter().filter(own).map(|record| (record, "others".to_owned())).collect();
                for row in columns(&others) {
                    line(out, &row);
                }
            }
        },
    }
}

fn write_difference(out: &mut String, server: SocketAddr, difference: &Difference) {
    line(out, &format!("   ; DIFFERENT: the response of server {server} differs from the objects"));
    if let Some((theirs, ours)) = difference.codes {
        line(out, &format!("   ;   the server returns {}, the objects give {}", code_text(theirs), code_text(ours)));
    }
    for record in &difference.only_server {
        line(out, &format!("   ;   only the server has   {record}"));
    }
    for record in &difference.only_objects {
        line(out, &format!("   ;   only the objects have {record}"));
    }
}

/// Records in columns, each with a remark.
fn columns(records: &[(&Record, String)]) -> Vec<String> {
    let cells = records.iter().map(|(record, from)| {
        let class = if record.class == IN { "IN".to_owned() } else { format!("CLASS{}", record.class) };
        let remark = if from.is_empty() { String::new() } else { format!("; {from}") };
        [to_text(&record.owner), record.ttl.to_string(), class, type_text(record.rtype), record.data_text(), remark]
    });
    let cells: Vec<[String; 6]> = cells.collect();
    let width = |column: usize| cells.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    let row = |row: &[String; 6]| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("   {}", cells.join("  ").trim_end())
    };
    cells.iter().map(row).collect()
}

fn origins(one: &Explained) -> String {
    one.from.iter().map(Origin::to_string).collect::<Vec<_>>().join(", ")
}

/// As JSON.
pub(super) fn json(resolution: &Resolution) -> String {
    let value = json!({
        "search": {
            "of": resolution.search.whose,
            "domains": resolution.search.conf.searches,
            "ndots": resolution.search.conf.ndots(),
            "notes": resolution.search.notes,
        },
        "server": resolution.server.map(|server| server.to_string()),
        "steps": resolution.steps.iter().map(step_json).collect::<Vec<_>>(),
        "found": resolution.steps.iter().any(Step::has_records),
    });
    format!("{value:#}\n")
}

fn step_json(step: &Step) -> Value {
    let answer = step.zone.answer.iter().map(|one| {
        let mut record = record_json(&one.record);
        let origin = |origin: &Origin| json!({"kind": origin.kind, "name": origin.name, "field": origin.field});
        record["from"] = one.from.iter().map(origin).collect();
        record
    });
    let mut out = json!({
        "name": step.name,
        "type": type_text(step.qtype),
        "rcode": (!step.is_outside_zones()).then(|| code_text(step.zone.rcode)),
        "answer": answer.collect::<Vec<_>>(),
        "beyond": step.zone.forwarded,
        "why": step.zone.why,
    });
    match &step.server {
        None => {}
        Some(Err(error)) => out["server"] = json!({"error": format!("{error:#}")}),
        Some(Ok(reply)) => {
            let records: Vec<Value> = reply.answer.iter().map(record_json).collect();
            let difference = step.difference();
            let lists = difference.clone().unwrap_or_default();
            out["server"] = json!({
                "rcode": code_text(reply.rcode),
                "answer": records,
                "different": difference.is_some(),
                "onlyServer": lists.only_server,
                "onlyObjects": lists.only_objects,
            });
        }
    }
    out
}

fn record_json(record: &Record) -> Value {
    json!({
        "owner": to_text(&record.owner),
        "ttl": record.ttl,
        "type": type_text(record.rtype),
        "data": record.data_text(),
    })
}
