//! What a relay says about its zones, as far as it is heard.

use bytes::Bytes;
use common::{
    clip::clip,
    kds::reverse::Answer,
    parts,
    proto::strait::relay::v1alpha1::{RelayRefusal, RelayReport},
    redact, registry,
};
use tonic::Status;

/// Refusals of one zone that are taken from a report, and bytes of each. A relay keeps no more of one, without secrets.
const REFUSALS: usize = 256;
pub(super) const REFUSAL: usize = 1024;

/// A report without what nobody may see, and what nobody keeps.
pub(super) struct HeardReport(pub(super) RelayReport);

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
        for details in report.zones.iter_mut().filter_map(|zone| zone.details.as_mut()) {
            for told in [&mut details.refusals, &mut details.withheld] {
                told.retain(|one| registry::by_name(&one.r#type).is_some());
                told.truncate(REFUSALS);
                told.iter_mut().for_each(|one| one.reason = brief(&one.reason));
            }
        }
        Self(report)
    }

    /// Takes out the answers in it.
    pub(super) fn answers(&mut self) -> impl Iterator<Item = Answer> + use<> {
        let Self(report) = self;
        let config = report.config.take().map(Answer::from);
        let stats = report.stats.take().map(Answer::from);
        let clusters = report.clusters.take().map(Answer::from);
        config.into_iter().chain(stats).chain(clusters)
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
    use common::proto::strait::relay::v1alpha1::{RelayDetails, RelayedZone};
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
        let zones = vec![RelayedZone { details: Some(details), ..RelayedZone::default() }];
        let report = RelayReport { zones, ..RelayReport::default() };
        let HeardReport(heard) = HeardReport::decode(report.encode_to_vec().into()).ok().unwrap();
        let details = heard.zones[0].details.as_ref().unwrap();
        assert_eq!((details.refusals.len(), details.withheld.len()), (REFUSALS, 1));
        let reasons = details.refusals.iter().chain(&details.withheld).map(|one| one.reason.as_str());
        for reason in reasons {
            assert!(!reason.contains("hunter2") && reason.len() <= REFUSAL, "{reason}");
        }
    }
}
