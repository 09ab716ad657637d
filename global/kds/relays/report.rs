//! What a relay says about its zones, as far as it is heard.

use bytes::Bytes;
use common::{
    clip::clip,
    kds::{metadata::Peer, proxies::ProxyProgress, reverse::Answer},
    parts,
    proto::strait::relay::v1alpha1::{RelayRefusal, RelayReport, RelayedZone},
    redact, registry,
};
use tonic::Status;

/// Refusals of one zone that are taken from a report, and bytes of each. A relay keeps no more of one, without secrets.
const REFUSALS: usize = 256;
pub(super) const REFUSAL: usize = 1024;

/// A report without what nobody may see, and what nobody keeps.
pub(super) struct HeardReport {
    /// Without its zones.
    pub(super) report: RelayReport,
    pub(super) zones: Vec<HeardZone>,
}

/// What is said of a zone.
pub(super) struct HeardZone {
    pub(super) told: RelayedZone,
    /// What it says about itself, where that is told.
    pub(super) peer: Option<Peer>,
    /// How far its proxies are, where that is told.
    pub(super) proxies: Option<ProxyProgress>,
}

impl HeardReport {
    /// Reads one. Looking for secrets in a long one takes long: it is done where it is decoded.
    ///
    /// # Errors
    /// The status its stream ends with.
    pub(super) fn decode(message: Bytes) -> Result<Self, Status> {
        parts::decode(message).map(Self::of)
    }

    /// The same of one that was read.
    pub(super) fn of(mut report: RelayReport) -> Self {
        let zones = std::mem::take(&mut report.zones).into_iter().map(HeardZone::of).collect();
        Self { report, zones }
    }

    /// Takes out the answers in it.
    pub(super) fn answers(&mut self) -> impl Iterator<Item = Answer> + use<> {
        let Self { report, .. } = self;
        let config = report.config.take().map(Answer::from);
        let stats = report.stats.take().map(Answer::from);
        let clusters = report.clusters.take().map(Answer::from);
        config.into_iter().chain(stats).chain(clusters)
    }
}

impl HeardZone {
    fn of(mut told: RelayedZone) -> Self {
        if let Some(details) = &mut told.details {
            for refused in [&mut details.refusals, &mut details.withheld] {
                refused.retain(|one| registry::by_name(&one.r#type).is_some());
                refused.truncate(REFUSALS);
                refused.iter_mut().for_each(|one| one.reason = brief(&one.reason));
            }
        }
        let peer = told.node.take().map(|node| Peer::read(&node));
        let proxies = ProxyProgress::decode(&std::mem::take(&mut told.proxies));
        Self { told, peer, proxies }
    }
}

/// What is kept of a reason. Who refuses quotes what he refuses; of what no relay says nothing is looked through.
fn brief(reason: &str) -> String {
    redact::words(clip(reason, REFUSAL), REFUSAL)
}

/// Those that are about a type there is, each with its name: a zone is sent no others.
pub(super) fn known(told: &[RelayRefusal]) -> impl Iterator<Item = (&'static str, &RelayRefusal)> {
    told.iter().filter_map(|one| Some((registry::by_name(&one.r#type)?.name, one)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use common::proto::strait::relay::v1alpha1::RelayDetails;
    use prost::Message;

    use super::*;

    #[test]
    fn a_report_is_without_secrets_and_without_what_nobody_keeps_once_it_is_decoded() {
        let one = |r#type: &str, reason: String| RelayRefusal {
            r#type: r#type.to_owned(),
            name: "t.default".to_owned(),
            reason,
        };
        let refused = one("MeshTimeout", "password=hunter2 is odd".to_owned());
        let made_up = one("Made up", "no".to_owned());
        let withheld = one("MeshTimeout", "no ".repeat(REFUSAL));
        let refusals = std::iter::once(made_up.clone()).chain(std::iter::repeat_n(refused, 2 * REFUSALS));
        let details = RelayDetails { refusals: refusals.collect(), withheld: vec![made_up, withheld] };
        let peer = Peer { config: r#"{"password":"hunter2"}"#.to_owned(), ..Peer::default() };
        let told =
            RelayedZone { details: Some(details), node: Some(peer.node("a")), ..RelayedZone::default() };
        let report = RelayReport { zones: vec![told], beat: true, ..RelayReport::default() };
        let heard = HeardReport::decode(report.encode_to_vec().into()).ok().unwrap();
        assert!(heard.report.beat);
        let [HeardZone { told, peer: Some(peer), proxies: None }] = &*heard.zones else {
            panic!("one zone is told of")
        };
        assert!(peer.config.contains("password") && !peer.config.contains("hunter2"), "{}", peer.config);
        let details = told.details.as_ref().unwrap();
        assert_eq!((details.refusals.len(), details.withheld.len()), (REFUSALS, 1));
        let reasons = details.refusals.iter().chain(&details.withheld).map(|one| one.reason.as_str());
        for reason in reasons {
            assert!(!reason.contains("hunter2") && reason.len() <= REFUSAL, "{reason}");
        }
    }
}
