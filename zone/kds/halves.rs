//! The two halves of the sync with global, over whichever stream.

use std::sync::Arc;

use common::{
    kds::{
        apply::Applier,
        features::Features,
        follow::{BatchReport, Following},
        fuse::Fuse,
        metadata::Peer,
        order,
        outbox::Outbox,
        serve::Serving,
        size::largest_sent,
    },
    proto::{envoy::service::discovery::v3::DeltaDiscoveryRequest, kuma::system::v1alpha1::KumaCpVersion},
    store::index::Index,
    xds::{Dialect, Refusals},
};
use tokio_util::sync::CancellationToken;

use super::{
    connect::Connector,
    link::{Down, Up},
    up::{OwnView, Upward},
};

impl Connector {
    /// The way down without resuming. A global that `shows_history` is none of Kuma's.
    pub(super) fn following(
        &self,
        shows_history: bool,
        applier: Applier,
        outbox: Outbox<DeltaDiscoveryRequest>,
        stop: &CancellationToken,
    ) -> Following {
        let (link, traces, index) = (self.link.clone(), self.traces.clone(), self.index.clone());
        Following {
            zone: Arc::clone(&self.settings.zone),
            ours: if shows_history { self.peer() } else { self.peer_of_kumas() },
            resume: false,
            sums_up: false,
            besides: Vec::new(),
            remind_every: (!shows_history).then_some(self.settings.remind_every),
            guard_first: applier.fuse != Fuse::OPEN,
            applier,
            outbox,
            watch: Arc::new(Down(link.clone())),
            refusals: Refusals::default(),
            on_batch: Some(Box::new(move |report: &BatchReport| {
                if let Some(upstream) = report.upstream {
                    link.saw(upstream);
                }
                if let (Some(upstream), Some(traces), 1..) = (report.upstream, &traces, report.changed) {
                    traces.taken(upstream, report.kind, report.took, index.current().revision);
                }
                if report.settled {
                    link.settled();
                }
                if report.blown {
                    link.held_back(format!("global would remove too much of {}", report.kind.name));
                }
            })),
            stop: stop.clone(),
        }
    }

    /// The way up, whose answers go into `outbox`.
    pub(super) fn serving<D: Dialect>(
        &self,
        outbox: Outbox<D::Response>,
        stop: &CancellationToken,
    ) -> Serving<D> {
        Serving {
            identifier: self.settings.zone.to_string(),
            types: order::requested_by_global().into_iter().map(|kind| kind.name).collect(),
            index: self.index.clone(),
            outbox,
            watch: Arc::new(Up(self.link.clone())),
            stop: stop.clone(),
            stall_after: self.settings.stall_after,
            refusals: Refusals::default(),
            wishes: self.link.takes_wishes(),
            max_message: self.settings.max_message,
        }
    }

    /// Makes what global should hold of this zone.
    pub(super) fn own_view(&self, stamped: bool) -> impl FnOnce(&Peer, &Arc<Index>) -> OwnView + use<> {
        let form = Upward {
            zone: Arc::clone(&self.settings.zone),
            skip_prefixes: self.settings.skip_label_prefixes.clone(),
            largest: largest_sent(self.settings.max_message),
        };
        move |_, index| OwnView::new(form, stamped, index)
    }

    /// What this zone says about itself.
    pub(super) fn peer(&self) -> Peer {
        Peer {
            version: KumaCpVersion { version: self.settings.version.clone(), ..KumaCpVersion::default() },
            config: self.settings.config.clone(),
            instance: self.env.instance_id.to_string(),
            features: Features::ours(),
        }
    }

    /// The same for a global of Kuma. It compares releases with its own and takes one of this project for a very old one;
    /// what is no release it takes for one that goes with it.
    fn peer_of_kumas(&self) -> Peer {
        let peer = self.peer();
        let version = format!("strait-{}", peer.version.version);
        Peer { version: KumaCpVersion { version, ..peer.version }, ..peer }
    }
}
