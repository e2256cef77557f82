//! The forms of a line. Pure.
//!
//! In: what is known of a request or a connection. Out: a line of JSON, without the fields that do not apply; or one of
//! the combined log format.

use std::fmt::Display;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;

use super::escape;
use super::trail::{RequestHead, RulePlace};

/// What a line says. Values of clients are limited in length and not escaped yet.
pub(super) struct Record<'a> {
    /// When the request head was complete, or the connection accepted.
    pub(super) time: Timestamp,
    pub(super) duration: Duration,
    pub(super) client: SocketAddr,
    /// The port of the Service or listener.
    pub(super) port: u16,
    pub(super) protocol: &'static str,
    /// None for a connection whose bytes are forwarded.
    pub(super) request: Option<&'a RequestHead>,
    pub(super) status: u16,
    /// Bytes of the request body, or of the client.
    pub(super) received: u64,
    /// Bytes of the response body, or to the client.
    pub(super) sent: u64,
    pub(super) gateway: Option<&'a str>,
    /// The Service at layer 7 that it is to, and the Pod that it is from.
    pub(super) parent_service: Option<&'a str>,
    pub(super) client_pod: Option<&'a str>,
    pub(super) listener: Option<&'a str>,
    pub(super) place: Option<&'a RulePlace>,
    pub(super) service: Option<&'a str>,
    pub(super) endpoint: Option<SocketAddr>,
    pub(super) user: Option<&'a [u8]>,
    pub(super) request_id: Option<&'a [u8]>,
    pub(super) tls_version: Option<&'static str>,
    pub(super) server_name: Option<&'a str>,
    pub(super) grpc_status: Option<u16>,
    pub(super) reason: Option<&'static str>,
    pub(super) is_aborted: bool,
}

/// Appends a line of JSON.
pub(super) fn json(record: &Record<'_>, out: &mut Vec<u8>) {
    let mut object = Object { out };
    // Writing to memory does not fail.
    let _ = write!(object.out, "{{\"time\":\"{:.3}\"", record.time);
    object.text("client", Some(record.client.ip().to_canonical().to_string().as_bytes()));
    object.value("clientPort", record.client.port());
    object.text("clientPod", record.client_pod.map(str::as_bytes));
    if let Some(request) = record.request {
        object.text("method", Some(&request.method));
        object.text("scheme", Some(request.scheme.as_bytes()));
        object.text("host", Some(&request.host));
        object.text("path", Some(&request.path));
    }
    object.text("protocol", Some(record.protocol.as_bytes()));
    object.value("status", record.status);
    object.value("requestBytes", record.received);
    object.value("responseBytes", record.sent);
    object.value("durationMs", format_args!("{:.3}", record.duration.as_secs_f64() * 1000.0));
    object.text("gateway", record.gateway.map(str::as_bytes));
    object.text("listener", record.listener.map(str::as_bytes));
    object.text("parentService", record.parent_service.map(str::as_bytes));
    object.value("port", record.port);
    object.text("route", record.place.map(|place| place.route.as_bytes()));
    object.text("rule", record.place.and_then(|place| place.rule.as_ref()).map(|rule| rule.as_bytes()));
    object.text("service", record.service.map(str::as_bytes));
    object.text("endpoint", record.endpoint.map(|endpoint| endpoint.to_string()).as_ref().map(String::as_bytes));
    object.text("user", record.user);
    object.text("userAgent", record.request.and_then(|request| request.user_agent.as_deref()));
    object.text("referer", record.request.and_then(|request| request.referer.as_deref()));
    object.text("requestId", record.request_id);
    object.text("tlsVersion", record.tls_version.map(str::as_bytes));
    object.text("serverName", record.server_name.map(str::as_bytes));
    if let Some(status) = record.grpc_status {
        object.value("grpcStatus", status);
    }
    object.text("reason", record.reason.map(str::as_bytes));
    if record.is_aborted {
        object.value("aborted", true);
    }
    object.out.extend_from_slice(b"}\n");
}

/// An object with a first member.
struct Object<'a> {
    out: &'a mut Vec<u8>,
}

impl Object<'_> {
    fn text(&mut self, name: &str, value: Option<&[u8]>) {
        let Some(value) = value else { return };
        let _ = write!(self.out, ",\"{name}\":\"");
        escape::json(self.out, value);
        self.out.push(b'"');
    }

    fn value(&mut self, name: &str, value: impl Display) {
        let _ = write!(self.out, ",\"{name}\":{value}");
    }
}

/// Appends a line of the combined log format. The request of a connection is `- SERVER-NAME PROTOCOL`.
pub(super) fn common(record: &Record<'_>, out: &mut Vec<u8>) {
    let (request, protocol) = (record.request, record.protocol);
    let _ = write!(out, "{} - ", record.client.ip().to_canonical());
    escape::common_word(out, record.user.filter(|user| !user.is_empty()).unwrap_or(b"-"));
    let _ = write!(out, " [{}] \"", record.time.strftime("%d/%b/%Y:%H:%M:%S +0000"));
    let name = record.server_name.unwrap_or("-").as_bytes();
    escape::common_word(out, request.map_or(&b"-"[..], |request| &request.method));
    out.push(b' ');
    escape::common_word(out, request.map_or(name, |request| &request.path));
    let _ = write!(out, " {protocol}\" {} {} ", record.status, record.sent);
    let referer = request.and_then(|request| request.referer.as_deref());
    let agent = request.and_then(|request| request.user_agent.as_deref());
    for (value, end) in [(referer, b' '), (agent, b'\n')] {
        out.push(b'"');
        escape::common(out, value.unwrap_or(b"-"));
        out.extend_from_slice(&[b'"', end]);
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn head() -> RequestHead {
        RequestHead {
            method: (*b"GET").into(),
            scheme: HeaderValue::from_static("https"),
            host: (*b"web.example").into(),
            path: (*b"/a?b=\"c d").into(),
            user_agent: Some((*b"curl\"\n{}").into()),
            referer: None,
        }
    }

    fn record<'a>(request: Option<&'a RequestHead>) -> Record<'a> {
        Record {
            time: "2026-01-02T03:04:05.678901Z".parse().expect("a time"),
            duration: Duration::from_micros(12_345),
            client: "[::ffff:192.0.2.7]:5000".parse().expect("an address"),
            port: 443,
            protocol: "TLS",
            request,
            status: 200,
            received: 3,
            sent: 128,
            gateway: None,
            parent_service: None,
            client_pod: None,
            listener: None,
            place: None,
            service: None,
            endpoint: None,
            user: None,
            request_id: None,
            tls_version: None,
            server_name: None,
            grpc_status: None,
            reason: None,
            is_aborted: false,
        }
    }

    fn line(format: fn(&Record<'_>, &mut Vec<u8>), record: &Record<'_>) -> String {
        let mut out = Vec::new();
        format(record, &mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn a_request_has_all_its_fields() {
        let (head, place) = (head(), RulePlace { route: "HTTPRoute/shop/web".into(), rule: Some("0".into()) });
        let record = Record {
            protocol: "HTTP/2.0",
            gateway: Some("shop/public"),
            listener: Some("https"),
            place: Some(&place),
            service: Some("shop/one"),
            endpoint: Some("[2001:db8::1]:80".parse().expect("an address")),
            user: Some(b"ann b"),
            request_id: Some(b"id"),
            tls_version: Some("TLSv1.3"),
            server_name: Some("web.example"),
            grpc_status: Some(14),
            reason: Some("no-endpoints"),
            is_aborted: true,
            ..record(Some(&head))
        };
        let expected = concat!(
            r#"{"time":"2026-01-02T03:04:05.678Z","client":"192.0.2.7","clientPort":5000,"method":"GET","#,
            r#""scheme":"https","host":"web.example","path":"/a?b=\"c d","protocol":"HTTP/2.0","status":200,"#,
            r#""requestBytes":3,"responseBytes":128,"durationMs":12.345,"gateway":"shop/public","listener":"https","#,
            r#""port":443,"route":"HTTPRoute/shop/web","rule":"0","service":"shop/one","endpoint":"[2001:db8::1]:80","#,
            r#""user":"ann b","userAgent":"curl\"\u000a{}","requestId":"id","tlsVersion":"TLSv1.3","#,
            r#""serverName":"web.example","grpcStatus":14,"reason":"no-endpoints","aborted":true}"#,
            "\n"
        );
        assert_eq!(line(json, &record), expected);
        assert_eq!(
            line(common, &record),
            "192.0.2.7 - ann\\x20b [02/Jan/2026:03:04:05 +0000] \"GET /a?b=\\x22c\\x20d HTTP/2.0\" 200 128 \"-\" \
             \"curl\\x22\\x0A{}\"\n"
        );
    }

    #[test]
    fn s54_a_request_to_a_service_names_it_and_the_pod() {
        let head = head();
        let record = Record {
            protocol: "HTTP/1.1",
            parent_service: Some("shop/web"),
            client_pod: Some("shop/cart-1"),
            ..record(Some(&head))
        };
        let line = line(json, &record);
        assert!(line.contains(r#","clientPort":5000,"clientPod":"shop/cart-1","method""#), "{line}");
        assert!(line.contains(r#","parentService":"shop/web","port":443"#) && !line.contains("gateway"), "{line}");
    }

    #[test]
    fn a_connection_has_the_fields_that_apply() {
        let record = Record { server_name: Some("db.example"), ..record(None) };
        let expected = concat!(
            r#"{"time":"2026-01-02T03:04:05.678Z","client":"192.0.2.7","clientPort":5000,"protocol":"TLS","#,
            r#""status":200,"requestBytes":3,"responseBytes":128,"durationMs":12.345,"port":443,"#,
            r#""serverName":"db.example"}"#,
            "\n"
        );
        assert_eq!(line(json, &record), expected);
        let expected = "192.0.2.7 - - [02/Jan/2026:03:04:05 +0000] \"- db.example TLS\" 200 128 \"-\" \"-\"\n";
        assert_eq!(line(common, &record), expected);
    }
}
