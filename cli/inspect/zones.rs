//! Zones: reachable or not since when, and how far each direction of sync has come.

use serde_json::Value;

use super::RowTrouble;
use crate::table;

/// What stands over the rows of zones.
pub(crate) const ZONE_HEADINGS: [&str; 12] = [
    "NAME",
    "STATUS",
    "SINCE",
    "VERSION",
    "DOWN REV",
    "DOWN LAG",
    "UP REV",
    "UP LAG",
    "DATAPLANES",
    "CLOCK",
    "CREDENTIAL",
    "NOTES",
];

/// The table, then what else to know about them on standard error.
pub(super) fn print(items: &[Value]) {
    let zones: Vec<ZoneOverview> = items.iter().map(ZoneOverview::of).collect();
    let notes: Vec<String> = zones.iter().flat_map(ZoneOverview::notes).collect();
    table::print(&ZONE_HEADINGS, zones.into_iter().map(ZoneOverview::row).collect());
    for note in notes {
        crate::output::note!("{note}");
    }
}

/// One zone as its overview shows it.
pub(crate) struct ZoneOverview {
    item: Value,
}

impl ZoneOverview {
    pub(crate) fn of(item: &Value) -> Self {
        Self { item: item.clone() }
    }

    pub(crate) fn name(&self) -> &str {
        self.item["name"].as_str().unwrap_or_default()
    }

    fn subscriptions(&self) -> &[Value] {
        self.item["zoneInsight"]["subscriptions"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The subscription that is open.
    fn open(&self) -> Option<&Value> {
        self.subscriptions().iter().find(|s| s["connectTime"].is_string() && !s["disconnectTime"].is_string())
    }

    /// Its status as the server says it; a server that says none shows it by its subscriptions.
    pub(crate) fn status(&self) -> &str {
        if self.item["zone"]["enabled"] == Value::Bool(false) {
            return "disabled";
        }
        match self.item["strait"]["status"].as_str() {
            Some(status) => status,
            None if self.open().is_some() => "online",
            None => "offline",
        }
    }

    fn since(&self) -> String {
        let strait = &self.item["strait"]["since"];
        if strait.is_string() {
            return table::age(strait);
        }
        match (self.open(), self.subscriptions().last()) {
            (Some(open), _) => table::age(&open["connectTime"]),
            (None, Some(last)) => table::age(&last["disconnectTime"]),
            (None, None) => "-".to_owned(),
        }
    }

    fn version(&self) -> String {
        let strait = table::text(&self.item["strait"]["version"]);
        if strait != "-" {
            return strait;
        }
        let last = self.open().or_else(|| self.subscriptions().last());
        last.map_or_else(|| "-".to_owned(), |s| table::text(&s["version"]["kumaCp"]["version"]))
    }

    fn notes(&self) -> Vec<String> {
        let notes = self.item["strait"]["notes"].as_array().into_iter().flatten();
        let notes = notes.filter_map(|note| Some(format!("{}: {}", self.name(), note.as_str()?)));
        let held_back = self.item["strait"]["heldBack"].as_str();
        let held_back = held_back.map(|reason| format!("{}: does not follow: {reason}", self.name()));
        let protocol = self.item["strait"]["protocol"].as_str();
        let protocol = protocol.map(|protocol| format!("{}: syncs by {protocol}", self.name()));
        held_back.into_iter().chain(protocol).chain(notes).collect()
    }

    /// How bad it is.
    pub(crate) fn trouble(&self) -> RowTrouble {
        match self.status() {
            "online" if self.notes().is_empty() => RowTrouble::None,
            "online" => RowTrouble::Noted,
            _ => RowTrouble::Away,
        }
    }

    pub(crate) fn row(self) -> Vec<String> {
        let strait = &self.item["strait"];
        let mut row = vec![self.name().to_owned(), self.status().to_owned(), self.since(), self.version()];
        for direction in ["down", "up"] {
            row.extend([table::text(&strait[direction]["acked"]), table::text(&strait[direction]["lag"])]);
        }
        row.push(table::text(&strait["dataplanes"]));
        row.push(clock(&strait["clock"]));
        row.push(credential(&strait["credential"]));
        // The texts follow the table; this tells which of many zones they are about.
        let notes = self.notes().len();
        row.push(if notes == 0 { "-".to_owned() } else { notes.to_string() });
        row
    }
}

/// How far the clock of a zone is ahead of that of global, and how wrong that may be.
fn clock(clock: &Value) -> String {
    match (clock["aheadMs"].as_i64(), clock["errorMs"].as_u64()) {
        (Some(ahead), Some(error)) => format!("{ahead:+}ms ±{error}"),
        _ => "-".to_owned(),
    }
}

/// How the zone proved who it is, and how much longer that is good.
fn credential(shown: &Value) -> String {
    let kind = table::text(&shown["kind"]);
    match table::left(&shown["until"]).as_str() {
        "-" => kind,
        left => format!("{kind}, {left}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn notes_are_counted_in_the_table_and_told_with_the_name_of_the_zone() {
        let zone = ZoneOverview::of(&json!({ "name": "z", "strait": { "notes": ["a", "b"] } }));
        assert_eq!(zone.notes(), ["z: a", "z: b"]);
        let waits = ZoneOverview::of(&json!({ "name": "z", "strait": { "heldBack": "lost" } }));
        assert_eq!(waits.notes(), ["z: does not follow: lost"]);
        let old = ZoneOverview::of(&json!({ "name": "z", "strait": { "protocol": "KDS v1" } }));
        assert_eq!(old.notes(), ["z: syncs by KDS v1"]);
        assert_eq!(zone.row().last().map(String::as_str), Some("2"));
        assert_eq!(ZoneOverview::of(&json!({})).row().last().map(String::as_str), Some("-"));
    }

    #[test]
    fn a_clock_is_shown_with_how_wrong_that_may_be() {
        let shown = |skew: Value| clock(&skew);
        assert_eq!(shown(json!({ "aheadMs": -7200, "errorMs": 3 })), "-7200ms ±3");
        assert_eq!(shown(json!({ "aheadMs": 2, "errorMs": 1 })), "+2ms ±1");
        assert_eq!(shown(Value::Null), "-");
    }

    #[test]
    fn a_credential_is_shown_with_what_is_left_of_it() {
        assert_eq!(credential(&json!({ "kind": "token" })), "token");
        assert_eq!(credential(&json!({ "kind": "token", "until": "2001-01-01T00:00:00Z" })), "token, 0s");
        let far = credential(&json!({ "kind": "certificate", "until": "2826-01-01T00:00:00Z" }));
        assert!(far.starts_with("certificate, ") && far.ends_with('y'), "{far}");
        assert_eq!(credential(&Value::Null), "-");
    }

    #[test]
    fn the_status_of_a_zone_comes_from_strait_or_from_subscriptions() {
        let check =
            |item: Value, status: &str| assert_eq!(ZoneOverview::of(&item).status(), status, "{item}");
        check(json!({ "strait": { "status": "unknown" } }), "unknown");
        check(json!({ "zone": { "enabled": false }, "strait": { "status": "online" } }), "disabled");
        let connected = json!([{ "connectTime": "2026-01-01T00:00:00Z" }]);
        check(json!({ "zoneInsight": { "subscriptions": connected } }), "online");
        check(json!({}), "offline");
    }
}
