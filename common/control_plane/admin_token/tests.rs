#![allow(clippy::unwrap_used)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    sync::{Arc, Mutex},
};

use chrono::{DateTime, TimeDelta, Utc};
use tempfile::TempDir;
use tokio::sync::watch;
use uuid::Uuid;

use super::*;
use crate::{
    model::{Resource, ResourceKey, kinds::secret},
    runtime::Clock,
    store::{Snapshot, StoreIdentity, index::Index},
    token::{new_signing_key, ports_of, secret_spec, validate_user},
};

/// A clock that is set by hand.
struct Hands(Mutex<DateTime<Utc>>);

impl Clock for Hands {
    fn now(&self) -> DateTime<Utc> {
        *self.0.lock().unwrap()
    }
}

struct Plane {
    folder: TempDir,
    clock: Arc<Hands>,
    env: Env,
    secrets: Vec<Resource>,
    index: watch::Sender<Arc<Index>>,
}

impl Plane {
    fn new() -> Self {
        let store = StoreIdentity { store_id: Uuid::nil(), epoch: 1 };
        let clock = Arc::new(Hands(Mutex::new(DateTime::from_timestamp(1_800_000_000, 0).unwrap())));
        let env = Env { clock: Arc::clone(&clock) as _, ..Env::system("test") };
        let index = watch::Sender::new(Arc::new(Index::empty(store)));
        let mut plane = Self { folder: TempDir::new().unwrap(), clock, env, secrets: Vec::new(), index };
        plane.put(Purpose::User.key(1), new_signing_key().unwrap().pem());
        plane
    }

    fn put(&mut self, key: ResourceKey, data: &str) {
        self.secrets.push(Resource::new(key, self.env.now()).with_spec(secret_spec(data)));
        self.show();
    }

    fn delete(&mut self, key: &ResourceKey) {
        self.secrets.retain(|secret| secret.key != *key);
        self.show();
    }

    fn show(&self) {
        let resources = self.secrets.iter().cloned().map(Arc::new).collect();
        let store = self.index.borrow().store;
        self.index
            .send_replace(Arc::new(Index::of(store, Snapshot { revision: 1, commit: None, resources })));
    }

    fn days_pass(&self, days: i64) {
        *self.clock.0.lock().unwrap() += TimeDelta::days(days);
    }

    fn token(&self, ports: &[u16]) -> AdminToken {
        let index = IndexReader::new(self.index.subscribe());
        AdminToken::new(self.folder.path(), ports.iter().copied().collect(), index, self.env.clone())
    }

    /// What is in the file after a look at it, which must be good.
    fn looked(&self, token: &mut AdminToken) -> String {
        token.look();
        assert_eq!(token.told, None);
        let text = token.file.read().unwrap();
        let claims = validate_user(&self.index.borrow(), &text, self.env.now()).unwrap();
        assert_eq!((claims.name, claims.groups), (User::admin().name, vec![User::admin().name]));
        text
    }
}

#[test]
fn a_good_token_stays_and_any_other_is_replaced() {
    let plane = Plane::new();
    let mut token = plane.token(&[5681, 5682]);
    let first = plane.looked(&mut token);
    assert_eq!(ports_of(&first), [5681, 5682].into());
    assert_eq!(plane.looked(&mut token), first);
    // A start that finds it keeps it.
    assert_eq!(plane.looked(&mut plane.token(&[5681, 5682])), first);

    let path = token.file.path().to_owned();
    let user = crate::token::UserClaims { name: User::admin().name, groups: vec![User::admin().name] };
    let ten_years =
        token::issue(&plane.index.borrow(), Purpose::User, &user, token::TEN_YEARS, &plane.env).unwrap();
    let forged = {
        let (body, _signature) = first.rsplit_once('.').unwrap();
        format!("{body}.AAAA")
    };
    let mut last = first;
    for (what, spoil) in [
        ("deleted", Box::new(|path: &Path| fs::remove_file(path).unwrap()) as Box<dyn Fn(&Path)>),
        ("emptied", Box::new(|path| fs::write(path, "").unwrap())),
        ("edited", Box::new(move |path| fs::write(path, &forged).unwrap())),
        ("another token", Box::new(move |path| fs::write(path, &ten_years).unwrap())),
        (
            "for all to read",
            Box::new(|path| fs::set_permissions(path, PermissionsExt::from_mode(0o644)).unwrap()),
        ),
    ] {
        spoil(&path);
        let next = plane.looked(&mut token);
        assert_ne!(next, last, "{what}");
        last = next;
    }
    assert_ne!(plane.looked(&mut plane.token(&[5681])), last, "it listens elsewhere");
}

#[test]
fn it_is_renewed_at_half_of_its_life_and_after_a_clock_that_was_wrong() {
    let plane = Plane::new();
    let mut token = plane.token(&[5681]);
    let first = plane.looked(&mut token);
    plane.days_pass(14);
    assert_eq!(plane.looked(&mut token), first);
    plane.days_pass(2);
    let second = plane.looked(&mut token);
    assert_ne!(second, first);
    plane.days_pass(100);
    let third = plane.looked(&mut token);
    assert_ne!(third, second);
    plane.days_pass(-100);
    assert_ne!(plane.looked(&mut token), third, "one from the future is good nowhere");
}

#[test]
fn it_follows_the_keys_and_what_is_revoked() {
    let mut plane = Plane::new();
    let mut token = plane.token(&[5681]);
    let first = plane.looked(&mut token);
    plane.put(Purpose::User.key(2), new_signing_key().unwrap().pem());
    let second = plane.looked(&mut token);
    assert_ne!(second, first, "the new key is used before the old one is gone");
    plane.delete(&Purpose::User.key(1));
    assert_eq!(plane.looked(&mut token), second);

    let claims: serde_json::Value = jsonwebtoken::dangerous::insecure_decode_claims(&second).unwrap();
    let revocations = ResourceKey::global(&secret::GLOBAL_SECRET, "user-token-revocations");
    plane.put(revocations, claims["jti"].as_str().unwrap());
    assert_ne!(plane.looked(&mut token), second);
}

#[test]
fn what_stands_in_the_way_is_told_once_and_the_rest_goes_on() {
    let mut plane = Plane::new();
    let mut token = plane.token(&[5681]);
    fs::create_dir(token.file.path()).unwrap();
    token.look();
    let told = token.told.clone().unwrap();
    assert!(told.contains("general.workDir") && told.contains("admin-user-token"), "{told}");
    fs::remove_dir(token.file.path()).unwrap();
    plane.looked(&mut token);

    plane.delete(&Purpose::User.key(1));
    token.look();
    let told = token.told.clone().unwrap();
    assert!(told.contains("user-token-signing-key-1") && told.contains("starts"), "{told}");
}

#[test]
fn one_that_is_not_wanted_any_more_goes() {
    let plane = Plane::new();
    let mut token = plane.token(&[5681]);
    plane.looked(&mut token);
    AdminToken::forget(plane.folder.path());
    assert!(!token.file.path().exists());
    AdminToken::forget(plane.folder.path());
}
