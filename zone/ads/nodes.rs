//! Nodes that are no proxies of a mesh: who they are, who of them is here, and what keeps them served.

use std::sync::Arc;

use common::{
    proto::envoy::config::core::v3::Node,
    redact,
    runtime::Offload,
    store::index::{Index, IndexReader},
    token,
};
use tokio_util::sync::CancellationToken;

use super::{
    auth::{Credential, Requirement},
    config::ProxyConfig,
    convergence::{Convergence, MadeFor},
    node::{NodeError, Proxy, ProxyId, ProxyKind, says_what_proxy_it_is},
    proxies::Proxies,
};
use crate::nodes::{NodeTraits, Plane, RawConfigs, ServedNode};

/// Bytes of a problem in the log, which quotes what somebody wrote.
const LOGGED: usize = 1024;
/// Where the numbers of their streams begin: those of proxies never come so far.
const FIRST_STREAM: u64 = 1 << 63;

/// Nodes that belong to no mesh.
pub(super) struct Nodes {
    requirement: Requirement,
    connected: Arc<Proxies>,
    configs: RawConfigs,
    /// Threads that look at whom configurations are for that nobody looked at yet.
    readers: Offload,
}

impl Nodes {
    /// Nobody is here yet. They are counted in `convergence`.
    pub(super) fn new(requirement: Requirement, convergence: Arc<Convergence>) -> Self {
        let connected = Arc::new(Proxies::numbered_from(FIRST_STREAM, convergence));
        Self { requirement, connected, configs: RawConfigs::default(), readers: Offload::default() }
    }

    /// Those with a stream here.
    pub(super) fn connected(&self) -> &Arc<Proxies> {
        &self.connected
    }

    /// Who a node is that shows `token`, and the resource it brings along: a proxy of a mesh, or a node of none.
    ///
    /// # Errors
    /// [`NodeError`] when it can be neither.
    pub(super) async fn recognise(
        &self,
        node: Option<Node>,
        token: Option<&str>,
        index: &Arc<Index>,
    ) -> Result<(Proxy, Option<String>), NodeError> {
        let Some(node) = node else { return Proxy::of(None) };
        if self.is_of_a_mesh(&node, token, index).await? {
            return Proxy::of(Some(node));
        }
        Ok((Proxy::of_no_mesh(node)?, None))
    }

    async fn is_of_a_mesh(
        &self,
        node: &Node,
        token: Option<&str>,
        index: &Arc<Index>,
    ) -> Result<bool, NodeError> {
        if says_what_proxy_it_is(node) {
            return Ok(true);
        }
        if token.is_some_and(token::is_of_a_node) {
            return Ok(false);
        }
        // What is named like a proxy and shows the token of one, or is one, is meant to be one.
        let proxy = ProxyId::parse(ProxyKind::Dataplane, &node.id).ok();
        if proxy.as_ref().is_some_and(|proxy| token.is_some() || index.get(&proxy.key()).is_some()) {
            return Ok(true);
        }
        let may_come = proxy.is_none() && self.requirement.node == Credential::None;
        Ok(!may_come && !self.look_for(&Proxy::of_no_mesh(node.clone())?, index).await)
    }

    /// Whether somebody wrote anything for `node`.
    async fn look_for(&self, node: &Proxy, index: &Arc<Index>) -> bool {
        let (traits, configs) = (traits(node), self.configs.at(index));
        if configs.values().any(|config| config.surely_selects(&traits)) {
            return true;
        }
        let unknown: Vec<_> = configs.values().filter(|config| !config.is_known()).cloned().collect();
        if unknown.is_empty() {
            return false;
        }
        // Decoding what is large takes a while.
        self.readers.long(move || unknown.iter().any(|config| config.selects(&traits))).await
    }

    /// Whether it is known that somebody wrote something for `node`.
    pub(super) fn are_for(&self, node: &Proxy, index: &Arc<Index>) -> bool {
        let traits = traits(node);
        self.configs.at(index).values().any(|config| config.surely_selects(&traits))
    }

    /// Publishes what they should have, until `shutdown`.
    pub(super) async fn run(&self, mut reader: IndexReader, shutdown: CancellationToken) {
        let mut plane = Plane::default();
        loop {
            let index = reader.latest();
            let (configs, movement) = (self.configs.at(&index), self.connected.take_movement());
            // Encoding what somebody wrote takes a while and would hold up whoever shares the thread.
            let worked = tokio::task::spawn_blocking(move || {
                let mut served = plane.follow(&configs);
                movement.left.iter().for_each(|id| plane.leave(&id.name));
                served.extend(movement.arrived.iter().map(|node| plane.arrive(traits(node))));
                (plane, served)
            });
            let (worked, served) = worked.await.expect("what was valid does not make it panic");
            plane = worked;
            served.into_iter().for_each(|one| self.publish(one, index.revision));
            self.connected.convergence().mark(MadeFor::Nodes, index.revision);
            tokio::select! {
                () = shutdown.cancelled() => return,
                open = reader.changed() => if !open { return },
                () = self.connected.movement() => {}
            }
        }
    }

    fn publish(&self, served: ServedNode, revision: u64) {
        let ServedNode { id, set, problems } = served;
        let number = self.connected.convergence().number();
        let config = Arc::new(ProxyConfig::new(revision, set).numbered(number));
        let lacks = problems.first().map(|problem| problem.as_str().into());
        let new = self.connected.publish(&ProxyId::of_no_mesh(id.clone()), Some(config), problems, lacks);
        for problem in new.into_iter().flatten() {
            let problem = redact::words(&problem, LOGGED);
            tracing::warn!(node = &*id, problem, "left out of what a node is served");
        }
    }
}

fn traits(node: &Proxy) -> NodeTraits {
    NodeTraits::new(&node.id.name, &node.cluster, &node.metadata)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use common::{
        document::Document,
        proto::google::protobuf::{Struct, Value, value::Kind},
        runtime::Env,
        store::{Snapshot, StoreIdentity},
        token::{NODE_GROUP, Purpose, UserClaims},
    };

    use super::*;

    fn node(id: &str, metadata: &[(&str, &str)]) -> Node {
        let text = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
        let fields = metadata.iter().map(|(name, value)| ((*name).to_owned(), text(value)));
        Node { id: id.to_owned(), metadata: Some(Struct { fields: fields.collect() }), ..Node::default() }
    }

    /// With a dataplane `default.web-1` and a configuration for `edge-*` and `default.raw`.
    fn index() -> Arc<Index> {
        let env = Env::system("t");
        let documents = [
            "{type: Dataplane, mesh: default, name: web-1, networking: {address: 127.0.0.1}}",
            "{type: EnvoyConfig, name: e, spec: {nodes: [{id: edge-*}, {id: default.raw}]}}",
        ];
        let read = |yaml: &str| Document::parse(&serde_norway::from_str(yaml).unwrap()).unwrap();
        let resource = |yaml| Arc::new(read(yaml).into_resource(env.now()));
        let snapshot =
            Snapshot { revision: 1, commit: None, resources: documents.into_iter().map(resource).collect() };
        Arc::new(Index::of(StoreIdentity { store_id: uuid::Uuid::nil(), epoch: 1 }, snapshot))
    }

    /// A token as it looks before anybody looks at its signature.
    fn token(groups: &[&str]) -> String {
        use common::store::index::Index;
        let env = Env::system("t");
        let key = common::token::new_signing_key().unwrap();
        let place = Purpose::User.key(1);
        let secret = common::model::Resource::new(place, env.now())
            .with_spec(common::token::secret_spec(key.pem().as_bytes()));
        let snapshot = Snapshot { revision: 1, commit: None, resources: vec![Arc::new(secret)] };
        let index = Index::of(StoreIdentity { store_id: uuid::Uuid::nil(), epoch: 1 }, snapshot);
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        let claims = UserClaims { name: "edge-1".to_owned(), groups };
        token::issue(&index, Purpose::User, &claims, std::time::Duration::from_secs(60), &env).unwrap()
    }

    #[tokio::test]
    async fn a_node_is_of_a_mesh_if_it_says_so_or_is_known_and_of_none_if_something_is_for_it() {
        let index = index();
        let (of_node, of_user) = (token(&["team", NODE_GROUP]), token(&["team"]));
        let open = Requirement { node: Credential::None, ..Requirement::default() };
        let closed = Requirement::default();
        let (none, some, user) = (None, Some(&*of_node), Some(&*of_user));
        let proxy = ("dataplane.proxyType", "dataplane");
        for (requirement, node, token, expected) in [
            (closed, node("default.web-1", &[]), none, "mesh"),
            (closed, node("default.web-1", &[]), some, "none"),
            (closed, node("default.new", &[]), none, "mesh"),
            (closed, node("default.raw", &[]), none, "none"),
            (closed, node("default.raw", &[]), user, "mesh"),
            (closed, node("default.raw", &[proxy]), some, "mesh"),
            (closed, node("edge-1", &[]), none, "none"),
            (closed, node("edge-1", &[]), user, "none"),
            (closed, node("edge-1", &[proxy]), none, "refused"),
            (closed, node("core-1", &[]), none, "refused"),
            (closed, node("core-1", &[]), user, "refused"),
            (closed, node("core-1", &[]), some, "none"),
            (open, node("core-1", &[]), none, "none"),
            (open, node("default.web-2", &[]), none, "mesh"),
            (open, node("", &[]), none, "refused"),
            (open, node("a\nb", &[]), none, "refused"),
            (open, node(&"x".repeat(513), &[]), none, "refused"),
        ] {
            let id = node.id.clone();
            let recognised =
                Nodes::new(requirement, Arc::default()).recognise(Some(node), token, &index).await;
            let is = match &recognised {
                Ok((proxy, _)) if proxy.id.is_of_no_mesh() => "none",
                Ok(_) => "mesh",
                Err(_) => "refused",
            };
            assert_eq!(is, expected, "{id:.20}: {recognised:?}");
        }
    }
}
