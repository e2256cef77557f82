use jiff::{SignedDuration, Timestamp};

use super::client::{Connection, agent, web};

fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
}

async fn logs(connection: &mut Connection, query: &str) -> (u16, String) {
    let line = format!("GET /containerLogs/default/web/main?{query}");
    let (code, _) = connection.ask(&line, &[("Connection", "close")]).await;
    (code, unchunked(&connection.rest().await))
}

fn unchunked(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((size, after)) = rest.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size, 16) else { return text.to_owned() };
        out.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
    }
    if out.is_empty() { text.to_owned() } else { out }
}

#[tokio::test]
async fn log_options_select_parts_of_a_log() {
    let (agent, fake) = agent();
    for (second, line) in [(1, "one"), (2, "two"), (3, "three")] {
        fake.log(&web(), at(second), line);
    }
    for (query, wanted) in [
        ("", "one\ntwo\nthree\n"),
        ("tailLines=1", "three\n"),
        ("sinceTime=1970-01-01T00:00:02Z", "two\nthree\n"),
        ("tailLines=1&timestamps=true", "1970-01-01T00:00:03.000000000Z three\n"),
        ("limitBytes=5", "one\nt"),
    ] {
        assert_eq!(logs(&mut Connection::new(&agent), query).await, (200, wanted.to_owned()), "{query}");
    }
    let none = (400, "previous terminated container \"main\" in pod \"web\" not found\n".to_owned());
    assert_eq!(logs(&mut Connection::new(&agent), "previous=true").await, none);
    fake.restart(&web());
    assert_eq!(logs(&mut Connection::new(&agent), "previous=true&tailLines=1").await, (200, "three\n".to_owned()));
    assert_eq!(logs(&mut Connection::new(&agent), "tailLines=-1").await.0, 400);
}

#[tokio::test]
async fn a_followed_log_ends_with_its_container() {
    let (agent, fake) = agent();
    fake.log(&web(), at(1), "before");
    let mut connection = Connection::new(&agent);
    let line = "GET /containerLogs/default/web/main?follow=true";
    assert_eq!(connection.ask(line, &[("Connection", "close")]).await.0, 200);
    while !String::from_utf8_lossy(&connection.held).contains("before") {
        assert!(connection.more().await);
    }
    fake.log(&web(), at(2), "after");
    fake.end(&web());
    assert!(unchunked(&connection.rest().await).ends_with("after\n"));
}

#[tokio::test]
async fn pods_and_health() {
    let (agent, _) = agent();
    let mut connection = Connection::new(&agent);
    assert_eq!(connection.ask("GET /healthz", &[]).await.0, 200);
    assert_eq!(connection.exactly(2).await, "ok");
    assert_eq!(connection.ask("GET /pods", &[("Connection", "close")]).await.0, 200);
    let list: serde_json::Value = serde_json::from_str(&connection.rest().await).expect("JSON");
    assert_eq!((list["kind"].as_str(), list["items"][0]["metadata"]["name"].as_str()), (Some("PodList"), Some("web")));
}

#[tokio::test]
async fn log_files_and_metrics() {
    let (agent, _) = agent();
    for (path, code, text) in [
        ("/logs/", 200, "<a href=\"pods/\">pods/</a>"),
        ("/logs/../../../etc/passwd", 404, "404 page not found"),
        ("/logs/%2e%2e/secret", 404, "404 page not found"),
        ("/metrics", 200, "# EOF"),
    ] {
        let mut connection = Connection::new(&agent);
        let (found, _) = connection.ask(&format!("GET {path}"), &[("Connection", "close")]).await;
        let body = connection.rest().await;
        assert!(found == code && body.contains(text), "{path}: {found} {body}");
    }
}
