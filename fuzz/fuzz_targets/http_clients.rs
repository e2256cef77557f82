//! What clients of a Gateway send by HTTP/1.1 or HTTP/2, through the code that serves sockets: responses can be parsed and are limited in size,
//! and the pod receives requests that are valid, unambiguous, and made by the Gateway.
//!
//! Bits of the first byte: 1 is HTTP/2, 2 sends the preface of HTTP/2 and empty SETTINGS first, so that the input begins with frames, 4 means that
//! the input chooses messages instead of containing them. The other bits choose how the pod answers.
#![no_main]

#[path = "http_clients/messages.rs"]
mod messages;
#[path = "http_clients/pod.rs"]
mod pod;
#[path = "http_clients/responses.rs"]
mod responses;

use std::sync::{LazyLock, Mutex};

use gateway::InMemoryGateway;
use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use routing::model::{Backend, BackendProtocol, Matches, RouteId, RouteKind, Rule, ServiceTarget, Target};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
/// Bytes that lie between both ends.
const BUFFER: usize = 64 * 1024;
/// Turns of the runtime that requests get before the client closes.
const TURNS: usize = 48;

/// The Gateway, its pod, and the runtime of both.
struct World {
    runtime: Runtime,
    gateway: InMemoryGateway,
}

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| {
    // The sockets of the pod are looked at in every second turn, as they are ready at once.
    let runtime = Builder::new_current_thread().enable_all().event_interval(2).build().expect("a runtime");
    let address = runtime.block_on(pod::serve());
    let slice = json!({
        "metadata": {"namespace": "web", "name": "pod", "labels": {"kubernetes.io/service-name": "pod"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": [address.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "", "port": address.port(), "protocol": "TCP"}],
    });
    let gateway = InMemoryGateway::new(rules(), vec![serde_json::from_value(slice).expect("a slice")]);
    Mutex::new(World { runtime, gateway })
});

/// Rules with filters of most kinds; what reaches the pod carries its mark.
fn rules() -> Vec<Rule> {
    let mark = json!({"type": "RequestHeaderModifier", "requestHeaderModifier": {
        "set": [{"name": pod::MARK.0, "value": pod::MARK.1}], "add": [{"name": "x-added", "value": "1"}], "remove": ["x-removed"],
    }});
    let path = |value: &str| json!([{"path": {"type": "PathPrefix", "value": value}}]);
    let rewrite = json!({"type": "URLRewrite", "urlRewrite": {
        "hostname": "b.example", "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new"},
    }});
    let redirect = json!({"type": "RequestRedirect", "requestRedirect": {
        "scheme": "https", "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new"},
    }});
    let cors = json!({"type": "CORS", "cors": {"allowOrigins": ["https://*.example"], "allowMethods": ["*"], "allowCredentials": true}});
    let all = [
        (json!([{"path": {"value": "/"}, "method": "GET"}]), vec![mark.clone()], "pod"),
        (path("/rewritten"), vec![mark.clone(), rewrite], "pod"),
        (path("/redirected"), vec![redirect], "none"),
        (path("/shared"), vec![cors, mark.clone()], "pod"),
        (path("/none"), vec![], "none"),
        (path("/"), vec![mark], "pod"),
    ];
    all.iter().enumerate().map(|(index, (matches, filters, service))| rule(index, matches, filters, service)).collect()
}

fn rule(index: usize, matches: &Value, filters: &[Value], service: &str) -> Rule {
    let target = ServiceTarget {
        service: format!("web/{service}").into(),
        port: 80,
        port_name: "".into(),
        protocol: BackendProtocol::Http1,
        tls: None,
    };
    let target = Target::Service(target.into());
    Rule {
        route: RouteId { kind: RouteKind::Http, key: "web/fuzzed".into() },
        index,
        name: None,
        matches: Matches::Http(serde_json::from_value(matches.clone()).expect("matches")),
        filters: serde_json::from_value(json!(filters)).expect("filters"),
        mirrors: Vec::new(),
        backends: vec![Backend { weight: 1, target, filters: Vec::new(), mirrors: Vec::new(), policy: None }],
        request_timeout: None,
        backend_timeout: None,
        retry: None,
        session: None,
        policy: None,
        broken: None,
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((flags, data)) = data.split_first() else { return };
    let (is_h2, has_preface) = (flags & 1 != 0, flags & 3 == 3);
    let chosen = match flags & 5 {
        4 => messages::http1(&mut Unstructured::new(data)),
        5 => messages::http2(&mut Unstructured::new(data)),
        _ => Ok(data.to_vec()),
    };
    let Ok(chosen) = chosen else { return };
    let sent = if has_preface { [PREFACE, SETTINGS, &chosen].concat() } else { chosen };
    pod::will_answer(flags >> 3);
    let world = WORLD.lock().expect("one at a time");
    let received = world.runtime.block_on(exchange(&world.gateway, &sent, is_h2));
    // The shortest request is a dozen bytes by HTTP/2, and the longest response of the Gateway's own some hundred.
    assert!(received.len() <= BUFFER + 64 * sent.len(), "{} bytes for {}", received.len(), sent.len());
    let hidden = received.windows(pod::HIDDEN.len()).any(|part| part == pod::HIDDEN.as_bytes());
    assert!(!hidden, "what no request asked for: {}", received.escape_ascii());
    match is_h2 {
        true => frames(&received),
        false => responses::check(&received),
    }
});

/// What the Gateway sends to a client that sends these bytes, gives it some time and closes.
async fn exchange(gateway: &InMemoryGateway, sent: &[u8], is_h2: bool) -> Vec<u8> {
    let (client, server) = tokio::io::duplex(BUFFER);
    let (from, mut to) = tokio::io::split(client);
    let send = async {
        // The Gateway may close first.
        let _ = to.write_all(sent).await;
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
        let _ = to.shutdown().await;
    };
    let receive = async {
        let (mut from, mut received) = (from, Vec::new());
        let _ = from.read_to_end(&mut received).await;
        received
    };
    let ((), (), received) = tokio::join!(gateway.serve(server, is_h2), send, receive);
    received
}

/// Frames are of known kinds, and SETTINGS are the first; the last one may be incomplete.
fn frames(mut bytes: &[u8]) {
    let mut is_first = true;
    while let Some((&[a, b, c, kind, ..], rest)) = bytes.split_first_chunk::<9>() {
        assert!(is_first == (kind == 4) || kind == 4, "the first is SETTINGS, not {kind}");
        // DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION.
        assert!([0, 1, 3, 4, 6, 7, 8, 9].contains(&kind), "a frame of kind {kind}");
        is_first = false;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        bytes = rest.get(length..).unwrap_or_default();
    }
}
