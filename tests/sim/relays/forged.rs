//! Relays that say what global did not, and relays that speak for zones that are not theirs.

use std::path::Path;

use common::{kds::signature::KeyOfResources, token::ZoneClaims};
use global::kds::{CarriedZones, RelayAuthError, ShownCredentials, ZoneAuthError, ZoneAuthenticator};
use tempfile::NamedTempFile;

use super::*;
use crate::federation::SIGNING_KEY;

const FORGED: &[u8] = br#"{"to":[{"targetRef":{"kind":"Mesh"},"default":{"idleTimeout":"1s"}}]}"#;

/// The key of global, and the file by which zones trust it.
fn signing_key() -> (Arc<KeyOfResources>, NamedTempFile) {
    let (key, file) = (KeyOfResources::from_pem(SIGNING_KEY).unwrap(), NamedTempFile::new().unwrap());
    std::fs::write(file.path(), key.public_pem()).unwrap();
    (Arc::new(key), file)
}

async fn zone_that_trusts(number: u64, name: &str, keys: &Path, above: &[&Node]) -> (Plane, Link) {
    let settings = ZoneKdsSettings { trusted_keys: Some(keys.to_owned()), ..settings(name) };
    zone_with(number, settings, above, Arc::new(NoEnvoys)).await
}

/// The policies of a zone: by which name their author called them, and what they say.
fn policies(plane: &Plane) -> Vec<(String, Bytes)> {
    let index = plane.index.current();
    let all = index.list(&mesh_timeout::KIND);
    let mut all: Vec<_> = all.map(|r| (r.display_name().to_owned(), r.spec.clone())).collect();
    all.sort();
    all
}

#[tokio::test]
async fn what_a_relay_makes_up_only_zones_that_ask_for_no_signatures_take() {
    let (key, file) = signing_key();
    let global = global_with(GlobalKdsSettings { signing_key: Some(key), ..Default::default() }).await;
    let relay = relay(1, &global.dial, &store(2)).await;
    let (open, _link) = zone(1, "zone-1", &[&relay]).await;
    let (asking, link) = zone_that_trusts(2, "zone-2", file.path(), &[&relay]).await;
    global.plane.put(global.policy("t")).await;
    for plane in [&open, &asking] {
        plane.until("the policy", |index| index.count(&mesh_timeout::KIND) == 1).await;
    }

    // It changes one, gives another the signature of that, and makes up a third; then it has something to tell.
    let held = relay.plane.index.current();
    let held = held.list(&mesh_timeout::KIND).next().unwrap();
    let called = |name: &str| {
        let key = ResourceKey::new(&mesh_timeout::KIND, "default", name);
        Resource { key, ..Resource::clone(held) }
    };
    relay.plane.put(called("t").with_spec(FORGED)).await;
    relay.plane.put(called("stolen")).await;
    let mut bare = called("bare");
    bare.labels.remove(labels::SIGNATURE);
    relay.plane.put(bare).await;
    global.plane.put(global.policy("u")).await;
    open.until("all of it", |index| index.count(&mesh_timeout::KIND) == 4).await;
    let taken = policies(&open);
    assert!(taken.iter().any(|(name, spec)| name == "t" && *spec == FORGED), "{taken:?}");

    let refusals = eventually("three refusals", || {
        let refused = link.status().refusals.get("MeshTimeout").cloned()?;
        (refused.matches("does not fit").count() == 2 && refused.contains("is not signed")).then_some(refused)
    })
    .await;
    let good = |name: &str| (name.to_owned(), Bytes::from_static(TIMEOUT));
    assert_eq!(policies(&asking), [good("t"), good("u")], "{refusals}");
    assert_eq!(link.signatures(&asking.index.current()).unwrap().unsigned, 0);
    eventually("a note on global", || {
        global.status("zone-2").notes.into_iter().find(|note| note.contains("refused MeshTimeout"))
    })
    .await;
}

#[tokio::test]
async fn a_signature_is_the_same_wherever_it_comes_from() {
    let (key, file) = signing_key();
    let global = global_with(GlobalKdsSettings { signing_key: Some(key), ..Default::default() }).await;
    let relay = relay(1, &global.dial, &store(2)).await;
    for n in 0..5 {
        global.plane.put(global.policy(&format!("p{n}"))).await;
    }
    // What there is by the time somebody turns to it.
    let private = common::token::new_signing_key().unwrap();
    for (name, by) in [("1", labels::ISSUING_ZONE), ("2", labels::ISSUING_ZONE_ONLY)] {
        let name = format!("dataplane-token-signing-key-default-{name}");
        let secret = global.plane.resource(&kinds::secret::SECRET, "default", &name, Origin::Global);
        let secret = secret.with_label(labels::ISSUING, by);
        global.plane.put(secret.with_spec(common::token::secret_spec(private.pem()))).await;
    }
    let (direct, link) = zone_that_trusts(1, "zone-1", file.path(), &[&global]).await;
    let (below, link_below) = zone_that_trusts(2, "zone-2", file.path(), &[&relay]).await;
    for (plane, link) in [(&direct, &link), (&below, &link_below)] {
        plane
            .until("the policies and keys", |index| {
                (index.count(&mesh_timeout::KIND), index.count(&kinds::secret::SECRET)) == (5, 2)
            })
            .await;
        assert_eq!(link.status().refusals, Default::default());
        assert_eq!(link.signatures(&plane.index.current()).unwrap().unsigned, 0);
    }
    let signed = |plane: &Plane| {
        let index = plane.index.current();
        let all = index.list(&mesh_timeout::KIND);
        all.map(|r| (r.key.clone(), r.label(labels::SIGNATURE).map(str::to_owned))).collect::<Vec<_>>()
    };
    assert_eq!(signed(&direct), signed(&below), "who moves from one to the other is sent nothing");
}

#[tokio::test]
async fn who_signs_nothing_is_followed_in_nothing_and_said_so() {
    let (_, file) = signing_key();
    let global = global().await;
    global.plane.put(global.policy("t")).await;
    let (plane, link) = zone_that_trusts(1, "zone-1", file.path(), &[&global]).await;
    let refused = eventually("a refusal", || link.status().refusals.get("MeshTimeout").cloned()).await;
    assert!(refused.contains("signingKeyFile"), "{refused}");
    assert_eq!(plane.index.current().count(&mesh_timeout::KIND), 0);

    // Without its file nobody is followed at all.
    let nowhere = file.path().with_extension("none");
    let (_plane, link) = zone_that_trusts(2, "zone-2", &nowhere, &[&global]).await;
    let error = eventually("an error", || link.status().last_error).await;
    assert!(error.contains("trustedKeysFile"), "{error}");
}

/// Lets in relays with a token for some zones.
struct SomeZones(&'static [&'static str]);

impl ZoneAuthenticator for SomeZones {
    fn authenticate(&self, _: &str, _: ShownCredentials<'_>) -> Result<(), ZoneAuthError> {
        Ok(())
    }

    fn authenticate_relay(&self, relay: &str, _: Option<&str>) -> Result<CarriedZones, RelayAuthError> {
        let carries = self.0.iter().map(|zone| (*zone).to_owned()).collect();
        Ok(CarriedZones::Of(ZoneClaims { zone: relay.to_owned(), carries, ..ZoneClaims::default() }))
    }
}

#[tokio::test]
async fn a_relay_speaks_for_the_zones_its_token_names_and_for_no_other() {
    let global = global_letting_in(Arc::new(SomeZones(&["zone-1", "eu-*"]))).await;
    let relay = relay(1, &global.dial, &store(2)).await;
    let mut zones = Vec::new();
    for (number, name) in [(1, "zone-1"), (2, "eu-west"), (3, "zone-2")] {
        zones.push((name, zone(number, name, &[&relay]).await));
    }
    for name in ["zone-1", "eu-west"] {
        eventually("a zone of the relay", || {
            let status = global.status(name);
            (status.status == ZoneHealth::Online && status.relay.is_some()).then_some(())
        })
        .await;
    }
    let (_, (_, link)) = &zones[2];
    let error = eventually("a refusal", || {
        link.status().last_error.filter(|error| error.contains("does not let it carry zone zone-2"))
    })
    .await;
    assert!(error.contains("--carries"), "{error}");
    assert!(global.plane.index.current().find(&kinds::zone::KIND, "", "zone-2").is_none());
}
