//! The hash of passwords that Apache (`$apr1$`) and crypt (`$1$`) make with a thousand rounds of MD5. It is weak, but
//! what `htpasswd` writes unless asked for something else.

use md5::{Digest as _, Md5};

/// The name of Apache's variant.
pub(super) const APACHE: &str = "$apr1$";
/// The name of the variant of crypt.
pub(super) const CRYPT: &str = "$1$";
/// Bytes of a salt that count.
pub(super) const MAX_SALT: usize = 8;
/// Length of a hash in characters.
pub(super) const LENGTH: usize = 22;

const ROUNDS: u32 = 1000;
/// Base64 of crypt.
const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// The bytes of a digest in the order in which they are written, three in four characters.
const ORDER: [[usize; 3]; 5] = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];

/// The hash of a password, without name and salt.
pub(super) fn hash(password: &[u8], magic: &str, salt: &[u8]) -> String {
    let whole = digest(&[password, salt, password]);
    let mut context = Md5::new();
    for part in [password, magic.as_bytes(), salt] {
        context.update(part);
    }
    for start in (0..password.len()).step_by(whole.len()) {
        context.update(&whole[..whole.len().min(password.len() - start)]);
    }
    let mut rest = password.len();
    while rest > 0 {
        // A bit that is set stands for a zero byte, not for one of the digest.
        context.update(if rest & 1 == 1 { &[0] } else { &password[..1] });
        rest >>= 1;
    }
    let mut last: [u8; 16] = context.finalize().into();
    for round in 0..ROUNDS {
        let is_odd = round & 1 == 1;
        let by = |part, fits: bool| if fits { part } else { &[][..] };
        last = digest(&[
            if is_odd { password } else { &last },
            by(salt, round % 3 != 0),
            by(password, round % 7 != 0),
            if is_odd { &last } else { password },
        ]);
    }
    encode(&last)
}

fn digest(parts: &[&[u8]]) -> [u8; 16] {
    let mut context = Md5::new();
    parts.iter().for_each(|part| context.update(part));
    context.finalize().into()
}

fn encode(digest: &[u8; 16]) -> String {
    let mut text = String::with_capacity(LENGTH);
    let mut put = |mut value: u32, count: usize| {
        for _ in 0..count {
            text.push(char::from(DIGITS[usize::try_from(value & 63).unwrap_or_default()]));
            value >>= 6;
        }
    };
    for [high, middle, low] in ORDER {
        put(u32::from_be_bytes([0, digest[high], digest[middle], digest[low]]), 4);
    }
    put(digest[11].into(), 2);
    text
}
