//! Hashes that other programs have made: `openssl passwd`, and crypt of glibc.

use proptest::prelude::*;

use super::*;

const LONG: &str = "a much longer password, of more than sixteen bytes";

fn parse(text: &str) -> PasswordHash {
    PasswordHash::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn hashes_of_other_programs_are_verified() {
    let eighty = "x".repeat(80);
    for (password, hash) in [
        ("secret", "$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/"),
        (LONG, "$apr1$abcdefgh$iIr1R/NwhfCuuLvO5Mqjb."),
        ("x", "$apr1$abcdefgh$82JubPF2dQkt1tVfvLnXS."),
        ("", "$apr1$abcdefgh$L.PT565ESX4Tp2bqNs7Ie."),
        ("secret", "$1$abcd$Oy8OD9LGKv7H9yIMreLNV1"),
        (LONG, "$1$abcd$JtDzjSeyZtst5b7daNN.m."),
        ("secret", "$5$saltstring$C3o4O1TC6aRHF4FI.QSZMXtHbaj2gSXr4sUc/3NcUi."),
        (LONG, "$5$saltstring$eG86u/FbSNqDtCalr2NU/w2BpfE4IEtXiPQ0hMsLrWB"),
        (
            "secret",
            "$6$saltstring$AIsRs/Ee56G/tC8MEHhvReZTfx8u3rXXMl6eYrjCG9ibix19DxoMBLogdTET5Ukw9Sf7eZTITsuk0Ry5qulYz.",
        ),
        (
            "secret",
            "$6$rounds=1000$saltstring$2BkAo106CG84raQcWpAlhyy6TSSkAsL1nfvBCoezLYyerUzY2l8axTvq6NynEt7SQAx3/cdop9ds0po8uaeHq0",
        ),
        ("secret", "$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a"),
        ("secret", "$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW"),
        (&eighty, "$2y$04$abcdefghijklmnopqrstuubzadhGtS2zEF.gu0yd0opP6cVzb.e0i"),
        ("", "$2y$04$abcdefghijklmnopqrstuubyCG3zY1GIXMyxfivm.ClDiInHzxjiq"),
        ("secret", "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="),
        ("secret", "{SSHA}gVK8WC9YyFT1gMsQHTGCgT3sSv5zYWx0"),
        ("secret", "{PLAIN}secret"),
    ] {
        let hash_read = parse(hash);
        assert!(hash_read.verify(password.as_bytes()), "{password} {hash}");
        for other in ["wrong", "Secret", "secret ", "secre"] {
            assert!(!hash_read.verify(other.as_bytes()), "{other} {hash}");
        }
        assert_eq!(hash_read.is_slow(), hash.starts_with('$'), "{hash}");
    }
}

#[test]
fn hashes_that_cannot_be_used_are_rejected() {
    use HashError::{Malformed, TooExpensive, Unsupported};
    let long = "a".repeat(86);
    for (text, expected) in [
        ("", Unsupported),
        ("secret", Unsupported),
        // DES of crypt.
        ("abJnggxhB/yWI", Unsupported),
        ("$y$j9T$salt$hash", Unsupported),
        ("{MD5}x", Unsupported),
        ("$2x$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a", Unsupported),
        ("$2y$15$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a", TooExpensive),
        ("$2y$31$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a", TooExpensive),
        ("$2y$03$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a", Malformed),
        ("$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf", Malformed),
        ("$2y$05$", Malformed),
        ("$2y$05$äääääääääääääääääääääääääääääää", Malformed),
        ("$apr1$abcdefgh$short", Malformed),
        ("$apr1$abcdefgh", Malformed),
        ("$6$salt$short", Malformed),
        (&format!("$6$rounds=999999999$salt${long}"), TooExpensive),
        (&format!("$6$rounds=500001$salt${long}"), TooExpensive),
        (&format!("$6$rounds=-1$salt${long}"), Malformed),
        (&format!("$6$rounds=10$salt${long}"), Malformed),
        (&format!("$6$$salt${long}"), Malformed),
        ("{SHA}5en6G6MezRroT3XKqkdPOmY", Malformed),
        ("{SHA}gVK8WC9YyFT1gMsQHTGCgT3sSv5zYWx0", Malformed),
        ("{SSHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", Malformed),
    ] {
        assert_eq!(PasswordHash::parse(text).err(), Some(expected), "{text}");
    }
}

#[test]
fn no_more_of_a_salt_counts_than_its_format_has() {
    let long = "abcdefgh".to_owned() + &"ä".repeat(1000);
    assert!(parse("$apr1$abcdefghijk$h9FWgUz3n9YxylKLlR5SQ/").verify(b"secret"));
    let PasswordHash::Md5 { salt, .. } = parse(&format!("$1${long}$Oy8OD9LGKv7H9yIMreLNV1")) else {
        panic!("another format")
    };
    assert_eq!(&*salt, b"abcdefgh");
    let salted = STANDARD.encode([0; SHA1_LENGTH + MAX_SHA1_SALT + 1]);
    assert_eq!(PasswordHash::parse(&format!("{{SSHA}}{salted}")).err(), Some(HashError::Malformed));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// What a tenant writes into a Secret is read or rejected, and verified without a panic.
    #[test]
    fn any_text_is_read_or_rejected(
        text in r"(\$(2y|1|5|6|apr1)\$|\{(SHA|SSHA|PLAIN)\})(04\$|rounds=1000\$)?[ -~ä]{0,8}\$?([./0-9A-Za-z]{22}|[./0-9A-Za-z=]{43,60}|[./0-9A-Za-z]{86})?",
        password in prop::collection::vec(1_u8.., 0..80),
    ) {
        if let Ok(hash) = PasswordHash::parse(&text) {
            hash.verify(&password);
        }
    }
}
