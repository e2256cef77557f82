//! Valid tokens, and the reasons for which tokens are rejected.

use super::*;

const NOW: i64 = 1_800_000_000;
const API_AUDIENCE: &str = "https://kubernetes.default.svc.cluster.local";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn signer() -> ServiceAccounts {
    ServiceAccounts::new(&rcgen::KeyPair::generate().unwrap().serialize_der(), "cluster.local").unwrap()
}

fn grant<'a>() -> Grant<'a> {
    let bound = Binding::default();
    Grant { namespace: "ns", name: "robot", uid: "u-1", audiences: &[API_AUDIENCE, "vault"], seconds: 3600, bound }
}

fn lookup(what: Referent, namespace: &str, name: &str) -> Option<Value> {
    let uid = match (what, namespace, name) {
        (Referent::ServiceAccount, "ns", "robot") => "u-1",
        (Referent::Pod, "ns", "p") => "u-p",
        (Referent::Secret, "ns", "s") => "u-s",
        (Referent::Node, "", "n") => "u-n",
        _ => return None,
    };
    Some(json!({"metadata": {"name": name, "uid": uid}}))
}

fn check(signer: &ServiceAccounts, token: &str, second: i64) -> Result<Verified, TokenError> {
    signer.verify(token, &[API_AUDIENCE], at(second), &lookup)
}

/// A token with any header and claims, signed by the signer's key.
fn forge(signer: &ServiceAccounts, header: &Value, claims: &Value) -> String {
    let signed =
        format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims.to_string()));
    let signature = signer.keys().sign(signed.as_bytes()).unwrap();
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
    let Verified { user, audiences, .. } = check(&signer, &token, NOW).unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("system:serviceaccount:ns:robot", "u-1"));
    assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:ns"]);
    assert!(user.extra[CREDENTIAL_ID][0].starts_with("JTI="));
    assert_eq!(credential_id(&token).as_ref(), user.extra[CREDENTIAL_ID].first());
    assert_eq!((credential_id("x"), credential_id("a.b.c")), (None, None));
    assert_eq!(audiences, [API_AUDIENCE]);
    assert_eq!(signer.verify(&token, &["other", "vault"], at(NOW), &lookup).unwrap().audiences, ["vault"]);

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
fn every_changed_character_invalidates_a_token() {
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
fn only_our_key_and_es256_are_accepted() {
    let (signer, other) = (signer(), signer());
    assert_eq!(check(&signer, &other.sign(&grant(), at(NOW)).unwrap(), NOW), Err(TokenError::OtherKey));
    assert_eq!(check(&signer, &forge(&other, &json!({"alg": "ES256"}), &claims()), NOW), Err(TokenError::Signature));
    let posing = forge(&other, &json!({"alg": "ES256", "kid": signer.keys().id()}), &claims());
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
fn audience_issuer_and_account_must_match() {
    let signer = signer();
    let token = signer.sign(&Grant { audiences: &["vault"], ..grant() }, at(NOW)).unwrap();
    let error = check(&signer, &token, NOW).unwrap_err();
    assert_eq!(
        error.to_string(),
        "token audiences [\"vault\"] is invalid for the target audiences \
         [\"https://kubernetes.default.svc.cluster.local\"]"
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
    let gone = signer.verify(&token, &[API_AUDIENCE], at(NOW), &|_, _, _| None);
    assert_eq!(gone, Err(TokenError::NoAccount("robot".into())));
    let anew = signer.verify(&token, &[API_AUDIENCE], at(NOW), &|_, _, _| Some(json!({"metadata": {"uid": "u-2"}})));
    assert_eq!(anew, Err(TokenError::OtherAccount { have: "u-2".into(), claimed: "u-1".into() }));
}

#[test]
fn tokens_of_earlier_versions_are_accepted() {
    let signer = signer();
    let mut earlier = claims();
    (earlier["iss"], earlier["aud"]) = (EARLIER_ISSUER.into(), json!([EARLIER_ISSUER]));
    let token = forge(&signer, &json!({"alg": "ES256"}), &earlier);
    assert_eq!(check(&signer, &token, NOW).unwrap().audiences, [API_AUDIENCE]);
    let elsewhere = signer.verify(&token, &["vault"], at(NOW), &lookup).unwrap_err();
    assert!(matches!(elsewhere, TokenError::Audience { .. }), "{elsewhere}");
}

fn to<'a>(name: &'a str, uid: &'a str) -> Option<Reference<'a>> {
    Some(Reference { name, uid })
}

#[test]
fn a_bound_token_names_what_it_is_bound_to() {
    let signer = signer();
    let sign = |bound| signer.sign(&Grant { bound, ..grant() }, at(NOW)).unwrap();
    let of = |token: &str| check(&signer, token, NOW).unwrap();
    let extras = |verified: &Verified| -> Vec<(String, String)> {
        let named = |(key, values): (&String, &Vec<String>)| {
            let key = key.strip_prefix("authentication.kubernetes.io/").unwrap();
            (key != "credential-id").then(|| (key.to_owned(), values.join(",")))
        };
        verified.user.extra.iter().filter_map(named).collect()
    };
    let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let pod = of(&sign(Binding { pod: to("p", "u-p"), node: to("n", "u-n"), secret: None }));
    let placed = [("node-name", "n"), ("node-uid", "u-n"), ("pod-name", "p"), ("pod-uid", "u-p")];
    assert_eq!(extras(&pod), owned(&placed));
    let mut expected = json!({"namespace": "ns", "serviceaccount": {"name": "robot", "uid": "u-1"}});
    expected["pod"] = json!({"name": "p", "uid": "u-p"});
    expected["node"] = json!({"name": "n", "uid": "u-n"});
    assert_eq!(pod.claims["kubernetes.io"], expected);
    let unknown_node = of(&sign(Binding { pod: to("p", "u-p"), node: to("gone", ""), secret: None }));
    assert_eq!(extras(&unknown_node), owned(&[("node-name", "gone"), ("pod-name", "p"), ("pod-uid", "u-p")]));
    let node = of(&sign(Binding { node: to("n", "u-n"), ..Binding::default() }));
    assert_eq!(extras(&node), owned(&[("node-name", "n"), ("node-uid", "u-n")]));
    let secret = of(&sign(Binding { secret: to("s", "u-s"), ..Binding::default() }));
    assert_eq!((extras(&secret), &secret.claims["kubernetes.io"]["secret"]["name"]), (Vec::new(), &json!("s")));
}

#[test]
fn a_bound_token_ends_with_its_object() {
    let signer = signer();
    let says = |bound| check(&signer, &signer.sign(&Grant { bound, ..grant() }, at(NOW)).unwrap(), NOW).unwrap_err();
    for gone in [
        Binding { pod: to("q", "u-p"), ..Binding::default() },
        Binding { secret: to("t", "u-s"), ..Binding::default() },
        Binding { node: to("m", "u-n"), ..Binding::default() },
    ] {
        assert_eq!(says(gone), TokenError::Invalidated, "{gone:?}");
    }
    let anew = says(Binding { pod: to("p", "u-q"), ..Binding::default() });
    assert_eq!(anew.to_string(), "pod UID (u-p) does not match service account pod ref claim (u-q)");

    // A Pod may end in peace: its token is good until a minute after its grace period.
    let bound = Binding { pod: to("p", "u-p"), ..Binding::default() };
    let token = signer.sign(&Grant { bound, ..grant() }, at(NOW)).unwrap();
    let deleted_at = |second: i64| {
        let ending = move |what, namespace: &str, name: &str| {
            let mut found = lookup(what, namespace, name)?;
            if what == Referent::Pod {
                found["metadata"]["deletionTimestamp"] = api::lifecycle::seconds(at(second)).into();
            }
            Some(found)
        };
        signer.verify(&token, &[API_AUDIENCE], at(NOW), &ending).map(|_| ())
    };
    assert_eq!((deleted_at(NOW + 30), deleted_at(NOW - 60)), (Ok(()), Ok(())));
    assert_eq!(deleted_at(NOW - 61), Err(TokenError::Invalidated));
}

#[test]
fn user_names_are_split() {
    assert_eq!(split_username("system:serviceaccount:ns:a"), Some(("ns", "a")));
    for odd in ["alice", "system:serviceaccount:", "system:serviceaccount:ns", "system:serviceaccount::a"] {
        assert_eq!(split_username(odd), None, "{odd}");
    }
    assert_eq!(split_username("system:serviceaccount:ns:a:b"), None);
    assert!(ServiceAccounts::new(b"not a key", "cluster.local").is_err());
}
