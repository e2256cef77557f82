//! The access log of a node: lines of requests in a file, whatever clients send, also while the file is renamed.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::net::eventually;

use super::stage::{POLICIES, Stage, listener, to};

/// A stage whose node writes a log in this format, with a Gateway and a route of `web.test`.
fn stage(format: &str) -> (Stage, TempDir, PathBuf) {
    let folder = testbed::folder();
    let file = folder.path().join("access.log");
    let name = file.display().to_string();
    let stage = Stage::with_node(&["--gateway-access-log", format, "--gateway-access-log-file", &name]);
    stage.backend("web");
    stage.gateway(&json!([listener("http", 80)]));
    stage.route("web", "web.test", &json!([to("all", "/", "web")]));
    let _ = stage.until("the route is served", &["http://web.test/"], |page| page.code == 200);
    (stage, folder, file)
}

/// The lines of a file that have this text, when there is one.
#[track_caller]
fn lines(file: &Path, part: &str) -> Vec<String> {
    let mut found = Vec::new();
    eventually(&format!("a line has {part}"), || {
        let text = std::fs::read(file).unwrap_or_default();
        assert!(text.is_ascii(), "{}", String::from_utf8_lossy(&text));
        let text = String::from_utf8_lossy(&text).into_owned();
        // The last line may not be complete.
        let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
        found = complete.lines().filter(|line| line.contains(part)).map(str::to_owned).collect();
        !found.is_empty()
    });
    found
}

/// The only line that has this text.
#[track_caller]
fn only(file: &Path, part: &str) -> Value {
    let found = lines(file, part);
    assert_eq!(found.len(), 1, "{found:?}");
    serde_json::from_str(&found[0]).unwrap_or_else(|error| panic!("{error}: {}", found[0]))
}

#[test]
fn s52_requests_are_logged_with_what_became_of_them() {
    let (stage, _folder, file) = stage("json");
    let mode = std::fs::metadata(&file).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let with = [
        "--data",
        "hello",
        "--user-agent",
        "tester/1",
        "--referer",
        "http://ann:pw@from.test/",
        "-H",
        "X-Request-ID: r-1",
    ];
    let secret = ["-H", "Authorization: Bearer token-1", "-H", "Cookie: session=cookie-1", "http://web.test/cart?id=7"];
    let page = stage.get(&[&with[..], &secret].concat());
    assert_eq!(page.code, 200);
    let line = only(&file, "/cart?id=7");
    for (name, expected) in [
        ("client", json!(stage.client())),
        ("method", json!("POST")),
        ("scheme", json!("http")),
        ("host", json!("web.test")),
        ("path", json!("/cart?id=7")),
        ("protocol", json!("HTTP/1.1")),
        ("status", json!(200)),
        ("requestBytes", json!(5)),
        ("responseBytes", json!(page.body.len())),
        ("gateway", json!("default/public")),
        ("listener", json!("http")),
        ("port", json!(80)),
        ("route", json!("HTTPRoute/default/web")),
        ("rule", json!("all")),
        ("service", json!("default/web")),
        ("endpoint", json!(format!("{}:8080", stage.pod("web").v4()))),
        ("userAgent", json!("tester/1")),
        ("requestId", json!("r-1")),
    ] {
        assert_eq!(line[name], expected, "{name}: {line}");
    }
    for absent in ["token-1", "cookie-1", "pw"] {
        assert!(!line.to_string().contains(absent), "{absent}: {line}");
    }
    // What the gateway answers itself has a reason.
    assert_eq!(stage.get(&["http://other.test/no-route"]).code, 404);
    assert_eq!(
        (only(&file, "/no-route")["reason"].clone(), only(&file, "/no-route")["status"].clone()),
        ("no-route".into(), 404.into())
    );
    stage.secret("users", "Opaque", &json!({"auth": "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="}));
    stage.policy("passwords", "HTTPRoute/web", &json!({"authentication": {"basic": {"secretName": "users"}}}));
    let _ = stage.until("passwords are required", &["http://web.test/refused"], |page| page.code == 401);
    let refused = lines(&file, r#""reason":"password""#);
    assert!(refused.iter().all(|line| line.contains("/refused") && !line.contains(r#""user":"#)), "{refused:?}");
    assert_eq!(stage.get(&["--user", "ann:secret", "http://web.test/known"]).code, 200);
    assert_eq!(only(&file, "/known")["user"], "ann");
    stage.remove(POLICIES, "passwords");
}

#[test]
fn s52_what_clients_send_cannot_forge_a_line() {
    let (stage, _folder, file) = stage("json");
    let agent = "x\",\"status\":1,\"forged\":\"\\ \u{e4}\tend";
    let url = "http://web.test/hostile\"},{\"a\":\"b";
    let page = stage.get(&["--globoff", "--user-agent", agent, url]);
    assert_eq!(page.code, 200);
    let line = only(&file, "/hostile");
    assert_eq!((&line["status"], &line["forged"]), (&json!(200), &Value::Null), "{line}");
    assert_eq!(line["path"], "/hostile\"},{\"a\":\"b");
    let shown = line["userAgent"].as_str().unwrap_or_default();
    assert!(shown.starts_with("x\",\"status\":1,\"forged\":\"\\ ") && shown.ends_with("\tend"), "{shown}");
    // Longer values are truncated.
    let long = format!("http://web.test/long/{}", "x".repeat(8000));
    assert_eq!(stage.get(&["--user-agent", &"y".repeat(4000), &long]).code, 200);
    let line = only(&file, "/long/");
    assert_eq!(line["path"].as_str().map(str::len), Some(2048));
    assert_eq!(line["userAgent"].as_str().map(str::len), Some(512));
}

#[test]
fn s52_the_common_log_format_is_escaped() {
    let (stage, _folder, file) = stage("common");
    let page =
        stage.get(&["--user-agent", "a\" 200 \"b\\c", "--referer", "http://from.test/", "http://web.test/plain?x=1"]);
    assert_eq!(page.code, 200);
    let found = lines(&file, "/plain?x=1");
    assert_eq!(found.len(), 1, "{found:?}");
    let (start, rest) = found[0].split_once(" - - [").expect("a client");
    assert_eq!(start, stage.client());
    let (time, rest) = rest.split_once("] ").expect("a time");
    assert_eq!((time.len(), &time[20..]), (26, " +0000"), "{time}");
    let size = page.body.len();
    let expected = format!("\"GET /plain?x=1 HTTP/1.1\" 200 {size} \"http://from.test/\" \"a\\x22 200 \\x22b\\x5Cc\"");
    assert_eq!(rest, expected);
}

#[test]
fn s52_a_file_that_is_renamed_is_opened_again_on_request() {
    let (stage, folder, file) = stage("json");
    assert_eq!(stage.get(&["http://web.test/before"]).code, 200);
    let _ = only(&file, "/before");
    let old = folder.path().join("access.log.1");
    std::fs::rename(&file, &old).expect("renamed");
    assert_eq!(stage.get(&["http://web.test/between"]).code, 200);
    let _ = only(&old, "/between");
    stage.served.with_proxy(&stage.node, |node| node.hang_up());
    eventually("there is a new file", || file.exists());
    assert_eq!(stage.get(&["http://web.test/after"]).code, 200);
    let _ = only(&file, "/after");
    let old = std::fs::read_to_string(&old).expect("a file");
    assert!(old.contains("/between") && !old.contains("/after"), "{old}");
    let mode = std::fs::metadata(&file).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
