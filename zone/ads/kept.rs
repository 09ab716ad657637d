//! What proxies keep, because they would refuse what is new, outlives this process: it is noted in the store, so that who
//! comes back to a zone that was started meanwhile goes on with it.
//!
//! What is noted follows what proxies were told. It is read when a zone starts, and where several processes share the
//! store, also when a proxy comes, which may have been with another one. Secrets are left out: those a kept resource needs
//! are made anew like everybody's.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use common::{
    runtime::Env,
    store::{Store, index::Index},
    xds::Version,
};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::node::{Proxy, ProxyId, ProxyKind};
use crate::generator::{Encoded, ResourceCollection, ResourceSet, SharedResources, type_url};

/// Keys of the documents begin with that.
const PREFIX: &str = "zone/kept/";
/// Documents written at once.
const BATCH: usize = 200;
/// Pause after the store refused.
const RETRY: Duration = Duration::from_secs(1);
/// How long proxies that come may wait for what another process noted.
const SOON: Duration = Duration::from_millis(500);
/// How long nobody waits for that after it did not come.
const LATER: Duration = Duration::from_secs(30);
/// How often it is tried to read what was noted before a zone starts without.
const ATTEMPTS: usize = 5;
/// What the resources say about who made them.
const ORIGIN: &str = "kept";

/// What one proxy keeps.
pub(super) type KeptByProxy = Arc<[Arc<Encoded>]>;
/// What proxies have that is not made any more.
pub(super) type KeptBefore = BTreeMap<ProxyId, ResourceSet>;

/// What is noted of one resource.
#[derive(Debug, Serialize, Deserialize)]
struct KeptDocument {
    r#type: String,
    name: String,
    version: String,
    content: String,
}

/// What tells one list of resources from another.
type KeptDigest = Vec<(&'static str, Arc<str>, Version)>;

/// What is noted, and what is to be.
#[derive(Default)]
struct ArchiveState {
    noted: BTreeMap<ProxyId, KeptDigest>,
    pending: BTreeMap<ProxyId, KeptByProxy>,
    /// When others may be asked again what they noted.
    silent_until: Option<Instant>,
}

/// Notes what proxies keep.
pub(super) struct KeptArchive {
    store: Arc<dyn Store>,
    env: Env,
    /// Whether other processes note there too.
    is_shared: bool,
    state: Mutex<ArchiveState>,
    woken: Notify,
}

impl KeptArchive {
    /// Nothing read yet.
    pub(super) fn new(store: Arc<dyn Store>, env: Env, is_shared: bool) -> Self {
        Self { store, env, is_shared, state: Mutex::default(), woken: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, ArchiveState> {
        // Nothing below panics between two related changes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was noted of proxies that there still are in `index`. A store that does not answer holds up nobody for long:
    /// who comes back is served without then.
    pub(super) async fn load(&self, index: &Index) -> KeptBefore {
        for attempt in 1.. {
            match self.store.sessions(PREFIX).await {
                Ok(documents) => return self.read(documents, index),
                Err(error) if attempt == ATTEMPTS => {
                    tracing::warn!(%error, "cannot read what proxies kept before; what they would refuse they have to do without");
                    break;
                }
                Err(_) => tokio::time::sleep(self.env.entropy.about(RETRY)).await,
            }
        }
        KeptBefore::new()
    }

    /// The same of those who just came, as far as others may have noted something.
    pub(super) async fn load_for(&self, arrived: &[Arc<Proxy>], index: &Index) -> KeptBefore {
        let arrived: BTreeSet<&ProxyId> = arrived.iter().map(|proxy| &proxy.id).collect();
        let is_silent = self.lock().silent_until.is_some_and(|until| Instant::now() < until);
        if !self.is_shared || arrived.is_empty() || is_silent {
            return KeptBefore::new();
        }
        let Ok(Ok(mut documents)) = timeout(SOON, self.store.sessions(PREFIX)).await else {
            tracing::debug!("what proxies kept at another process is not known in time");
            self.lock().silent_until = Some(Instant::now() + LATER);
            return KeptBefore::new();
        };
        documents.retain(|(key, _)| id_of(key).is_some_and(|id| arrived.contains(&id)));
        // What was noted here, others may have taken back.
        let mut state = self.lock();
        arrived.iter().for_each(|id| drop(state.noted.remove(*id)));
        drop(state);
        self.read(documents, index)
    }

    fn read(&self, documents: Vec<(String, String)>, index: &Index) -> KeptBefore {
        let (mut found, mut known) = (KeptBefore::new(), HashMap::new());
        let mut state = self.lock();
        for (key, document) in documents {
            let Some(id) = id_of(&key) else { continue };
            let kept = serde_json::from_str::<Vec<KeptDocument>>(&document).unwrap_or_default();
            let kept: Option<Vec<Arc<Encoded>>> =
                kept.into_iter().map(|one| restored(one, &mut known)).collect();
            // What cannot be read, and what belongs to nobody, is not needed any more.
            let kept = kept.filter(|kept| !kept.is_empty() && index.get(&id.key()).is_some());
            state.noted.insert(id.clone(), kept.iter().flatten().map(digest_of).collect());
            let Some(kept) = kept else {
                state.pending.insert(id, Arc::default());
                continue;
            };
            let mut collection = ResourceCollection::default();
            kept.into_iter().for_each(|one| collection.insert(one));
            let had = ResourceSet::new(&collection, &SharedResources::default(), None);
            found.insert(id, had);
        }
        drop(state);
        self.woken.notify_one();
        found
    }

    /// Takes in what a proxy keeps from now on.
    pub(super) fn note(&self, id: &ProxyId, kept: &KeptByProxy) {
        let mut state = self.lock();
        let digest = || archived(kept).map(digest_of);
        let is_known = match (state.pending.get(id), state.noted.get(id)) {
            (Some(pending), _) => archived(pending).map(digest_of).eq(digest()),
            (None, Some(noted)) => noted.iter().cloned().eq(digest()),
            (None, None) => archived(kept).next().is_none(),
        };
        if !is_known {
            state.pending.insert(id.clone(), Arc::clone(kept));
            drop(state);
            self.woken.notify_one();
        }
    }

    /// Writes until `shutdown`, and then what is left.
    pub(super) async fn run(&self, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = self.woken.notified() => {}
            }
            while !self.write().await {
                tokio::select! {
                    () = shutdown.cancelled() => break,
                    () = tokio::time::sleep(self.env.entropy.about(RETRY)) => {}
                }
            }
        }
        self.write().await;
    }

    /// Writes what is to be noted; says whether nothing is left.
    async fn write(&self) -> bool {
        loop {
            let few = {
                let mut state = self.lock();
                let ids: Vec<ProxyId> = state.pending.keys().take(BATCH).cloned().collect();
                let few = ids.into_iter().filter_map(|id| state.pending.remove_entry(&id));
                few.collect::<Vec<_>>()
            };
            if few.is_empty() {
                return true;
            }
            let rows = few.iter().map(|(id, kept)| (key_of(id), document(kept))).collect();
            let outcome = self.store.put_sessions(rows).await;
            let mut state = self.lock();
            match outcome {
                Ok(()) => {
                    for (id, kept) in few {
                        let digest: KeptDigest = archived(&kept).map(digest_of).collect();
                        match digest.is_empty() {
                            true => drop(state.noted.remove(&id)),
                            false => drop(state.noted.insert(id, digest)),
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot note what proxies keep");
                    // What came meanwhile is newer.
                    for (id, kept) in few {
                        state.pending.entry(id).or_insert(kept);
                    }
                    return false;
                }
            }
        }
    }
}

/// What of this is noted.
fn archived(kept: &KeptByProxy) -> impl Iterator<Item = &Arc<Encoded>> {
    kept.iter().filter(|one| one.type_url != type_url::SECRET)
}

fn digest_of(one: &Arc<Encoded>) -> (&'static str, Arc<str>, Version) {
    (one.type_url, Arc::clone(&one.name), one.version)
}

/// `None` takes away what was noted.
fn document(kept: &KeptByProxy) -> Option<String> {
    let of = |one: &Arc<Encoded>| KeptDocument {
        r#type: one.type_url.to_owned(),
        name: one.name.to_string(),
        version: one.version.to_string(),
        content: STANDARD.encode(&one.value),
    };
    let all: Vec<KeptDocument> = archived(kept).map(of).collect();
    let text = (!all.is_empty()).then(|| serde_json::to_string(&all));
    text?.ok()
}

/// What was noted as a resource, once for all who keep the same.
fn restored(
    document: KeptDocument,
    known: &mut HashMap<(String, Version), Arc<Encoded>>,
) -> Option<Arc<Encoded>> {
    let KeptDocument { r#type, name, version, content } = document;
    let of_type = type_url::ALL.into_iter().find(|known| **known == *r#type)?;
    let version = Version::parse(&version)?;
    let content = STANDARD.decode(content).ok()?;
    let one = || Arc::new(Encoded::restored(&name, of_type, ORIGIN, content, version));
    Some(Arc::clone(known.entry((format!("{of_type} {name}"), version)).or_insert_with(one)))
}

fn key_of(id: &ProxyId) -> String {
    format!("{PREFIX}{}/{}/{}", id.kind.name(), id.mesh, id.name)
}

fn id_of(key: &str) -> Option<ProxyId> {
    let (kind, rest) = key.strip_prefix(PREFIX)?.split_once('/')?;
    let (mesh, name) = rest.split_once('/')?;
    Some(ProxyId::new(ProxyKind::from_name(kind)?, mesh, name))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use common::{
        document::Document,
        store::{Snapshot, StoreIdentity, memory::MemoryStore},
    };

    use super::*;

    fn index(names: &[&str]) -> Index {
        let env = Env::system("t");
        let dataplane = |name: &&str| {
            let yaml = format!(
                "{{type: Dataplane, mesh: default, name: {name}, networking: {{address: 127.0.0.1}}}}"
            );
            let read = Document::parse(&serde_norway::from_str(&yaml).unwrap()).unwrap();
            Arc::new(read.into_resource(env.now()))
        };
        let snapshot =
            Snapshot { revision: 1, commit: None, resources: names.iter().map(dataplane).collect() };
        Index::of(StoreIdentity { store_id: uuid::Uuid::nil(), epoch: 1 }, snapshot)
    }

    fn id(name: &str) -> ProxyId {
        ProxyId::new(ProxyKind::Dataplane, "default", name)
    }

    fn encoded(of_type: &'static str, name: &str, value: &str) -> Arc<Encoded> {
        Arc::new(Encoded::of_bytes(name, of_type, "test", value.as_bytes().to_vec()))
    }

    #[tokio::test]
    async fn what_is_noted_is_there_for_the_next_process_but_for_secrets_and_who_is_gone() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(uuid::Uuid::nil()));
        let archive = || KeptArchive::new(Arc::clone(&store), Env::system("t"), false);
        let (listener, cluster) =
            (encoded(type_url::LISTENER, "l", "1"), encoded(type_url::CLUSTER, "c", "1"));
        let kept: KeptByProxy =
            [Arc::clone(&listener), cluster, encoded(type_url::SECRET, "s", "key")].into();
        let first = archive();
        for name in ["web-1", "web-2", "gone", "well"] {
            first.note(&id(name), &kept);
        }
        assert!(first.write().await);
        first.note(&id("web-1"), &kept);
        assert!(first.lock().pending.is_empty(), "what is known is not written again");
        first.note(&id("well"), &Arc::default());
        first.note(&id("never"), &Arc::default());
        assert_eq!(first.lock().pending.len(), 1);
        assert!(first.write().await);

        let second = archive();
        let found = second.load(&index(&["web-1", "web-2", "well"])).await;
        assert!(found.keys().eq([&id("web-1"), &id("web-2")]));
        let had = found[&id("web-1")].get(type_url::LISTENER, "l").unwrap();
        assert_eq!((&had.value, had.version), (&listener.value, listener.version));
        let again = found[&id("web-2")].get(type_url::LISTENER, "l").unwrap();
        assert!(Arc::ptr_eq(&had, &again), "it is there once");
        assert!(found[&id("web-1")].get(type_url::CLUSTER, "c").is_some());
        assert!(found[&id("web-1")].get(type_url::SECRET, "s").is_none());
        // Who keeps nothing any more is forgotten, and so is who is gone.
        second.note(&id("web-1"), &Arc::default());
        assert!(second.write().await);
        let keys: Vec<String> =
            store.sessions(PREFIX).await.unwrap().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["zone/kept/dataplane/default/web-2"]);
    }

    #[tokio::test]
    async fn who_comes_from_another_replica_keeps_what_it_kept_there() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(uuid::Uuid::nil()));
        let replica = || KeptArchive::new(Arc::clone(&store), Env::system("t"), true);
        let ([one, two], index) = ([replica(), replica()], index(&["web-1", "web-2"]));
        let kept: KeptByProxy = [encoded(type_url::LISTENER, "l", "1")].into();
        for name in ["web-1", "web-2"] {
            one.note(&id(name), &kept);
        }
        assert!(one.write().await);
        let (cluster, metadata, user_agent) = (Arc::default(), Arc::default(), String::new());
        let web_1 = [Arc::new(Proxy { id: id("web-1"), cluster, metadata, user_agent })];
        let found = two.load_for(&web_1, &index).await;
        assert!(found.keys().eq([&id("web-1")]));
        // There it is corrected, here it is broken again later.
        two.note(&id("web-1"), &Arc::default());
        assert!(two.write().await);
        assert!(one.load_for(&web_1, &index).await.is_empty());
        one.note(&id("web-1"), &kept);
        assert!(one.write().await);
        assert_eq!(store.sessions(PREFIX).await.unwrap().len(), 2);
        assert!(two.load_for(&[], &index).await.is_empty(), "nobody came");
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_as_if_it_was_not_there() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(uuid::Uuid::nil()));
        let documents = [
            ("zone/kept/dataplane/default/a", "no JSON"),
            ("zone/kept/ingress//b", r#"[{"type": "x", "name": "n", "version": "1", "content": ""}]"#),
            ("zone/kept/nobody/x/y", "[]"),
        ];
        let rows = documents.map(|(key, text)| (key.to_owned(), Some(text.to_owned())));
        store.put_sessions(rows.into()).await.unwrap();
        let archive = KeptArchive::new(Arc::clone(&store), Env::system("t"), false);
        assert!(archive.load(&index(&["a", "b"])).await.is_empty());
        assert!(archive.write().await);
        assert_eq!(store.sessions(PREFIX).await.unwrap().len(), 1, "what is not ours stays");
    }
}
