use super::*;
use crate::ipvs::{Unfit, probe};

const SERVER: Server = Server { ip: IpAddr::V4(std::net::Ipv4Addr::new(10, 96, 0, 1)), protocol: 6, port: 80 };

fn at(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 244, 0, last], 8080))
}

fn client(last: u8) -> SocketAddr {
    SocketAddr::from(([203, 0, 113, last], 40_000))
}

fn served(scheduler: Scheduler, persistence: Option<u32>) -> Fake {
    let mut fake = Fake::default();
    let mut changes = vec![Change::NewServer(SERVER, scheduler.settings(persistence))];
    changes.extend((1..4).map(|last| Change::NewDestination(SERVER, at(last), 1)));
    fake.apply(&changes).expect("carried out");
    fake
}

fn refused(fake: &mut Fake, change: Change) -> Errno {
    fake.apply(&[change]).expect_err("refused").errno
}

#[test]
fn it_refuses_what_the_kernel_refuses() {
    let mut fake = served(Scheduler::Rr, None);
    let other = Server { port: 81, ..SERVER };
    let settings = Scheduler::Rr.settings(None);
    assert_eq!(refused(&mut fake, Change::NewServer(SERVER, settings.clone())), Errno::EXIST);
    assert_eq!(refused(&mut fake, Change::SetServer(other, settings.clone())), Errno::SRCH);
    assert_eq!(refused(&mut fake, Change::DeleteServer(other)), Errno::SRCH);
    assert_eq!(refused(&mut fake, Change::NewDestination(other, at(1), 1)), Errno::SRCH);
    assert_eq!(refused(&mut fake, Change::NewDestination(SERVER, at(1), 1)), Errno::EXIST);
    assert_eq!(refused(&mut fake, Change::SetDestination(SERVER, at(9), 1)), Errno::NOENT);
    assert_eq!(refused(&mut fake, Change::DeleteDestination(SERVER, at(9))), Errno::NOENT);
    let unknown = Settings { scheduler: "nix".to_owned(), ..settings };
    assert_eq!(refused(&mut fake, Change::NewServer(other, unknown)), Errno::NOENT);
}

#[test]
fn probe_names_what_is_missing_and_leaves_nothing() {
    let mut fake = Fake::with(&[Scheduler::Rr]);
    probe(&mut fake, &Scheduler::Rr.settings(None)).expect("rr is there");
    assert_eq!(probe(&mut fake, &Scheduler::Sh.settings(None)), Err(Unfit::Scheduler("sh".to_owned())));
    assert!(fake.all().is_empty());
}

#[test]
fn schedulers_are_as_named() {
    let rr = served(Scheduler::Rr, None);
    let turns: Vec<_> = (0..6).filter_map(|_| rr.connect(client(1), &SERVER)).collect();
    assert_eq!(turns, [at(1), at(2), at(3), at(1), at(2), at(3)]);

    let lc = served(Scheduler::Lc, None);
    let first = lc.connect(client(1), &SERVER).expect("one");
    lc.connect(client(1), &SERVER);
    lc.connect(client(1), &SERVER);
    lc.close(&SERVER, first);
    assert_eq!(lc.connect(client(1), &SERVER), Some(first), "the one with the fewest");

    let sh = served(Scheduler::Sh, None);
    let stays: BTreeSet<_> = (0..5).filter_map(|_| sh.connect(client(7), &SERVER)).collect();
    let spread: BTreeSet<_> = (0..40).filter_map(|last| sh.connect(client(last), &SERVER)).collect();
    assert_eq!((stays.len(), spread.len()), (1, 3));

    let dh = served(Scheduler::Dh, None);
    let one: BTreeSet<_> = (0..40).filter_map(|last| dh.connect(client(last), &SERVER)).collect();
    assert_eq!(one.len(), 1);
}

#[test]
fn a_destination_without_weight_gets_nothing_new() {
    for scheduler in Scheduler::ALL.into_iter().filter(|scheduler| scheduler.can_drain()) {
        let mut fake = served(scheduler, None);
        fake.apply(&[Change::SetDestination(SERVER, at(2), 0)]).expect("carried out");
        let got: Vec<_> = (0..40).map(|last| fake.connect(client(last), &SERVER)).collect();
        assert!(got.iter().all(|one| one.is_some() && *one != Some(at(2))), "{scheduler:?} {got:?}");
    }
}

#[test]
fn persistence_expires_after_the_timeout() {
    let mut fake = served(Scheduler::Rr, Some(60));
    let first = fake.connect(client(1), &SERVER);
    fake.connect(client(2), &SERVER);
    fake.advance(59);
    assert_eq!(fake.connect(client(1), &SERVER), first);
    fake.advance(59);
    assert_eq!(fake.connect(client(1), &SERVER), first, "each connection begins the time anew");
    fake.advance(61);
    assert_ne!(fake.connect(client(1), &SERVER), first);
    let now = fake.connect(client(1), &SERVER).expect("one");
    fake.apply(&[Change::SetDestination(SERVER, now, 0)]).expect("carried out");
    assert_ne!(fake.connect(client(1), &SERVER), Some(now), "not with one that takes no more");
}
