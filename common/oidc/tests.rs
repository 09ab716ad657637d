#![allow(clippy::unwrap_used)]

use std::sync::{Arc, LazyLock};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use chrono::{DateTime, Utc};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    signer::{ISSUER, Signer, claims, key_set, provider, settings},
    *,
};
use crate::{
    access::User,
    config::OpenIdConnectSection,
    keys,
    model::{Resource, ResourceKey},
    store::{Snapshot, StoreIdentity, index::Index},
    token::{self, Purpose},
};

const NOW: i64 = 1_800_000_000;

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(NOW, 0).unwrap()
}

fn with(changes: Value) -> Value {
    let mut all = claims(NOW, "ann", &["devs"]);
    all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    all
}

fn authenticated(name: &str, groups: &[&str]) -> User {
    User::vouched_for(name.to_owned(), groups.iter().map(|group| (*group).to_owned()).collect())
}

#[test]
fn a_token_of_the_provider_names_a_user() {
    let signer = Signer::new("1");
    let provider = provider(&[&signer, &Signer::new("2")]);
    let token = signer.sign(&claims(NOW, "ann", &["devs"]));
    assert!(provider.claims(&token));
    assert_eq!(provider.user(&token, now()), Ok(authenticated("ann", &["devs"])));
    let good = [
        json!({ "aud": "cli", "azp": "cli" }),
        json!({ "aud": ["page", "cli"], "azp": "page" }),
        json!({ "aud": ["page", "cli"] }),
        json!({ "aud": ["page", "other"], "azp": "page" }),
        json!({ "iat": NOW + 600, "nbf": NOW + 600 }),
        json!({ "exp": f64::from(1_800_000_010) + 0.5 }),
        json!({ "exp": NOW + 1 }),
    ];
    for changes in good {
        assert!(provider.user(&signer.sign(&with(changes.clone())), now()).is_ok(), "{changes}");
    }
}

#[test]
fn what_is_not_for_us_or_not_in_time_is_refused() {
    let signer = Signer::new("1");
    let provider = provider(&[&signer]);
    let check = |changes: Value, expected: OidcError| {
        let found = provider.user(&signer.sign(&with(changes.clone())), now());
        let is_same = |error: &OidcError| std::mem::discriminant(error) == std::mem::discriminant(&expected);
        assert!(found.as_ref().is_err_and(is_same), "{changes}: {found:?}");
    };
    let text = String::new;
    for issuer in
        [json!("https://login.example/"), json!("https://evil.example"), json!(null), json!([ISSUER])]
    {
        check(json!({ "iss": issuer }), OidcError::Issuer(text()));
    }
    for audience in [
        json!("other"),
        json!(["other"]),
        json!([]),
        json!(null),
        json!({ "page": 1 }),
        json!(""),
        json!("PAGE"),
    ] {
        check(json!({ "aud": audience }), OidcError::Audience(text()));
    }
    // Somebody else's token, in which we are named too.
    check(json!({ "aud": ["page", "other"], "azp": "other" }), OidcError::Audience(text()));
    check(json!({ "aud": ["page", "other"] }), OidcError::Audience(text()));
    check(json!({ "azp": 5 }), OidcError::Audience(text()));
    for end in [json!(NOW), json!(NOW - 1), json!(0), json!(-1), json!(null), json!("1900000000")] {
        check(json!({ "exp": end }), OidcError::Time(""));
    }
    check(json!({ "nbf": NOW + 1000 }), OidcError::Time(""));
    check(json!({ "iat": NOW + 1000 }), OidcError::Time(""));
    check(
        json!({ "events": { "http://schemas.openid.net/event/backchannel-logout": {} } }),
        OidcError::Header(text()),
    );
}

#[test]
fn only_what_the_provider_signed_counts() {
    let pem = token::new_signing_key().unwrap();
    let (rsa, other) = (Signer::of_rsa("rsa", pem.pem()), Signer::new("other"));
    let provider = provider(&[&rsa]);
    let good = claims(NOW, "ann", &[]);
    assert_eq!(provider.user(&rsa.sign(&good), now()), Ok(authenticated("ann", &[])));

    // Nothing, and what everybody knows, as a key.
    let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    for algorithm in ["none", "None", "HS256", "nonsense"] {
        for signature in ["", "AAAA"] {
            let header = part(&json!({ "alg": algorithm, "kid": "rsa" }));
            let unsigned = format!("{header}.{}.{signature}", part(&good));
            assert!(provider.user(&unsigned, now()).is_err(), "{unsigned}");
        }
    }
    let public = keys::rsa_public_pem(pem.pem().as_bytes()).unwrap();
    let der = keys::rsa_public_der(pem.pem().as_bytes()).unwrap();
    let header = Header { kid: Some("rsa".to_owned()), ..Header::new(Algorithm::HS256) };
    for secret in [public.as_bytes(), public.trim().as_bytes(), der.as_slice()] {
        let forged = jsonwebtoken::encode(&header, &good, &EncodingKey::from_secret(secret)).unwrap();
        assert!(matches!(provider.user(&forged, now()), Err(OidcError::Header(_))), "{forged}");
    }

    // Another key, under this name, its own, none, and brought along.
    let mut named = Header::new(Algorithm::ES256);
    named.kid = Some("rsa".to_owned());
    assert!(matches!(provider.user(&other.sign_with(&named, &good), now()), Err(OidcError::Key(_))));
    assert!(matches!(provider.user(&other.sign(&good), now()), Err(OidcError::Key(_))));
    named.kid = None;
    named.jwk = serde_json::from_value(other.jwk()).unwrap();
    assert!(matches!(provider.user(&other.sign_with(&named, &good), now()), Err(OidcError::Key(_))));
    let same = Signer::of_rsa("rsa", token::new_signing_key().unwrap().pem());
    assert!(matches!(provider.user(&same.sign(&good), now()), Err(OidcError::Invalid(_))));

    // Other claims under the same signature, and less than a token.
    let signed = rsa.sign(&good);
    let parts: Vec<&str> = signed.split('.').collect();
    let changed = format!("{}.{}.{}", parts[0], part(&claims(NOW, "bob", &[])), parts[2]);
    for bad in [changed.as_str(), &signed[..signed.len() - 8], "", ".", "..", "a.b.c", "\u{1F600}.é.a"] {
        assert!(provider.user(bad, now()).is_err(), "{bad}");
    }

    // What is for something else by its type.
    for (kind, good_one) in [("JWT", true), ("at+jwt", true), ("logout+jwt", false), ("dpop+jwt", false)] {
        let typed = Header {
            typ: Some(kind.to_owned()),
            kid: Some("rsa".to_owned()),
            ..Header::new(Algorithm::RS256)
        };
        assert_eq!(provider.user(&rsa.sign_with(&typed, &good), now()).is_ok(), good_one, "{kind}");
    }
}

#[test]
fn a_token_that_is_too_long_is_not_looked_at() {
    let signer = Signer::new("1");
    let provider = provider(&[&signer]);
    let token = signer.sign(&with(json!({ "more": "x".repeat(LONGEST_TOKEN) })));
    assert!(!provider.claims(&token), "it is nobody's");
    assert_eq!(provider.user(&token, now()), Err(OidcError::Long));
}

#[test]
fn keys_have_names_and_purposes() {
    let (one, two) = (Signer::new("1"), Signer::new("2"));
    let nameless = Header::new(Algorithm::ES256);
    let token = one.sign_with(&nameless, &claims(NOW, "ann", &[]));
    assert!(provider(&[&one]).user(&token, now()).is_ok(), "the only key needs no name");
    assert!(matches!(provider(&[&one, &two]).user(&token, now()), Err(OidcError::Key(_))));
    let parse = |keys: Value| ProviderKeys::parse(json!({ "keys": keys }).to_string().as_bytes());
    let mut sealing = one.jwk();
    sealing["use"] = "enc".into();
    let symmetric = json!({ "kty": "oct", "kid": "1", "k": "AAAA" });
    let mut another = one.jwk();
    another["alg"] = "RS256".into();
    for useless in
        [json!([]), json!([sealing]), json!([symmetric]), json!([another]), json!([5, "a", null, {}])]
    {
        assert!(parse(useless.clone()).is_err(), "{useless}");
    }
    let found = parse(json!([symmetric, sealing, 5, two.jwk()])).unwrap();
    assert!(
        found.find(Some("2"), Algorithm::ES256).is_some()
            && found.find(Some("1"), Algorithm::ES256).is_none()
    );
    assert!(found.find(Some("2"), Algorithm::RS256).is_none());
    assert!(parse(Value::Array(vec![two.jwk(); 5000])).is_ok(), "a long list is cut");
    assert!(ProviderKeys::parse(b"[]").is_err() && ProviderKeys::parse(b"").is_err());
}

#[test]
fn nobody_becomes_by_a_claim_what_only_a_control_plane_gives() {
    let signer = Signer::new("1");
    let user = |changes: &Value, settings: OpenIdConnectSection| {
        let mapping = ClaimMapping::from(&settings);
        let token = signer.sign(&with(changes.clone()));
        let expected = ExpectedToken { issuer: ISSUER, clients: &["page"], audience: "", nonce: None };
        let keys = key_set(&[&signer]);
        mapping.user(&verify(&token, &keys, &expected, now()).unwrap())
    };
    let groups = json!({ "groups": ["mesh-system:admin", "Mesh-System:admin", "mesh-system:node", "devs", "", " devs", "a\nb", 5] });
    assert_eq!(user(&groups, settings()), Ok(authenticated("ann", &["devs"])));
    for name in [
        "mesh-system:admin",
        "mesh-system:anonymous",
        "MESH-SYSTEM:ADMIN",
        " ann",
        "a\u{7}",
        "",
        &"x".repeat(300),
    ] {
        let found = user(&json!({ "sub": name }), settings());
        assert!(matches!(found, Err(OidcError::Claim { .. })), "{name}: {found:?}");
    }
    for (prefix, name) in [("mesh", "-system:admin"), ("mesh-system", ":admin")] {
        let prefixed = OpenIdConnectSection {
            username_prefix: prefix.to_owned(),
            groups_prefix: prefix.to_owned(),
            ..settings()
        };
        assert!(user(&json!({ "sub": name }), prefixed.clone()).is_err(), "{prefix}");
        let found = user(&json!({ "groups": [name] }), prefixed).unwrap();
        assert_eq!(found, authenticated(&format!("{prefix}ann"), &[]));
    }
    let many: Vec<String> = (0..257).map(|n| n.to_string()).collect();
    assert!(user(&json!({ "groups": many }), settings()).is_err());

    let mapped = OpenIdConnectSection {
        username_claim: "email".to_owned(),
        username_prefix: "sso:".to_owned(),
        groups_claim: "realm_access.roles".to_owned(),
        groups_prefix: "sso:".to_owned(),
        ..settings()
    };
    let claims = json!({ "email": "ann@example.test", "realm_access": { "roles": ["ops"] } });
    assert_eq!(user(&claims, mapped.clone()), Ok(authenticated("sso:ann@example.test", &["sso:ops"])));
    let mut unproven = claims.clone();
    unproven["email_verified"] = false.into();
    assert!(user(&unproven, mapped.clone()).is_err(), "anybody could have written that address");
    assert!(user(&json!({}), mapped).is_err(), "it names nobody");
}

#[test]
fn a_provider_says_where_it_is_and_nobody_else_for_it() {
    let document = |changes: Value| {
        let mut all = json!({ "issuer": ISSUER, "token_endpoint": "https://login.example/token",
            "jwks_uri": "https://login.example/keys", "authorization_endpoint": "https://login.example/auth" });
        all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        ProviderMetadata::parse(all.to_string().as_bytes(), ISSUER)
    };
    assert!(document(json!({})).is_ok());
    for bad in [
        json!({ "issuer": "https://evil.example" }),
        json!({ "issuer": "https://login.example/" }),
        json!({ "jwks_uri": "http://login.example/keys" }),
        json!({ "token_endpoint": "file:///etc/passwd" }),
        json!({ "authorization_endpoint": "javascript:alert(1)" }),
        json!({ "end_session_endpoint": "http://login.example/out" }),
        json!({ "jwks_uri": null }),
    ] {
        assert!(document(bad.clone()).is_err(), "{bad}");
    }
    assert!(document(json!({ "jwks_uri": "http://127.0.0.1:1/keys" })).is_ok(), "that stays on this machine");
    assert_eq!(
        discovery_url("https://a.example/realm/"),
        "https://a.example/realm/.well-known/openid-configuration"
    );
    let methods =
        |methods: Value| document(json!({ "token_endpoint_auth_methods_supported": methods })).unwrap();
    assert!(methods(json!(["client_secret_post"])).wants_secret_in_body());
    assert!(!methods(json!(["client_secret_basic", "client_secret_post"])).wants_secret_in_body());
}

fn index(key: &ResourceKey) -> Index {
    index_with(key, token::new_signing_key().unwrap().pem())
}

fn index_with(key: &ResourceKey, content: &str) -> Index {
    let store = StoreIdentity { store_id: Uuid::nil(), epoch: 1 };
    let spec = token::secret_spec(content);
    let secret = Resource::new(key.clone(), now()).with_spec(spec);
    Index::of(store, Snapshot { revision: 1, commit: None, resources: vec![Arc::new(secret)] })
}

#[test]
fn what_a_browser_keeps_is_read_and_made_by_nobody_else() {
    let (ours, theirs) = (index(&Purpose::User.key(1)), index(&Purpose::User.key(1)));
    let by = provider(&[&Signer::new("1")]);
    let other = |change: fn(&mut OpenIdConnectSection)| {
        let mut settings = by.settings().clone();
        change(&mut settings);
        OpenIdProvider::new(&settings).unwrap()
    };
    let session = PageSession::new(authenticated("ann", &["devs"]), &by, now() + chrono::TimeDelta::hours(1));
    let sealed = session.seal(&ours).unwrap();
    assert!(token::is_sealed(&sealed) && !sealed.contains("ann"));
    let open = |index: &Index, sealed: &str, by: &OpenIdProvider, at: i64| {
        PageSession::open(index, sealed, by, DateTime::from_timestamp(at, 0).unwrap())
    };
    assert_eq!(
        open(&ours, &sealed, &by, NOW).map(|session| session.user()),
        Some(authenticated("ann", &["devs"]))
    );
    assert!(open(&ours, &sealed, &by, NOW + 3600).is_none(), "it is over");
    let others = [
        other(|settings| "https://new.example".clone_into(&mut settings.issuer)),
        other(|settings| "another".clone_into(&mut settings.client_id)),
        other(|settings| "roles".clone_into(&mut settings.groups_claim)),
        other(|settings| "work:".clone_into(&mut settings.username_prefix)),
    ];
    assert!(
        others.iter().all(|by| open(&ours, &sealed, by, NOW).is_none()),
        "another provider, or other settings"
    );
    // What stands in the place of the key may be known to others.
    for content in
        ["", "revoked", &keys::rsa_public_pem(token::new_signing_key().unwrap().pem().as_bytes()).unwrap()]
    {
        let spoilt = index_with(&Purpose::User.key(1), content);
        assert!(session.seal(&spoilt).is_err() && open(&spoilt, &sealed, &by, NOW).is_none(), "{content}");
    }
    assert!(open(&theirs, &sealed, &by, NOW).is_none(), "another key");
    assert!(open(&index(&Purpose::User.key(2)), &sealed, &by, NOW).is_none(), "its key is gone");
    for at in 0..sealed.len() {
        let mut bytes = sealed.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(bytes).unwrap();
        assert!(open(&ours, &changed, &by, NOW).is_none(), "{at}");
    }
    // What is sealed for a login is no session.
    let (_, flow) =
        CodeFlow::begin(&provider(&[&Signer::new("1")]), "https://cp.example/back", "/gui", now()).unwrap();
    let begun = flow.seal(&ours).unwrap();
    assert_eq!(CodeFlow::open(&ours, &begun), Some(flow));
    assert!(open(&ours, &begun, &by, NOW).is_none() && CodeFlow::open(&ours, &sealed).is_none());
    let groups: Vec<String> = (0..200).map(|n| format!("group-number-{n}-of-this-company")).collect();
    let large = PageSession::new(User::authenticated("ann".to_owned(), groups), &by, now());
    assert!(matches!(large.seal(&ours), Err(OidcError::Claim { .. })), "no browser keeps that");
}

proptest! {
    #[test]
    fn nothing_from_outside_ends_the_process(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        parts in prop::collection::vec("[A-Za-z0-9_=.~-]{0,60}", 0..4),
        claims in "(\\{\"(iss|aud|exp|groups|sub)\":[\\[\\]{}\",:0-9a-z.e-]{0,40}\\})?",
    ) {
        static PROVIDER: LazyLock<OpenIdProvider> = LazyLock::new(|| provider(&[&Signer::new("1")]));
        static OURS: LazyLock<Index> = LazyLock::new(|| index(&Purpose::User.key(1)));
        let encoded = BASE64_URL_SAFE_NO_PAD.encode(&claims);
        for text in [String::from_utf8_lossy(&bytes).into_owned(), parts.join("."), format!("{encoded}.{encoded}.{encoded}")] {
            let claimed = PROVIDER.claims(&text);
            prop_assert!(PROVIDER.user(&text, now()).is_err(), "{claimed}");
            prop_assert!(PageSession::open(&OURS, &text, &PROVIDER, now()).is_none());
            let marked = format!("~1.{text}");
            prop_assert!(CodeFlow::open(&OURS, &marked).is_none());
        }
        prop_assert!(ProviderMetadata::parse(&bytes, ISSUER).is_err());
        prop_assert!(ProviderKeys::parse(&bytes).is_err() && ProviderKeys::parse(claims.as_bytes()).is_err());
    }
}
