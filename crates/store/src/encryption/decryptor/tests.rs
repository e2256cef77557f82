use proptest::prelude::*;

use super::super::Encryptor;
use super::super::testing::encryption;
use super::*;
use crate::Revision;

fn secret(name: &str) -> Key {
    Key::new(Table::named("secrets"), name)
}

fn one() -> Arc<Encryption> {
    Arc::new(encryption(&[("secrets,configmaps", &["one:a", "identity"])]))
}

fn encrypted(encryption: &Arc<Encryption>, key: &Key, revision: Revision, value: &[u8]) -> Vec<u8> {
    let mut encryptor = Encryptor::new(Arc::clone(encryption));
    let chosen = encryptor.choose(key.table).expect("it is encrypted");
    let mut out = Vec::new();
    encryptor.append(&mut out, chosen, Location { key, revision }, value).expect("encrypted");
    assert_eq!(out.len(), encryptor.length(chosen, value.len()));
    out
}

fn decrypted(
    encryption: &Arc<Encryption>,
    key: &Key,
    revision: Revision,
    stored: &[u8],
) -> Result<Bytes, DecryptError> {
    match Decryptor::new(Arc::clone(encryption)).encrypted(Location { key, revision }, stored) {
        Ok(value) => Ok(value),
        Err(Unreadable::Encrypted(error)) => Err(error),
        Err(Unreadable::Malformed) => Err(DecryptError::Altered { object: key.clone(), name: "malformed".into() }),
    }
}

proptest! {
    #[test]
    fn values_decrypt_only_at_their_location(
        name in "[a-z]{1,8}/[a-z]{1,8}",
        other in "[a-z]{1,8}/[a-z]{1,8}",
        revision: u64,
        value in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let (encryption, key) = (one(), secret(&name));
        let stored = encrypted(&encryption, &key, revision, &value);
        let back = decrypted(&encryption, &key, revision, &stored).expect("decrypted");
        prop_assert_eq!(&back[..], &value[..]);
        let altered = DecryptError::Altered { object: key.clone(), name: "one".into() };
        prop_assert_eq!(decrypted(&encryption, &key, revision.wrapping_add(1), &stored), Err(altered));
        let elsewhere = Key::new(Table::named("configmaps"), name.clone());
        prop_assert!(decrypted(&encryption, &elsewhere, revision, &stored).is_err());
        if other != name {
            prop_assert!(decrypted(&encryption, &secret(&other), revision, &stored).is_err());
        }
        if value.len() > 3 {
            prop_assert!(!stored.windows(value.len()).any(|window| window == value));
        }
        prop_assert_ne!(encrypted(&encryption, &key, revision, &value), stored, "each has a salt and nonce of its own");
    }

    #[test]
    fn every_flipped_bit_is_detected(value in prop::collection::vec(any::<u8>(), 0..40), place: prop::sample::Index, bit in 0..8_u8) {
        let (encryption, key) = (one(), secret("default/a"));
        let mut stored = encrypted(&encryption, &key, 7, &value);
        let place = place.index(stored.len());
        stored[place] ^= 1 << bit;
        prop_assert!(decrypted(&encryption, &key, 7, &stored).is_err(), "byte {place}");
    }

    #[test]
    fn arbitrary_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(decrypted(&one(), &secret("default/a"), 7, &bytes).is_err());
    }
}

#[test]
fn a_missing_key_and_another_secret_have_different_errors() {
    let key = secret("default/a");
    let stored = encrypted(&one(), &key, 7, b"value");
    let none = Arc::new(Encryption::default());
    let Err(DecryptError::UnknownKey { object, name, id }) = decrypted(&none, &key, 7, &stored) else {
        panic!("the key is not known")
    };
    assert_eq!((&object, &*name), (&key, "one"));
    assert!(one().has_key(id));
    let other = Arc::new(encryption(&[("secrets", &["one:b"])]));
    let Err(error @ DecryptError::OtherSecret { .. }) = decrypted(&other, &key, 7, &stored) else {
        panic!("the secret is another")
    };
    assert!(error.to_string().contains("secrets/default/a") && error.to_string().contains(&id.to_string()), "{error}");
    let renamed = Arc::new(encryption(&[("secrets", &["two:b", "renamed:a"])]));
    assert_eq!(decrypted(&renamed, &key, 7, &stored).expect("the secret counts"), "value");
}

#[test]
fn plain_values_are_refused_unless_identity_is_listed() {
    let key = secret("default/a");
    assert_eq!(Decryptor::new(one()).plain(&key, b"value").expect("accepted"), "value");
    let strict = Arc::new(encryption(&[("secrets", &["one:a"])]));
    let refused = Decryptor::new(Arc::clone(&strict)).plain(&key, b"value");
    assert!(matches!(refused, Err(Unreadable::Encrypted(DecryptError::Plain { object })) if object == key));
    let free = Key::new(Table::named("configmaps"), "default/a");
    assert_eq!(Decryptor::new(strict).plain(&free, b"value").expect("no rule"), "value");
}

#[test]
fn a_tolerant_decryptor_counts_and_continues() {
    let encryption = Arc::new(encryption(&[("secrets", &["two:b"])]));
    let mut decryptor = Decryptor::tolerant(Arc::clone(&encryption));
    for name in ["default/a", "default/b"] {
        let key = secret(name);
        let stored = encrypted(&one(), &key, 7, b"value");
        let value = decryptor.encrypted(Location { key: &key, revision: 7 }, &stored).expect("it goes on");
        assert_eq!(value, "");
        assert_eq!(decryptor.plain(&key, b"value").expect("it goes on"), "");
    }
    let mine = encrypted(&encryption, &secret("default/c"), 8, b"value");
    let value = decryptor.encrypted(Location { key: &secret("default/c"), revision: 8 }, &mine).expect("decrypted");
    assert_eq!(value, "value");
    let values = &decryptor.tally()[&Table::named("secrets")];
    let counts: BTreeMap<&str, u64> = values.encrypted.values().map(|(name, count)| (&**name, *count)).collect();
    assert_eq!((values.plain, counts), (2, BTreeMap::from([("one", 2), ("two", 1)])));
    let refused: Vec<u64> = decryptor.refused().iter().map(|(_, count)| *count).collect();
    assert_eq!(refused, [2, 2]);
    assert!(
        matches!(&decryptor.refused()[0].0, DecryptError::UnknownKey { object, .. } if *object == secret("default/a"))
    );
    decryptor.reset();
    assert!(decryptor.refused().is_empty() && decryptor.tally().is_empty());
}
