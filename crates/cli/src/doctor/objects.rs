//! The objects of the cluster, listed once each.
//!
//! In: an API. Out: a [`Cluster`] without announcements. Services, slices and Pods must be readable, at least those of the namespace; the
//! other kinds are optional.

use api::view::labels::SERVICE_NAME;
use serde_json::{Value, json};

use crate::api_client::{ApiClient, is_name};
use crate::doctor::Cluster;

/// The Service of the cluster's DNS.
pub const DNS: (&str, &str) = ("kube-system", "kube-dns");

/// Reads all kinds.
pub async fn read(api: &mut ApiClient, namespace: &str, domain: &str) -> anyhow::Result<Cluster> {
    let mut cluster = Cluster { domain: domain.to_owned(), ..Cluster::default() };
    let (services, all_services) = required(api, "/api/v1", namespace, "services").await?;
    let (slices, all_slices) = required(api, "/apis/discovery.k8s.io/v1", namespace, "endpointslices").await?;
    let (pods, all_pods) = required(api, "/api/v1", namespace, "pods").await?;
    (cluster.services, cluster.slices, cluster.pods) = (services, slices, pods);
    cluster.is_whole = all_services && all_slices && all_pods;
    cluster.namespaces = api.optional("/api/v1/namespaces").await;
    cluster.nodes = api.optional("/api/v1/nodes").await;
    cluster.events = api.optional("/api/v1/events?fieldSelector=reason=Unhealthy").await;
    cluster.ranges = api.optional("/apis/networking.k8s.io/v1/servicecidrs").await;
    let workloads = [("Deployment", "deployments"), ("StatefulSet", "statefulsets"), ("DaemonSet", "daemonsets")];
    for (kind, plural) in workloads {
        for mut one in api.optional(&format!("/apis/apps/v1/{plural}")).await {
            // Items of a list have no kind.
            one["kind"] = json!(kind);
            cluster.workloads.push(one);
        }
    }
    Ok(cluster)
}

/// Reads the objects of one Service that a node may read: the Service, its slices, the Service of the DNS, and the Pods of its namespace
/// that run on the node.
pub async fn of_one(
    api: &mut ApiClient,
    (namespace, name): (&str, &str),
    node: &str,
    domain: &str,
) -> anyhow::Result<Cluster> {
    let mut cluster = Cluster { domain: domain.to_owned(), ..Cluster::default() };
    for (namespace, name) in [(namespace, name), DNS] {
        is_name("namespace", namespace)?;
        is_name("Service", name)?;
        let path = format!("/api/v1/namespaces/{namespace}/services/{name}");
        cluster.services.extend(api.get(&path).await?);
    }
    let slices = format!(
        "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector={}%3D{name}",
        SERVICE_NAME.replace('/', "%2F")
    );
    cluster.slices = api.list(&slices).await?;
    let pods = format!("/api/v1/namespaces/{namespace}/pods?fieldSelector=spec.nodeName%3D{node}");
    cluster.pods = api.optional(&pods).await;
    Ok(cluster)
}

/// Of the whole cluster, or of the namespace alone where no more is allowed; which of the two.
async fn required(
    api: &mut ApiClient,
    group: &str,
    namespace: &str,
    plural: &str,
) -> anyhow::Result<(Vec<Value>, bool)> {
    match api.list(&format!("{group}/{plural}")).await {
        Ok(list) => Ok((list, true)),
        Err(_) => Ok((api.list(&format!("{group}/namespaces/{namespace}/{plural}")).await?, false)),
    }
}
