#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, sync::Arc};

use chrono::{DateTime, TimeDelta};
use uuid::Uuid;

use super::*;
use crate::{
    model::{Resource, ResourceKey, kinds::secret},
    proto::kuma::mesh::v1alpha1::{
        Dataplane,
        dataplane::{
            Networking,
            networking::{Inbound, Listener, listener},
        },
    },
    runtime::{Clock, Env},
    store::{Snapshot, StoreIdentity},
};

struct Fixed;

impl Clock for Fixed {
    fn now(&self) -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000, 0).unwrap()
    }
}

fn env() -> Env {
    Env { clock: Arc::new(Fixed), entropy: Entropy::seeded(7), instance_id: "test".into() }
}

fn index(env: &Env, keys: &[ResourceKey], revoked: Option<(ResourceKey, &str)>) -> Index {
    let store = StoreIdentity { store_id: Uuid::nil(), epoch: 1 };
    let secret = |key: &ResourceKey, data: &str| {
        Arc::new(Resource::new(key.clone(), env.now()).with_spec(secret_spec(data)))
    };
    let mut resources: Vec<_> =
        keys.iter().map(|key| secret(key, new_signing_key().unwrap().pem())).collect();
    resources.extend(revoked.map(|(key, ids)| secret(&key, ids)));
    Index::of(store, Snapshot { revision: 1, commit: None, resources })
}

fn dataplane(service: &str) -> Dataplane {
    let tags = [("kuma.io/service".to_owned(), service.to_owned())].into();
    let inbound = vec![Inbound { tags, ..Inbound::default() }];
    Dataplane { networking: Some(Networking { inbound, ..Networking::default() }), ..Dataplane::default() }
}

#[test]
fn a_dataplane_token_fits_its_dataplane_only() {
    let env = env();
    let purpose = Purpose::Dataplane { mesh: "default" };
    let index = index(&env, &[purpose.key(1)], None);
    let claims = DataplaneClaims {
        name: "web-1".to_owned(),
        mesh: "default".to_owned(),
        tags: [("kuma.io/service".to_owned(), BTreeSet::from(["web".to_owned()]))].into(),
        ..DataplaneClaims::default()
    };
    let token = issue(&index, purpose, &claims, TEN_YEARS, &env).unwrap();
    let check = |name, service, good| {
        let result =
            validate_dataplane(&index, &token, "default", name, Some((&dataplane(service), None)), env.now());
        assert_eq!(result.is_ok(), good, "{name} {service}: {result:?}");
    };
    check("web-1", "web", true);
    check("web-2", "web", false);
    check("web-1", "backend", false);
}

#[test]
fn a_token_for_an_edge_fits_a_dataplane_that_is_one() {
    let env = env();
    let purpose = Purpose::Dataplane { mesh: "default" };
    let index = index(&env, &[purpose.key(1)], None);
    for (r#type, listener, good) in [
        ("", Some(listener::Type::ZoneEgress), true),
        ("egress", Some(listener::Type::ZoneEgress), true),
        ("egress", Some(listener::Type::ZoneIngress), false),
        ("egress", None, false),
        ("ingress", Some(listener::Type::ZoneIngress), true),
        ("ingress", None, false),
        ("router", Some(listener::Type::ZoneIngress), false),
    ] {
        let claims = DataplaneClaims { r#type: r#type.to_owned(), ..DataplaneClaims::default() };
        let token = issue(&index, purpose, &claims, TEN_YEARS, &env).unwrap();
        let mut dataplane = dataplane("web");
        let listeners = listener.map(|edge| Listener { r#type: edge as i32, ..Listener::default() });
        dataplane.networking.as_mut().unwrap().listeners.extend(listeners);
        let checked =
            validate_dataplane(&index, &token, "default", "web", Some((&dataplane, None)), env.now());
        assert_eq!(checked.is_ok(), good, "{type} {listener:?}: {checked:?}");
    }
}

#[test]
fn a_zone_token_needs_scope_and_zone() {
    let env = env();
    let index = index(&env, &[Purpose::Zone.key(1)], None);
    let claims =
        ZoneClaims { zone: "east".to_owned(), scope: vec![scope::CP.to_owned()], ..ZoneClaims::default() };
    let token = issue(&index, Purpose::Zone, &claims, TEN_YEARS, &env).unwrap();
    assert!(validate_zone(&index, &token, scope::CP, "east", env.now()).is_ok());
    assert!(validate_zone(&index, &token, scope::CP, "west", env.now()).is_err());
    assert!(validate_zone(&index, &token, scope::INGRESS, "east", env.now()).is_err());
}

#[test]
fn a_relay_carries_the_zones_its_token_names() {
    let env = env();
    let index = index(&env, &[Purpose::Zone.key(1)], None);
    let check = |carries: &[&str], expected: [bool; 3]| {
        let claims = ZoneClaims {
            zone: "relay-1".to_owned(),
            scope: vec![scope::RELAY.to_owned()],
            carries: carries.iter().map(|zone| (*zone).to_owned()).collect(),
        };
        let token = issue(&index, Purpose::Zone, &claims, TEN_YEARS, &env).unwrap();
        let read = validate_zone(&index, &token, scope::RELAY, "relay-1", env.now()).unwrap();
        assert_eq!(read, claims);
        assert_eq!(["east", "eu-west", "eu"].map(|zone| read.may_carry(zone)), expected, "{carries:?}");
    };
    check(&[], [true, true, true]);
    check(&["east"], [true, false, false]);
    check(&["eu-*"], [false, true, false]);
    check(&["eu", "e*t"], [false, false, true]);
}

#[test]
fn times_signature_and_revocation_are_checked() {
    let env = env();
    let index_one = index(&env, &[Purpose::User.key(1)], None);
    let claims = UserClaims { name: "ann".to_owned(), groups: vec!["ops".to_owned()] };
    let token = issue(&index_one, Purpose::User, &claims, Duration::from_secs(60), &env).unwrap();
    assert_eq!(validate_user(&index_one, &token, env.now()).unwrap(), claims);
    let later = env.now() + TimeDelta::seconds(61);
    assert_eq!(expiry(&token), Some(env.now() + TimeDelta::seconds(60)));
    assert!(matches!(validate_user(&index_one, &token, later), Err(TokenError::Time("expired"))));
    let other_key = index(&env, &[Purpose::User.key(1)], None);
    assert!(matches!(validate_user(&other_key, &token, env.now()), Err(TokenError::Invalid(_))));
    assert!(validate_user(&index_one, "nonsense", env.now()).is_err());

    let id = jsonwebtoken::decode_header(&token).unwrap().kid;
    assert_eq!(id.as_deref(), Some("1"));
    let revocations = ResourceKey::global(&secret::GLOBAL_SECRET, "user-token-revocations");
    let payload = token.split('.').nth(1).unwrap();
    let payload = base64::Engine::decode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, payload).unwrap();
    let payload: serde_json::Value = serde_json::from_slice(&payload).unwrap();
    let jti = payload["jti"].as_str().unwrap();
    assert_eq!(payload["Name"], "ann");
    for list in [format!("x,{jti}"), format!(" {jti} , x"), format!("x\n{jti}\n"), format!("x\r\n{jti}\r\ny")]
    {
        let mut revoked = index_one.clone();
        let secret = Resource::new(revocations.clone(), env.now()).with_spec(secret_spec(list.clone()));
        let key = revocations.clone();
        revoked.apply(&crate::store::Change { revision: 2, key, resource: Some(Arc::new(secret)) });
        let judged = validate_user(&revoked, &token, env.now());
        assert!(matches!(judged, Err(TokenError::Revoked(_))), "{list:?}");
    }
}

#[test]
fn what_tokens_depend_on_is_told_from_what_they_do_not() {
    let global = |name: &str| ResourceKey::global(&secret::GLOBAL_SECRET, name);
    for name in ["zone-token-signing-key-3", "zone-token-signing-public-key-3", "zone-token-revocations"] {
        assert!(Purpose::Zone.depends_on(&global(name)), "{name}");
        assert!(!Purpose::User.depends_on(&global(name)), "{name}");
    }
    let in_mesh = ResourceKey::new(&secret::SECRET, "default", "zone-token-signing-key-3");
    for key in [global("user-token-signing-key-1"), global("zone"), in_mesh] {
        assert!(!Purpose::Zone.depends_on(&key), "{key}");
    }
}

#[test]
fn what_one_token_rests_on_includes_what_is_not_there_yet() {
    let env = env();
    let purpose = Purpose::Dataplane { mesh: "default" };
    let index = index(&env, &[purpose.key(3)], None);
    let claims = DataplaneClaims { mesh: "default".to_owned(), ..DataplaneClaims::default() };
    let token = issue(&index, purpose, &claims, TEN_YEARS, &env).unwrap();
    let names: Vec<String> = purpose.rests_on(&token).iter().map(ToString::to_string).collect();
    for (name, rests) in [
        ("dataplane-token-revocations-default", true),
        ("dataplane-token-signing-key-default-3", true),
        ("dataplane-token-signing-public-key-default-3", true),
        ("dataplane-token-signing-key-default-4", false),
    ] {
        assert_eq!(names.iter().any(|key| key.ends_with(name)), rests, "{name} in {names:?}");
    }
    assert!(purpose.rests_on(&token).iter().all(|key| purpose.depends_on(key)));
}

#[test]
fn the_newest_key_signs_and_the_public_half_is_enough_to_check() {
    let env = env();
    let full = index(&env, &[Purpose::Zone.key(1), Purpose::Zone.key(12), Purpose::Zone.key(2)], None);
    assert_eq!(Purpose::Zone.newest_key(&full).unwrap().kid, "12");
    let claims = ZoneClaims { scope: vec![scope::INGRESS.to_owned()], ..ZoneClaims::default() };
    let token = issue(&full, Purpose::Zone, &claims, TEN_YEARS, &env).unwrap();

    let private = full.get(&Purpose::Zone.key(12)).unwrap();
    let (name, public) = public_half(private).unwrap();
    assert_eq!(name, "zone-token-signing-public-key-12");
    let key = ResourceKey::global(&secret::GLOBAL_SECRET, &name);
    let zone = index(&env, &[], Some((key, &public)));
    assert!(validate_zone(&zone, &token, scope::INGRESS, "any", env.now()).is_ok());
}

#[test]
fn who_has_the_public_half_checks_dataplane_tokens_and_makes_none() {
    let env = env();
    let purpose = Purpose::Dataplane { mesh: "m" };
    let full = index(&env, &[purpose.key(3)], None);
    let claims = DataplaneClaims { mesh: "m".to_owned(), ..DataplaneClaims::default() };
    let token = issue(&full, purpose, &claims, TEN_YEARS, &env).unwrap();

    let (name, public) = public_half(full.get(&purpose.key(3)).unwrap()).unwrap();
    assert_eq!(name, "dataplane-token-signing-public-key-m-3");
    let zone = index(&env, &[], Some((ResourceKey::new(&secret::SECRET, "m", &name), &public)));
    assert!(validate_dataplane(&zone, &token, "m", "web", None, env.now()).is_ok());
    assert!(validate_dataplane(&zone, &token, "other", "web", None, env.now()).is_err());
    let refused = issue(&zone, purpose, &claims, TEN_YEARS, &env).unwrap_err();
    assert!(matches!(refused, TokenError::OnlyPublic("dataplane")), "{refused}");
    let none = issue(&zone, Purpose::Dataplane { mesh: "n" }, &claims, TEN_YEARS, &env).unwrap_err();
    assert!(matches!(none, TokenError::NoKey(..)), "{none}");

    let user = index(&env, &[Purpose::User.key(1)], None);
    assert!(public_half(user.get(&Purpose::User.key(1)).unwrap()).is_err());
}
