//! Certificates for zones that sign workloads with keys of their own: which there should be is computed from the
//! store, and what is missing is signed. Keys that would go to such zones for want of a mark are marked. Any replica
//! may do it; what another has done needs no doing.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use common::{
    ca, issuing,
    model::{
        Resource, ResourceKey,
        kinds::{
            mesh::{self, CA_BUILTIN},
            secret::{GLOBAL_SECRET, SECRET},
            zone,
        },
        labels,
    },
    proto::kuma::mesh::v1alpha1::Mesh,
    runtime::Env,
    store::{
        Batch, Precondition, Store, StoreError, Write,
        index::{Index, IndexReader},
    },
    tls::KeyPairPem,
    token,
};
use sha2::{Digest, Sha256};
use tokio::{task::spawn_blocking, time::timeout};
use tokio_util::sync::CancellationToken;

/// How often certificates are looked at though nothing changed: often enough for their renewal, and for a store
/// that did not answer.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Of what a certificate was made: root, request, names.
const MADE_OF: &str = "strait.io/issued-for";

/// Signs for zones until `shutdown`.
pub(crate) async fn run(
    store: Arc<dyn Store>,
    mut reader: IndexReader,
    env: Env,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut settled: Option<Arc<Index>> = None;
    loop {
        let index = reader.latest();
        if settled.as_ref().is_none_or(|settled| concerns(settled, &index)) {
            settle(&store, &index, env.now()).await;
        }
        settled = Some(index);
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            news = timeout(LOOK_AGAIN, reader.changed()) => match news {
                Ok(true) => {}
                // The feed ended, and with it the process does.
                Ok(false) => return Ok(()),
                Err(_) => settled = None,
            },
        }
    }
}

/// Whether what changed since `old` can change what is to be signed.
fn concerns(old: &Index, new: &Index) -> bool {
    let kinds = [&mesh::KIND, &SECRET, &GLOBAL_SECRET, &zone::KIND];
    old.store != new.store || new.changed_since(old).iter().any(|key| kinds.contains(&key.kind))
}

async fn settle(store: &Arc<dyn Store>, index: &Arc<Index>, now: DateTime<Utc>) {
    let due = Arc::clone(index);
    // Signing with a long RSA root takes milliseconds, and there may be a thousand zones.
    let Ok(writes) = spawn_blocking(move || plan(&due, now)).await else { return };
    for write in writes {
        let key = write.key().clone();
        match store.transact(Batch::of([write])).await {
            Ok(_) => tracing::info!(secret = %key, "what a zone may sign with was settled"),
            // Somebody else was quicker; the change will be seen and looked at.
            Err(
                StoreError::AlreadyExists { .. } | StoreError::Conflict { .. } | StoreError::NotFound { .. },
            ) => {}
            Err(error) => {
                tracing::warn!(secret = %key, %error, "cannot settle what a zone may sign with")
            }
        }
    }
}

/// What is to be written so that each zone has the certificates it should have, and no key it should not.
fn plan(index: &Index, now: DateTime<Utc>) -> Vec<Write> {
    let mut writes = kept(index);
    let mut wanted = BTreeSet::new();
    let requests: Vec<(&str, String)> = index
        .list(&GLOBAL_SECRET)
        .filter_map(|secret| Some((issuing::requesting_zone(secret.name())?, text_of(secret)?)))
        .filter(|(zone, _)| index.find(&zone::KIND, "", zone).is_some())
        .collect();
    for mesh in index.list(&mesh::KIND).filter(|mesh| issuing::is_by_zone(mesh)) {
        writes.extend(issuing::marks(mesh, index));
        let backends = mesh.spec::<Mesh>().ok().and_then(|mesh| mesh.mtls).unwrap_or_default().backends;
        for backend in backends.iter().filter(|backend| backend.r#type == CA_BUILTIN) {
            let root = root(index, mesh.name(), &backend.name);
            for (zone, request) in &requests {
                let name = issuing::certificate_secret(mesh.name(), &backend.name, zone);
                let key = ResourceKey::new(&SECRET, mesh.name(), &name);
                let existing = index.get(&key).map(Arc::as_ref);
                // Also while the root is away: its two secrets are replaced one after the other.
                wanted.insert(key.clone());
                let Some(root) = &root else { continue };
                let made_of = made_of(root, request, zone);
                if existing.is_some_and(|existing| is_good(existing, &made_of, now)) {
                    continue;
                }
                match issuing::certify(request, root, zone, mesh.name(), now) {
                    Ok(certificate) => {
                        let secret = certificate_of(zone, mesh, key, &made_of, &certificate, now);
                        let when = existing.map_or(Precondition::Absent, |e| Precondition::At(e.revision));
                        writes.push(Write::put_when(secret, when));
                    }
                    Err(error) => {
                        tracing::warn!(zone, mesh = mesh.name(), %error, "cannot certify the key of a zone");
                    }
                }
            }
        }
    }
    let obsolete =
        index.list(&SECRET).filter(|s| s.label(labels::ISSUER).is_some() && !wanted.contains(&s.key));
    writes.extend(obsolete.map(|s| Write::delete_when(s.key.clone(), Precondition::At(s.revision))));
    writes
}

/// Requests outlive their zones, so that who connects under the name of a deleted one still gets no key of a mesh.
/// Earlier versions stored them to go with the zone.
fn kept(index: &Index) -> Vec<Write> {
    let requests =
        index.list(&GLOBAL_SECRET).filter(|secret| issuing::requesting_zone(secret.name()).is_some());
    let owned = requests.filter(|request| request.owner.is_some());
    let kept = owned.map(|request| {
        let when = Precondition::At(request.revision);
        Write::put_when(Resource { owner: None, ..Resource::clone(request) }, when)
    });
    kept.collect()
}

fn certificate_of(
    zone: &str,
    mesh: &Resource,
    key: ResourceKey,
    made_of: &str,
    pem: &str,
    now: DateTime<Utc>,
) -> Resource {
    let mut secret = Resource::new(key, now)
        .with_spec(token::secret_spec(pem))
        .with_label(labels::MESH, mesh.name())
        .with_label(labels::ISSUER, zone)
        .with_label(MADE_OF, made_of);
    secret.owner = Some(mesh.key.clone());
    secret
}

/// Whether it is of the same things, and two thirds of its life are left.
fn is_good(secret: &Resource, made_of: &str, now: DateTime<Utc>) -> bool {
    let validity = text_of(secret).and_then(|pem| issuing::validity(&pem));
    secret.label(MADE_OF) == Some(made_of)
        && validity.is_some_and(|(from, _)| now < from + issuing::LIFETIME / 3)
}

fn made_of(root: &KeyPairPem, request: &str, zone: &str) -> String {
    let mut hash = Sha256::new();
    for part in [&root.certificate, request, zone] {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The root of a builtin backend, when both of its secrets are there.
fn root(index: &Index, mesh: &str, backend: &str) -> Option<KeyPairPem> {
    let text = |name: String| text_of(index.find(&SECRET, mesh, &name)?);
    Some(KeyPairPem {
        certificate: text(ca::certificate_secret(mesh, backend))?,
        key: text(ca::key_secret(mesh, backend))?,
    })
}

fn text_of(secret: &Resource) -> Option<String> {
    String::from_utf8(token::data_of(secret)?).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use common::{
        document::Document,
        keys::{KeyForm, PrivateKey},
        store::{Change, StoreIdentity},
    };
    use serde_json::json;

    use super::*;

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000, 0).unwrap()
    }

    fn key() -> PrivateKey {
        PrivateKey::generate(KeyForm::P256).unwrap()
    }

    struct World(Index);

    impl World {
        /// A mesh signed for as `by` says, and the zones `one` and `two`, of which the first asks.
        fn new(by: &str) -> Self {
            let mut world = Self(Index::empty(StoreIdentity { store_id: uuid::Uuid::nil(), epoch: 1 }));
            let mesh = json!({ "type": "Mesh", "name": "m", "labels": { "strait.io/issuing": by }, "mtls": {
                "enabledBackend": "ca", "backends": [{ "name": "ca", "type": "builtin" }] } });
            world.put(Document::parse(&mesh).unwrap().into_resource(now()));
            for zone in ["one", "two"] {
                let zone = json!({ "type": "Zone", "name": zone, "enabled": true });
                world.put(Document::parse(&zone).unwrap().into_resource(now()));
            }
            world.new_root();
            world.secret("", &issuing::request_secret("one"), &issuing::request(key().pem()).unwrap());
            world
        }

        fn put(&mut self, mut resource: Resource) {
            resource.revision = self.0.revision + 1;
            let (key, revision) = (resource.key.clone(), resource.revision);
            self.0.apply(&Change { revision, key, resource: Some(Arc::new(resource)) });
        }

        fn secret(&mut self, mesh: &str, name: &str, data: &str) {
            let kind = if mesh.is_empty() { &GLOBAL_SECRET } else { &SECRET };
            let key = ResourceKey::new(kind, mesh, name);
            let mut secret = Resource::new(key, now()).with_spec(token::secret_spec(data));
            if let Some(mesh) = self.0.find(&mesh::KIND, "", mesh) {
                issuing::mark(&mut secret, mesh);
            }
            self.put(secret);
        }

        fn new_root(&mut self) {
            let root = ca::create_root("m", &key(), chrono::Duration::days(3650), now()).unwrap();
            self.secret("m", &ca::certificate_secret("m", "ca"), &root.certificate);
            self.secret("m", &ca::key_secret("m", "ca"), &root.key);
        }

        fn delete(&mut self, key: ResourceKey) {
            self.0.apply(&Change { revision: self.0.revision + 1, key, resource: None });
        }

        /// What is planned after `days`, in words; it is done then.
        fn settle(&mut self, days: i64) -> Vec<String> {
            let writes = plan(&self.0, now() + chrono::Duration::days(days));
            let said = writes.into_iter().map(|write| match write {
                Write::Put { resource, .. } => {
                    let word = match resource.kind() {
                        kind if kind == &GLOBAL_SECRET => "keep",
                        _ if resource.label(MADE_OF).is_some() => "sign",
                        _ => "mark",
                    };
                    let said = format!("{word} {}", resource.name());
                    self.put(*resource);
                    said
                }
                other => {
                    let key = other.key().clone();
                    self.delete(key.clone());
                    format!("drop {}", key.name)
                }
            });
            said.collect()
        }
    }

    #[test]
    fn a_zone_that_asks_has_a_certificate_as_long_as_everything_it_says_is_so() {
        let mut world = World::new("zone");
        let sign = vec!["sign m.ca-zone-cert-ca.one"];
        let drop = vec!["drop m.ca-zone-cert-ca.one"];
        assert_eq!(world.settle(0), sign);
        assert!(world.settle(0).is_empty());
        assert!(world.settle(29).is_empty());
        assert_eq!(world.settle(31), sign, "a third of its life is over");
        world.new_root();
        assert_eq!(world.settle(31), sign, "the root is another");
        world.secret("", &issuing::request_secret("one"), &issuing::request(key().pem()).unwrap());
        assert_eq!(world.settle(31), sign, "the key of the zone is another");
        world.secret("", &issuing::request_secret("two"), "nonsense");
        assert!(world.settle(31).is_empty(), "one bad request harms nobody else");
        world.delete(ResourceKey::global(&zone::KIND, "one"));
        assert_eq!(world.settle(31), drop, "the zone is gone");
    }

    #[test]
    fn a_key_that_bears_no_mark_is_marked() {
        let mut world = World::new("zone");
        world.settle(0);
        for name in ["dataplane-token-signing-key-m-1", "m.ca-builtin-key-old", "of-somebody"] {
            world.put(Resource::new(ResourceKey::new(&SECRET, "m", name), now()));
        }
        let said = world.settle(0);
        assert_eq!(said, ["mark dataplane-token-signing-key-m-1", "mark m.ca-builtin-key-old"]);
        assert!(world.settle(0).is_empty());
    }

    #[test]
    fn a_root_that_is_away_for_a_moment_costs_no_zone_its_certificate() {
        let mut world = World::new("zone");
        world.settle(0);
        for name in [ca::certificate_secret("m", "ca"), ca::key_secret("m", "ca")] {
            world.delete(ResourceKey::new(&SECRET, "m", &name));
            assert!(world.settle(0).is_empty(), "without {name}");
        }
        world.new_root();
        assert_eq!(world.settle(0), ["sign m.ca-zone-cert-ca.one"], "the root is another");
    }

    #[test]
    fn a_request_that_would_go_with_its_zone_is_kept() {
        let mut world = World::new("mesh");
        let key = ResourceKey::global(&GLOBAL_SECRET, &issuing::request_secret("one"));
        let mut owned = Resource::clone(world.0.get(&key).unwrap());
        owned.owner = Some(ResourceKey::global(&zone::KIND, "one"));
        let data = token::data_of(&owned);
        world.put(owned);
        assert_eq!(world.settle(0), ["keep zone-issuing-request.one"]);
        let kept = world.0.get(&key).unwrap();
        assert_eq!((&kept.owner, token::data_of(kept)), (&None, data));
        assert!(world.settle(0).is_empty());
    }

    #[test]
    fn a_mesh_that_signs_for_all_zones_has_no_certificates_for_them() {
        assert!(World::new("mesh").settle(0).is_empty());
    }
}
