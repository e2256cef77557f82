//! Tokens that are good, and everything that makes one bad.

use super::*;

const NOW: i64 = 1_800_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn signer() -> ServiceAccounts {
    ServiceAccounts::new(&rcgen::KeyPair::generate().unwrap().serialize_der()).unwrap()
}

fn grant<'a>() -> Grant<'a> {
    Grant { namespace: "ns", name: "robot", uid: "u-1", audiences: &[API_AUDIENCE, "vault"], seconds: 3600 }
}

fn lookup(namespace: &str, name: &str) -> Option<String> {
    (namespace == "ns" && name == "robot").then(|| "u-1".to_owned())
}

fn check(signer: &ServiceAccounts, token: &str, second: i64) -> Result<(User, Vec<String>), TokenError> {
    signer.verify(token, &[API_AUDIENCE], at(second), &lookup)
}

/// A token with any header and claims, signed by the signer's key.
fn forge(signer: &ServiceAccounts, header: &Value, claims: &Value) -> String {
    let signed =
        format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims.to_string()));
    let signature = signer.key.sign(&signer.random, signed.as_bytes()).unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn claims() -> Value {
    json!({
        "iss": API_AUDIENCE, "aud": [API_AUDIENCE], "exp": NOW + 60, "sub": "system:serviceaccount:ns:robot",
        "kubernetes.io": {"namespace": "ns", "serviceaccount": {"name": "robot", "uid": "u-1"}},
    })
}

#[test]
fn a_token_names_its_account() {
    let signer = signer();
    let token = signer.sign(&grant(), at(NOW)).unwrap();
    let (user, audiences) = check(&signer, &token, NOW).unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("system:serviceaccount:ns:robot", "u-1"));
    assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:ns"]);
    assert!(user.extra[CREDENTIAL_ID][0].starts_with("JTI="));
    assert_eq!(audiences, [API_AUDIENCE]);
    let (_, audiences) = signer.verify(&token, &["other", "vault"], at(NOW), &lookup).unwrap();
    assert_eq!(audiences, ["vault"]);

    let payload = token.split('.').nth(1).unwrap();
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap();
    assert_eq!(claims["sub"], "system:serviceaccount:ns:robot");
    assert_eq!((claims["iat"].as_i64(), claims["exp"].as_i64()), (Some(NOW), Some(NOW + 3600)));
    assert_eq!(claims["kubernetes.io"], json!({"namespace": "ns", "serviceaccount": {"name": "robot", "uid": "u-1"}}));
}

#[test]
fn times_are_kept_with_a_minute_of_leeway() {
    let signer = signer();
    let token = signer.sign(&grant(), at(NOW)).unwrap();
    assert!(check(&signer, &token, NOW - 60).is_ok());
    assert_eq!(check(&signer, &token, NOW - 61), Err(TokenError::NotYet));
    assert!(check(&signer, &token, NOW + 3660).is_ok());
    assert_eq!(check(&signer, &token, NOW + 3661), Err(TokenError::Expired));
    let header = json!({"alg": "ES256"});
    let mut odd = claims();
    assert!(check(&signer, &forge(&signer, &header, &odd), NOW).is_ok());
    odd["iat"] = (NOW + 1000).into();
    assert_eq!(check(&signer, &forge(&signer, &header, &odd), NOW), Err(TokenError::FromTheFuture));
    odd["exp"] = "never".into();
    assert_eq!(check(&signer, &forge(&signer, &header, &odd), NOW), Err(TokenError::Expired));
}

#[test]
fn every_changed_character_is_noticed() {
    let signer = signer();
    let token = signer.sign(&grant(), at(NOW)).unwrap();
    for (index, old) in token.char_indices() {
        let new = if old == 'A' { 'B' } else { 'A' };
        let mut changed = token.clone();
        changed.replace_range(index..=index, &new.to_string());
        assert!(check(&signer, &changed, NOW).is_err(), "character {index}");
    }
    for cut in 0..token.len() {
        assert!(check(&signer, &token[..cut], NOW).is_err(), "cut at {cut}");
    }
    for odd in ["", ".", "..", "...", "a.b.c", "{}", "e30.e30.", "\u{e9}.\u{e9}.\u{e9}"] {
        assert_eq!(check(&signer, odd, NOW), Err(TokenError::Unknown), "{odd:?}");
    }
    assert!(check(&signer, &format!("{token}."), NOW).is_err());
    assert!(check(&signer, &format!("{token}="), NOW).is_err());
}

#[test]
fn only_our_key_and_our_algorithm_count() {
    let (signer, other) = (signer(), signer());
    assert_eq!(check(&signer, &other.sign(&grant(), at(NOW)).unwrap(), NOW), Err(TokenError::OtherKey));
    assert_eq!(check(&signer, &forge(&other, &json!({"alg": "ES256"}), &claims()), NOW), Err(TokenError::Signature));
    let posing = forge(&other, &json!({"alg": "ES256", "kid": signer.key_id}), &claims());
    assert_eq!(check(&signer, &posing, NOW), Err(TokenError::Signature));
    for alg in ["none", "None", "HS256", "RS256", "es256", ""] {
        let token = forge(&signer, &json!({"alg": alg}), &claims());
        assert_eq!(check(&signer, &token, NOW), Err(TokenError::Signature), "{alg}");
        let unsigned = &token[..=token.rfind('.').unwrap()];
        assert_eq!(check(&signer, unsigned, NOW), Err(TokenError::Signature), "{alg}");
    }
    let critical = forge(&signer, &json!({"alg": "ES256", "crit": ["exp"]}), &claims());
    assert_eq!(check(&signer, &critical, NOW), Err(TokenError::Signature));
}

#[test]
fn audience_issuer_and_account_must_fit() {
    let signer = signer();
    let token = signer.sign(&Grant { audiences: &["vault"], ..grant() }, at(NOW)).unwrap();
    let error = check(&signer, &token, NOW).unwrap_err();
    assert_eq!(
        error.to_string(),
        "token audiences [\"vault\"] is invalid for the target audiences [\"https://kubernetes.default.svc\"]"
    );
    let header = json!({"alg": "ES256"});
    let mut odd = claims();
    odd["aud"] = API_AUDIENCE.into();
    assert!(check(&signer, &forge(&signer, &header, &odd), NOW).is_ok(), "one audience may stand alone");
    for aud in [json!(null), json!([]), json!({}), json!([1])] {
        odd["aud"] = aud;
        assert!(matches!(check(&signer, &forge(&signer, &header, &odd), NOW), Err(TokenError::Audience { .. })));
    }
    odd = claims();
    odd["iss"] = "https://elsewhere".into();
    assert_eq!(check(&signer, &forge(&signer, &header, &odd), NOW), Err(TokenError::Unknown));

    let token = signer.sign(&grant(), at(NOW)).unwrap();
    let gone = signer.verify(&token, &[API_AUDIENCE], at(NOW), &|_, _| None);
    assert_eq!(gone, Err(TokenError::NoAccount("robot".into())));
    let anew = signer.verify(&token, &[API_AUDIENCE], at(NOW), &|_, _| Some("u-2".into()));
    assert_eq!(anew, Err(TokenError::OtherAccount { have: "u-2".into(), claimed: "u-1".into() }));
}

#[test]
fn user_names_come_apart() {
    assert_eq!(split_username("system:serviceaccount:ns:a"), Some(("ns", "a")));
    for odd in ["alice", "system:serviceaccount:", "system:serviceaccount:ns", "system:serviceaccount::a"] {
        assert_eq!(split_username(odd), None, "{odd}");
    }
    assert_eq!(split_username("system:serviceaccount:ns:a:b"), None);
    assert!(ServiceAccounts::new(b"not a key").is_err());
}
