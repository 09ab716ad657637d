//! Rollouts that wait for somebody.

use serde_json::Value;

use super::CheckLine;
use crate::ages;

const ABOUT: &str = "rollouts";

/// Of all runs, as `GET /rollout-insights` lists them. Nothing where there is none on its way.
pub fn of(runs: &[Value]) -> Vec<CheckLine> {
    runs.iter().filter_map(of_one).collect()
}

fn of_one(run: &Value) -> Option<CheckLine> {
    let (name, spec) = (ages::text(&run["name"]), &run["spec"]);
    let wave = spec["wave"].as_u64().unwrap_or_default() + 1;
    let waves = spec["waves"].as_array().map(Vec::len).unwrap_or_default();
    match spec["state"].as_str()? {
        "halted" => {
            let reasons = spec["reasons"].as_array().into_iter().flatten();
            let reasons: Vec<String> = reasons.map(|reason| ages::text(&reason["text"])).collect();
            let found = format!("rollout {name} is halted at wave {wave} of {waves}: {}", reasons.join("; "));
            Some(CheckLine::warning(ABOUT, found).but(format!(
                "`straitctl rollout resume {name}` goes on, `straitctl rollout abort {name}` brings everybody back"
            )))
        }
        state @ ("running" | "paused") => {
            Some(CheckLine::ok(ABOUT, format!("rollout {name} is {state} at wave {wave} of {waves}")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::CheckVerdict;

    #[test]
    fn only_a_halted_one_is_worth_a_warning() {
        let run = |state: &str| {
            json!({ "name": "canary", "spec": { "state": state, "wave": 0, "waves": [{}, {}],
                "reasons": [{ "text": "zone-1 is lost" }] } })
        };
        let runs = ["halted", "paused", "running", "finished", "aborted"].map(run);
        let found = of(&runs);
        let verdicts: Vec<CheckVerdict> = found.iter().map(|line| line.verdict).collect();
        assert_eq!(verdicts, [CheckVerdict::Warning, CheckVerdict::Ok, CheckVerdict::Ok]);
        assert_eq!(found[0].found, "rollout canary is halted at wave 1 of 2: zone-1 is lost");
    }
}
