//! Frames of neighbours: ARP and neighbour discovery. Read, never a panic; what is read can be answered, and the answer be read.
#![no_main]

use announce::l2::frame::{Message, read, reply};
use kernel::packets::Mac;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for message in read(data).into_iter().flatten() {
        if let Message::Request { address, sender, mac, .. } = message {
            let own = Mac([2, 0, 0, 0, 0, 1]);
            let frame = reply(own, address, sender, mac).expect("both are of one family");
            let says = read(&frame).into_iter().flatten().next();
            // The unspecified address cannot be announced.
            assert!(says == Some(Message::Announcement { address, mac: own }) || address.is_unspecified());
        }
    }
});
