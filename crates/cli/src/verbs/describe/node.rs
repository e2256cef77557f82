//! A Node: its state, its capacity, and its Pods.

use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::Value;

use super::sheet::{STEP, Sheet, conditions, pairs};
use crate::verbs::output::table::Table;

/// The prefix of role labels.
const ROLE: &str = "node-role.kubernetes.io/";

pub(super) fn describe(node: &Value, pods: &[Value], sheet: &mut Sheet) {
    let (spec, status) = (node.at("spec"), node.at("status"));
    let labels = node.at("metadata.labels").as_object();
    let roles: Vec<&str> = labels.into_iter().flatten().filter_map(|(key, _)| key.strip_prefix(ROLE)).collect();
    sheet.metadata(node);
    sheet.field("Roles", roles.join(","));
    sheet.some("CreationTimestamp", node.text("metadata.creationTimestamp"));
    let taints = spec.items("taints").iter().map(|taint| match taint.text("value") {
        "" => format!("{}:{}", taint.text("key"), taint.text("effect")),
        value => format!("{}={value}:{}", taint.text("key"), taint.text("effect")),
    });
    sheet.field("Taints", taints.collect::<Vec<_>>().join("\n"));
    sheet.field("Unschedulable", spec.flag("unschedulable").to_string());
    conditions(node, sheet);
    let addresses = status.items("addresses").iter();
    let addresses: Vec<String> =
        addresses.map(|one| format!("{}: {}", one.text("type"), one.text("address"))).collect();
    sheet.field("Addresses", addresses.join("\n"));
    sheet.field("Capacity", pairs(status.at("capacity"), ": "));
    sheet.field("Allocatable", pairs(status.at("allocatable"), ": "));
    sheet.field("System Info", pairs(status.at("nodeInfo"), ": "));
    sheet.field("PodCIDRs", spec.texts("podCIDRs").join(","));
    let over = |pod: &&Value| !["Succeeded", "Failed"].contains(&pod.text("status.phase"));
    let running: Vec<&Value> = pods.iter().filter(over).collect();
    sheet.field("Pods", format!("{} that are not over", running.len()));
    if running.is_empty() {
        return;
    }
    let mut table = Table::default();
    table.row(["Namespace", "Name", "Status", "IP", "Age"].map(str::to_owned));
    table.row(["---------", "----", "------", "--", "---"].map(str::to_owned));
    let now = Timestamp::now();
    for pod in running {
        let own = |field: &str| pod.text(field).to_owned();
        let cells = [own("metadata.namespace"), own("metadata.name"), own("status.phase"), own("status.podIP")];
        table.row(cells.into_iter().chain([api::table::age(pod, now)]));
    }
    sheet.block(STEP, &table.text(false));
}
