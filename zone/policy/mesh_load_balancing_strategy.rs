//! `MeshLoadBalancingStrategy`: how clusters choose among their endpoints, what routes hash, and which endpoints
//! are near.

pub(super) mod balancer;
mod hash;
mod locality;

use std::{collections::BTreeSet, sync::Arc};

use common::{
    model::Kind,
    policy::{
        mesh_load_balancing_strategy::{self, HashPolicy, LoadBalancingConf},
        rules::Policy,
    },
    proto::envoy::config::route::v3::{route::Action, route_action},
};

use super::{OutboundConfs, PolicyEffect, Reporter};
use crate::generator::{Backend, ClusterDraft, GatewayRouteDraft, ListenerDraft, Terminal};

/// See the module.
pub(super) struct MeshLoadBalancingStrategyEffect;

impl PolicyEffect for MeshLoadBalancingStrategyEffect {
    const KIND: &'static Kind = &mesh_load_balancing_strategy::KIND;
    type Conf = LoadBalancingConf;

    fn outbound(
        &self,
        confs: &OutboundConfs<'_, LoadBalancingConf>,
        backend: &Backend,
        listener: &mut ListenerDraft,
        reporter: &mut Reporter<'_>,
    ) {
        let conf = confs.of(backend, reporter);
        let hashed =
            conf.as_ref().and_then(LoadBalancingConf::hashed).map(|policies| usable(policies, reporter));
        for chain in &mut listener.chains {
            // Of bytes there is nothing to hash but the address of the workload, which is always the same.
            let Terminal::Http(http) = &mut chain.terminal else { continue };
            for route in &mut http.routes {
                let special = confs.route(backend, route, reporter);
                let special = special
                    .as_ref()
                    .and_then(LoadBalancingConf::hashed)
                    .map(|policies| usable(policies, reporter));
                if let (Some(Action::Route(action)), Some(hashed)) =
                    (&mut route.message.action, special.or_else(|| hashed.clone()))
                {
                    action.hash_policy = hashed;
                }
            }
        }
    }

    fn gateway_routes(
        &self,
        confs: &OutboundConfs<'_, LoadBalancingConf>,
        routes: &mut [GatewayRouteDraft],
        reporter: &mut Reporter<'_>,
    ) {
        for GatewayRouteDraft { route, backends } in routes {
            let own = confs.of_gateway_route(route, reporter);
            let conf = own.or_else(|| backends.iter().find_map(|backend| confs.of(backend, reporter)));
            let hashed =
                conf.as_ref().and_then(LoadBalancingConf::hashed).map(|policies| usable(policies, reporter));
            if let (Some(Action::Route(action)), Some(hashed)) = (&mut route.message.action, hashed) {
                action.hash_policy = hashed;
            }
        }
    }

    fn cluster(
        &self,
        confs: &OutboundConfs<'_, LoadBalancingConf>,
        backend: &Backend,
        cluster: &mut ClusterDraft,
        reporter: &mut Reporter<'_>,
    ) {
        let Some(conf) = confs.of(backend, reporter) else { return };
        if let Some(load_balancer) = &conf.load_balancer {
            balancer::set(&mut cluster.message, load_balancer, reporter);
        }
        locality::set(cluster, &conf, backend, &confs.outside.mesh.zone);
    }
}

/// What Envoy hashes; what it would refuse is reported and left out.
fn usable(policies: &[HashPolicy], reporter: &mut Reporter<'_>) -> Vec<route_action::HashPolicy> {
    let mut hashed = Vec::new();
    for policy in policies {
        match hash::policy(policy) {
            Ok(policy) => hashed.push(policy),
            Err(reason) => reporter.report(format!("a hash policy is left out: {reason}")),
        }
    }
    hashed
}

/// The keys of the tags by which these policies tell what is near.
pub(super) fn affinity_keys<'a>(policies: impl Iterator<Item = &'a Arc<Policy>>) -> BTreeSet<String> {
    let specs = policies.filter_map(|policy| {
        policy.resource.spec::<mesh_load_balancing_strategy::MeshLoadBalancingStrategy>().ok()
    });
    let keys =
        |conf: &LoadBalancingConf| conf.affinity_tags().iter().map(|tag| tag.key.clone()).collect::<Vec<_>>();
    specs.flat_map(|spec| spec.to).flat_map(|item| keys(&item.default)).collect()
}
