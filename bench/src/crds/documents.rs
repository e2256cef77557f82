//! What clients read about kinds: discovery, legacy and aggregated, and OpenAPI v3.
//!
//! In: a server with this number of definitions. Out: how long a client takes to read all of it over one connection, when everything is
//! established.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use client::http::{Client, Method};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::manifests;
use crate::report::Figures;
use crate::stats::{median, megabytes};

/// What kubectl accepts since aggregated discovery.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// How long kinds may take until discovery and OpenAPI list them.
const TIMEOUT: Duration = Duration::from_secs(300);
/// How often documents are requested until they list everything.
const POLL: Duration = Duration::from_millis(50);
/// How often something is measured.
const REPEATS: usize = 5;

/// Waits until aggregated discovery lists the kinds of all definitions, then reads discovery in both forms.
///
/// # Errors
/// When something is missing.
pub async fn discovery(
    client: &mut Client,
    definitions: usize,
    begun: Instant,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let complete = async {
        while kinds(&get(client, "/apis", AGGREGATED).await?)? < definitions {
            sleep(POLL).await;
        }
        anyhow::Ok(())
    };
    timeout(TIMEOUT, complete).await.context("discovery does not list all kinds in time")??;
    figures.set("discovered_s", begun.elapsed().as_secs_f64());
    let (mut aggregated, mut legacy, mut size, mut requests) = (Vec::new(), Vec::new(), 0, 0);
    for _ in 0..REPEATS {
        let begun = Instant::now();
        get(client, "/api", AGGREGATED).await?;
        size = get(client, "/apis", AGGREGATED).await?.len();
        aggregated.push(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        requests = walk(client, definitions).await?;
        legacy.push(begun.elapsed().as_secs_f64());
    }
    figures.set("discovery_aggregated_s", median(&aggregated));
    figures.set("discovery_aggregated_mb", megabytes(size as u64));
    figures.set("discovery_legacy_s", median(&legacy));
    figures.set("discovery_legacy_requests", f64::from(u32::try_from(requests)?));
    Ok(())
}

/// Reads legacy discovery as clients do: the groups, then the resources of each version. How many requests that took.
async fn walk(client: &mut Client, definitions: usize) -> anyhow::Result<usize> {
    const JSON: &str = "application/json";
    get(client, "/api", JSON).await?;
    get(client, "/api/v1", JSON).await?;
    let groups: Value = serde_json::from_slice(&get(client, "/apis", JSON).await?).context("reading the groups")?;
    let versions = groups["groups"].as_array().into_iter().flatten().flat_map(|group| group["versions"].as_array());
    let versions: Vec<&str> = versions.flatten().filter_map(|version| version["groupVersion"].as_str()).collect();
    let mut bytes = Vec::with_capacity(versions.len());
    for version in &versions {
        bytes.push(get(client, &format!("/apis/{version}"), JSON).await?);
    }
    let found = bytes.iter().map(|list| count(list, b"\"kind\":\"Worker")).sum::<usize>();
    // Each kind has a resource and its status.
    ensure!(found == 2 * definitions, "legacy discovery lists {found} resources instead of {}", 2 * definitions);
    Ok(versions.len() + 3)
}

/// Reads the index of OpenAPI v3, and the documents of all groups of the definitions, twice.
///
/// # Errors
/// When something is missing.
pub async fn openapi(client: &mut Client, definitions: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let mut groups: Vec<String> =
        (0..definitions).map(|number| format!("apis/{}/v1", manifests::group(number))).collect();
    groups.dedup();
    let begun = Instant::now();
    let complete = async {
        loop {
            let index = index(client).await?;
            if groups.iter().all(|group| index["paths"].get(group).is_some()) {
                return anyhow::Ok(index);
            }
            sleep(POLL).await;
        }
    };
    let listed = timeout(TIMEOUT, complete).await.context("OpenAPI does not list all groups in time")??;
    figures.set("openapi_index_s", begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    let size = documents(client, &listed, &groups).await?;
    figures.set("openapi_documents_s", begun.elapsed().as_secs_f64());
    figures.set("openapi_documents_mb", megabytes(size as u64));
    let begun = Instant::now();
    let listed = index(client).await?;
    documents(client, &listed, &groups).await?;
    figures.set("openapi_again_s", begun.elapsed().as_secs_f64());
    Ok(())
}

async fn index(client: &mut Client) -> anyhow::Result<Value> {
    let bytes = get(client, "/openapi/v3", "application/json").await?;
    serde_json::from_slice(&bytes).context("reading the index of OpenAPI")
}

/// Reads the documents of these groups; their size together.
async fn documents(client: &mut Client, index: &Value, groups: &[String]) -> anyhow::Result<usize> {
    let mut size = 0;
    for group in groups {
        let url = index["paths"][group]["serverRelativeURL"].as_str().context("a document without a URL")?;
        let document = get(client, url, "application/json").await?;
        ensure!(count(&document, b"\"kind\":\"Worker") > 0, "the document of {group} describes no kind");
        size += document.len();
    }
    Ok(size)
}

async fn get(client: &mut Client, path: &str, accept: &str) -> anyhow::Result<Bytes> {
    let response = client.open_as(Method::GET, path, accept, None, Bytes::new()).await?;
    ensure!(response.status().as_u16() == 200, "{path} was answered with {}", response.status());
    Ok(response.into_body().collect().await.with_context(|| format!("reading {path}"))?.to_bytes())
}

/// How many kinds of ours aggregated discovery lists.
fn kinds(list: &[u8]) -> anyhow::Result<usize> {
    let list: Value = serde_json::from_slice(list).context("reading aggregated discovery")?;
    let versions = list["items"].as_array().into_iter().flatten().flat_map(|group| group["versions"].as_array());
    let resources = versions.flatten().flat_map(|version| version["resources"].as_array()).flatten();
    Ok(resources
        .filter(|resource| resource["resource"].as_str().is_some_and(|name| name.starts_with("workers")))
        .count())
}

/// How often a text occurs.
fn count(bytes: &[u8], text: &[u8]) -> usize {
    bytes.windows(text.len()).filter(|window| *window == text).count()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_of_the_load_are_counted_in_aggregated_discovery() {
        let resource = |name: &str| json!({"resource": name, "subresources": [{"subresource": "status"}]});
        let list = json!({"items": [
            {"versions": [{"version": "v1", "resources": [resource("workers1"), resource("workers2")]}]},
            {"versions": [{"version": "v1", "resources": [resource("deployments")]}]},
        ]});
        assert_eq!(kinds(list.to_string().as_bytes()).expect("a list"), 2);
        assert_eq!(count(b"abcabcab", b"abc"), 2);
    }
}
