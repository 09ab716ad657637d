//! A zone that was given another name takes along what it owns: rows that name the old one would neither
//! be synced nor be writable.

use std::sync::Arc;

use common::{
    kds::attribution,
    model::{Origin, Resource},
    runtime::Env,
    store::{
        Batch, Precondition, Store, StoreError, Write,
        index::{Index, IndexReader},
    },
};

/// Rows in one batch.
const BATCH: usize = 200;
/// How often a batch that raced another replica is tried again.
const ATTEMPTS: usize = 5;

/// Makes every row some zone owns in this store a row of `zone`. What came from global, the resources of
/// other zones included, belongs to global here, so there is nobody else it could be.
///
/// # Errors
/// [`StoreError`]; the next start goes on where this one stopped.
pub(crate) async fn adopt(
    store: &Arc<dyn Store>,
    index: &IndexReader,
    env: &Env,
    zone: &str,
) -> Result<(), StoreError> {
    let mut attempt = 1;
    loop {
        let mut writes = writes(&index.current(), env, zone);
        writes.truncate(BATCH);
        if writes.is_empty() {
            return Ok(());
        }
        let resources = writes.len();
        match store.transact(Batch::of(writes)).await {
            Ok(commit) => {
                index.wait_long_for(commit.revision).await;
                tracing::warn!(zone, resources, "took over what this zone wrote under another name");
            }
            // Another replica does the same at this moment.
            Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) if attempt < ATTEMPTS => {
                attempt += 1;
                let head = *store.watch_head().borrow();
                index.wait_long_for(head).await;
            }
            Err(error) => return Err(error),
        }
    }
}

fn writes(index: &Index, env: &Env, zone: &str) -> Vec<Write> {
    let of_another = |row: &&Arc<Resource>| matches!(&row.origin, Origin::Zone(owner) if **owner != *zone);
    let adopted = |row: &Arc<Resource>| {
        let mut adopted = Resource { modified: env.now(), ..Resource::clone(row) };
        adopted.origin = Origin::Zone(zone.into());
        if let Err(error) = attribution::pin(row.kind(), &mut adopted.labels, &mut adopted.spec, zone) {
            // Whose it is, the origin says; what does not decode nobody uses.
            tracing::warn!(resource = %row.key, %error, "the spec of a resource does not decode");
        }
        Write::put_when(adopted, Precondition::At(row.revision))
    };
    index.iter().filter(of_another).map(adopted).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;
    use common::{
        kds::{filter, mapper},
        model::{Kind, ResourceKey, kinds, labels, transcode},
        store::{feed::Feed, memory::MemoryStore},
    };
    use uuid::Uuid;

    use super::*;

    fn row(kind: &'static Kind, name: &str, origin: Origin, spec: &str) -> Resource {
        let spec = transcode::from_json(kind, &serde_json::from_str(spec).unwrap()).unwrap();
        let mut row = Resource::new(ResourceKey::new(kind, "default", name), DateTime::UNIX_EPOCH);
        if let Origin::Zone(zone) = &origin {
            row = row.with_label(labels::ZONE, zone);
        }
        row.origin = origin;
        row.with_spec(spec)
    }

    #[tokio::test]
    async fn what_a_zone_wrote_under_another_name_is_its_own_and_is_synced() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Uuid::nil()));
        let former = || Origin::Zone("east".into());
        let dataplane = r#"{"networking": {"address": "10.0.0.1",
            "inbound": [{"port": 80, "tags": {"kuma.io/service": "web", "kuma.io/zone": "east"}}]}}"#;
        let rows = [
            row(&kinds::dataplane::KIND, "web", former(), dataplane),
            row(&kinds::zone_ingress::KIND, "own", former(), r#"{"zone": "east"}"#),
            row(&kinds::zone_ingress::KIND, "synced", Origin::Global, r#"{"zone": "east"}"#),
        ];
        store.transact(Batch::of(rows.into_iter().map(Write::put))).await.unwrap();
        let feed = Feed::load(Arc::clone(&store)).await.unwrap();
        let reader = feed.reader();
        let _feed = tokio::spawn(feed.run(tokio_util::sync::CancellationToken::new()));

        let env = Env::system("test");
        adopt(&store, &reader, &env, "west").await.unwrap();
        let index = reader.current();
        let sent = |kind: &'static Kind, mesh, name| {
            let row = index.find(kind, mesh, name).unwrap();
            filter::goes_up(row, "west").then(|| {
                let sent = mapper::up(row, "west", &[]).unwrap();
                (sent.labels[labels::ZONE].to_owned(), transcode::to_json(kind, &sent.spec).unwrap())
            })
        };
        let (label, spec) = sent(&kinds::dataplane::KIND, "default", "web").unwrap();
        assert_eq!(label, "west");
        assert_eq!(spec["networking"]["inbound"][0]["tags"][labels::ZONE], "west");
        let (label, spec) = sent(&kinds::zone_ingress::KIND, "", "own").unwrap();
        assert_eq!((&*label, &spec["zone"]), ("west", &"west".into()));
        assert_eq!(sent(&kinds::zone_ingress::KIND, "", "synced"), None);

        let revision = index.revision;
        adopt(&store, &reader, &env, "west").await.unwrap();
        assert_eq!(reader.current().revision, revision, "the second start writes nothing");
    }
}
