#![allow(clippy::unwrap_used)]
use chrono::{DateTime, TimeDelta, Utc};
use common::{
    kds::features::Features,
    model::Resource,
    runtime::{Clock, Entropy},
    store::{Batch, Store, Write, feed::Feed, memory::MemoryStore},
};
use tonic::metadata::{MetadataMap, MetadataValue};
use uuid::Uuid;

use super::*;

/// Holds one token per zone: `token-of-<zone>`.
struct Tokens;

impl ZoneAuthenticator for Tokens {
    fn authenticate(&self, zone: &str, shown: ShownCredentials<'_>) -> Result<(), ZoneAuthError> {
        let token = shown.token.ok_or_else(|| ZoneAuthError::Missing { zone: zone.to_owned() })?;
        match token.strip_prefix("token-of-") {
            Some(owner) if owner == zone => Ok(()),
            Some(owner) => Err(ZoneAuthError::Foreign { claimed: zone.to_owned(), reason: owner.to_owned() }),
            None => Err(ZoneAuthError::Invalid { zone: zone.to_owned(), reason: "not signed".to_owned() }),
        }
    }
}

#[test]
fn only_the_zone_itself_gets_in() {
    let caller = |zone: &str, token: Option<&str>| KdsCaller {
        zone: zone.to_owned(),
        features: Features::default(),
        session: None,
        token: token.map(str::to_owned),
        version: String::new(),
        issuing_request: None,
    };
    let check = |caller: Option<KdsCaller>, expected: Result<(), &str>| {
        let got = admit(caller, None, &Tokens).map(drop);
        assert_eq!(got.map_err(|e| e.reason()), expected);
    };
    check(Some(caller("zone-1", Some("token-of-zone-1"))), Ok(()));
    check(Some(caller("zone-1", Some("token-of-zone-2"))), Err("foreign_zone"));
    check(Some(caller("zone-1", Some("garbage"))), Err("bad_token"));
    check(Some(caller("zone-1", None)), Err("no_token"));
    let mut headers = MetadataMap::new();
    headers.insert("client-id", MetadataValue::from_static("zone-1"));
    headers.insert("authorization", MetadataValue::from_static("Bearer "));
    check(KdsCaller::read(&headers), Err("no_token"));
    check(None, Err("no_name"));
    for name in ["Zone", "-a", "a-", "a..b", "a b", &"a".repeat(64)] {
        check(Some(caller(name, None)), Err("bad_name"));
    }
}

struct Noon;

impl Clock for Noon {
    fn now(&self) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::hours(12)
    }
}

fn certificate(common_name: &str, uris: &[&str]) -> PeerCertificate {
    PeerCertificate {
        common_name: Some(common_name.to_owned()),
        uris: uris.iter().map(|uri| (*uri).to_owned()).collect(),
        serial: "0a1b".to_owned(),
        valid_from: DateTime::UNIX_EPOCH,
        valid_until: DateTime::UNIX_EPOCH + TimeDelta::hours(13),
    }
}

async fn reader(revoked: &str) -> IndexReader {
    let store = Arc::new(MemoryStore::new(Uuid::nil()));
    let list = Resource::new(revocations(), DateTime::UNIX_EPOCH).with_spec(token::secret_spec(revoked));
    store.transact(Batch::of([Write::put(list)])).await.unwrap();
    Feed::load(store as Arc<dyn Store>).await.unwrap().reader()
}

fn env() -> Env {
    Env { clock: Arc::new(Noon), entropy: Entropy::seeded(1), instance_id: "here".into() }
}

async fn by_certificate(revoked: &str) -> CertificateOfZone {
    CertificateOfZone { index: reader(revoked).await, env: env() }
}

#[tokio::test]
async fn a_certificate_is_good_for_the_zone_it_names() {
    let authenticator = by_certificate("").await;
    let check = |certificate: PeerCertificate, zone: &str, expected: Result<(), &str>| {
        let shown = ShownCredentials { certificate: Some(&certificate), token: None };
        let got = authenticator.authenticate(zone, shown);
        match (&got, expected) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            _ => panic!("{certificate:?} as {zone}: {got:?}"),
        }
    };
    check(certificate("zone-1", &[]), "zone-1", Ok(()));
    check(certificate("zone-1", &["https://zone-2"]), "zone-1", Ok(()));
    check(certificate("zone-1", &[]), "zone-2", Err("made for zone"));
    check(certificate("x", &["spiffe://mesh.example/zone/zone-1"]), "zone-1", Ok(()));
    // The common name says nothing where there is an id.
    check(certificate("zone-2", &["spiffe://mesh.example/zone/zone-1"]), "zone-2", Err("made for zone"));
    check(certificate("zone-1", &["spiffe://mesh.example/web"]), "zone-1", Err("names no zone"));
    let two = ["spiffe://mesh.example/zone/zone-1", "spiffe://mesh.example/zone/zone-2"];
    check(certificate("zone-1", &two), "zone-1", Err("names no zone"));
    let capital = ["SPIFFE://mesh.example/zone/zone-2"];
    check(certificate("zone-1", &capital), "zone-1", Err("made for zone"));
    check(certificate("x", &capital), "zone-2", Ok(()));
    let late = PeerCertificate { valid_until: Noon.now(), ..certificate("zone-1", &[]) };
    check(late, "zone-1", Err("ran out"));
    let none = authenticator.authenticate("zone-1", ShownCredentials::default()).unwrap_err();
    assert!(none.to_string().contains("clientCertFile"), "{none}");
}

#[tokio::test]
async fn a_revoked_certificate_is_refused_however_its_number_is_written() {
    for (listed, is_good) in [
        ("", true),
        ("a1bc, 1b", true),
        ("77,0A:1B", false),
        ("a1b", false),
        ("77\n0a1b\n", false),
        ("0x0A1B", false),
        ("77, serial=0A1B", false),
    ] {
        let authenticator = by_certificate(listed).await;
        let shown = certificate("zone-1", &[]);
        let shown = ShownCredentials { certificate: Some(&shown), token: None };
        assert_eq!(authenticator.authenticate("zone-1", shown).is_ok(), is_good, "{listed}");
        assert!(authenticator.depends_on(&revocations()));
    }
}

#[tokio::test]
async fn who_shows_both_must_be_right_in_both() {
    let index = reader("").await;
    let either = EitherOfZone {
        token: TokenOfZone { index: index.clone(), env: env() },
        certificate: CertificateOfZone { index, env: env() },
    };
    let good = certificate("zone-1", &[]);
    let other = certificate("zone-2", &[]);
    let check = |certificate: Option<&PeerCertificate>, token: Option<&str>, expected: Result<(), &str>| {
        let got = either.authenticate("zone-1", ShownCredentials { token, certificate });
        assert_eq!(got.map_err(|error| error.reason()), expected);
    };
    check(Some(&good), None, Ok(()));
    check(Some(&good), Some("garbage"), Err("bad_token"));
    check(Some(&other), None, Err("bad_certificate"));
    check(None, Some("garbage"), Err("bad_token"));
    check(None, None, Err("no_token"));
    let shown = ShownCredentials { certificate: Some(&good), token: None };
    let credential = either.credential(shown).unwrap();
    assert_eq!((credential.kind, credential.until), (ZoneProof::Certificate, Some(good.valid_until)));
}
