//! The table of the policy `maglev`: which endpoint a hash selects.
//!
//! In: endpoints. Out: an endpoint for each slot, the same on all nodes and for any history. Rules of the kernel hold a slot per
//! element, so the table is small; Maglev's own way to fill a table (Eisenbud et al. 2016), which the gateway uses with 65 537
//! entries, would move 4.5 % of the slots of this one when one of a hundred endpoints goes. Instead every slot ranks the
//! endpoints by a hash (rendezvous hashing), and an endpoint takes the slots that rank it highest, up to a quarter more than its share;
//! slots that it does not take go to the next in their ranks (consistent hashing with bounded loads, as a stable matching). About
//! 1.1 % of the slots move then, nearly all of them those of the endpoint that goes
//! (ADR 0031).

use std::collections::BinaryHeap;
use std::net::IpAddr;

use api::hash::{mix, mixed64};

use crate::service_port::Backend;

/// Number of slots. With a hundred endpoints each has 13 to 26 of them; with more than this no
/// endpoint could have one.
pub const SLOTS: u32 = 2039;
/// The most slots of an endpoint, in proportion to its share: 5/4.
const BOUND: (usize, usize) = (5, 4);
/// The odd constant of `SplitMix64`: consecutive slots are far apart.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// How much a slot and an endpoint prefer each other, and whom it concerns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Preference {
    score: u64,
    index: usize,
}

/// The index of an endpoint for each slot; empty without endpoints. There are at most [`SLOTS`].
pub(super) fn hash_table(endpoints: &[Backend]) -> Box<[u16]> {
    let count = SLOTS as usize;
    if endpoints.is_empty() || endpoints.len() > count {
        return Box::default();
    }
    let hashes: Vec<u64> = endpoints.iter().map(hash).collect();
    let bound = (count * BOUND.0).div_ceil(endpoints.len() * BOUND.1);
    // The slots that each endpoint holds; the one that it prefers least is on top.
    let mut held: Vec<BinaryHeap<std::cmp::Reverse<Preference>>> = vec![BinaryHeap::new(); endpoints.len()];
    for slot in 0..count {
        let mut applicant = (slot, None);
        // The endpoints can hold more slots than there are, so every applicant ends somewhere.
        while let Some(choice) = next_choice(&hashes, applicant) {
            let slots = &mut held[choice.index];
            slots.push(std::cmp::Reverse(Preference { score: choice.score, index: applicant.0 }));
            if slots.len() <= bound {
                break;
            }
            let Some(std::cmp::Reverse(refused)) = slots.pop() else { break };
            applicant = (refused.index, Some(Preference { score: refused.score, index: choice.index }));
        }
    }
    let mut table = vec![0; count].into_boxed_slice();
    for (endpoint, slots) in (0u16..).zip(held) {
        for std::cmp::Reverse(slot) in slots {
            table[slot.index] = endpoint;
        }
    }
    table
}

/// The endpoint that a slot prefers most, of those that it prefers less than the one that refused it.
fn next_choice(hashes: &[u64], (slot, refused_by): (usize, Option<Preference>)) -> Option<Preference> {
    let salt = (slot as u64).wrapping_mul(STEP);
    let choices = hashes.iter().enumerate().map(|(index, hash)| Preference { score: mix(hash ^ salt), index });
    choices.filter(|choice| refused_by.is_none_or(|refused| *choice < refused)).max()
}

/// The hash of an endpoint.
fn hash(backend: &Backend) -> u64 {
    let port = backend.port.to_be_bytes();
    match backend.ip {
        IpAddr::V4(ip) => mixed64(&[&ip.octets()[..], &port].concat()),
        IpAddr::V6(ip) => mixed64(&[&ip.octets()[..], &port].concat()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn endpoints(count: u16) -> Vec<Backend> {
        let endpoint = |number: u16| {
            let [high, low] = number.to_be_bytes();
            Backend { ip: [10, 244, high, low].into(), port: 8080 }
        };
        (0..count).map(endpoint).collect()
    }

    fn owners(list: &[Backend]) -> Vec<Backend> {
        hash_table(list).iter().map(|index| list[usize::from(*index)]).collect()
    }

    #[test]
    fn at_most_two_percent_of_slots_move_when_one_of_a_hundred_endpoints_goes() {
        let all = endpoints(100);
        let before = owners(&all);
        for gone in 0..all.len() {
            let rest: Vec<Backend> = all.iter().copied().filter(|one| *one != all[gone]).collect();
            let moved = before.iter().zip(owners(&rest)).filter(|(before, after)| **before != *after).count();
            assert!(moved * 50 <= before.len(), "{gone}: {moved}");
        }
    }

    #[test]
    fn tables_have_no_slots_without_endpoints_or_with_too_many() {
        assert_eq!(hash_table(&[]).len(), 0);
        assert_eq!(hash_table(&endpoints(2040)).len(), 0);
        assert_eq!(hash_table(&endpoints(2039)).len(), 2039);
    }

    #[test]
    fn tables_never_change() {
        // Nodes of different releases must agree.
        assert_eq!(
            hash_table(&endpoints(5))[..24],
            [4, 4, 4, 0, 2, 1, 2, 4, 3, 4, 2, 0, 3, 3, 3, 0, 0, 2, 1, 0, 4, 0, 2, 4]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn no_endpoint_has_much_more_than_its_share(count in 1u16..300) {
            let mut shares = vec![0usize; usize::from(count)];
            hash_table(&endpoints(count)).iter().for_each(|index| shares[usize::from(*index)] += 1);
            let most = (2039 * 5usize).div_ceil(usize::from(count) * 4);
            prop_assert!(shares.iter().all(|share| *share <= most), "{shares:?}");
            prop_assert!(count > 100 || shares.iter().all(|share| *share * usize::from(count) * 3 >= 2039), "{shares:?}");
        }
    }
}
