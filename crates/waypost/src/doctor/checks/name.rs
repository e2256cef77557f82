//! The name: what the cluster's DNS says, and what the search path of a Pod makes of it.

use std::collections::BTreeSet;

use super::super::evidence::{Evidence, NameAnswer};
use super::super::verdict::Judged;
use super::super::words::listed;

/// Whether the name leads to the Service.
pub(in crate::doctor) fn resolves(evidence: &Evidence<'_>) -> Judged {
    if evidence.service().is_none() {
        return Judged::moot("there is no Service");
    }
    let said = match &evidence.tried.name {
        Ok(said) => said,
        Err(unmeasured) => return unmeasured.clone().into(),
    };
    let NameAnswer { name, records, by_search, notes } = said;
    let records: BTreeSet<&str> = match records {
        Ok(records) => records.iter().map(String::as_str).collect(),
        Err(why) => {
            return Judged::disproved(
                format!("{name} is not answered by the cluster's DNS: {why}"),
                "waypost doctor kube-dns -n kube-system",
            );
        }
    };
    let wanted = wanted(evidence);
    if wanted.is_empty() {
        return Judged::moot("a headless Service without ready endpoints has no addresses to name");
    }
    let missing: Vec<&String> = wanted.iter().filter(|one| !records.contains(one.as_str())).collect();
    let got =
        if records.is_empty() { "nothing".to_owned() } else { listed(&records.iter().copied().collect::<Vec<_>>()) };
    if !missing.is_empty() {
        let wanted: Vec<String> = wanted.into_iter().collect();
        return Judged::disproved(
            format!("{name} leads to {got}, not to {}", listed(&wanted)),
            format!("waypost dig {name}"),
        );
    }
    let short = match by_search {
        Some(whose) => format!("; {whose} may say {}", evidence.name),
        None => format!("; the short name {} does not lead there", evidence.name),
    };
    let notes = if notes.is_empty() { String::new() } else { format!("; {}", listed(notes)) };
    Judged::proved(format!("{name} is {got}{short}{notes}"))
}

/// What the name must lead to.
fn wanted(evidence: &Evidence<'_>) -> BTreeSet<String> {
    use api::value::ValueExt as _;
    if evidence.is_external_name() {
        return [format!("{}.", evidence.spec().text("externalName").trim_end_matches('.').to_lowercase())].into();
    }
    if !evidence.is_headless() {
        return evidence.cluster_ips().iter().map(ToString::to_string).collect();
    }
    let published = evidence.spec().flag("publishNotReadyAddresses");
    let endpoints = evidence.endpoints().into_iter().filter(|one| one.ready || published);
    endpoints.map(|one| one.address.ip().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{World, disproved, moot, proved, unknown};
    use super::*;

    fn world(spec: serde_json::Value, records: Result<&[&str], &str>) -> World {
        let mut world = World::new();
        world.service("default", "web", spec);
        world.tried.name = Ok(NameAnswer {
            name: "web.default.svc.cluster.local.".to_owned(),
            records: records.map(|all| all.iter().map(|one| (*one).to_owned()).collect()).map_err(str::to_owned),
            by_search: Some("a Pod of namespace default".to_owned()),
            notes: Vec::new(),
        });
        world
    }

    #[test]
    fn a_name_leads_to_the_address_of_the_service() {
        let spec = json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80}]});
        let saw = proved(world(spec.clone(), Ok(&["10.96.0.5"])).judge("default", "web", resolves));
        assert!(saw.contains("a Pod of namespace default may say web"), "{saw}");
        let (saw, fix) = disproved(world(spec.clone(), Ok(&["10.96.0.9"])).judge("default", "web", resolves));
        assert!(saw.contains("leads to 10.96.0.9, not to 10.96.0.5"), "{saw}");
        assert_eq!(fix, "waypost dig web.default.svc.cluster.local.");
        assert!(
            disproved(world(spec, Err("it does not answer")).judge("default", "web", resolves)).1.contains("kube-dns")
        );
    }

    #[test]
    fn headless_names_lead_to_pods_and_others_to_names() {
        let mut headless = world(json!({"clusterIP": "None", "ports": [{"port": 80}]}), Ok(&["10.244.0.1"]));
        moot(headless.judge("default", "web", resolves));
        headless.slice("default", "web", 8080, &[("10.244.0.1", true, "n1"), ("10.244.0.2", false, "n1")]);
        proved(headless.judge("default", "web", resolves));
        let alias = world(json!({"type": "ExternalName", "externalName": "DB.example.org"}), Ok(&["db.example.org."]));
        proved(alias.judge("default", "web", resolves));
        let mut elsewhere = alias;
        elsewhere.not_a_node();
        unknown(elsewhere.judge("default", "web", resolves));
    }
}
