//! What belongs to one sidecar alone: its inbounds, its secrets, the listener before its admin endpoint.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use common::policy::rules::RulesError;
use thiserror::Error;

use super::{admission, grpc, outbound::OutboundCall, way_out};
use crate::{
    generator::{
        ClusterDraft, Draft, Encoded, ListenerDraft, ResourceCollection, Sidecar, XdsClient, admin, agent,
        direct_access, dns, inbound, probe, secrets, transparent, type_url,
    },
    mesh::{MeshContext, Problem, problem::Subject},
    policy::{self, Selections},
};

/// Why there is no configuration; the proxy keeps the last one.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum CompileError {
    /// The mesh has mutual TLS; without a certificate the proxy would have to serve plaintext.
    #[error("mesh {mesh} has mutual TLS, but there is no certificate for {proxy} yet")]
    NoCertificate {
        /// Which mesh.
        mesh: Arc<str>,
        /// Which proxy.
        proxy: String,
    },
    /// Nobody can be told who may call it; with less it would let in others, or nobody.
    #[error("who may call {proxy} cannot be told, so it keeps what it has: {reason}")]
    Undecided {
        /// Which proxy.
        proxy: String,
        /// What is wrong with its permissions.
        reason: RulesError,
    },
    /// A fault in here, which the log tells more about.
    #[error("the control plane failed while it made the configuration of {0}, which keeps the last one")]
    Panicked(Arc<str>),
}

/// What is the own of `proxy`, which calls what is `listed`. At these addresses something is.
///
/// # Errors
/// [`CompileError`] when a configuration would be less safe than none.
pub(super) fn own(
    proxy: &Sidecar,
    mesh: &MeshContext,
    selections: &Selections,
    listed: &[Arc<OutboundCall>],
    calls: impl Fn(IpAddr, u32) -> bool,
    problems: &mut BTreeSet<Problem>,
) -> Result<ResourceCollection, CompileError> {
    if mesh.wants_certificate(&proxy.dataplane) && proxy.shown.is_none() {
        let proxy = proxy.dataplane.name().to_owned();
        return Err(CompileError::NoCertificate { mesh: Arc::clone(&mesh.mesh), proxy });
    }
    if proxy.shown.is_some()
        && let Some(reason) = policy::undecided(selections)
    {
        return Err(CompileError::Undecided { proxy: proxy.dataplane.name().to_owned(), reason });
    }
    if proxy.dataplane.is_builtin_gateway() && proxy.dataplane.gateway.is_none() {
        let reason = "it listens for nobody: no MeshGateway selects it".to_owned();
        problems.insert(Problem { subject: Subject::of(&proxy.dataplane.resource), reason });
    }
    for reason in [mesh.unnamed(&proxy.dataplane), mesh.unsaid(&proxy.dataplane)].into_iter().flatten() {
        problems.insert(Problem { subject: Subject::of(&proxy.dataplane.resource), reason });
    }
    if proxy.metadata.client() == XdsClient::Grpc {
        // Libraries have rules of their own, by which it was made.
        return Ok(grpc::own(proxy, mesh, selections, listed, problems));
    }
    let mut draft = drafted(proxy, mesh, &calls);
    policy::apply_inbound(mesh, proxy, selections, &mut draft, problems);
    way_out::generate(proxy, mesh, selections, &mut draft, problems);
    secrets::generate(proxy, mesh, &mut draft);
    if let Some(wrong) = agent::generate(proxy, mesh, &mut draft) {
        let subject = Subject::of(&proxy.dataplane.resource);
        problems.insert(Problem { subject, reason: wrong.to_owned() });
    }
    // Nothing that users say about traffic is said about this.
    if !admin::generate(&proxy.metadata, proxy.admin.as_ref(), &calls, &mut draft) {
        problems.insert(admin_port_taken(Subject::of(&proxy.dataplane.resource)));
    }
    let made = draft.finish();
    let (mut patched, patches) = policy::patch_own(mesh, proxy, selections, made.clone(), problems);
    admission::leave_out_contested(&mut patched, &made, &calls, problems);
    let blame = |encoded: &Encoded| {
        let draft = drafted(proxy, mesh, &calls);
        policy::blame::of_own(mesh, proxy, selections, draft, |draft| is_broken(draft, encoded))
    };
    Ok(admission::admitted_own(patched, &made, &patches, blame, problems))
}

/// What it has without any policy.
fn drafted(proxy: &Sidecar, mesh: &MeshContext, calls: &impl Fn(IpAddr, u32) -> bool) -> Draft {
    let mut draft = Draft::default();
    transparent::generate(proxy, mesh, &mut draft);
    inbound::generate(proxy, mesh, &mut draft);
    direct_access::generate(proxy, mesh, calls, &mut draft);
    probe::generate(proxy, &mut draft);
    dns::generate(proxy, mesh, &mut draft);
    draft
}

/// Whether what is drafted in the place of `encoded` would be refused.
fn is_broken(draft: &Draft, encoded: &Encoded) -> bool {
    let drafted = match encoded.type_url {
        type_url::LISTENER => draft.listeners.get(&*encoded.name).map(ListenerDraft::encode),
        type_url::CLUSTER => draft.clusters.get(&*encoded.name).map(ClusterDraft::encode),
        _ => None,
    };
    drafted.is_some_and(|drafted| !drafted.broken_rules().is_empty())
}

pub(super) fn admin_port_taken(subject: Subject) -> Problem {
    let reason =
        "nobody elsewhere can ask its Envoy, because networking.admin.port is one of its own listeners";
    Problem { subject, reason: reason.to_owned() }
}
