//! `waypost token`: creates, lists and deletes bootstrap tokens, which are Secrets of the API.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use api::bootstrap_token::{
    CLUSTER_INFO, KUBECONFIG, Kept, NAME_PREFIX, NAMESPACE, SIGNATURE_PREFIX, TYPE, Token, Until,
};
use api::value::ValueExt as _;
use cli::api_client::{ApiClient, ApiFlags};
use cli::terminal;
use jiff::Timestamp;
use rest::auth::bootstrap::new_token;
use rest::kubeconfig::ClusterInfo;
use serde_json::Value;

use super::server;
use crate::config::TokenSubject;

/// Interval and number of reads of the cluster-info ConfigMap; a controller signs it within milliseconds.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const POLLS: usize = 200;

/// Runs the command.
pub(crate) fn exec(subject: &TokenSubject) -> anyhow::Result<()> {
    let said = server::runtime()?.block_on(async {
        match subject {
            TokenSubject::Create { api, ttl, description, print_join_command } => {
                create(api, *ttl, description, *print_join_command).await
            }
            TokenSubject::List { api } => list(&mut api.client()?, Timestamp::now()).await,
            TokenSubject::Delete { api, ids } => delete(&mut api.client()?, ids).await,
        }
    })?;
    terminal::print(&said)
}

async fn create(flags: &ApiFlags, ttl: Duration, description: &str, whole_command: bool) -> anyhow::Result<String> {
    let mut api = flags.client()?;
    let until = match ttl {
        Duration::ZERO => None,
        ttl => Some(Timestamp::now().checked_add(ttl).context("--ttl is too long; 0 never expires")?),
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
            // The token cannot be used: delete it.
            api.delete(&format!("{secrets}/{NAME_PREFIX}{}", token.id())).await?;
            Err(error)
        }
    }
}

/// The command that joins a machine.
async fn join_command(api: &mut ApiClient, token: &Token) -> anyhow::Result<String> {
    let info = signed_cluster_info(api, token).await?;
    let address = info.server.strip_prefix("https://").unwrap_or(&info.server);
    ensure!(
        !info.is_on_loopback(),
        "the server listens on {address}, which other machines cannot reach; start it with --listen 0.0.0.0:6443, or name the address \
         by which they do with --advertise-address"
    );
    Ok(format!("waypost node --join {address} --token {} --ca-hash {}", token.text(), info.ca_hash()?))
}

/// The cluster-info, once it is signed with the token, so that a joining machine can verify it.
async fn signed_cluster_info(api: &mut ApiClient, token: &Token) -> anyhow::Result<ClusterInfo> {
    let (namespace, name) = CLUSTER_INFO;
    let signature = format!("{SIGNATURE_PREFIX}{}", token.id());
    for _ in 0..POLLS {
        let map = api.get(&format!("/api/v1/namespaces/{namespace}/configmaps/{name}")).await?.unwrap_or_default();
        let entry = |key: &str| map.at("data").get(key).and_then(Value::as_str);
        if let (Some(text), Some(_)) = (entry(KUBECONFIG), entry(&signature)) {
            return ClusterInfo::parse(text).with_context(|| format!("reading the ConfigMap {namespace}/{name}"));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    bail!("the ConfigMap {namespace}/{name} is not signed with the token; are the controllers of the server running?")
}

async fn list(api: &mut ApiClient, now: Timestamp) -> anyhow::Result<String> {
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

async fn delete(api: &mut ApiClient, ids: &[String]) -> anyhow::Result<String> {
    let mut out = String::new();
    for given in ids {
        let id = given.split('.').next().unwrap_or_default();
        ensure!(
            id.len() == 6 && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()),
            "{given:?} is neither a token ID (six lower-case letters or digits) nor a token; see `waypost token list`"
        );
        if !api.delete(&format!("/api/v1/namespaces/{NAMESPACE}/secrets/{NAME_PREFIX}{id}")).await? {
            bail!("there is no token {id}; see `waypost token list`");
        }
        let _ = writeln!(out, "token {id} deleted");
    }
    Ok(out)
}
