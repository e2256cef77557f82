//! URLs: parsed as by Go's `net/url` for requests, with its errors.

mod parse;

use std::fmt;
use std::sync::Arc;

use super::{any, text};
use crate::budget::{Budget, Stop};
use crate::declare::{Functions, Native, global, member};
use crate::types::Type;
use crate::value::map::Entries;
use crate::value::{Map, Value};

pub use self::parse::check_request;

const NAME: &str = "kubernetes.URL";

/// A URL in its parts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Url {
    scheme: String,
    /// What follows the scheme when it is no path.
    opaque: String,
    /// User and password, each unescaped.
    user: Option<(String, Option<String>)>,
    host: String,
    /// Unescaped, as bytes because escapes may stand for anything.
    path: Vec<u8>,
    /// As it was written, if escaping the path gives something else.
    raw_path: String,
    omit_host: bool,
    force_query: bool,
    query: String,
    fragment: String,
}

impl Url {
    fn escaped_path(&self) -> String {
        parse::escaped_path(self)
    }

    /// Host name and port.
    fn host_and_port(&self) -> (&str, &str) {
        let split = self.host.rfind(':').map(|colon| self.host.split_at(colon));
        let (host, port) = match split {
            Some((host, port)) if parse::is_port(port) => (host, port.get(1..).unwrap_or_default()),
            _ => (self.host.as_str(), ""),
        };
        (host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(host), port)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&parse::write(self))
    }
}

pub(super) fn add(all: &mut Functions) {
    let url = || Type::object(NAME);
    all.add("url", [global("string_to_url", &[Type::String], url(), read)]);
    let parts: [(&str, &str, Native); 5] = [
        ("getScheme", "url_get_scheme", |_, args| Ok(Value::string(of(args)?.scheme.clone()))),
        ("getHost", "url_get_host", |_, args| Ok(Value::string(of(args)?.host.clone()))),
        ("getHostname", "url_get_hostname", |_, args| Ok(Value::string(of(args)?.host_and_port().0.to_owned()))),
        ("getPort", "url_get_port", |_, args| Ok(Value::string(of(args)?.host_and_port().1.to_owned()))),
        ("getEscapedPath", "url_get_escaped_path", |_, args| Ok(Value::string(of(args)?.escaped_path()))),
    ];
    for (name, id, code) in parts {
        all.add(name, [member(id, &[url()], Type::String, code)]);
    }
    let query = Type::map(Type::String, Type::list(Type::String));
    all.add("getQuery", [member("url_get_query", &[url()], query, get_query)]);
    all.add(
        "isURL",
        [global("is_url_string", &[Type::String], Type::Bool, |_, args| {
            Ok(Value::Bool(check_request(text(args, 0)?).is_ok()))
        })],
    );
}

fn of<'v>(args: &'v [Value<'_>]) -> Result<&'v Url, Stop> {
    match any(args, 0)? {
        Value::Url(url) => Ok(url),
        _ => Err(Stop::no_such_overload()),
    }
}

fn read<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let written = text(args, 0)?;
    budget.make_bytes(written.len().saturating_mul(2))?;
    let refuse = |error: String| Stop::Error(format!("URL parse error during conversion from string: {error}"));
    check_request(written).map_err(refuse)?;
    parse::parse(written).map(|url| Value::Url(Arc::new(url))).map_err(refuse)
}

fn get_query<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let url = of(args)?;
    budget.make_bytes(url.query.len().saturating_mul(8))?;
    let mut entries = Entries::default();
    for (key, values) in parse::query(&url.query) {
        entries.insert(Value::string(key), Value::strings(values));
    }
    Ok(Value::Map(Map::from_entries(entries)))
}
