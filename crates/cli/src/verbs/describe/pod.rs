//! A Pod: its node, its containers, and their states.

use api::value::ValueExt as _;
use serde_json::Value;

use super::containers;
use super::sheet::{STEP, Sheet, conditions, controller, in_one_line};

pub(super) fn describe(pod: &Value, sheet: &mut Sheet) {
    let (spec, status) = (pod.at("spec"), pod.at("status"));
    sheet.metadata(pod);
    sheet.some("Service Account", spec.text("serviceAccountName"));
    let node = match (spec.text("nodeName"), status.text("hostIP")) {
        (name, "") => name.to_owned(),
        (name, ip) => format!("{name}/{ip}"),
    };
    sheet.field("Node", node);
    sheet.some("Start Time", status.text("startTime"));
    if pod.has("metadata.deletionTimestamp") {
        sheet.field("Status", format!("Terminating (since {})", pod.text("metadata.deletionTimestamp")));
        sheet.field("Termination Grace Period", format!("{}s", pod.int("metadata.deletionGracePeriodSeconds")));
    } else {
        sheet.field("Status", status.text("phase"));
    }
    sheet.some("Reason", status.text("reason"));
    sheet.some("Message", status.text("message"));
    sheet.field("IP", status.text("podIP"));
    let ips: Vec<&str> = status.items("podIPs").iter().map(|ip| ip.text("ip")).collect();
    sheet.field("IPs", ips.join(", "));
    sheet.some("Controlled By", controller(pod));
    containers::describe(
        "Init Containers",
        spec.items("initContainers"),
        Some(status.items("initContainerStatuses")),
        sheet,
    );
    containers::describe("Containers", spec.items("containers"), Some(status.items("containerStatuses")), sheet);
    conditions(pod, sheet);
    volumes(spec, sheet);
    sheet.some("QoS Class", status.text("qosClass"));
    sheet.field("Node-Selectors", in_one_line(spec.at("nodeSelector")));
    let tolerations: Vec<String> = spec.items("tolerations").iter().map(toleration).collect();
    sheet.field("Tolerations", tolerations.join("\n"));
}

pub(super) fn volumes(spec: &Value, sheet: &mut Sheet) {
    if spec.items("volumes").is_empty() {
        return;
    }
    sheet.heading("Volumes");
    for volume in spec.items("volumes") {
        let kind = volume.as_object().into_iter().flatten().find(|(key, _)| *key != "name");
        sheet.block(STEP, &format!("{}:", volume.text("name")));
        if let Some((kind, what)) = kind {
            let text = api::yaml::to_yaml(what);
            sheet.block(2 * STEP, &format!("{kind}:"));
            sheet.block(3 * STEP, &text);
        }
    }
}

fn toleration(one: &Value) -> String {
    let value = if one.text("value").is_empty() { String::new() } else { format!("={}", one.text("value")) };
    let effect = if one.text("effect").is_empty() { String::new() } else { format!(":{}", one.text("effect")) };
    let exists = if one.text("operator") == "Exists" { " op=Exists" } else { "" };
    let time = one.at("tolerationSeconds").as_i64().map(|seconds| format!(" for {seconds}s")).unwrap_or_default();
    format!("{}{value}{effect}{exists}{time}", one.text("key"))
}
