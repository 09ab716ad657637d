//! What proxies registered before such resources carried a mark: without it they would count as applied by
//! somebody, so that their proxies could neither change them nor take them along when they leave.

use std::sync::Arc;

use common::{
    model::{Origin, Resource, labels},
    proto::{
        google::protobuf::Struct,
        kuma::mesh::v1alpha1::{DataplaneInsight, ZoneEgressInsight, ZoneIngressInsight},
    },
    runtime::Env,
    store::{
        Batch, Precondition, Store, StoreError, Write,
        index::{Index, IndexReader},
    },
};
use prost::Message;

use super::{
    node::{self, ProxyKind},
    resource::is_registered,
};

/// Under this key a store remembers that this was done: an insight of an older version says nothing about
/// what somebody applies from now on.
const DONE: &str = "zone/registered-marked";
/// Rows in one batch.
const BATCH: usize = 200;
/// How often a batch that raced another replica is tried again.
const ATTEMPTS: usize = 5;

/// Marks, once in the life of a store, what proxies of `zone` registered under a version that set no mark.
/// To be called before the first insight is written: theirs kept what the proxy brought along, ours do not.
///
/// # Errors
/// [`StoreError`]; the next start goes on where this one stopped.
pub(crate) async fn mark(
    store: &Arc<dyn Store>,
    index: &IndexReader,
    env: &Env,
    zone: &str,
) -> Result<(), StoreError> {
    if store.sessions(DONE).await?.iter().any(|(key, _)| key == DONE) {
        return Ok(());
    }
    let mut attempt = 1;
    loop {
        let mut writes = writes(&index.current(), env, zone);
        writes.truncate(BATCH);
        if writes.is_empty() {
            break;
        }
        let resources = writes.len();
        match store.transact(Batch::of(writes)).await {
            Ok(commit) => {
                index.wait_long_for(commit.revision).await;
                tracing::info!(zone, resources, "marked what proxies registered under an older version");
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
    store.put_sessions(vec![(DONE.to_owned(), Some(env.now().to_rfc3339()))]).await
}

fn writes(index: &Index, env: &Env, zone: &str) -> Vec<Write> {
    let kinds = [ProxyKind::Dataplane, ProxyKind::Ingress, ProxyKind::Egress];
    let brought = |kind: ProxyKind| {
        let insight = move |row: &Resource| index.find(kind.insight(), row.mesh(), row.name());
        index.list(kind.resource()).filter(move |row| {
            let ours = matches!(&row.origin, Origin::Zone(owner) if **owner == *zone);
            let brought = || insight(row).is_some_and(|insight| says_brought(kind, &insight.spec));
            ours && !is_registered(row) && brought()
        })
    };
    let marked = |row: &Arc<Resource>| {
        let marked = Resource { modified: env.now(), ..Resource::clone(row) };
        let marked = marked.with_label(labels::REGISTERED, labels::REGISTERED_BY_PROXY);
        Write::put_when(marked, Precondition::At(row.revision))
    };
    kinds.into_iter().flat_map(brought).map(marked).collect()
}

/// Whether this insight of an older version shows that the proxy brought its own resource.
fn says_brought(kind: ProxyKind, insight: &[u8]) -> bool {
    let metadata: Option<Struct> = match kind {
        ProxyKind::Dataplane => DataplaneInsight::decode(insight).ok().and_then(|i| i.metadata),
        ProxyKind::Ingress => ZoneIngressInsight::decode(insight).ok().and_then(|i| i.metadata),
        ProxyKind::Egress => ZoneEgressInsight::decode(insight).ok().and_then(|i| i.metadata),
    };
    let brought = metadata.as_ref().and_then(|metadata| node::text(metadata, node::RESOURCE));
    brought.is_some_and(|text| !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;
    use common::{
        model::{ResourceKey, transcode},
        proto::google::protobuf::{Value, value::Kind as Json},
        store::{feed::Feed, sqlite::SqliteStore},
    };
    use tokio_util::sync::CancellationToken;

    use super::*;

    const DATAPLANE: &str = r#"{"networking": {"address": "10.0.0.1",
        "inbound": [{"port": 80, "tags": {"kuma.io/service": "web"}}]}}"#;

    fn row(kind: ProxyKind, name: &str) -> Resource {
        let (mesh, spec) = match kind {
            ProxyKind::Dataplane => ("default", DATAPLANE),
            ProxyKind::Ingress | ProxyKind::Egress => ("", r#"{"networking": {"address": "10.0.0.1"}}"#),
        };
        let kind = kind.resource();
        let spec = transcode::from_json(kind, &serde_json::from_str(spec).unwrap()).unwrap();
        let mut row = Resource::new(ResourceKey::new(kind, mesh, name), DateTime::UNIX_EPOCH).with_spec(spec);
        row.origin = Origin::Zone("east".into());
        row
    }

    /// As the version before wrote it: with the whole metadata of the node.
    fn insight(kind: ProxyKind, of: &Resource, resource: &str) -> Resource {
        let text = |text: &str| Value { kind: Some(Json::StringValue(text.to_owned())) };
        let fields = [("dataplane.proxyType", text(kind.name())), (node::RESOURCE, text(resource))];
        let fields = fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let metadata = Some(Struct { fields });
        let spec = match kind {
            ProxyKind::Dataplane => DataplaneInsight { metadata, ..Default::default() }.encode_to_vec(),
            ProxyKind::Ingress => ZoneIngressInsight { metadata, ..Default::default() }.encode_to_vec(),
            ProxyKind::Egress => ZoneEgressInsight { metadata, ..Default::default() }.encode_to_vec(),
        };
        let key = ResourceKey::new(kind.insight(), of.mesh(), of.name());
        let mut insight = Resource::new(key, DateTime::UNIX_EPOCH).with_spec(spec);
        insight.origin = of.origin.clone();
        insight.owner = Some(of.key.clone());
        insight
    }

    fn registered(index: &Index) -> Vec<String> {
        index.iter().filter(|row| is_registered(row)).map(|row| row.key.to_string()).collect()
    }

    #[tokio::test]
    async fn what_proxies_registered_under_an_older_version_is_marked_once() {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> =
            Arc::new(SqliteStore::open(&folder.path().join("strait.db")).await.unwrap());
        let own = |kind, name| {
            let row = row(kind, name);
            [insight(kind, &row, "type: Dataplane"), row]
        };
        let mut rows: Vec<Resource> = [
            own(ProxyKind::Dataplane, "brought"),
            own(ProxyKind::Ingress, "in"),
            own(ProxyKind::Egress, "out"),
        ]
        .into_iter()
        .flatten()
        .collect();
        let applied = row(ProxyKind::Dataplane, "applied");
        rows.extend([insight(ProxyKind::Dataplane, &applied, " "), applied]);
        rows.push(row(ProxyKind::Dataplane, "unseen"));
        let mut synced = row(ProxyKind::Ingress, "synced");
        synced.origin = Origin::Global;
        rows.extend([insight(ProxyKind::Ingress, &synced, "type: ZoneIngress"), synced]);
        // What is owned comes after its owner.
        rows.sort_by_key(|row| row.owner.is_some());
        store.transact(Batch::of(rows.into_iter().map(Write::put))).await.unwrap();
        let feed = Feed::load(Arc::clone(&store)).await.unwrap();
        let reader = feed.reader();
        let _feed = tokio::spawn(feed.run(CancellationToken::new()));

        let env = Env::system("test");
        mark(&store, &reader, &env, "east").await.unwrap();
        let marked = registered(&reader.current());
        assert_eq!(marked, ["Dataplane default/brought", "ZoneEgress out", "ZoneIngress in"]);

        // From now on somebody who applies what a proxy brought has it, old insight or not.
        let taken = row(ProxyKind::Dataplane, "brought");
        let commit = store.transact(Batch::of([Write::put(taken)])).await.unwrap();
        reader.wait_for(commit.revision).await.unwrap();
        mark(&store, &reader, &env, "east").await.unwrap();
        assert_eq!(reader.current().revision, commit.revision, "the second start writes nothing");
    }
}
