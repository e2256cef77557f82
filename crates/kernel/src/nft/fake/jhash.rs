//! The `hash` expression: `jhash` of the kernel (Bob Jenkins' lookup3), for addresses.
//!
//! A model of the kernel, which may depend on nothing here: tests compare it with the kernel, and the planner's own with it.

use std::net::IpAddr;

use crate::address_bytes;

/// The hash of an address, scaled to a number below a bound.
pub(super) fn below(ip: IpAddr, seed: u32, bound: u32) -> u32 {
    let bytes = address_bytes(ip);
    let word = |index: usize| {
        let bytes = bytes.get(index * 4..index * 4 + 4).and_then(|word| <[u8; 4]>::try_from(word).ok());
        bytes.map_or(0, u32::from_ne_bytes)
    };
    let length = u32::try_from(bytes.len()).unwrap_or_default();
    let mut state = [0xdead_beef_u32.wrapping_add(length).wrapping_add(seed); 3];
    if bytes.len() > 12 {
        for (index, register) in state.iter_mut().enumerate() {
            *register = register.wrapping_add(word(index));
        }
        for (one, other, bits) in [(0, 2, 4), (1, 0, 6), (2, 1, 8), (0, 2, 16), (1, 0, 19), (2, 1, 4)] {
            state[one] = state[one].wrapping_sub(state[other]) ^ state[other].rotate_left(bits);
            // The register that is neither of the two.
            let third = 3 - one - other;
            state[other] = state[other].wrapping_add(state[third]);
        }
        state[0] = state[0].wrapping_add(word(3));
    } else {
        state[0] = state[0].wrapping_add(word(0));
    }
    for (one, other, bits) in [(2, 1, 14), (0, 2, 11), (1, 0, 25), (2, 1, 16), (0, 2, 4), (1, 0, 14), (2, 1, 24)] {
        state[one] = (state[one] ^ state[other]).wrapping_sub(state[other].rotate_left(bits));
    }
    u32::try_from((u64::from(state[2]) * u64::from(bound)) >> 32).unwrap_or_default()
}
