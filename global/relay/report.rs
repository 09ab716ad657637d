//! What a relay says about its zones: where most of them are, and which are somewhere else. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::{
    kds::{proxies::ProxyProgress, watch::Position},
    proto::strait::relay::v1alpha1::{RelayDetails, RelayPosition, RelayRefusal, RelayReport, RelayedZone},
};

use prost::Message;

use crate::kds::SeenSession;

/// Refusals of one zone that are passed on.
const REFUSALS: usize = 256;
/// What stands around a zone in a report, in bytes.
const FRAMING: usize = 8;

/// Makes the reports of one connection to global.
#[derive(Default)]
pub(super) struct RelayReporter {
    told: BTreeMap<Arc<str>, ToldZone>,
}

/// What global was told about a zone, besides how far it is.
struct ToldZone {
    epoch: u64,
    up: Position,
    details: RelayDetails,
    proxies: Option<ProxyProgress>,
}

/// The same report in messages of no more than so many bytes: after a new connection all that all zones refuse is told at
/// once, and a message that is too large would end that connection, and the next.
pub(super) fn in_parts(report: RelayReport, largest: usize) -> Vec<RelayReport> {
    // An answer is no longer than a message may be.
    if report.zones.is_empty() || report.encoded_len() <= largest {
        return vec![report];
    }
    let RelayReport { zones, watermark, beat, .. } = report;
    // What is said of all zones is said last, beside those of which it does not hold.
    let differs = |zone: &&RelayedZone| zone.silent || zone.down.is_some();
    let but = zones.iter().filter(differs).map(|zone| RelayedZone {
        zone: zone.zone.clone(),
        session: zone.session.clone(),
        down: zone.down,
        silent: zone.silent,
        ..RelayedZone::default()
    });
    let last = RelayReport { zones: but.collect(), watermark, beat, ..RelayReport::default() };
    let (mut parts, mut part, mut bytes) = (Vec::new(), RelayReport::default(), 0);
    for zone in zones {
        let more = zone.encoded_len() + FRAMING;
        if bytes + more > largest && !part.zones.is_empty() {
            parts.push(std::mem::take(&mut part));
            bytes = 0;
        }
        bytes += more;
        part.zones.push(zone);
    }
    parts.extend([part, last]);
    parts
}

/// A zone, and whether it keeps the relay waiting.
pub(super) type HeardSession = (SeenSession, bool);

impl RelayReporter {
    /// Where all zones are; `beat` says that those which are not silent have been heard.
    pub(super) fn report(&mut self, zones: Vec<HeardSession>, beat: bool) -> RelayReport {
        let watermark = zones.iter().map(|(zone, _)| zone.down).max_by_key(|down| (down.acked, down.head));
        let there: BTreeSet<Arc<str>> = zones.iter().map(|(zone, _)| Arc::clone(&zone.zone)).collect();
        self.told.retain(|zone, _| there.contains(zone));
        let differing =
            zones.into_iter().filter_map(|(zone, silent)| self.differing(zone, silent, watermark));
        RelayReport {
            zones: differing.collect(),
            watermark: watermark.map(on_the_wire),
            beat,
            ..RelayReport::default()
        }
    }

    /// What is to be said about a zone by its name; nothing when it is where the others are.
    fn differing(
        &mut self,
        zone: SeenSession,
        silent: bool,
        watermark: Option<Position>,
    ) -> Option<RelayedZone> {
        let details = details(&zone);
        let told = self.told.get(&zone.zone).filter(|told| told.epoch == zone.epoch);
        let is_new = told.is_none();
        let (up, said, proxies) =
            told.map_or_else(Default::default, |told| (told.up, told.details.clone(), told.proxies.clone()));
        let news_of_proxies = zone.proxies.as_ref().filter(|now| proxies.as_ref() != Some(now));
        let relayed = RelayedZone {
            zone: zone.zone.to_string(),
            session: zone.key,
            node: is_new.then(|| zone.peer.node(&zone.zone)),
            down: (Some(zone.down) != watermark).then(|| on_the_wire(zone.down)),
            up: (up != zone.up).then(|| on_the_wire(zone.up)),
            silent,
            details: (said != details).then(|| details.clone()),
            proxies: news_of_proxies.map(ProxyProgress::encode).unwrap_or_default(),
        };
        let told = ToldZone { epoch: zone.epoch, up: zone.up, details, proxies: zone.proxies };
        self.told.insert(zone.zone, told);
        let says = silent
            || relayed.node.is_some()
            || relayed.down.is_some()
            || relayed.up.is_some()
            || relayed.details.is_some()
            || !relayed.proxies.is_empty();
        says.then_some(relayed)
    }
}

fn details(zone: &SeenSession) -> RelayDetails {
    let refusals = zone.refusals.iter().take(REFUSALS).map(|((type_name, name), reason)| RelayRefusal {
        r#type: type_name.clone(),
        name: name.to_string(),
        reason: reason.to_string(),
    });
    let withheld = zone.withheld.iter().map(|(type_name, reason)| RelayRefusal {
        r#type: type_name.clone(),
        name: String::new(),
        reason: reason.clone(),
    });
    RelayDetails { refusals: refusals.collect(), withheld: withheld.collect() }
}

fn on_the_wire(position: Position) -> RelayPosition {
    RelayPosition { head: position.head, acked: position.acked, lag: position.lag }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str, epoch: u64, acked: u64) -> SeenSession {
        SeenSession {
            zone: name.into(),
            key: format!("{name}-{epoch}"),
            epoch,
            peer: Arc::default(),
            down: Position { head: 9, acked, lag: 9 - acked },
            up: Position::default(),
            refusals: BTreeMap::new(),
            withheld: BTreeMap::new(),
            proxies: None,
        }
    }

    fn named(report: &RelayReport) -> Vec<&str> {
        report.zones.iter().map(|zone| zone.zone.as_str()).collect()
    }

    #[test]
    fn zones_that_are_where_all_are_are_named_once() {
        let mut reporter = RelayReporter::default();
        let all = || (0..100).map(|n| (zone(&format!("zone-{n:02}"), 1, 9), false)).collect::<Vec<_>>();
        let first = reporter.report(all(), true);
        assert_eq!(first.zones.len(), 100);
        assert!(first.zones.iter().all(|zone| zone.node.is_some() && zone.down.is_none()));
        let next = reporter.report(all(), true);
        assert_eq!((named(&next), next.watermark.map(|at| at.acked)), (vec![], Some(9)));
    }

    #[test]
    fn what_does_not_fit_into_one_message_is_told_in_several_and_of_all_zones_last() {
        const LARGEST: usize = 100 << 10;
        let refusing = |n: usize| {
            let one = |n: usize| {
                (("MeshTimeout".to_owned(), n.to_string().as_str().into()), "x".repeat(1000).into())
            };
            let name = format!("zone-{n:02}");
            SeenSession { refusals: (0..50).map(one).collect(), ..zone(&name, 1, if n == 7 { 4 } else { 9 }) }
        };
        let zones: Vec<_> = (0..20).map(|n| (refusing(n), n == 9)).collect();
        let report = RelayReporter::default().report(zones, true);
        assert_eq!(in_parts(report.clone(), usize::MAX), std::slice::from_ref(&report));
        let messages = in_parts(report.clone(), LARGEST);
        assert!(messages.iter().all(|message| message.encoded_len() <= LARGEST));
        let (last, rest) = messages.split_last().expect("there is one");
        assert!(rest.len() > 5 && rest.iter().all(|part| part.watermark.is_none() && !part.beat));
        let told: Vec<RelayedZone> = rest.iter().flat_map(|part| part.zones.clone()).collect();
        assert_eq!(told, report.zones, "each is named once, with all that is to be said of it");
        assert!(last.beat && last.watermark == report.watermark);
        assert_eq!(named(last), ["zone-07", "zone-09"]);
        assert!(last.zones[0].down == report.zones[7].down && !last.zones[0].silent);
        assert!(last.zones[1].down.is_none() && last.zones[1].silent);
        assert!(last.zones.iter().all(|zone| zone.node.is_none() && zone.details.is_none()));
    }

    #[test]
    fn who_lags_is_silent_or_came_again_is_named() {
        let mut reporter = RelayReporter::default();
        let zones = || vec![(zone("a", 1, 9), false), (zone("b", 1, 9), false), (zone("c", 1, 9), false)];
        reporter.report(zones(), false);
        let mut moved = zones();
        moved[0].0 = zone("a", 1, 4);
        moved[1].1 = true;
        moved[2].0 = zone("c", 2, 9);
        let report = reporter.report(moved, false);
        assert_eq!(named(&report), ["a", "b", "c"]);
        assert_eq!(report.zones[0].down.map(|at| at.acked), Some(4));
        assert!(report.zones[1].silent && report.zones[1].node.is_none());
        assert!(report.zones[2].node.is_some() && report.zones[2].session == "c-2");
        let over = reporter.report(vec![(zone("a", 1, 9), false)], false);
        assert!(over.zones.is_empty(), "its watermark says it all");
    }

    #[test]
    fn how_far_proxies_are_is_told_when_it_is_new() {
        let mut reporter = RelayReporter::default();
        let at = |acked| ProxyProgress { acked, connected: 2, ..ProxyProgress::default() };
        let zones = |acked| vec![(SeenSession { proxies: Some(at(acked)), ..zone("a", 1, 9) }, false)];
        let first = reporter.report(zones(7), false);
        assert_eq!(ProxyProgress::decode(&first.zones[0].proxies), Some(at(7)));
        assert!(reporter.report(zones(7), false).zones.is_empty());
        let next = reporter.report(zones(8), false);
        assert_eq!(ProxyProgress::decode(&next.zones[0].proxies), Some(at(8)));
    }

    #[test]
    fn what_is_refused_is_told_when_it_begins_and_when_it_is_over() {
        let mut reporter = RelayReporter::default();
        let refusing = |refuses: bool| {
            let refusals = refuses.then(|| (("MeshTimeout".to_owned(), "t.default".into()), "no".into()));
            vec![(SeenSession { refusals: refusals.into_iter().collect(), ..zone("a", 1, 9) }, false)]
        };
        reporter.report(refusing(false), false);
        let begun = reporter.report(refusing(true), false);
        let details = begun.zones[0].details.clone().unwrap_or_default();
        assert_eq!(
            (details.refusals[0].name.as_str(), details.refusals[0].reason.as_str()),
            ("t.default", "no")
        );
        assert!(reporter.report(refusing(true), false).zones.is_empty());
        let over = reporter.report(refusing(false), false);
        assert_eq!(over.zones[0].details, Some(RelayDetails::default()));
    }
}
