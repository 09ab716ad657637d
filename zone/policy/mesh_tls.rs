//! `MeshTLS`: whether clients may do without mesh TLS, and which versions and ciphers both sides use.

use common::{
    model::Kind,
    policy::mesh_tls::{self, MtlsMode, TlsConf},
    proto::envoy::extensions::transport_sockets::tls::v3::CommonTlsContext,
};

use super::{InboundConfs, OutboundConfs, PolicyEffect, Reporter, inbound_of};
use crate::{
    generator::{Backend, ClusterDraft, Draft, envoy::tls, inbound},
    mesh::MeshContext,
};

/// See the module.
pub(super) struct MeshTlsEffect;

impl PolicyEffect for MeshTlsEffect {
    const KIND: &'static Kind = &mesh_tls::KIND;
    type Conf = TlsConf;

    fn inbounds(
        &self,
        _mesh: &MeshContext,
        confs: &InboundConfs<'_, TlsConf>,
        draft: &mut Draft,
        reporter: &mut Reporter<'_>,
    ) {
        for listener in draft.listeners.values_mut() {
            let Some(inbound) = inbound_of(&listener.role) else { continue };
            let Some(conf) = confs.of(inbound, reporter) else { continue };
            if listener.chains.iter().all(|chain| chain.tls.is_none()) {
                reporter.report("has no effect, because the mesh has no mutual TLS");
                continue;
            }
            if let Some(mode) = conf.mode {
                inbound::set_permissive(listener, mode == MtlsMode::Permissive);
            }
            for chain in &mut listener.chains {
                let context = chain.tls.as_mut().and_then(|tls| tls.common_tls_context.as_mut());
                set_parameters(context, &conf);
            }
        }
    }

    fn cluster(
        &self,
        confs: &OutboundConfs<'_, TlsConf>,
        _backend: &Backend,
        cluster: &mut ClusterDraft,
        reporter: &mut Reporter<'_>,
    ) {
        let Some(conf) = confs.of_whole_mesh(reporter) else { return };
        for tls in cluster.tls.iter_mut().chain(cluster.tls_elsewhere.values_mut()) {
            set_parameters(tls.common_tls_context.as_mut(), &conf);
        }
    }
}

/// Versions and ciphers; Envoy's own where the policy has none.
fn set_parameters(context: Option<&mut CommonTlsContext>, conf: &TlsConf) {
    let ciphers = conf.tls_ciphers.as_deref().unwrap_or_default();
    if conf.tls_version.is_none() && ciphers.is_empty() {
        return;
    }
    let names: Vec<&str> = ciphers.iter().map(|cipher| cipher.name()).collect();
    if let Some(context) = context {
        context.tls_params = Some(tls::parameters(conf.tls_version.unwrap_or_default(), &names));
    }
}
