//! The DNS name of the Service, and its short name with the search path of a Pod.

use std::collections::BTreeSet;

use super::super::evidence::{Evidence, NameAnswer};
use super::super::format::listed;
use super::super::verdict::CheckResult;

/// Whether the name resolves to the Service.
pub(in crate::doctor) fn resolves(evidence: &Evidence<'_>) -> CheckResult {
    if evidence.service().is_none() {
        return CheckResult::not_applicable("there is no Service");
    }
    let answer = match &evidence.probes.name {
        Ok(answer) => answer,
        Err(unmeasured) => return unmeasured.clone().into(),
    };
    let NameAnswer { name, records, by_search, notes } = answer;
    let records: BTreeSet<&str> = match records {
        Ok(records) => records.iter().map(String::as_str).collect(),
        Err(why) => {
            return CheckResult::failed(
                format!("the cluster's DNS does not resolve {name}: {why}"),
                "waypost doctor kube-dns -n kube-system",
            );
        }
    };
    let wanted = wanted(evidence);
    if wanted.is_empty() {
        return CheckResult::not_applicable("a headless Service without ready endpoints has no addresses");
    }
    let missing: Vec<&String> = wanted.iter().filter(|one| !records.contains(one.as_str())).collect();
    let got =
        if records.is_empty() { "nothing".to_owned() } else { listed(&records.iter().copied().collect::<Vec<_>>()) };
    if !missing.is_empty() {
        let wanted: Vec<String> = wanted.into_iter().collect();
        return CheckResult::failed(
            format!("{name} resolves to {got}, not to {}", listed(&wanted)),
            format!("waypost dig {name}"),
        );
    }
    let short = match by_search {
        Some(whose) => format!("; {whose} can use {}", evidence.name),
        None => format!("; the short name {} does not resolve to it", evidence.name),
    };
    let notes = if notes.is_empty() { String::new() } else { format!("; {}", listed(notes)) };
    CheckResult::passed(format!("{name} is {got}{short}{notes}"))
}

/// What the name must resolve to.
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

    use super::super::super::evidence::NameError;
    use super::super::super::testing::{Fixture, failed, not_applicable, not_measured, passed};
    use super::*;

    fn fixture(spec: serde_json::Value, records: Result<&[&str], &str>) -> Fixture {
        let mut fixture = Fixture::new();
        fixture.service("default", "web", spec);
        fixture.probes.name = Ok(NameAnswer {
            name: "web.default.svc.cluster.local.".to_owned(),
            records: records
                .map(|all| all.iter().map(|one| (*one).to_owned()).collect())
                .map_err(|why| NameError::Query(why.to_owned())),
            by_search: Some("a Pod of namespace default".to_owned()),
            notes: Vec::new(),
        });
        fixture
    }

    #[test]
    fn a_name_leads_to_the_address_of_the_service() {
        let spec = json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80}]});
        let saw = passed(fixture(spec.clone(), Ok(&["10.96.0.5"])).check("default", "web", resolves));
        assert!(saw.contains("a Pod of namespace default can use web"), "{saw}");
        let (saw, fix) = failed(fixture(spec.clone(), Ok(&["10.96.0.9"])).check("default", "web", resolves));
        assert!(saw.contains("resolves to 10.96.0.9, not to 10.96.0.5"), "{saw}");
        assert_eq!(fix, "waypost dig web.default.svc.cluster.local.");
        assert!(
            failed(fixture(spec, Err("it does not answer")).check("default", "web", resolves)).1.contains("kube-dns")
        );
    }

    #[test]
    fn headless_names_lead_to_pods_and_others_to_names() {
        let mut headless = fixture(json!({"clusterIP": "None", "ports": [{"port": 80}]}), Ok(&["10.244.0.1"]));
        not_applicable(headless.check("default", "web", resolves));
        headless.slice("default", "web", 8080, &[("10.244.0.1", true, "n1"), ("10.244.0.2", false, "n1")]);
        passed(headless.check("default", "web", resolves));
        let alias =
            fixture(json!({"type": "ExternalName", "externalName": "DB.example.org"}), Ok(&["db.example.org."]));
        passed(alias.check("default", "web", resolves));
        let mut elsewhere = alias;
        elsewhere.not_a_node();
        not_measured(elsewhere.check("default", "web", resolves));
    }
}
