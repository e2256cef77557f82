//! The hash by which rules of the kernel select a slot: `jhash` of an address (Bob Jenkins' lookup3), as nftables computes it.

use std::net::IpAddr;

/// The initial value of the kernel.
const INITIAL: u32 = 0xdead_beef;

/// The slot of an address in a table of so many slots: `jhash ip saddr mod SLOTS seed SEED`.
pub(super) fn slot(ip: IpAddr, seed: u32, slots: u32) -> u32 {
    let hash = match ip {
        IpAddr::V4(ip) => jhash(&words(&ip.octets()), seed),
        IpAddr::V6(ip) => jhash(&words(&ip.octets()), seed),
    };
    // The kernel scales instead of dividing.
    u32::try_from((u64::from(hash) * u64::from(slots)) >> 32).unwrap_or_default()
}

/// Words as the kernel of a little-endian machine loads them.
fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

/// The hash of an address of one word or of four.
fn jhash(words: &[u32], seed: u32) -> u32 {
    let bytes = u32::try_from(words.len() * 4).unwrap_or_default();
    let [mut a, mut b, mut c] = [INITIAL.wrapping_add(bytes).wrapping_add(seed); 3];
    let mut rest = words;
    while let Some(([one, two, three], more)) = rest.split_first_chunk().filter(|(_, more)| !more.is_empty()) {
        a = a.wrapping_add(*one);
        b = b.wrapping_add(*two);
        c = c.wrapping_add(*three);
        (a, b, c) = mix(a, b, c);
        rest = more;
    }
    for (register, word) in [&mut a, &mut b, &mut c].into_iter().zip(rest) {
        *register = register.wrapping_add(*word);
    }
    finish(a, b, c)
}

const fn mix(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32, u32) {
    a = a.wrapping_sub(c) ^ c.rotate_left(4);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(6);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(8);
    b = b.wrapping_add(a);
    a = a.wrapping_sub(c) ^ c.rotate_left(16);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(19);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(4);
    b = b.wrapping_add(a);
    (a, b, c)
}

const fn finish(mut a: u32, mut b: u32, mut c: u32) -> u32 {
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_kernel() {
        // As Linux 6.18 computed them for `meta mark set jhash ip saddr mod 1021 seed 0x77617970`.
        for (ip, wanted) in [("127.0.0.1", 194), ("10.244.0.7", 756), ("::1", 955), ("fd00:10:244::1234", 546)] {
            assert_eq!(slot(ip.parse().expect("an address"), 0x7761_7970, 1021), wanted, "{ip}");
        }
    }
}
