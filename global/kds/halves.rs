//! The two halves of the sync with a zone, over whichever stream.

use std::sync::Arc;

use common::{
    events::StreamKind,
    issuing,
    kds::{
        apply::{Applier, Follower},
        attribution::Foreign,
        features::{ATTRIBUTION, Features, HASH_SUFFIX, ISSUING, RESUME},
        follow::{Following, OnBatch},
        fuse::Fuse,
        metadata::Peer,
        order,
        outbox::Outbox,
        ownership::ZoneNaming,
        serve::Serving,
    },
    model::kinds,
    proto::{envoy::service::discovery::v3::DeltaDiscoveryRequest, kuma::system::v1alpha1::KumaCpVersion},
    store::index::Index,
    xds::{Dialect, Refusals},
};

use super::{
    KdsInner,
    session::{Session, SyncStream},
    zone_view::ZoneView,
};

impl KdsInner {
    /// The way down, whose answers go into `outbox`.
    pub(super) fn serving<D: Dialect>(
        &self,
        session: &Arc<Session>,
        outbox: Outbox<D::Response>,
    ) -> Serving<D> {
        Serving {
            identifier: "global".to_owned(),
            types: order::served_to_zones().into_iter().map(|kind| kind.name).collect(),
            index: self.index.clone(),
            outbox,
            watch: Arc::new(self.half(session, StreamKind::GlobalToZone)),
            stop: session.stop.clone(),
            stall_after: self.settings.stall_after,
            refusals: Refusals::default(),
            wishes: session.offers.open(),
            max_message: self.settings.max_message,
        }
    }

    /// Makes what the zone should have, once it has said who it is.
    pub(super) fn view_of(
        self: &Arc<Self>,
        session: &Arc<Session>,
    ) -> impl FnOnce(&Peer, &Arc<Index>) -> ZoneView + Send + use<> {
        let (inner, session) = (Arc::clone(self), Arc::clone(session));
        move |_: &Peer, index: &Arc<Index>| {
            let features = session.receiver_features();
            let shown = features.has(RESUME).then(|| inner.shown_by(index));
            let shared = Arc::clone(inner.outgoing_for(&features));
            warn_of_hidden_key(&session.zone, &features, index);
            let view = ZoneView::new(Arc::clone(&session.zone), features, shown, shared, index);
            view.where_run(inner.running.clone(), index)
        }
    }

    /// The way up of a zone that does not resume, whose questions and answers go into `outbox`.
    pub(super) fn following(
        &self,
        session: &Arc<Session>,
        outbox: Outbox<DeltaDiscoveryRequest>,
    ) -> Following {
        Following {
            zone: Arc::clone(&session.zone),
            ours: self.introduction(),
            resume: false,
            sums_up: false,
            besides: Vec::new(),
            // Zones are served by what they have, and no zone forgets its global.
            remind_every: None,
            guard_first: false,
            applier: self.applier(session),
            outbox,
            watch: Arc::new(self.half(session, StreamKind::ZoneToGlobal)),
            refusals: Refusals::default(),
            on_batch: Some(note_misattributed(session)),
            stop: session.stop.clone(),
        }
    }

    fn half(&self, session: &Arc<Session>, stream: StreamKind) -> SyncStream {
        SyncStream { session: Arc::clone(session), stream, version: self.settings.version.clone() }
    }

    fn introduction(&self) -> Peer {
        Peer {
            version: KumaCpVersion { version: self.settings.version.clone(), ..KumaCpVersion::default() },
            config: String::new(),
            instance: self.env.instance_id.to_string(),
            features: Features::ours(),
        }
    }

    fn applier(&self, session: &Session) -> Applier {
        Applier {
            store: Arc::clone(&self.store),
            index: self.index.clone(),
            env: self.env.clone(),
            follower: Follower::Global {
                zone: Arc::clone(&session.zone),
                foreign: foreign_of(session),
                naming: naming_of(session),
                quota: self.settings.quota,
            },
            fence: Some(session.fence.clone()),
            // A zone may always remove what it owns.
            fuse: Fuse::OPEN,
            // Zones sign nothing: who they are is known from the session.
            trusted: None,
        }
    }
}

/// Says who comes without the key that was seen under this name.
fn warn_of_hidden_key(zone: &str, features: &Features, index: &Index) {
    let request = issuing::request_secret(zone);
    if !features.has(ISSUING) && index.find(&kinds::secret::GLOBAL_SECRET, "", &request).is_some() {
        tracing::warn!(
            zone,
            "a zone of this name had an issuing key of its own, and who connects now has none: it gets no key that \
             is kept from such zones; if it is a zone of Kuma now, delete the global secret {request}"
        );
    }
}

/// What becomes of items of this zone that claim another one.
fn foreign_of(session: &Session) -> Foreign {
    if session.features().has(ATTRIBUTION) { Foreign::Refuse } else { Foreign::Rewrite }
}

/// How names of this zone are made.
fn naming_of(session: &Session) -> ZoneNaming {
    if session.features().has(HASH_SUFFIX) { ZoneNaming::Hashed } else { ZoneNaming::Below }
}

/// Counts what claimed another zone. What was refused is noted like everything that is refused; what was
/// rewritten nobody else would hear of.
fn note_misattributed(session: &Arc<Session>) -> OnBatch {
    let session = Arc::clone(session);
    let foreign = foreign_of(&session);
    Box::new(move |report| {
        let (items, kind) = (report.misattributed.len(), report.kind.name);
        let count = items as u64;
        match foreign {
            _ if items == 0 => {}
            Foreign::Refuse => {
                metrics::counter!("kds_zone_attribution_refusals_total", "resource_type" => kind)
                    .increment(count);
            }
            Foreign::Rewrite => {
                metrics::counter!("kds_zone_attribution_rewrites_total", "resource_type" => kind)
                    .increment(count);
            }
        }
        if foreign == Foreign::Rewrite
            && let Some(latest) = session.attributed(report)
        {
            tracing::warn!(zone = &*session.zone, items, latest, "attributed resources to their sender");
        }
    })
}
