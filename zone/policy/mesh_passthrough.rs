//! `MeshPassthrough`: what outside the mesh a workload may call whose traffic is redirected.

mod chain;
mod order;

use std::collections::{BTreeMap, BTreeSet};

use common::{
    model::Kind,
    policy::mesh_passthrough::{self, DestinationProtocol, PassthroughConf, PassthroughMode},
    proto::envoy::config::listener::v3::{
        ListenerFilterChainMatchPredicate,
        listener_filter_chain_match_predicate::{MatchSet, Rule},
    },
    proto::envoy::r#type::v3::Int32Range,
};

use self::{chain::ChainMaker, order::Group};
use super::{InboundConfs, PolicyEffect, Reporter};
use crate::{
    generator::{
        ClusterDraft, Draft, Role, Sidecar,
        envoy::{cluster, filter},
        names::OUTBOUND_PASSTHROUGH,
        transparent,
    },
    mesh::MeshContext,
};

/// Origin of the clusters.
const ORIGIN: &str = "meshpassthrough";

/// See the module.
pub(super) struct MeshPassthroughEffect;

impl PolicyEffect for MeshPassthroughEffect {
    const KIND: &'static Kind = &mesh_passthrough::KIND;
    type Conf = PassthroughConf;
    const SHAPES_CALLS: bool = false;

    fn proxy(
        &self,
        _mesh: &MeshContext,
        proxy: &Sidecar,
        confs: &InboundConfs<'_, PassthroughConf>,
        draft: &mut Draft,
        reporter: &mut Reporter<'_>,
    ) {
        let Some(conf) = confs.single(reporter) else { return };
        if !proxy.metadata.recognises_calls(&proxy.dataplane) {
            reporter.report(
                "has no effect, because the traffic of this proxy's workload is not redirected to it",
            );
            return;
        }
        let present = |name: &&&str| draft.listeners.contains_key(**name);
        let passed: Vec<&'static str> = OUTBOUND_PASSTHROUGH.iter().filter(present).copied().collect();
        match conf.passthrough_mode.unwrap_or(PassthroughMode::Matched) {
            PassthroughMode::All => {
                passed.iter().for_each(|name| transparent::add_cluster(cluster::original(name), draft));
            }
            PassthroughMode::None => passed.iter().for_each(|name| drop(draft.clusters.remove(*name))),
            PassthroughMode::Matched => {
                passed.iter().for_each(|name| drop(draft.clusters.remove(*name)));
                let groups = order::groups(conf.append_match.as_deref().unwrap_or_default());
                for name in passed {
                    match_only(proxy, name, &groups, draft, reporter);
                }
            }
        }
    }
}

/// Puts a chain for each group into the listener of this name, when one of its family is among them.
fn match_only(proxy: &Sidecar, name: &str, groups: &[Group], draft: &mut Draft, reporter: &mut Reporter<'_>) {
    let Some(listener) = draft.listeners.get_mut(name) else { return };
    let ipv6 = name == OUTBOUND_PASSTHROUGH[1];
    let of_family: Vec<&Group> = groups.iter().filter(|group| group.is_of_family(ipv6)).collect();
    if of_family.is_empty() {
        return;
    }
    let mut clusters: BTreeMap<String, DestinationProtocol> = BTreeMap::new();
    let mut chains = Vec::new();
    for group in &of_family {
        let chain = ChainMaker { ipv6: proxy.metadata.ipv6, group }.chain(&mut clusters);
        if chains.iter().any(|known: &crate::generator::Chain| known.matches == chain.matches) {
            // Envoy refuses two chains for the same connections.
            reporter.report(format!("{} is left out: another match is for the same connections", chain.name));
        } else {
            chains.push(chain);
        }
    }
    listener.chains = chains;
    let mysql = |group: &&&Group| group.protocol == DestinationProtocol::Mysql;
    let silent: BTreeSet<u32> = of_family.iter().filter(mysql).filter_map(|group| group.port).collect();
    // In MySQL the server speaks first: who waits for words of the client waits for ever.
    let disabled = silent_ports(&silent);
    listener.message.listener_filters = [filter::tls_inspector(), filter::http_inspector()]
        .map(|mut inspector| {
            inspector.filter_disabled.clone_from(&disabled);
            inspector
        })
        .into();
    for (name, protocol) in clusters {
        let http2 = matches!(protocol, DestinationProtocol::Grpc | DestinationProtocol::Http2);
        let cluster = ClusterDraft {
            role: Role::Machine(ORIGIN),
            message: cluster::original(&name),
            http: http2.then(cluster::http2),
            tls: None,
            tls_elsewhere: BTreeMap::new(),
            nearness: None,
        };
        draft.clusters.insert(name, cluster);
    }
}

fn silent_ports(ports: &BTreeSet<u32>) -> Option<ListenerFilterChainMatchPredicate> {
    let one = |port: &u32| {
        let start = i32::try_from(*port).unwrap_or(i32::MAX - 1);
        let range = Int32Range { start, end: start + 1 };
        ListenerFilterChainMatchPredicate { rule: Some(Rule::DestinationPortRange(range)) }
    };
    match ports.len() {
        0 => None,
        1 => ports.first().map(one),
        _ => {
            let rules = ports.iter().map(one).collect();
            Some(ListenerFilterChainMatchPredicate { rule: Some(Rule::OrMatch(MatchSet { rules })) })
        }
    }
}
