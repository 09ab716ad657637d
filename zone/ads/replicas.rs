//! Envoys of this zone at whichever of its replicas they are connected.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use common::{
    envoy_admin::{Ask, AskError, EnvoyAdmin, Mailbox, Undelivered},
    model::ResourceKey,
    runtime::Env,
    store::index::IndexReader,
};

use super::{insight, node::ProxyKind};

/// Asks an Envoy that is connected here, and has the replica ask that its insight names where it is not.
pub(crate) struct EnvoysOfReplicas {
    local: Arc<dyn EnvoyAdmin>,
    mailbox: Arc<Mailbox>,
    index: IndexReader,
    env: Env,
}

impl EnvoysOfReplicas {
    pub(crate) fn new(
        local: Arc<dyn EnvoyAdmin>,
        mailbox: Arc<Mailbox>,
        index: IndexReader,
        env: Env,
    ) -> Self {
        Self { local, mailbox, index, env }
    }

    /// The replica that last said it has the proxy and has not said that it left.
    fn replica_of(&self, proxy: &ResourceKey) -> Option<String> {
        let kinds = [ProxyKind::Dataplane, ProxyKind::Ingress, ProxyKind::Egress];
        let kind = kinds.into_iter().find(|kind| kind.resource() == proxy.kind)?;
        let place = ResourceKey::new(kind.insight(), &proxy.mesh, &proxy.name);
        let newest = insight::subscriptions(self.index.current().get(&place)?).pop()?;
        let other = newest.control_plane_instance_id;
        (newest.disconnect_time.is_none() && other != *self.env.instance_id).then_some(other)
    }
}

#[async_trait]
impl EnvoyAdmin for EnvoysOfReplicas {
    async fn ask(&self, proxy: &ResourceKey, ask: Ask) -> Result<Bytes, AskError> {
        let nobody = match self.local.ask(proxy, ask).await {
            Err(nobody @ AskError::NotConnected(_)) => nobody,
            answer => return answer,
        };
        let Some(replica) = self.replica_of(proxy) else { return Err(nobody) };
        match self.mailbox.ask(&replica, proxy, ask, self.env.entropy.uuid()).await {
            Ok(body) => Ok(body),
            Err(Undelivered::Answered(error)) => Err(error),
            Err(Undelivered::Moved) => Err(nobody),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use common::{
        model::{Origin, Resource, kinds},
        proto::{google::protobuf::Timestamp, kuma::mesh::v1alpha1 as proto},
        runtime::{Entropy, SystemClock},
        store::{Batch, Store, Write, feed::Feed, memory::MemoryStore},
    };
    use prost::Message;
    use tokio_util::sync::CancellationToken;
    use uuid::Uuid;

    use super::*;

    /// Has the Envoys of these names.
    struct Has(&'static [&'static str], &'static str);

    #[async_trait]
    impl EnvoyAdmin for Has {
        async fn ask(&self, proxy: &ResourceKey, ask: Ask) -> Result<Bytes, AskError> {
            if self.0.contains(&&*proxy.name) {
                return Ok(format!("{} {}{}", self.1, proxy.name, ask.path()).into());
            }
            Err(AskError::NotConnected(proxy.clone()))
        }
    }

    fn insight(name: &str, instance: &str, has_left: bool) -> Resource {
        let subscription = proto::DiscoverySubscription {
            control_plane_instance_id: instance.to_owned(),
            connect_time: Some(Timestamp::default()),
            disconnect_time: has_left.then(Timestamp::default),
            ..proto::DiscoverySubscription::default()
        };
        let spec = proto::DataplaneInsight {
            subscriptions: vec![subscription],
            ..proto::DataplaneInsight::default()
        };
        let key = ResourceKey::new(&kinds::dataplane_insight::KIND, "default", name);
        let mut insight = Resource::new(key, chrono::DateTime::UNIX_EPOCH).with_spec(spec.encode_to_vec());
        insight.origin = Origin::Zone("zone-1".into());
        insight
    }

    #[tokio::test]
    async fn an_envoy_is_asked_at_the_replica_that_has_it() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Uuid::nil()));
        let there = [
            ("near", "here", false),
            ("far", "there", false),
            ("left", "there", true),
            ("lost", "there", false),
        ];
        let writes = there.map(|(name, instance, has_left)| Write::put(insight(name, instance, has_left)));
        store.transact(Batch::of(writes)).await.unwrap();
        let index = Feed::load(Arc::clone(&store)).await.unwrap().reader();
        let stop = CancellationToken::new();
        let replica = |name: &'static str, has: &'static [&'static str]| {
            let local: Arc<dyn EnvoyAdmin> = Arc::new(Has(has, name));
            let mailbox = Arc::new(Mailbox::new(Arc::clone(&store), name.into()));
            let env =
                Env { clock: Arc::new(SystemClock), entropy: Entropy::seeded(1), instance_id: name.into() };
            tokio::spawn(Arc::clone(&mailbox).run(Arc::clone(&local), stop.clone()));
            EnvoysOfReplicas::new(local, mailbox, index.clone(), env)
        };
        let (here, _there) = (replica("here", &["near"]), replica("there", &["far"]));
        let asked = async |name: &str| {
            let proxy = ResourceKey::new(&kinds::dataplane::KIND, "default", name);
            here.ask(&proxy, Ask::ConfigDump { include_eds: false }).await
        };
        assert_eq!(asked("near").await.unwrap(), "here near/config_dump");
        assert_eq!(asked("far").await.unwrap(), "there far/config_dump");
        for nowhere in ["left", "lost", "unknown"] {
            assert!(matches!(asked(nowhere).await, Err(AskError::NotConnected(_))), "{nowhere}");
        }
        assert_eq!(store.sessions("mail/envoys/").await.unwrap(), [], "every letter was taken");
    }
}
