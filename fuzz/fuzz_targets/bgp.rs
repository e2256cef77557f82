//! BGP messages of a peer, in chunks: parsed or rejected; a parsed message survives a round trip; a session handles it.
#![no_main]

use std::sync::Arc;

use announce::bgp::routes::Hops;
use announce::bgp::session::{Event, Session, Settings, State};
use announce::bgp::wire::{self, Message, Negotiated};
use libfuzzer_sys::fuzz_target;
use tokio::time::Instant;

fuzz_target!(|data: &[u8]| {
    let Some((flags, data)) = data.split_first() else { return };
    let negotiated = Negotiated { four_octet_as: flags & 1 != 0, internal: flags & 2 != 0 };
    if let Ok(Some(length)) = wire::length(data)
        && let Some(message) = data.get(..length)
    {
        match wire::read(message, negotiated) {
            Ok(Message::Open(open)) => assert_eq!(wire::read(&open.write(), negotiated), Ok(Message::Open(open))),
            Ok(Message::Notification(why)) => {
                let _ = why.to_string();
                assert_eq!(wire::read(&why.write(), negotiated), Ok(Message::Notification(why)));
            }
            Ok(Message::Update(update)) => {
                assert!(update.announced().count() + update.withdrawn().count() <= length);
            }
            Ok(Message::Keepalive | Message::Refresh(_)) | Err(_) => {}
        }
    }
    // To a session: the second flag selects whether the session is already established.
    let settings = Settings {
        my_asn: 64512,
        peer_asn: if negotiated.internal { 64512 } else { 64513 },
        id: [192, 0, 2, 11].into(),
        hold: 90,
        restart: Some(120),
        max_prefixes: 10,
        communities: vec![1],
        local_pref: 100,
    };
    let peer = settings.peer_asn;
    let now = Instant::now();
    let offer = Arc::new([[203, 0, 113, 7].into()].into());
    let mut session = Session::new(settings, offer, true, 1, now);
    let _ = session.on(Event::Timer, now);
    let _ = session.on(Event::Connected(Hops { v4: Some([192, 0, 2, 11].into()), v6: None }), now);
    if flags & 4 != 0 {
        let open = wire::Open {
            my_as: 64513,
            hold: 3,
            id: [192, 0, 2, 1].into(),
            capabilities: if negotiated.four_octet_as { vec![wire::Capability::FourOctetAs(peer)] } else { Vec::new() },
        };
        let _ = session.on(Event::Received(&open.write()), now);
        let _ = session.on(Event::Received(&wire::keepalive()), now);
    }
    for piece in data.chunks(usize::from(*flags >> 3).max(1)) {
        let _ = session.on(Event::Received(piece), now);
    }
    assert!(session.received() <= 10 && session.state() != State::Stopped);
});
