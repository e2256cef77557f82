//! Messages of the condition and Events: why a Service has no address, and the next command.

use std::net::IpAddr;

use api::ip::Family;
use api::pool::Pool;
use diagnose::words::list;

use super::allocate::{AllocationContext, Refusal};
use super::command_line;

/// The most pools that a message lists.
const NAMED: usize = 5;

/// The command that creates a pool.
fn make_pool(more: &str) -> String {
    format!(
        "create one: echo '{{\"apiVersion\":\"waypost.dev/v1\",\"kind\":\"IPPool\",\"metadata\":{{\"name\":\"lan\"}},\
         \"spec\":{{\"addresses\":[\"FIRST-LAST\"]{more}}}}}' | kubectl apply -f -"
    )
}

/// `pool a`, `pools a and b`.
fn names(pools: &[&Pool]) -> String {
    let names: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
    format!("{} {}", if names.len() == 1 { "pool" } else { "pools" }, list(&names, NAMED))
}

/// The command that changes a pool.
fn edit(pool: &Pool) -> String {
    if pool.name == command_line::NAME {
        return "give the server a larger --load-balancer-pool".to_owned();
    }
    format!("kubectl edit ippool {}", pool.name)
}

/// The origin of addresses.
pub(super) fn origin(addresses: &[IpAddr], pools: &[&Pool]) -> String {
    let used = |pool: &&&Pool| addresses.iter().any(|address| pool.contains(*address));
    names(&pools.iter().filter(used).copied().collect::<Vec<_>>())
}

/// No pool serves this Service.
pub(super) fn no_pool_at_all(context: &AllocationContext<'_>) -> Refusal {
    let (namespace, _) = context.request.names();
    if context.pools.is_empty() {
        let count = context.view.cache.nodes.iter().count();
        let nodes = if count == 1 { "1 Node".to_owned() } else { format!("{count} Nodes") };
        let message = format!("there is no pool of addresses, and the cluster has {nodes}; {}", make_pool(""));
        return Refusal::new("NoPool", message);
    }
    let all = names(context.pools);
    let message = format!(
        "none of {all} is for Services like this one in namespace {namespace} (their spec says for which: internal, namespaces, \
         serviceSelector, announce); look: kubectl get ippools -o yaml"
    );
    Refusal::new("NoPool", message)
}

/// No internal pool serves this Service.
pub(super) fn no_internal_pool(context: &AllocationContext<'_>, annotation: &str) -> Refusal {
    let (namespace, _) = context.request.names();
    let message = format!(
        "annotation {annotation} asks for an internal load balancer, and no IPPool with internal: true is for namespace \
         {namespace}; {}",
        make_pool(",\"internal\":true")
    );
    Refusal::new("NoInternalPool", message)
}

/// The requested pool does not exist.
pub(super) fn unknown_pool(context: &AllocationContext<'_>, key: &str, wanted: &str) -> Refusal {
    let have = if context.pools.is_empty() {
        "there is none".to_owned()
    } else {
        format!("there are {}", names(context.pools))
    };
    let message =
        format!("annotation {key} names pool {wanted:?}, which does not exist ({have}); look: kubectl get ippools");
    Refusal::new("NoPool", message)
}

/// The requested pool does not serve this Service.
pub(super) fn closed_pool(context: &AllocationContext<'_>, key: &str, pool: &Pool, internal: Option<&str>) -> Refusal {
    let (namespace, _) = context.request.names();
    let why = match (pool.internal, internal) {
        (true, None) => "is internal, and no annotation of the Service asks for an internal load balancer".to_owned(),
        (false, Some(annotation)) => {
            format!("is not internal, and annotation {annotation} asks for an internal load balancer")
        }
        _ => format!(
            "is not for Services like this one in namespace {namespace} (its namespaces, serviceSelector or announce)"
        ),
    };
    Refusal::new("NoPool", format!("annotation {key} names pool {}, which {why}; look: {}", pool.name, edit(pool)))
}

/// The address is in no pool.
pub(super) fn outside(address: IpAddr, allowed: &[&Pool]) -> String {
    format!("{address} is not in {}", names(allowed))
}

/// All addresses are in use.
pub(super) fn exhausted(context: &AllocationContext<'_>, family: Family, allowed: &[&Pool], open: &[&Pool]) -> Refusal {
    let (namespace, name) = context.request.names();
    if open.is_empty() {
        let message = format!(
            "{} gives addresses only to Services that name it (autoAssign: false); name it: kubectl annotate service -n {namespace} \
             {name} {}={}",
            names(allowed),
            api::pool::POOL_ANNOTATION,
            allowed.first().map_or("", |pool| pool.name.as_str()),
        );
        return Refusal::new("NoPool", message);
    }
    let (family_name, all) = (family.as_str(), names(open));
    let with: Vec<&Pool> = open.iter().copied().filter(|pool| pool.has(family)).collect();
    let Some(last) = with.last() else {
        let message = format!("{all} has no {family_name} addresses; add some: {}", edit(open[0]));
        return Refusal::new("NoFamily", message);
    };
    let capacity = with.iter().fold(0_u128, |sum, pool| sum.saturating_add(pool.capacity()));
    let message = format!(
        "no {family_name} address is free in {} (of {capacity}, all in use); free one by deleting a Service, or add addresses: {}",
        names(&with),
        edit(last)
    );
    Refusal::new("Exhausted", message)
}
