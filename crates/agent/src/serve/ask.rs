//! What a request to the agent wants: method, path and query in, an [`Ask`] or a refusal out. Pure.

use http::{Method, StatusCode};
use jiff::{SignedDuration, Timestamp};

use crate::workloads::{Attach, ContainerId, Exec, LogOptions, PodId};

/// The most ports over WebSocket of old: each has two channels, and a channel is one byte.
const PORTS: usize = 100;

/// What is wanted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Whether we are there.
    Health,
    /// The Pods.
    Pods,
    /// A log, of which at most so many bytes.
    Logs { of: ContainerId, options: LogOptions, limit: Option<u64> },
    /// A command.
    Exec { of: ContainerId, how: Exec },
    /// The streams of a container.
    Attach { of: ContainerId, how: Attach },
    /// How the proxy of this node stands; for one Service, or all. One may be tried as well.
    Report { service: Option<String>, is_tried: bool },
    /// The rules of a Service.
    Rules { service: String },
    /// Connections; over WebSocket of old to these ports.
    Forward { pod: PodId, ports: Result<Vec<u16>, String> },
}

/// A code and a sentence.
pub(super) type No = (StatusCode, String);

/// Reads a request.
pub(super) fn read(method: &Method, path: &str, query: &str, now: Timestamp) -> Result<Ask, No> {
    let parts: Vec<String> = path.trim_matches('/').split('/').map(|part| decode(part, false)).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let query = parse(query);
    let ask = match parts[..] {
        ["healthz"] => Ask::Health,
        ["pods" | "runningpods"] => Ask::Pods,
        ["containerLogs", namespace, pod, container] => {
            let (options, limit) = log_options(&query, now).map_err(bad)?;
            Ask::Logs { of: container_id(namespace, pod, container), options, limit }
        }
        ["exec", namespace, pod, container] | ["exec", namespace, pod, _, container] => {
            let Attach { stdin, stdout, stderr, tty } = switches(&query).map_err(bad)?;
            let command: Vec<String> = all(&query, "command").map(str::to_owned).collect();
            if command.is_empty() {
                return Err(bad("you must specify at least 1 command"));
            }
            Ask::Exec { of: container_id(namespace, pod, container), how: Exec { command, stdin, stdout, stderr, tty } }
        }
        ["attach", namespace, pod, container] | ["attach", namespace, pod, _, container] => {
            Ask::Attach { of: container_id(namespace, pod, container), how: switches(&query).map_err(bad)? }
        }
        ["portForward", namespace, pod] | ["portForward", namespace, pod, _] => {
            Ask::Forward { pod: pod_id(namespace, pod), ports: ports(&query) }
        }
        ["waypost", "report"] => {
            let service = all(&query, "service").next().map(str::to_owned);
            let is_tried = all(&query, "try").next() == Some("true");
            if is_tried && service.is_none() {
                return Err(bad("name the Service to try: report?service=NAMESPACE/NAME&try=true"));
            }
            Ask::Report { service, is_tried }
        }
        ["waypost", "rules"] => match all(&query, "service").next() {
            Some(service) => Ask::Rules { service: service.to_owned() },
            None => return Err(bad("name the Service: rules?service=NAMESPACE/NAME")),
        },
        _ => return Err((StatusCode::NOT_FOUND, "404 page not found".to_owned())),
    };
    let post = matches!(ask, Ask::Exec { .. } | Ask::Attach { .. } | Ask::Forward { .. });
    if *method == Method::GET || post && *method == Method::POST {
        Ok(ask)
    } else {
        Err((StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed".to_owned()))
    }
}

fn bad(why: impl Into<String>) -> No {
    (StatusCode::BAD_REQUEST, why.into())
}

fn pod_id(namespace: &str, name: &str) -> PodId {
    PodId { namespace: namespace.to_owned(), name: name.to_owned() }
}

fn container_id(namespace: &str, pod: &str, container: &str) -> ContainerId {
    ContainerId { pod: pod_id(namespace, pod), container: container.to_owned() }
}

type Query = Vec<(String, String)>;

fn parse(query: &str) -> Query {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(a, b)| (decode(a, true), decode(b, true)))
        .collect()
}

fn all<'a>(query: &'a Query, name: &'a str) -> impl Iterator<Item = &'a str> {
    query.iter().filter(move |(have, _)| have == name).map(|(_, value)| value.as_str())
}

/// Which streams are wanted. A terminal has one stream for both outputs.
fn switches(query: &Query) -> Result<Attach, String> {
    let on = |name| all(query, name).next() == Some("1");
    let tty = on("tty");
    let how = Attach { stdin: on("input"), stdout: on("output"), stderr: on("error") && !tty, tty };
    if how.stdin || how.stdout || how.stderr {
        Ok(how)
    } else {
        Err("you must specify at least 1 of stdin, stdout, stderr".to_owned())
    }
}

fn log_options(query: &Query, now: Timestamp) -> Result<(LogOptions, Option<u64>), String> {
    let first = |name| all(query, name).next().filter(|value| !value.is_empty());
    let on = |name| matches!(first(name), Some("true" | "1" | "t" | "T" | "TRUE" | "True"));
    let number = |name: &'static str| {
        let read = |text: &str| text.parse::<u64>().map_err(|_| format!("{name}: {text:?} is not a number"));
        first(name).map(read).transpose()
    };
    let ago =
        |seconds: u64| now - SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX).min(now.as_second()));
    let at = |text: &str| text.parse::<Timestamp>().map_err(|_| format!("sinceTime: {text:?} is not a time"));
    let options = LogOptions {
        follow: on("follow"),
        tail_lines: number("tailLines")?,
        since: first("sinceTime").map(at).transpose()?.or(number("sinceSeconds")?.map(ago)),
        timestamps: on("timestamps"),
        previous: on("previous"),
    };
    Ok((options, number("limitBytes")?))
}

/// The ports of a WebSocket of old: numbers, in lists or one by one.
fn ports(query: &Query) -> Result<Vec<u16>, String> {
    let mut out = Vec::new();
    for text in all(query, "port").flat_map(|list| list.split(',')) {
        match text.parse::<u16>() {
            Ok(0) => return Err(format!("port {text:?} must be > 0")),
            Ok(port) => out.push(port),
            Err(_) => return Err(format!("unable to parse {text:?} as a port")),
        }
    }
    match out.len() {
        0 => Err("query parameter \"port\" is required".to_owned()),
        1..=PORTS => Ok(out),
        _ => Err(format!("at most {PORTS} ports can be forwarded at once")),
    }
}

/// Undoes percent encoding; in a query, plus signs are spaces.
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

    fn ask(path: &str, query: &str) -> Result<Ask, No> {
        read(&Method::GET, path, query, Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1000))
    }

    #[test]
    fn commands_keep_their_words() {
        let Ok(Ask::Exec { of, how }) =
            ask("/exec/a/b/c", "command=sh&command=-c&command=echo+%22x%26y%22&output=1&tty=1&error=1")
        else {
            panic!("a command")
        };
        assert_eq!((of.pod.namespace.as_str(), of.pod.name.as_str(), of.container.as_str()), ("a", "b", "c"));
        assert_eq!(how.command, ["sh", "-c", "echo \"x&y\""]);
        assert!(how.stdout && how.tty && !how.stderr && !how.stdin);
        assert!(ask("/exec/a/b/uid/c", "command=x&output=1").is_ok());
        assert_eq!(ask("/exec/a/b/c", "output=1"), Err(bad("you must specify at least 1 command")));
        assert_eq!(ask("/exec/a/b/c", "command=x"), Err(bad("you must specify at least 1 of stdin, stdout, stderr")));
    }

    #[test]
    fn options_of_logs() {
        let Ok(Ask::Logs { options, limit, .. }) =
            ask("/containerLogs/a/b/c", "follow=true&tailLines=5&sinceSeconds=100&limitBytes=7")
        else {
            panic!("a log")
        };
        let since = Some(Timestamp::UNIX_EPOCH + SignedDuration::from_secs(900));
        assert_eq!(options, LogOptions { follow: true, tail_lines: Some(5), since, ..LogOptions::default() });
        assert_eq!(limit, Some(7));
        let far = ask("/containerLogs/a/b/c", "sinceSeconds=18446744073709551615");
        assert!(matches!(far, Ok(Ask::Logs { options, .. }) if options.since == Some(Timestamp::UNIX_EPOCH)));
        assert_eq!(ask("/containerLogs/a/b/c", "tailLines=x"), Err(bad("tailLines: \"x\" is not a number")));
    }

    #[test]
    fn reports_are_of_all_services_or_of_one() {
        assert_eq!(ask("/waypost/report", ""), Ok(Ask::Report { service: None, is_tried: false }));
        let one = |is_tried| Ok(Ask::Report { service: Some("default/web".to_owned()), is_tried });
        assert_eq!(ask("/waypost/report", "service=default%2Fweb"), one(false));
        assert_eq!(ask("/waypost/report", "service=default%2Fweb&try=true"), one(true));
        assert_eq!(ask("/waypost/report", "try=true").map_err(|(code, _)| code), Err(StatusCode::BAD_REQUEST));
        assert_eq!(ask("/waypost/rules", "service=default/web"), Ok(Ask::Rules { service: "default/web".to_owned() }));
        assert_eq!(ask("/waypost/rules", "").map_err(|(code, _)| code), Err(StatusCode::BAD_REQUEST));
        assert_eq!(ask("/waypost", "").map_err(|(code, _)| code), Err(StatusCode::NOT_FOUND));
    }

    #[test]
    fn ports_of_old() {
        let of = |query| match ask("/portForward/a/b", query) {
            Ok(Ask::Forward { ports, .. }) => ports,
            other => panic!("{other:?}"),
        };
        assert_eq!(of("port=80,81&port=82"), Ok(vec![80, 81, 82]));
        assert_eq!(of(""), Err("query parameter \"port\" is required".to_owned()));
        assert_eq!(of("port=0"), Err("port \"0\" must be > 0".to_owned()));
        assert_eq!(of("port=65536"), Err("unable to parse \"65536\" as a port".to_owned()));
    }

    #[test]
    fn methods_and_paths_that_are_not_there() {
        let refused = read(&Method::DELETE, "/exec/a/b/c", "command=x&output=1", Timestamp::UNIX_EPOCH);
        assert_eq!(refused.map_err(|(code, _)| code), Err(StatusCode::METHOD_NOT_ALLOWED));
        let refused = read(&Method::POST, "/pods", "", Timestamp::UNIX_EPOCH);
        assert_eq!(refused.map_err(|(code, _)| code), Err(StatusCode::METHOD_NOT_ALLOWED));
        for path in ["/", "/exec", "/exec/a/b", "/run/a/b/c", "/exec/a/b/c/d/e"] {
            assert_eq!(ask(path, "").map_err(|(code, _)| code), Err(StatusCode::NOT_FOUND), "{path}");
        }
    }

    #[test]
    fn odd_encodings_are_taken_as_they_are() {
        assert_eq!(decode("100%", true), "100%");
        assert_eq!(decode("%zz%4", true), "%zz%4");
        assert_eq!(decode("a+b", false), "a+b");
    }
}
