//! The objects of the cluster, listed once each.
//!
//! In: an API. Out: a [`Cluster`]. Services, slices and Pods must be readable, at least those of the namespace; without the rest
//! less is known, and that is all.

use announce::inputs::Lists;
use api::value::ValueExt as _;
use api::view::labels::SERVICE_NAME;
use serde_json::{Value, json};

use crate::commands::announced::{self, Announced};
use crate::commands::reach::{self, Api};
use crate::doctor::Cluster;

/// The Service of the cluster's DNS.
pub(super) const DNS: (&str, &str) = ("kube-system", "kube-dns");

/// Reads everything.
pub(super) async fn read(api: &mut Api, namespace: &str, domain: &str) -> anyhow::Result<Cluster> {
    let mut cluster = Cluster { domain: domain.to_owned(), ..Cluster::default() };
    cluster.services = required(api, "/api/v1", namespace, "services").await?;
    cluster.slices = required(api, "/apis/discovery.k8s.io/v1", namespace, "endpointslices").await?;
    cluster.pods = required(api, "/api/v1", namespace, "pods").await?;
    cluster.namespaces = api.optional("/api/v1/namespaces").await;
    cluster.nodes = api.optional("/api/v1/nodes").await;
    cluster.events = api.optional("/api/v1/events?fieldSelector=reason=Unhealthy").await;
    cluster.ranges = api.optional("/apis/networking.k8s.io/v1/servicecidrs").await;
    for (kind, plural) in [("Deployment", "deployments"), ("StatefulSet", "statefulsets")] {
        for mut one in api.optional(&format!("/apis/apps/v1/{plural}")).await {
            // Objects of a list do not say what they are.
            one["kind"] = json!(kind);
            cluster.workloads.push(one);
        }
    }
    cluster.announced = announced(api, &cluster).await;
    Ok(cluster)
}

/// Who announces addresses, where there are any; nothing when that may not be read.
async fn announced(api: &mut Api, cluster: &Cluster) -> Option<Announced> {
    if !cluster.services.iter().any(|service| !service.items("status.loadBalancer.ingress").is_empty()) {
        return Some(Announced::default());
    }
    let Cluster { services, slices, nodes, .. } = cluster.clone();
    announced::read(api, Lists { services, slices, nodes, ..Lists::default() }).await.ok()
}

/// Reads what concerns one Service, as far as its node may: the Service and its slices, where names are answered, and the Pods of
/// its namespace that run on the node.
pub(in crate::commands) async fn of_one(
    api: &mut Api,
    (namespace, name): (&str, &str),
    node: &str,
    domain: &str,
) -> anyhow::Result<Cluster> {
    let mut cluster = Cluster { domain: domain.to_owned(), ..Cluster::default() };
    for (namespace, name) in [(namespace, name), DNS] {
        reach::is_name("namespace", namespace)?;
        reach::is_name("Service", name)?;
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

/// Of the whole cluster, or of the namespace alone where no more is allowed.
async fn required(api: &mut Api, group: &str, namespace: &str, plural: &str) -> anyhow::Result<Vec<Value>> {
    match api.list(&format!("{group}/{plural}")).await {
        Ok(list) => Ok(list),
        Err(_) => api.list(&format!("{group}/namespaces/{namespace}/{plural}")).await,
    }
}
