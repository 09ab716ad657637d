//! Configurations made from nothing in one go: for who only wants to see one, and what everything incremental must
//! come to.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    front, grpc, outbound,
    part::{Assigned, CompiledPart, Part},
    sidecar::{self, CompileError},
};
use crate::{
    generator::{ResourceCollection, ResourceSet, SharedResources, Shown, Sidecar, XdsClient},
    mesh::{Destination, MeshContext, Problem},
    policy::{Caller, Profile, Selections, legacy::LegacyCalls},
};

/// A finished configuration.
#[derive(Clone, Debug)]
pub(crate) struct Generated {
    /// What Envoy gets.
    pub(crate) set: ResourceSet,
    /// What was left out of it, and why.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "who looks at a preview sees the problems of the proxy")
    )]
    pub(crate) problems: BTreeSet<Problem>,
}

/// The configuration of a sidecar.
///
/// # Errors
/// [`CompileError`] when a configuration would be less safe than none.
pub(crate) fn sidecar(proxy: &Sidecar, mesh: &MeshContext) -> Result<Generated, CompileError> {
    let mut problems: BTreeSet<Problem> = proxy.dataplane.problems.iter().cloned().collect();
    let selections = Selections::of_dataplane(mesh, &proxy.dataplane);
    let legacy = LegacyCalls::of(mesh, &proxy.dataplane);
    let shown = proxy.shown.as_ref().and_then(Shown::given);
    let caller = Caller::of(mesh, &proxy.dataplane, &proxy.metadata, shown, legacy.tells());
    let profile = Profile::new(caller, &selections, legacy, mesh).with_gateway(&proxy.dataplane, mesh);
    let calls = match proxy.metadata.client() {
        XdsClient::Envoy => outbound::calls(mesh, &proxy.dataplane, &proxy.metadata, &mut problems),
        XdsClient::Grpc => grpc::calls(mesh, &proxy.dataplane, &mut problems),
    };
    let taken = |address, port| {
        calls.iter().any(|call| call.is_at(address, port)) || proxy.dataplane.has_entrance(address, port)
    };
    let own = sidecar::own(proxy, mesh, &selections, &calls, taken, &mut problems)?;
    let mut shared = ResourceCollection::default();
    let mut backends: BTreeSet<Destination> = BTreeSet::new();
    let mut take = |part: Part| {
        let made: CompiledPart = part.compile(mesh, &profile);
        problems.extend(made.problems().cloned());
        if let Some(encoded) = made.encoded() {
            shared.insert(Arc::clone(encoded));
        }
        made
    };
    for call in calls {
        backends.extend(take(Part::Listener(0, call)).backends().cloned());
    }
    for front in front::fronts(&proxy.dataplane, &proxy.metadata) {
        backends.extend(take(Part::Front(0, front)).backends().cloned());
    }
    let tags = profile.affinity_of(&proxy.dataplane);
    // Of several that have one name the last one stays, which is who comes first in a set.
    let of_service = |destination: &Destination| matches!(destination, Destination::Service(_));
    let (services, others): (Vec<_>, Vec<_>) = backends.into_iter().rev().partition(of_service);
    for destination in services.into_iter().chain(others) {
        let cluster = take(Part::Cluster(0, destination.clone()));
        take(Part::Assignment(Assigned::seen(&destination, &cluster, &tags)));
    }
    Ok(Generated { set: ResourceSet::new(&own, &SharedResources::new(shared, None), None), problems })
}

/// The configuration of a zone egress.
#[cfg(test)]
pub(crate) fn zone_egress<'a>(
    proxy: &crate::generator::ZoneEgressProxy,
    meshes: impl IntoIterator<Item = &'a MeshContext>,
) -> Generated {
    let mut departures = super::Departures::default();
    for mesh in meshes {
        departures.follow(mesh, None);
    }
    let own = departures.own(proxy, &std::collections::BTreeMap::new());
    Generated { set: departures.configure(&own, None).0, problems: own.problems }
}

/// The configuration of a zone ingress.
#[cfg(test)]
pub(crate) fn zone_ingress<'a>(
    proxy: &crate::generator::ZoneIngressProxy,
    zone: &str,
    meshes: impl IntoIterator<Item = &'a MeshContext>,
) -> Generated {
    let mut exposure = super::Exposure::default();
    for mesh in meshes {
        exposure.follow(mesh, None);
    }
    let own = exposure.own(proxy, zone);
    Generated { set: exposure.configure(&own, None).0, problems: own.problems }
}
