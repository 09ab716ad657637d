//! How far one proxy is.

use std::{collections::BTreeMap, fmt};

use common::model::labels;
use serde_json::{Map, Value, json};

use crate::table;

/// What is shown of each type: its heading, and the end of the name of its type.
pub(super) const TYPES: [(&str, &str); 5] = [
    ("CDS", "Cluster"),
    ("LDS", "Listener"),
    ("EDS", "ClusterLoadAssignment"),
    ("RDS", "RouteConfiguration"),
    ("ECDS", "TypedExtensionConfig"),
];

/// How far a proxy is with a type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum SyncState {
    /// Nobody says.
    #[default]
    Untold,
    /// It was sent nothing: it asked for nothing, or there is nothing.
    NotSent,
    /// It took what it was sent.
    Synced,
    /// It was sent something that it has not answered.
    Stale,
    /// It refuses something, for this reason.
    Error(String),
}

impl fmt::Display for SyncState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Untold => "-",
            Self::NotSent => "NOT SENT",
            Self::Synced => "SYNCED",
            Self::Stale => "STALE",
            Self::Error(_) => "ERROR",
        })
    }
}

/// One proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProxyStatusRow {
    name: String,
    zone: String,
    instance: String,
    version: String,
    /// By the name of the type.
    states: BTreeMap<String, SyncState>,
}

impl ProxyStatusRow {
    /// The proxies behind these streams, as a zone tells about them: what the newest stream says that was sent anything
    /// of a type.
    pub(super) fn of_streams(streams: &[Value]) -> Vec<Self> {
        let mut rows: BTreeMap<String, Self> = BTreeMap::new();
        for stream in streams {
            let name = table::text(&stream["proxy"]);
            let row = rows.entry(name.clone()).or_insert_with(|| Self {
                name,
                states: TYPES.map(|(_, of)| (of.to_owned(), SyncState::NotSent)).into(),
                ..Self::default()
            });
            row.zone = table::text(&stream["cluster_id"]);
            row.instance = table::text(&stream["instance"]);
            row.version = table::text(&stream["proxy_version"]);
            for (type_url, seen) in stream["resources"].as_object().into_iter().flatten() {
                let state = state_of(seen);
                if state != SyncState::NotSent {
                    row.states.insert(short(type_url).to_owned(), state);
                }
            }
        }
        rows.into_values().collect()
    }

    /// A proxy as its insight tells about it: what the newest of its streams that are open says that was sent anything of
    /// a type; `None` when it is not connected.
    pub(super) fn of_overview(overview: &Value, member: &str) -> Option<Self> {
        let insight = &overview[format!("{member}Insight")];
        let is_open = |stream: &&Value| !stream["disconnectTime"].is_string();
        // The newest first: who has a stream for each type, or is just moving between replicas, has several.
        let open: Vec<&Value> = insight["subscriptions"].as_array()?.iter().rev().filter(is_open).collect();
        let last = *open.first()?;
        let refused = &insight["metadata"]["strait"]["rejections"];
        let counted = [("cds", 0), ("lds", 1), ("eds", 2), ("rds", 3)];
        let state = |(count, at): (&str, usize)| {
            let of = TYPES[at].1;
            let state = match refused[of].as_str() {
                Some(reason) => SyncState::Error(reason.to_owned()),
                None => {
                    let mut states = open.iter().map(|stream| counted_state(&stream["status"][count]));
                    states.find(|state| *state != SyncState::NotSent).unwrap_or(SyncState::NotSent)
                }
            };
            (of.to_owned(), state)
        };
        let mut states: BTreeMap<String, SyncState> = counted.map(state).into();
        // What is counted for none of these is told when it is refused.
        for (of, reason) in refused.as_object().into_iter().flatten() {
            let reason = reason.as_str().unwrap_or_default().to_owned();
            states.entry(of.clone()).or_insert(SyncState::Error(reason));
        }
        let mesh = overview["mesh"].as_str().unwrap_or_default();
        let zone = overview["labels"][labels::ZONE].as_str().or_else(|| overview[member]["zone"].as_str());
        Some(Self {
            name: format!("{mesh}.{}", table::text(&overview["name"])),
            zone: zone.unwrap_or("-").to_owned(),
            instance: table::text(&last["controlPlaneInstanceId"]),
            version: table::text(&last["version"]["envoy"]["version"]),
            states,
        })
    }

    fn state(&self, of: &str) -> SyncState {
        self.states.get(of).cloned().unwrap_or_default()
    }

    pub(super) fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.name.clone(), self.zone.clone()];
        cells.extend(TYPES.map(|(_, of)| self.state(of).to_string()));
        cells.extend([self.instance.clone(), self.version.clone()]);
        cells
    }

    pub(super) fn document(&self) -> Value {
        let states = self.states.iter().map(|(of, state)| {
            let mut shown = json!({ "state": state.to_string() });
            if let SyncState::Error(reason) = state {
                shown["error"] = reason.as_str().into();
            }
            (of.clone(), shown)
        });
        let states: Map<String, Value> = states.collect();
        json!({
            "name": self.name, "zone": self.zone, "instance": self.instance, "version": self.version, "types": states,
        })
    }

    /// What it refuses, and what that means.
    pub(super) fn notes(&self) -> Vec<String> {
        let refused = self.states.iter().filter_map(|(of, state)| match state {
            SyncState::Error(reason) => Some((of, reason)),
            _ => None,
        });
        let note = |(of, reason): (&String, &String)| {
            format!(
                "{}: it refused its {of} and keeps what it had; correct the cause and it is taken at the next attempt: {}",
                self.name,
                reason.trim()
            )
        };
        refused.map(note).collect()
    }
}

fn short(type_url: &str) -> &str {
    type_url.rsplit('.').next().unwrap_or(type_url)
}

fn state_of(seen: &Value) -> SyncState {
    let text = |member: &str| seen[member].as_str().unwrap_or_default();
    match (text("lastError"), text("sent"), text("acked")) {
        ("", "", _) => SyncState::NotSent,
        ("", sent, acked) if sent == acked => SyncState::Synced,
        ("", _, _) => SyncState::Stale,
        (reason, _, _) => SyncState::Error(reason.to_owned()),
    }
}

fn counted_state(counts: &Value) -> SyncState {
    let count = |member: &str| {
        let count = &counts[member];
        count.as_u64().or_else(|| count.as_str()?.parse().ok()).unwrap_or_default()
    };
    match (count("responsesSent"), count("responsesAcknowledged") + count("responsesRejected")) {
        (0, _) => SyncState::NotSent,
        (sent, answered) if answered < sent => SyncState::Stale,
        _ => SyncState::Synced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn type_url(of: &str) -> String {
        format!("type.googleapis.com/envoy.config.x.v3.{of}")
    }

    #[test]
    fn a_row_is_what_the_newest_stream_says_that_was_sent_anything() {
        let seen = |sent: &str, acked: &str, error: &str| json!({ "sent": sent, "acked": acked, "lastError": error });
        let stream = |resources: Value| {
            json!({
                "proxy": "default.web-1", "cluster_id": "east", "instance": "cp-1", "proxy_version": "1.40.0",
                "resources": resources,
            })
        };
        let streams = [
            stream(
                json!({ (type_url("Cluster")): seen("1", "1", ""), (type_url("Listener")): seen("2", "", "") }),
            ),
            stream(json!({
                (type_url("Listener")): seen("", "", ""),
                (type_url("RouteConfiguration")): seen("4", "3", "no such cluster"),
            })),
        ];
        let rows = ProxyStatusRow::of_streams(&streams);
        assert_eq!(rows.len(), 1);
        let expected =
            ["default.web-1", "east", "SYNCED", "STALE", "NOT SENT", "ERROR", "NOT SENT", "cp-1", "1.40.0"];
        assert_eq!(rows[0].cells(), expected);
        assert!(
            rows[0].notes()[0].contains("RouteConfiguration")
                && rows[0].notes()[0].contains("no such cluster")
        );
        assert_eq!(rows[0].document()["types"]["RouteConfiguration"]["error"], "no such cluster");
    }

    #[test]
    fn global_tells_what_insights_count() {
        let count = |sent: u64, taken: u64, refused: u64| {
            json!({
                "responsesSent": sent.to_string(), "responsesAcknowledged": taken.to_string(),
                "responsesRejected": refused.to_string(),
            })
        };
        let subscription = json!({
            "controlPlaneInstanceId": "cp-1", "version": { "envoy": { "version": "1.40.0" } },
            "status": { "cds": count(2, 2, 0), "lds": count(2, 1, 1), "eds": count(1, 0, 0), "rds": {} },
        });
        let mut overview = json!({
            "mesh": "default", "name": "web-1-abc", "labels": { (labels::ZONE): "east" },
            "dataplaneInsight": {
                "subscriptions": [subscription],
                "metadata": { "strait": { "rejections": { "Listener": "cannot bind" } } },
            },
        });
        let row = ProxyStatusRow::of_overview(&overview, "dataplane");
        let expected =
            ["default.web-1-abc", "east", "SYNCED", "ERROR", "STALE", "NOT SENT", "-", "cp-1", "1.40.0"];
        assert_eq!(row.map(|row| row.cells()), Some(expected.map(str::to_owned).to_vec()));
        // A newer stream for one type alone says nothing about the others; one that ended says nothing at all.
        let newer = |status: Value| {
            let mut newer = overview["dataplaneInsight"]["subscriptions"][0].clone();
            (newer["controlPlaneInstanceId"], newer["status"]) = ("cp-2".into(), status);
            newer
        };
        let eds = newer(json!({ "eds": count(2, 2, 0) }));
        let mut ended = newer(json!({ "cds": count(2, 1, 0) }));
        ended["disconnectTime"] = "2026-01-01T00:00:00Z".into();
        let mut several = overview.clone();
        several["dataplaneInsight"]["subscriptions"].as_array_mut().unwrap().extend([eds, ended]);
        let row = ProxyStatusRow::of_overview(&several, "dataplane");
        let expected =
            ["default.web-1-abc", "east", "SYNCED", "ERROR", "SYNCED", "NOT SENT", "-", "cp-2", "1.40.0"];
        assert_eq!(row.map(|row| row.cells()), Some(expected.map(str::to_owned).to_vec()));
        overview["dataplaneInsight"]["subscriptions"][0]["disconnectTime"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(ProxyStatusRow::of_overview(&overview, "dataplane"), None, "it is not connected");
    }
}
