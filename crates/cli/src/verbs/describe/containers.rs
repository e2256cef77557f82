//! Containers, as Pods and templates of Pods have them.

use api::value::ValueExt as _;
use serde_json::Value;

use super::sheet::{Sheet, pairs};

/// Describes a list of containers; the statuses are those of a Pod.
pub(super) fn describe(title: &str, containers: &[Value], statuses: Option<&[Value]>, sheet: &mut Sheet) {
    if containers.is_empty() {
        return;
    }
    sheet.heading(title);
    sheet.inside(|sheet| {
        for container in containers {
            sheet.heading(container.text("name"));
            let status = statuses.and_then(|all| all.iter().find(|one| one.text("name") == container.text("name")));
            sheet.inside(|sheet| one(container, status, statuses.is_some(), sheet));
        }
    });
}

fn one(container: &Value, status: Option<&Value>, running: bool, sheet: &mut Sheet) {
    sheet.some("Container ID", status.map(|status| status.text("containerID")).unwrap_or_default());
    sheet.field("Image", container.text("image"));
    let ports = container.items("ports").iter();
    let ports: Vec<String> =
        ports.map(|port| format!("{}/{}", port.int("containerPort"), port.text("protocol"))).collect();
    sheet.field("Port", ports.join(", "));
    sheet.some("Command", container.texts("command").join("\n"));
    sheet.some("Args", container.texts("args").join("\n"));
    sheet.some("Working Dir", container.text("workingDir"));
    if running {
        state("State", status.map_or(&Value::Null, |status| status.at("state")), sheet);
        if status.is_some_and(|status| status.at("lastState").as_object().is_some_and(|last| !last.is_empty())) {
            state("Last State", status.map_or(&Value::Null, |status| status.at("lastState")), sheet);
        }
        sheet.field("Ready", if status.is_some_and(|status| status.flag("ready")) { "True" } else { "False" });
        sheet.field("Restart Count", status.map_or(0, |status| status.int("restartCount")).to_string());
    }
    sheet.some("Limits", pairs(container.at("resources.limits"), ": "));
    sheet.some("Requests", pairs(container.at("resources.requests"), ": "));
    for (name, field) in [("Liveness", "livenessProbe"), ("Readiness", "readinessProbe"), ("Startup", "startupProbe")] {
        sheet.some(name, probe(container.at(field)));
    }
    let variables: Vec<String> = container.items("env").iter().map(variable).collect();
    sheet.field("Environment", variables.join("\n"));
    let mounts = container.items("volumeMounts").iter().map(|mount| {
        let rights = if mount.flag("readOnly") { "ro" } else { "rw" };
        format!("{} from {} ({rights})", mount.text("mountPath"), mount.text("name"))
    });
    sheet.field("Mounts", mounts.collect::<Vec<_>>().join("\n"));
}

fn state(name: &str, state: &Value, sheet: &mut Sheet) {
    let Some((kind, what)) = state.as_object().and_then(|state| state.iter().next()) else {
        sheet.field(name, "Waiting");
        return;
    };
    let mut title = kind.clone();
    title[..1].make_ascii_uppercase();
    sheet.field(name, title);
    sheet.inside(|sheet| {
        sheet.some("Reason", what.text("reason"));
        sheet.some("Message", what.text("message"));
        if kind == "terminated" {
            sheet.field("Exit Code", what.int("exitCode").to_string());
        }
        sheet.some("Started", what.text("startedAt"));
        sheet.some("Finished", what.text("finishedAt"));
    });
}

fn probe(probe: &Value) -> String {
    if probe.is_null() {
        return String::new();
    }
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let what = if probe.has("httpGet") {
        let get = probe.at("httpGet");
        format!(
            "http-get {}://{}:{}{}",
            get.text("scheme").to_lowercase(),
            get.text("host"),
            plain(get.at("port")),
            get.text("path")
        )
    } else if probe.has("tcpSocket") {
        format!("tcp-socket {}:{}", probe.text("tcpSocket.host"), plain(probe.at("tcpSocket.port")))
    } else if probe.has("grpc") {
        format!("grpc :{} {}", probe.int("grpc.port"), probe.text("grpc.service"))
    } else {
        format!("exec [{}]", probe.texts("exec.command").join(" "))
    };
    let number = |field: &str| probe.int(field);
    format!(
        "{what} delay={}s timeout={}s period={}s #success={} #failure={}",
        number("initialDelaySeconds"),
        number("timeoutSeconds"),
        number("periodSeconds"),
        number("successThreshold"),
        number("failureThreshold")
    )
}

fn variable(variable: &Value) -> String {
    let name = variable.text("name");
    let from = variable.at("valueFrom").as_object().and_then(|from| from.iter().next());
    match from {
        None => format!("{name}: {}", variable.text("value")),
        Some((kind, from)) if from.has("key") => {
            let kind = kind.trim_end_matches("KeyRef");
            format!("{name}: <the key {} of {kind} {}>", from.text("key"), from.text("name"))
        }
        Some((_, from)) => format!("{name}: ({})", from.text("fieldPath").to_owned() + from.text("resource")),
    }
}
