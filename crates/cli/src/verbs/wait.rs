//! `waypost wait`: until objects have a condition or a value, exist, or are gone.
//!
//! In: objects, and the awaited state. Out: a line for each object that has reached it. Objects are watched, not polled. After the timeout the
//! error names the object and its state.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use api::value::ValueExt as _;
use clap::Args;
use serde_json::Value;

use super::client::{Client, Query, is_not_found};
use super::connect::Connection;
use super::jsonpath::{self, Path};
use super::target::{self, Choice, Object};
use crate::terminal::{self, Progress};

/// Settings of the verb.
#[derive(Args, Debug)]
pub struct Arguments {
    /// What to wait for: KIND[,KIND…] [NAME…], or KIND/NAME …
    #[arg(value_name = "KIND[/NAME]")]
    words: Vec<String>,
    /// The state: condition=NAME[=STATUS], jsonpath='{PATH}'[=VALUE], create or delete
    #[arg(long = "for", value_name = "STATE")]
    state: AwaitedState,
    /// Timeout, such as 30s or 5m; 0s checks once, a negative one waits without limit
    #[arg(long, default_value = "30s", value_parser = limit, allow_hyphen_values = true, value_name = "DURATION")]
    timeout: Limit,
    /// Those with these labels
    #[arg(short = 'l', long, default_value = "", value_name = "LABELS")]
    selector: String,
    /// Those with these fields
    #[arg(long, default_value = "", value_name = "FIELDS")]
    field_selector: String,
    /// All of the kind
    #[arg(long)]
    all: bool,
    /// In all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// The objects in this file or directory; - is standard input
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<String>,
    #[command(flatten)]
    connection: Connection,
}

/// The timeout; none waits for ever.
#[derive(Clone, Copy, Debug)]
struct Limit(Option<Duration>);

/// The awaited state.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AwaitedState {
    Condition {
        kind: String,
        status: String,
    },
    /// Without a value, any.
    Value {
        path: Path,
        text: Option<String>,
    },
    Create,
    Delete,
}

impl FromStr for AwaitedState {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        if let Some(condition) = text.strip_prefix("condition=") {
            let (kind, status) = condition.split_once('=').unwrap_or((condition, "True"));
            return Ok(Self::Condition { kind: kind.to_owned(), status: status.to_owned() });
        }
        if let Some(rest) = text.strip_prefix("jsonpath=") {
            let rest = rest.trim_start_matches('\'');
            let (path, value) = match rest.rfind('}') {
                Some(end) => (&rest[..=end], rest[end + 1..].trim_start_matches('\'').strip_prefix('=')),
                None => rest.split_once('=').map_or((rest, None), |(path, value)| (path, Some(value))),
            };
            return Ok(Self::Value { path: jsonpath::expression(path)?, text: value.map(str::to_owned) });
        }
        match text {
            "create" => Ok(Self::Create),
            "delete" => Ok(Self::Delete),
            _ => bail!(
                "{text:?} is no state to wait for; there are condition=NAME, jsonpath='{{PATH}}'=VALUE, create and delete"
            ),
        }
    }
}

impl AwaitedState {
    /// Whether an object has the state.
    fn holds(&self, object: &Value) -> bool {
        match self {
            Self::Create => true,
            Self::Delete => false,
            Self::Value { path, text } => {
                let found: Vec<String> = path.of(object).into_iter().map(jsonpath::text).collect();
                match text {
                    Some(text) => found.iter().any(|value| value == text),
                    None => found.iter().any(|value| !value.is_empty()),
                }
            }
            Self::Condition { kind, status } => object.items("status.conditions").iter().any(|condition| {
                condition.text("type").eq_ignore_ascii_case(kind)
                    && condition.text("status").eq_ignore_ascii_case(status)
                    && is_current(object, condition)
            }),
        }
    }
}

/// Whether a condition is about the current generation of the object.
fn is_current(object: &Value, condition: &Value) -> bool {
    let seen = match condition.int("observedGeneration") {
        0 => object.int("status.observedGeneration"),
        own => own,
    };
    seen == 0 || seen >= object.int("metadata.generation")
}

/// A duration, such as 30s; a bare number is seconds.
pub(super) fn duration(text: &str) -> anyhow::Result<Duration> {
    signed(text)?.context("it must not be negative")
}

fn limit(text: &str) -> anyhow::Result<Limit> {
    signed(text).map(Limit)
}

/// A duration; none when it is negative.
fn signed(text: &str) -> anyhow::Result<Option<Duration>> {
    let nanoseconds = match text.parse::<i64>() {
        Ok(seconds) => seconds.saturating_mul(1_000_000_000),
        Err(_) => api::duration::parse(text).map_err(anyhow::Error::msg)?,
    };
    Ok(u64::try_from(nanoseconds).ok().map(Duration::from_nanos))
}

/// Runs the verb.
pub(super) async fn exec(arguments: Arguments) -> anyhow::Result<()> {
    let mut client = arguments.connection.client()?;
    let progress = Progress::begin("");
    let mut current = String::new();
    let all = run(&mut client, &arguments, &progress, &mut current);
    match arguments.timeout.0 {
        None => all.await,
        Some(timeout) => match tokio::time::timeout(timeout.max(Duration::from_millis(500)), all).await {
            Ok(done) => done,
            Err(_) => {
                drop(progress);
                let words = arguments.words.join(" ");
                let name = if current.is_empty() { words } else { current };
                bail!(
                    "timed out waiting for {} of {name}; `waypost describe {name}` shows its state",
                    arguments.state_text()
                )
            }
        },
    }
}

impl Arguments {
    fn state_text(&self) -> String {
        match &self.state {
            AwaitedState::Condition { kind, status } if status == "True" => format!("the condition {kind}"),
            AwaitedState::Condition { kind, status } => format!("the condition {kind}={status}"),
            AwaitedState::Value { text: Some(text), .. } => format!("the value {text}"),
            AwaitedState::Value { .. } => "a value".to_owned(),
            AwaitedState::Create => "the creation".to_owned(),
            AwaitedState::Delete => "the deletion".to_owned(),
        }
    }
}

async fn run(
    client: &mut Client,
    arguments: &Arguments,
    progress: &Progress,
    current: &mut String,
) -> anyhow::Result<()> {
    let objects = match arguments.state {
        AwaitedState::Create | AwaitedState::Delete => named(client, arguments).await?,
        _ => found(client, arguments).await?,
    };
    ensure!(
        !objects.is_empty() || arguments.state == AwaitedState::Delete,
        "there is no such object; --for=create waits until there is one"
    );
    for object in &objects {
        *current = object.named();
        progress.say(format!("waiting for {} of {current}", arguments.state_text()));
        until(client, object, &arguments.state).await?;
        terminal::print(&format!("{current} condition met\n"))?;
    }
    Ok(())
}

async fn found(client: &mut Client, arguments: &Arguments) -> anyhow::Result<Vec<Object>> {
    let choice = Choice {
        words: &arguments.words,
        files: &arguments.filename,
        selector: &arguments.selector,
        fields: &arguments.field_selector,
        all: arguments.all,
        all_namespaces: arguments.all_namespaces,
    };
    target::objects(client, &choice).await
}

/// Objects that need not exist: named ones, or those that were found.
async fn named(client: &mut Client, arguments: &Arguments) -> anyhow::Result<Vec<Object>> {
    let kinds = client.kinds().await?;
    let targets = target::parse(&kinds, &arguments.words)?;
    if targets.is_empty() || targets.iter().any(|target| target.name.is_none()) {
        return found(client, arguments).await;
    }
    let object = |target: target::Target| Object {
        namespace: client.namespace.clone(),
        name: target.name.unwrap_or_default(),
        kind: target.kind,
        value: Value::Null,
    };
    Ok(targets.into_iter().map(object).collect())
}

/// Waits until an object has the state; returns the object.
pub(super) async fn until(client: &mut Client, object: &Object, state: &AwaitedState) -> anyhow::Result<Value> {
    let uid = object.value.text("metadata.uid").to_owned();
    let collection = object.kind.path(Some(&object.namespace), None);
    let query = Query::new().add("fieldSelector", &format!("metadata.name={}", object.name));
    loop {
        let list = client.get(&query.on(&collection)).await?;
        match list.items("items").first() {
            Some(other) if !uid.is_empty() && other.text("metadata.uid") != uid => {
                return if *state == AwaitedState::Delete { Ok(Value::Null) } else { Err(replaced(object)) };
            }
            Some(found) if state.holds(found) => return Ok(found.clone()),
            None if *state == AwaitedState::Delete => return Ok(Value::Null),
            None if *state != AwaitedState::Create => {
                return Err(target::missing(client, &object.kind, &object.name).await);
            }
            _ => {}
        }
        let from = query.clone().add("resourceVersion", list.text("metadata.resourceVersion"));
        let mut watch = match client.watch(&collection, &from, "application/json").await {
            Err(error) if is_not_found(&error) && *state == AwaitedState::Delete => return Ok(Value::Null),
            other => other?,
        };
        while let Some(event) = watch.next().await? {
            match (event.kind.as_str(), state) {
                ("DELETED", AwaitedState::Delete) => return Ok(Value::Null),
                ("DELETED", AwaitedState::Create) => {}
                ("DELETED", _) => bail!("{} was deleted", object.named()),
                ("ADDED" | "MODIFIED", state) if state.holds(&event.object) => return Ok(event.object),
                ("ERROR", _) => break,
                _ => {}
            }
        }
    }
}

fn replaced(object: &Object) -> anyhow::Error {
    anyhow!("{} was replaced by another of the same name; ask again", object.named())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn states_are_parsed() {
        let condition =
            |kind: &str, status: &str| AwaitedState::Condition { kind: kind.to_owned(), status: status.to_owned() };
        assert_eq!("condition=Ready".parse::<AwaitedState>().expect("a state"), condition("Ready", "True"));
        assert_eq!("condition=Ready=false".parse::<AwaitedState>().expect("a state"), condition("Ready", "false"));
        assert_eq!("delete".parse::<AwaitedState>().expect("a state"), AwaitedState::Delete);
        assert!("ready".parse::<AwaitedState>().is_err());
    }

    #[test]
    fn conditions_and_values_hold_or_not() {
        let object = json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 2, "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "Old", "status": "True", "observedGeneration": 1}]}});
        let holds = |text: &str| text.parse::<AwaitedState>().expect(text).holds(&object);
        for text in [
            "condition=ready",
            "condition=Ready=true",
            "jsonpath={.status.phase}=Running",
            "jsonpath='{.status.phase}'=Running",
            "jsonpath={.status.phase}",
            "create",
        ] {
            assert!(holds(text), "{text}");
        }
        for text in [
            "condition=Old",
            "condition=Ready=False",
            "jsonpath={.status.phase}=Pending",
            "jsonpath={.status.no}",
            "delete",
        ] {
            assert!(!holds(text), "{text}");
        }
    }

    #[test]
    fn durations_may_be_plain_seconds() {
        assert_eq!(duration("5").expect("a duration"), Duration::from_secs(5));
        assert_eq!(duration("1m30s").expect("a duration"), Duration::from_secs(90));
        assert_eq!(signed("-1s").expect("a duration"), None);
        assert!(duration("-1s").is_err());
    }
}
