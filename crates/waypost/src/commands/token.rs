//! `waypost token`: the words by which other machines are let in, made, listed, removed.
//!
//! They are Secrets of the API, so this is asking it for Secrets, and nothing is known here that `kubectl` would not show.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use api::bootstrap_token::{
    CLUSTER_INFO, KUBECONFIG, Kept, NAME_PREFIX, NAMESPACE, SIGNATURE_PREFIX, TYPE, Token, Until,
};
use api::value::ValueExt as _;
use jiff::Timestamp;
use rest::auth::bootstrap::new_token;
use rest::kubeconfig::ClusterInfo;
use serde_json::Value;

use super::reach::{self, Api, Reach};
use super::server;
use crate::config::TokenSubject;

/// How often, and how many times, it is looked whether the cluster has been described; a controller does that within milliseconds.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS: usize = 200;

/// Runs the command.
pub(crate) fn exec(subject: &TokenSubject) -> anyhow::Result<()> {
    let said = server::runtime()?.block_on(async {
        match subject {
            TokenSubject::Create { reach, ttl, description, print_join_command } => {
                create(reach, *ttl, description, *print_join_command).await
            }
            TokenSubject::List { reach } => list(&mut reach.api()?, Timestamp::now()).await,
            TokenSubject::Delete { reach, ids } => delete(&mut reach.api()?, ids).await,
        }
    })?;
    reach::print(&said)
}

async fn create(reach: &Reach, ttl: Duration, description: &str, whole_command: bool) -> anyhow::Result<String> {
    let mut api = reach.api()?;
    let until = match ttl {
        Duration::ZERO => None,
        ttl => Some(Timestamp::now().checked_add(ttl).context("--ttl ends after the end of time; 0 is for ever")?),
    };
    let token = new_token();
    let secrets = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
    api.create(&secrets, &token.keep(description, until)).await?;
    if !whole_command {
        return Ok(token.text() + "\n");
    }
    match join_command(&mut api, &token).await {
        Ok(command) => Ok(command + "\n"),
        Err(error) => {
            // One that nobody can use should not be left behind.
            api.delete(&format!("{secrets}/{NAME_PREFIX}{}", token.id())).await?;
            Err(error)
        }
    }
}

/// The command with which a machine joins.
async fn join_command(api: &mut Api, token: &Token) -> anyhow::Result<String> {
    let info = described(api, token).await?;
    let address = info.server.strip_prefix("https://").unwrap_or(&info.server);
    ensure!(
        !info.is_on_loopback(),
        "the server listens on {address}, which other machines cannot reach; start it with --listen 0.0.0.0:6443, or name the address \
         by which they do with --advertise-address"
    );
    Ok(format!("waypost node --join {address} --token {} --ca-hash {}", token.text(), info.ca_hash()?))
}

/// What the cluster says of itself, once it is signed with the token: then a machine can believe it.
async fn described(api: &mut Api, token: &Token) -> anyhow::Result<ClusterInfo> {
    let (namespace, name) = CLUSTER_INFO;
    let signature = format!("{SIGNATURE_PREFIX}{}", token.id());
    for _ in 0..LOOKS {
        let map = api.get(&format!("/api/v1/namespaces/{namespace}/configmaps/{name}")).await?.unwrap_or_default();
        let entry = |key: &str| map.at("data").get(key).and_then(Value::as_str);
        if let (Some(text), Some(_)) = (entry(KUBECONFIG), entry(&signature)) {
            return ClusterInfo::parse(text).with_context(|| format!("reading the ConfigMap {namespace}/{name}"));
        }
        tokio::time::sleep(LOOK).await;
    }
    bail!("the server does not describe itself in the ConfigMap {namespace}/{name}; are its controllers running?")
}

async fn list(api: &mut Api, now: Timestamp) -> anyhow::Result<String> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets?fieldSelector=type={TYPE}");
    let found = api.get(&path).await?.unwrap_or_default();
    let mut out = format!("{:<24} {:<8} {:<21} {:<27} {}\n", "TOKEN", "TTL", "EXPIRES", "USAGES", "DESCRIPTION");
    for kept in found.items("items").iter().filter_map(Kept::read) {
        let (left, end) = match kept.until {
            Until::Removed => ("<forever>".to_owned(), "<never>".to_owned()),
            Until::Time(end) => (time_left(end, now), api::lifecycle::seconds(end)),
            Until::Unreadable => ("<invalid>".to_owned(), "<invalid>".to_owned()),
        };
        let usages = [("authentication", kept.authenticates), ("signing", kept.signs)];
        let usages: Vec<&str> = usages.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect();
        let description = if kept.description.is_empty() { "<none>" } else { &kept.description };
        let _ = writeln!(out, "{:<24} {left:<8} {end:<21} {:<27} {description}", kept.token.text(), usages.join(","));
    }
    Ok(out)
}

fn time_left(end: Timestamp, now: Timestamp) -> String {
    match end.duration_since(now).as_secs() {
        seconds if seconds <= 0 => "<over>".to_owned(),
        seconds if seconds < 120 => format!("{seconds}s"),
        seconds if seconds < 7200 => format!("{}m", seconds / 60),
        seconds => format!("{}h", seconds / 3600),
    }
}

async fn delete(api: &mut Api, ids: &[String]) -> anyhow::Result<String> {
    let mut out = String::new();
    for given in ids {
        let id = given.split('.').next().unwrap_or_default();
        ensure!(
            id.len() == 6 && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()),
            "{given:?} is neither the id of a token (six small letters or digits) nor a token; `waypost token list` shows them"
        );
        if !api.delete(&format!("/api/v1/namespaces/{NAMESPACE}/secrets/{NAME_PREFIX}{id}")).await? {
            bail!("there is no token {id}; `waypost token list` shows those there are");
        }
        let _ = writeln!(out, "token {id} deleted");
    }
    Ok(out)
}
