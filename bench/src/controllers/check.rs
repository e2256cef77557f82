//! Whether everything is right: all EndpointSlices and Endpoints are listed and compared with the load, Pod by Pod.
//!
//! No figure is printed of a server that got something wrong.

use std::collections::HashMap;

use anyhow::{Context as _, ensure};
use client::http::Client;

use super::objects::Size;
use super::sight::{Kind, Member, Sight};
use super::tracker::list;
use crate::load::service_name;

/// How many endpoints a slice holds at most, with either server as it comes.
const MOST_ENDPOINTS: usize = 100;

/// Fails when something is not as it should be.
///
/// # Errors
/// See above.
pub async fn check(client: &mut Client, size: Size) -> anyhow::Result<()> {
    for kind in Kind::ALL {
        let (sights, _) = list(client, kind).await?;
        compare(kind, sights, size).with_context(|| format!("{kind:?} are not right"))?;
    }
    Ok(())
}

fn compare(kind: Kind, sights: Vec<Sight>, size: Size) -> anyhow::Result<()> {
    let mut services: HashMap<String, Vec<Sight>> = HashMap::new();
    for sight in sights.into_iter().filter(|sight| sight.service.starts_with("svc-")) {
        services.entry(sight.service.clone()).or_default().push(sight);
    }
    ensure!(services.len() == size.services, "{} of {} Services have any", services.len(), size.services);
    for number in 0..size.services {
        let service = service_name(number);
        let sights = services.remove(&service).with_context(|| format!("{service} has none"))?;
        compare_service(kind, sights, size, number).with_context(|| format!("of {service}"))?;
    }
    Ok(())
}

fn compare_service(kind: Kind, sights: Vec<Sight>, size: Size, number: usize) -> anyhow::Result<()> {
    for sight in &sights {
        ensure!(sight.ports == [("http".to_owned(), 8080)], "{} has the ports {:?}", sight.name, sight.ports);
        let fits = kind == Kind::Endpoints || sight.members.len() <= MOST_ENDPOINTS;
        ensure!(fits, "{} has {} endpoints", sight.name, sight.members.len());
    }
    let mut wanted: Vec<Member> = (0..size.pods)
        .map(|index| size.pod(number, index))
        .map(|pod| Member { pod: pod.name(), address: pod.address(), node: pod.node(), ready: true })
        .collect();
    let mut members: Vec<Member> = sights.into_iter().flat_map(|sight| sight.members).collect();
    members.sort_unstable();
    wanted.sort_unstable();
    if kind == Kind::Endpoints && size.pods > size.addresses() {
        // Which ones are omitted is unspecified.
        ensure!(members.len() == size.addresses(), "there are {} addresses", members.len());
        wanted.retain(|member| members.binary_search(member).is_ok());
    }
    ensure!(members == wanted, "there should be {wanted:?}, there are {members:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { services: 1, pods: 2 };

    fn slice(pods: &[usize]) -> Sight {
        let member = |index: &usize| {
            let pod = SIZE.pod(0, *index);
            Member { pod: pod.name(), address: pod.address(), node: pod.node(), ready: true }
        };
        let ports = vec![("http".to_owned(), 8080)];
        Sight { name: "s".to_owned(), service: service_name(0), members: pods.iter().map(member).collect(), ports }
    }

    #[test]
    fn exactly_the_pods_of_the_service_are_right() {
        let is_right = |slices: Vec<Sight>| compare(Kind::Slices, slices, SIZE).is_ok();
        assert!(is_right(vec![slice(&[1, 0])]));
        assert!(is_right(vec![slice(&[1]), slice(&[0])]));
        assert!(!is_right(vec![slice(&[0])]), "one is missing");
        assert!(!is_right(vec![slice(&[0, 1]), slice(&[1])]), "one is a duplicate");
        assert!(!is_right(vec![]), "the Service has no slice");
        let mut other = slice(&[0, 1]);
        other.members[0].ready = false;
        assert!(!is_right(vec![other]), "one is not ready");
    }
}
