//! The agent of SPIRE beside a proxy, from which it takes its certificate and whom to believe.

use common::proto::envoy::config::cluster::v3::Cluster;

use super::{
    ClusterDraft, Draft, Role, Shown, Sidecar,
    envoy::{address, cluster, duration, endpoint},
    names,
};
use crate::mesh::{AgentSocket, MeshContext};

/// Origin of what is made here.
const ORIGIN: &str = "identity";

/// Adds the cluster that reaches the agent, where the proxy has its identity from one. Gives what is wrong with where
/// the proxy says that the agent is.
pub(crate) fn generate(proxy: &Sidecar, mesh: &MeshContext, draft: &mut Draft) -> Option<&'static str> {
    let Some(Shown::FromAgent(identity)) = &proxy.shown else { return None };
    let said = proxy.metadata.agent_socket.as_deref();
    let named = said.and_then(AgentSocket::at);
    let wrong = (said.is_some() && named.is_none()).then_some(
        "it looks for the agent that gives it its identity where agents usually are: the path of the socket that it \
         names is not absolute, or too long",
    );
    let socket = named.unwrap_or_else(|| mesh.agent_socket.clone());
    let name = names::AGENT;
    let message = Cluster {
        connect_timeout: Some(duration(identity.connect_timeout)),
        ..cluster::fixed(name, endpoint::at_address(name, address::pipe(socket.path())))
    };
    let cluster = ClusterDraft {
        role: Role::Machine(ORIGIN),
        message,
        http: Some(cluster::http2()),
        tls: None,
        tls_elsewhere: std::collections::BTreeMap::new(),
        nearness: None,
    };
    draft.clusters.insert(name.to_owned(), cluster);
    wrong
}
