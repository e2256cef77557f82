//! Malformed and forged messages.

use proptest::prelude::*;

use super::*;
use crate::resolver::answer::Unpacked;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_queries_get_the_right_rcode() {
    let bench = Bench::new("errors");
    let good = ask("a.example", Rtype::A, Some(1232));
    let to = async |change: &dyn Fn(&mut Vec<u8>)| {
        let mut message = good.clone();
        change(&mut message);
        bench.resolver.resolve(udp(&message)).await
    };
    let code = |reply: &[u8]| Message::from_octets(reply).expect("a message").opt_rcode().to_int();
    assert_eq!(to(&|message| message.truncate(11)).await, b"");
    assert_eq!(to(&|message| message[2] |= 0x80).await, b"");
    assert_eq!(to(&|message| message.truncate(20)).await, [0x12, 0x34, 0x81, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(code(&to(&|message| message[2] |= 0x28).await), 4);
    let version = good.len() - 5;
    assert_eq!(code(&to(&|message| message[version] = 1).await), 16);
    let qtype = 12 + wire("a.example").len() + 1;
    assert_eq!(code(&to(&|message| message[qtype] = 252).await), 5, "no transfer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_reply_is_a_failure() {
    let fake = Fake::new(|_, question| {
        let mut message = reply(question).a(300, [192, 0, 2, 1]).done();
        let at = message.len() - 5;
        message[at] = 200;
        Reply::Say(vec![message])
    })
    .await;
    let bench = Bench::new(&format!("forward . {}", fake.address));
    assert_eq!(bench.ask("a.example").await, ReplySummary { extended: Some(23), ..answer(Rcode::SERVFAIL, &[]) });
}

proptest! {
    #[test]
    fn no_client_message_causes_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), size in 0..5000_u16) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let _inside = runtime.enter();
        let bench = Bench::new("hosts {\n192.0.2.1 a.example\n}\ntemplate ANY PTR . {\nrcode NXDOMAIN\n}\ncache");
        let mut mutated = ask("a.example", Rtype::A, Some(size));
        for (index, byte) in bytes.iter().enumerate().take(4) {
            let at = usize::from(*byte) % mutated.len();
            mutated[at] ^= bytes[bytes.len() - 1 - index];
        }
        for message in [&bytes, &mutated] {
            let mut out = Vec::new();
            let answered = bench.resolver.cached(&udp(message), Instant::now(), &mut out);
            prop_assert!(answered, "hosts without fallthrough, a rule for what it leaves to others, or nothing");
            prop_assert!(out.len() <= usize::from(size.max(512)));
            prop_assert!(out.is_empty() || Message::from_octets(out.as_slice()).is_ok());
        }
    }

    #[test]
    fn no_upstream_reply_causes_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), flips in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..6)) {
        let _ = Unpacked::read(&bytes);
        let question = ask("a.example", Rtype::A, None);
        let mut message = reply(&question).cname(60, "b.example").a(50, [192, 0, 2, 1]).soa("example", 5, 6).done();
        for (at, bits) in flips {
            let at = usize::from(at) % message.len();
            message[at] ^= bits;
        }
        if let Ok(unpacked) = Unpacked::read(&message) {
            let packed = Answer::pack(&wire("a.example"), &unpacked);
            let again = packed.unpack(&wire("a.example")).expect("what was packed can be unpacked");
            let folded = |records: &[Vec<Record>; 3]| records.clone().map(|list| list.into_iter().map(|mut record| {
                record.owner.make_ascii_lowercase();
                if [2, 5, 6, 12, 15].contains(&record.rtype) {
                    record.data.make_ascii_lowercase();
                }
                record
            }).collect::<Vec<_>>());
            prop_assert_eq!(folded(&unpacked.sections), folded(&again.sections));
        }
    }
}
