//! Parses requests to the endpoint: method, path and query in, an [`AgentRequest`] or an error out. Pure.

use http::{Method, StatusCode};
use jiff::{SignedDuration, Timestamp};

use crate::workloads::{Attach, ContainerId, Exec, LogOptions, PodId};

/// The most ports over legacy WebSocket: each has two channels, and a channel is one byte.
const PORTS: usize = 100;

/// A parsed request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AgentRequest {
    /// Health check.
    Health,
    /// The list of Pods.
    Pods,
    /// Prometheus metrics.
    Metrics,
    /// A directory or file of the logs of the node.
    LogFiles { path: Vec<String> },
    /// A log, with `limitBytes`.
    Logs { of: ContainerId, options: LogOptions, limit: Option<u64> },
    /// Exec.
    Exec { of: ContainerId, how: Exec },
    /// Attach.
    Attach { of: ContainerId, how: Attach },
    /// The state of the proxy for one Service or all; one may be connected to as well.
    Report { service: Option<String>, is_tried: bool },
    /// The proxy rules of a Service.
    Rules { service: String },
    /// Port-forward; `ports` for legacy WebSocket.
    Forward { pod: PodId, ports: Result<Vec<u16>, BadQuery> },
}

/// Status code and message of an error.
pub(super) type HttpError = (StatusCode, String);

/// Why the query of a request is invalid; the response has the status 400.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadQuery {
    #[error("you must specify at least 1 command")]
    NoCommand,
    #[error("you must specify at least 1 of stdin, stdout, stderr")]
    NoStream,
    #[error("{0}: {1:?} is not a number")]
    Number(&'static str, String),
    #[error("sinceTime: {0:?} is not a time")]
    Time(String),
    #[error("query parameter \"port\" is required")]
    NoPort,
    #[error("port {0:?} must be > 0")]
    ZeroPort(String),
    #[error("unable to parse {0:?} as a port")]
    Port(String),
    #[error("at most {PORTS} ports can be forwarded at once")]
    TooManyPorts,
    #[error("name the Service to try: report?service=NAMESPACE/NAME&try=true")]
    NoServiceToTry,
    #[error("name the Service: rules?service=NAMESPACE/NAME")]
    NoService,
}

impl From<BadQuery> for HttpError {
    fn from(error: BadQuery) -> Self {
        (StatusCode::BAD_REQUEST, error.to_string())
    }
}

/// Parses a request.
pub(super) fn parse(method: &Method, path: &str, query: &str, now: Timestamp) -> Result<AgentRequest, HttpError> {
    let parts: Vec<String> = path.trim_matches('/').split('/').map(|part| decode(part, false)).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let query = parse_query(query);
    let request = match parts[..] {
        ["healthz"] => AgentRequest::Health,
        ["pods" | "runningpods"] => AgentRequest::Pods,
        ["metrics"] => AgentRequest::Metrics,
        ["logs", ref path @ ..] => {
            AgentRequest::LogFiles { path: path.iter().map(|part| (*part).to_owned()).collect() }
        }
        ["containerLogs", namespace, pod, container] => {
            let (options, limit) = log_options(&query, now)?;
            AgentRequest::Logs { of: container_id(namespace, pod, container), options, limit }
        }
        ["exec", namespace, pod, container] | ["exec", namespace, pod, _, container] => {
            let Attach { stdin, stdout, stderr, tty } = switches(&query)?;
            let command: Vec<String> = all(&query, "command").map(str::to_owned).collect();
            if command.is_empty() {
                return Err(BadQuery::NoCommand.into());
            }
            AgentRequest::Exec {
                of: container_id(namespace, pod, container),
                how: Exec { command, stdin, stdout, stderr, tty },
            }
        }
        ["attach", namespace, pod, container] | ["attach", namespace, pod, _, container] => {
            AgentRequest::Attach { of: container_id(namespace, pod, container), how: switches(&query)? }
        }
        ["portForward", namespace, pod] | ["portForward", namespace, pod, _] => {
            AgentRequest::Forward { pod: pod_id(namespace, pod), ports: ports(&query) }
        }
        ["waypost", "report"] => {
            let service = all(&query, "service").next().map(str::to_owned);
            let is_tried = all(&query, "try").next() == Some("true");
            if is_tried && service.is_none() {
                return Err(BadQuery::NoServiceToTry.into());
            }
            AgentRequest::Report { service, is_tried }
        }
        ["waypost", "rules"] => match all(&query, "service").next() {
            Some(service) => AgentRequest::Rules { service: service.to_owned() },
            None => return Err(BadQuery::NoService.into()),
        },
        _ => return Err((StatusCode::NOT_FOUND, "404 page not found".to_owned())),
    };
    let post =
        matches!(request, AgentRequest::Exec { .. } | AgentRequest::Attach { .. } | AgentRequest::Forward { .. });
    if *method == Method::GET || post && *method == Method::POST {
        Ok(request)
    } else {
        Err((StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed".to_owned()))
    }
}

fn pod_id(namespace: &str, name: &str) -> PodId {
    PodId { namespace: namespace.to_owned(), name: name.to_owned() }
}

fn container_id(namespace: &str, pod: &str, container: &str) -> ContainerId {
    ContainerId { pod: pod_id(namespace, pod), container: container.to_owned() }
}

type Query = Vec<(String, String)>;

fn parse_query(query: &str) -> Query {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(a, b)| (decode(a, true), decode(b, true)))
        .collect()
}

fn all<'a>(query: &'a Query, name: &'a str) -> impl Iterator<Item = &'a str> {
    query.iter().filter(move |(have, _)| have == name).map(|(_, value)| value.as_str())
}

/// The requested streams. A terminal has one output stream.
fn switches(query: &Query) -> Result<Attach, BadQuery> {
    let on = |name| all(query, name).next() == Some("1");
    let tty = on("tty");
    let how = Attach { stdin: on("input"), stdout: on("output"), stderr: on("error") && !tty, tty };
    if how.stdin || how.stdout || how.stderr { Ok(how) } else { Err(BadQuery::NoStream) }
}

fn log_options(query: &Query, now: Timestamp) -> Result<(LogOptions, Option<u64>), BadQuery> {
    let first = |name| all(query, name).next().filter(|value| !value.is_empty());
    let on = |name| matches!(first(name), Some("true" | "1" | "t" | "T" | "TRUE" | "True"));
    let number = |name: &'static str| {
        let parse = |text: &str| text.parse::<u64>().map_err(|_| BadQuery::Number(name, text.to_owned()));
        first(name).map(parse).transpose()
    };
    let ago =
        |seconds: u64| now - SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX).min(now.as_second()));
    let at = |text: &str| text.parse::<Timestamp>().map_err(|_| BadQuery::Time(text.to_owned()));
    let options = LogOptions {
        follow: on("follow"),
        tail_lines: number("tailLines")?,
        since: first("sinceTime").map(at).transpose()?.or(number("sinceSeconds")?.map(ago)),
        timestamps: on("timestamps"),
        previous: on("previous"),
    };
    Ok((options, number("limitBytes")?))
}

/// The ports of a legacy WebSocket: numbers, in lists or one by one.
fn ports(query: &Query) -> Result<Vec<u16>, BadQuery> {
    let mut out = Vec::new();
    for text in all(query, "port").flat_map(|list| list.split(',')) {
        match text.parse::<u16>() {
            Ok(0) => return Err(BadQuery::ZeroPort(text.to_owned())),
            Ok(port) => out.push(port),
            Err(_) => return Err(BadQuery::Port(text.to_owned())),
        }
    }
    match out.len() {
        0 => Err(BadQuery::NoPort),
        1..=PORTS => Ok(out),
        _ => Err(BadQuery::TooManyPorts),
    }
}

/// Percent-decodes; in a query, plus signs are spaces.
fn decode(text: &str, query: bool) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.as_bytes();
    while let [first, rest @ ..] = bytes {
        bytes = rest;
        match (first, rest) {
            (b'+', _) if query => out.push(b' '),
            (b'%', [high, low, after @ ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => {
                    out.push(high << 4 | low);
                    bytes = after;
                }
                _ => out.push(b'%'),
            },
            _ => out.push(*first),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(path: &str, query: &str) -> Result<AgentRequest, HttpError> {
        parse(&Method::GET, path, query, Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1000))
    }

    fn bad(why: &str) -> HttpError {
        (StatusCode::BAD_REQUEST, why.to_owned())
    }

    #[test]
    fn exec_arguments_are_decoded() {
        let Ok(AgentRequest::Exec { of, how }) =
            request("/exec/a/b/c", "command=sh&command=-c&command=echo+%22x%26y%22&output=1&tty=1&error=1")
        else {
            panic!("a command")
        };
        assert_eq!((of.pod.namespace.as_str(), of.pod.name.as_str(), of.container.as_str()), ("a", "b", "c"));
        assert_eq!(how.command, ["sh", "-c", "echo \"x&y\""]);
        assert!(how.stdout && how.tty && !how.stderr && !how.stdin);
        assert!(request("/exec/a/b/uid/c", "command=x&output=1").is_ok());
        assert_eq!(request("/exec/a/b/c", "output=1"), Err(bad("you must specify at least 1 command")));
        assert_eq!(
            request("/exec/a/b/c", "command=x"),
            Err(bad("you must specify at least 1 of stdin, stdout, stderr"))
        );
    }

    #[test]
    fn log_options_are_parsed() {
        let Ok(AgentRequest::Logs { options, limit, .. }) =
            request("/containerLogs/a/b/c", "follow=true&tailLines=5&sinceSeconds=100&limitBytes=7")
        else {
            panic!("a log")
        };
        let since = Some(Timestamp::UNIX_EPOCH + SignedDuration::from_secs(900));
        assert_eq!(options, LogOptions { follow: true, tail_lines: Some(5), since, ..LogOptions::default() });
        assert_eq!(limit, Some(7));
        let far = request("/containerLogs/a/b/c", "sinceSeconds=18446744073709551615");
        assert!(matches!(far, Ok(AgentRequest::Logs { options, .. }) if options.since == Some(Timestamp::UNIX_EPOCH)));
        assert_eq!(request("/containerLogs/a/b/c", "tailLines=x"), Err(bad("tailLines: \"x\" is not a number")));
    }

    #[test]
    fn reports_are_for_all_services_or_one() {
        assert_eq!(request("/waypost/report", ""), Ok(AgentRequest::Report { service: None, is_tried: false }));
        let one = |is_tried| Ok(AgentRequest::Report { service: Some("default/web".to_owned()), is_tried });
        assert_eq!(request("/waypost/report", "service=default%2Fweb"), one(false));
        assert_eq!(request("/waypost/report", "service=default%2Fweb&try=true"), one(true));
        assert_eq!(request("/waypost/report", "try=true").map_err(|(code, _)| code), Err(StatusCode::BAD_REQUEST));
        assert_eq!(
            request("/waypost/rules", "service=default/web"),
            Ok(AgentRequest::Rules { service: "default/web".to_owned() })
        );
        assert_eq!(request("/waypost/rules", "").map_err(|(code, _)| code), Err(StatusCode::BAD_REQUEST));
        assert_eq!(request("/waypost", "").map_err(|(code, _)| code), Err(StatusCode::NOT_FOUND));
    }

    #[test]
    fn log_files_have_the_parts_of_their_path() {
        let files =
            |path: &[&str]| Ok(AgentRequest::LogFiles { path: path.iter().map(|part| (*part).to_owned()).collect() });
        assert_eq!(request("/logs/", ""), files(&[]));
        assert_eq!(request("/logs", ""), files(&[]));
        assert_eq!(request("/logs/pods/a_b_c/", ""), files(&["pods", "a_b_c"]));
        assert_eq!(request("/logs/..%2F..%2Fetc/passwd", ""), files(&["../../etc", "passwd"]));
        assert_eq!(request("/metrics", ""), Ok(AgentRequest::Metrics));
        assert_eq!(request("/metrics/cadvisor", "").map_err(|(code, _)| code), Err(StatusCode::NOT_FOUND));
    }

    #[test]
    fn ports_of_legacy_websocket() {
        let of = |query| match request("/portForward/a/b", query) {
            Ok(AgentRequest::Forward { ports, .. }) => ports.map_err(|error| error.to_string()),
            other => panic!("{other:?}"),
        };
        assert_eq!(of("port=80,81&port=82"), Ok(vec![80, 81, 82]));
        assert_eq!(of(""), Err("query parameter \"port\" is required".to_owned()));
        assert_eq!(of("port=0"), Err("port \"0\" must be > 0".to_owned()));
        assert_eq!(of("port=65536"), Err("unable to parse \"65536\" as a port".to_owned()));
    }

    #[test]
    fn unknown_methods_and_paths_are_errors() {
        let refused = parse(&Method::DELETE, "/exec/a/b/c", "command=x&output=1", Timestamp::UNIX_EPOCH);
        assert_eq!(refused.map_err(|(code, _)| code), Err(StatusCode::METHOD_NOT_ALLOWED));
        let refused = parse(&Method::POST, "/pods", "", Timestamp::UNIX_EPOCH);
        assert_eq!(refused.map_err(|(code, _)| code), Err(StatusCode::METHOD_NOT_ALLOWED));
        for path in ["/", "/exec", "/exec/a/b", "/run/a/b/c", "/exec/a/b/c/d/e"] {
            assert_eq!(request(path, "").map_err(|(code, _)| code), Err(StatusCode::NOT_FOUND), "{path}");
        }
    }

    #[test]
    fn invalid_percent_encodings_are_kept() {
        assert_eq!(decode("100%", true), "100%");
        assert_eq!(decode("%zz%4", true), "%zz%4");
        assert_eq!(decode("a+b", false), "a+b");
    }
}
