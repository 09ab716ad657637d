//! In which order zones get a change, what stops it, and which changes may go no other way. Kept and used by global alone.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::model::{Duration, FieldPath, Kind, Spec, SpecError, Violations, decode};

/// The descriptor.
pub static KIND: Kind =
    Kind::json("Rollout", "rollouts").global().flow(16).named("rollout", "").typed::<Rollout>();

/// Waves of one rollout that are written down; the one in which everybody is comes after them.
const WAVES: usize = 50;
/// Names, labels, queries or demands in one list.
const MOST: usize = 1_000;
/// Pairs of a type and a mesh, of all demands together: each of them is judged when they are written.
const MOST_PAIRS: usize = 5_000;
/// Bytes of a query.
const LONGEST_QUERY: usize = 4_096;
/// How often a query is asked unless somebody says it.
const ASKED_EVERY: Duration = Duration::from_secs(30);
/// And at most.
const SHORTEST: Duration = Duration::from_secs(1);
/// The pause that somebody has to end.
const MANUAL: &str = "manual";

/// How changes go out in waves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rollout {
    /// One after the other. Whoever is in none of them comes last.
    #[serde(default, deserialize_with = "decode::list")]
    pub waves: Vec<RolloutWave>,
    /// What stops it.
    #[serde(default, deserialize_with = "decode::conf")]
    pub halt_on: HaltConditions,
    /// What may go out by this rollout only.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub required_for: Vec<RolloutDemand>,
}

/// Zones that get a change together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RolloutWave {
    /// Which; of those that are in no wave before.
    pub zones: WaveZones,
    /// How long the next wave waits when all of them have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<WavePause>,
}

/// Which zones: in one of three ways.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WaveZones {
    /// By name.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// By labels of the Zone; all of them.
    #[serde(
        default,
        deserialize_with = "decode::value_or_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub labels: BTreeMap<String, String>,
    /// So many of a hundred, of all zones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<u8>,
}

/// How long a wave rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WavePause {
    /// Until somebody goes on.
    Manual,
    /// For so long.
    For(Duration),
}

impl fmt::Display for WavePause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manual => f.write_str(MANUAL),
            Self::For(duration) => duration.fmt(f),
        }
    }
}

impl Serialize for WavePause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for WavePause {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == MANUAL {
            return Ok(Self::Manual);
        }
        Duration::from_str(&text).map(Self::For).map_err(|_| {
            de::Error::custom(format!("{text:?} is neither {MANUAL} nor a duration such as 10m"))
        })
    }
}

/// What stops a rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HaltConditions {
    /// A zone that has the change refuses some of it.
    pub zone_refuses: bool,
    /// An Envoy there refuses what it gets since.
    pub proxy_refuses: bool,
    /// A zone that has the change is lost.
    pub zone_lost: bool,
    /// A wave takes longer to get it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub converge: Option<Duration>,
    /// What a Prometheus says.
    #[serde(deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub queries: Vec<HaltQuery>,
}

impl Default for HaltConditions {
    fn default() -> Self {
        Self { zone_refuses: true, proxy_refuses: true, zone_lost: true, converge: None, queries: Vec::new() }
    }
}

/// A question to the Prometheus of the settings. Each sample of the answer is compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HaltQuery {
    /// The question.
    pub promql: String,
    /// It halts when a value is larger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<f64>,
    /// It halts when a value is smaller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<f64>,
    /// How often it is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Duration>,
}

impl HaltQuery {
    /// How often it is asked.
    pub fn every(&self) -> std::time::Duration {
        self.interval.unwrap_or(ASKED_EVERY).to_std()
    }
}

/// Resources whose changes go out by the rollout only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RolloutDemand {
    /// Of these types.
    pub kinds: Vec<String>,
    /// In these meshes; in all when there is none.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub meshes: Vec<String>,
}

impl Spec for Rollout {
    fn decode(spec: &[u8]) -> Result<Self, SpecError> {
        decode::spec(spec)
    }

    fn encode(&self) -> Vec<u8> {
        decode::encode(self)
    }

    fn validate(&self) -> Violations {
        let mut violations = Violations::none();
        let spec = FieldPath::new("spec");
        let waves = spec.field("waves");
        let too_many = |most: usize| format!("has more than {most} items");
        violations.check(self.waves.len() > WAVES, waves.clone(), too_many(WAVES));
        for (n, wave) in self.waves.iter().enumerate().take(WAVES) {
            wave.validate(&waves.index(n), &mut violations);
        }
        self.halt_on.validate(&spec.field("haltOn"), &mut violations);
        let demands = spec.field("requiredFor");
        violations.check(self.required_for.len() > MOST, demands.clone(), too_many(MOST));
        for (n, demand) in self.required_for.iter().enumerate().take(MOST) {
            let kinds = demands.index(n).field("kinds");
            violations.check(demand.kinds.is_empty(), kinds.clone(), "cannot be empty");
            violations.check(demand.kinds.len() > MOST, kinds, too_many(MOST));
            violations.check(demand.meshes.len() > MOST, demands.index(n).field("meshes"), too_many(MOST));
        }
        let pairs = self.required_for.iter().map(|demand| demand.kinds.len() * demand.meshes.len().max(1));
        let reason = format!("names more than {MOST_PAIRS} pairs of a type and a mesh");
        violations.check(pairs.sum::<usize>() > MOST_PAIRS, demands, reason);
        violations
    }
}

impl RolloutWave {
    fn validate(&self, at: &FieldPath, violations: &mut Violations) {
        let (field, zones) = (at.field("zones"), &self.zones);
        let ways = [!zones.names.is_empty(), !zones.labels.is_empty(), zones.share.is_some()];
        let is_one = ways.iter().filter(|is| **is).count() == 1;
        violations.check(!is_one, field.clone(), "must have exactly one of names, labels, share");
        let is_share = zones.share.is_none_or(|share| (1..=99).contains(&share));
        let reason = "must be between 1 and 99; the last wave is everybody and needs no word";
        violations.check(!is_share, field.field("share"), reason);
        violations.check(
            zones.names.len() > MOST,
            field.field("names"),
            format!("has more than {MOST} items: name them by labels or a share"),
        );
        for (n, name) in zones.names.iter().enumerate().take(MOST) {
            violations.check(name.is_empty(), field.field("names").index(n), "cannot be empty");
        }
        if let Some(WavePause::For(pause)) = self.pause {
            violations.check(pause.is_negative(), at.field("pause"), "must not be negative");
        }
    }
}

impl HaltConditions {
    fn validate(&self, at: &FieldPath, violations: &mut Violations) {
        if let Some(converge) = self.converge {
            let is_long = !converge.is_negative() && !converge.is_zero();
            violations.check(!is_long, at.field("converge"), "must be longer than zero");
        }
        let queries = at.field("queries");
        violations.check(self.queries.len() > 20, queries.clone(), "has more than 20 items");
        for (n, query) in self.queries.iter().enumerate().take(20) {
            let at = queries.index(n);
            violations.check(query.promql.trim().is_empty(), at.field("promql"), "cannot be empty");
            let is_long = query.promql.len() > LONGEST_QUERY;
            violations.check(is_long, at.field("promql"), format!("has more than {LONGEST_QUERY} bytes"));
            let has_none = query.above.is_none() && query.below.is_none();
            violations.check(has_none, at.clone(), "must have above or below: the value at which it halts");
            let is_often = query.interval.is_some_and(|interval| interval < SHORTEST);
            violations.check(is_often, at.field("interval"), format!("must be at least {SHORTEST}"));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn violations(spec: serde_json::Value) -> Vec<String> {
        let spec = Rollout::decode(spec.to_string().as_bytes()).map(|spec| spec.validate());
        match spec {
            Ok(violations) => violations.iter().map(|v| format!("{}: {}", v.field, v.reason)).collect(),
            Err(error) => vec![error.to_string()],
        }
    }

    #[test]
    fn what_is_written_down_is_read_back() {
        let spec = json!({
            "waves": [
                { "zones": { "names": ["zone-1"] }, "pause": "10m" },
                { "zones": { "labels": { "tier": "canary" } }, "pause": "manual" },
                { "zones": { "share": 25 } },
            ],
            "haltOn": { "zoneLost": false, "converge": "5m",
                "queries": [{ "promql": "sum(rate(errors[1m]))", "above": 0.5, "interval": "10s" }] },
            "requiredFor": [{ "kinds": ["MeshTimeout"], "meshes": ["default"] }],
        });
        assert_eq!(violations(spec.clone()), Vec::<String>::new());
        let read = Rollout::decode(spec.to_string().as_bytes()).unwrap();
        assert_eq!(read.waves[1].pause, Some(WavePause::Manual));
        assert!(read.halt_on.zone_refuses && read.halt_on.proxy_refuses && !read.halt_on.zone_lost);
        assert_eq!(Rollout::decode(&read.encode()).unwrap(), read);
    }

    #[test]
    fn each_field_says_what_is_wrong_with_it() {
        for (spec, expected) in [
            (json!({ "waves": [{ "zones": {} }] }), "spec.waves[0].zones: must have exactly one of"),
            (
                json!({ "waves": [{ "zones": { "names": ["a"], "share": 5 } }] }),
                "spec.waves[0].zones: must have exactly one of",
            ),
            (
                json!({ "waves": [{ "zones": { "share": 100 } }] }),
                "spec.waves[0].zones.share: must be between",
            ),
            (json!({ "waves": [{ "zones": { "names": [""] } }] }), "spec.waves[0].zones.names[0]: cannot be"),
            (json!({ "waves": [{ "zones": { "share": 5 }, "pause": "soon" }] }), "spec.waves[0].pause"),
            (
                json!({ "waves": [{ "zones": { "share": 5 }, "pause": "-1s" }] }),
                "spec.waves[0].pause: must not",
            ),
            (json!({ "haltOn": { "converge": "0s" } }), "spec.haltOn.converge: must be longer"),
            (
                json!({ "haltOn": { "queries": [{ "promql": "up" }] } }),
                "spec.haltOn.queries[0]: must have above",
            ),
            (
                json!({ "haltOn": { "queries": [{ "promql": "up", "below": 1, "interval": "1ms" }] } }),
                "spec.haltOn.queries[0].interval: must be at least",
            ),
            (json!({ "requiredFor": [{ "kinds": [] }] }), "spec.requiredFor[0].kinds: cannot be empty"),
        ] {
            let found = violations(spec.clone());
            assert!(found.iter().any(|v| v.contains(expected)), "{spec}: {found:?}");
        }
    }
}
