//! Admission of connections: `exec`, `attach`, `portforward` and `proxy` pass policies and webhooks before anything is dialed.

use api::dynamic_admission::request::Operation;
use api::status::Status;
use api::value::ValueExt as _;
use serde_json::{Value, json};

use super::api_request::ApiRequest;
use crate::query;

/// Runs policies and webhooks for a connection, and returns their warnings. They see its options; changes of them have no effect.
pub(super) async fn admit(request: &ApiRequest<'_>) -> Result<Vec<String>, Status> {
    let mut warnings = Vec::new();
    let part = request.target.subresource.map_or("", |part| part.name);
    // Reading a log is not a connection.
    if part != "log" {
        let mut options = options(part, &request.context.query, || super::proxy::path(request));
        let connection = request.about(Operation::Connect, request.name);
        let call = request.call("", false);
        request.shared.registry.admit_message(&call, connection, &mut options, &mut warnings).await?;
    }
    Ok(warnings)
}

/// The options of a connection, from the query of its request; `path` is the path of a proxy request.
fn options(part: &str, query: &[(String, String)], path: impl FnOnce() -> String) -> Value {
    let all =
        |name: &str| query.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect::<Vec<_>>();
    let mut out = json!({});
    if part == "proxy" {
        out.put("path", path().split('?').next().unwrap_or_default());
        return out;
    }
    for flag in ["stdin", "stdout", "stderr", "tty"] {
        if matches!(query::first(query, flag), Some("true" | "1")) {
            out.put(flag, true);
        }
    }
    if let Some(container) = query::first(query, "container") {
        out.put("container", container);
    }
    let (command, ports) = (all("command"), all("ports"));
    if !command.is_empty() {
        out.put("command", json!(command));
    }
    let ports: Vec<u16> = ports.iter().flat_map(|list| list.split(',')).filter_map(|port| port.parse().ok()).collect();
    if !ports.is_empty() {
        out.put("ports", json!(ports));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_from_the_query() {
        let query = query::parse("container=c&command=sh&command=-c&stdin=true&tty=false&stdout=1");
        assert_eq!(
            options("exec", &query, String::new),
            json!({"container": "c", "command": ["sh", "-c"], "stdin": true, "stdout": true})
        );
        assert_eq!(options("portforward", &query::parse("ports=80,x,443"), String::new), json!({"ports": [80, 443]}));
        assert_eq!(options("proxy", &[], || "/a/b?c=d".to_owned()), json!({"path": "/a/b"}));
    }
}
