//! The process itself: its version, its settings, its store.

use common::checks::CheckLine;
use reqwest::Method;
use serde_json::Value;

use crate::{
    client::{ApiClient, warnings},
    table,
};

const ABOUT: &str = "control plane";

/// `index` is what it says about itself.
pub(super) async fn look(client: &ApiClient, index: &Value) -> Vec<CheckLine> {
    let mut findings = vec![version(index)];
    findings.extend(warnings(index).into_iter().map(|warning| CheckLine::warning(ABOUT, warning)));
    findings.push(identity(client).await);
    findings.extend(history(client, index).await);
    findings
}

fn version(index: &Value) -> CheckLine {
    let here = env!("CARGO_PKG_VERSION");
    let strait = &index["strait"];
    let (Some(there), Some(mode)) = (strait["version"].as_str(), strait["mode"].as_str()) else {
        let (product, version) = (table::text(&index["product"]), table::text(&index["version"]));
        return CheckLine::warning(ABOUT, format!("{product} {version} answers, of which less is known"));
    };
    let found = format!("strait-{mode} {there} answers as instance {}", table::text(&index["instanceId"]));
    if there == here {
        CheckLine::ok(ABOUT, found)
    } else {
        CheckLine::warning(ABOUT, format!("{found}, and this straitctl is {here}"))
            .but("use the straitctl that came with the control plane")
    }
}

/// For whom the checks are made: who sees little finds little.
async fn identity(client: &ApiClient) -> CheckLine {
    let Ok(who) = client.get::<Value>("/who-am-i").await else {
        return CheckLine::warning(ABOUT, "it does not say for whom it takes the caller");
    };
    let name = table::text(&who["name"]);
    let groups = who["groups"].as_array().into_iter().flatten();
    if groups.filter_map(Value::as_str).any(|group| group == "mesh-system:admin") {
        return CheckLine::ok(ABOUT, format!("asked as {name}, who may see everything"));
    }
    CheckLine::warning(ABOUT, format!("asked as {name}, who may not see everything, so that less is checked"))
        .but("show the token of an administrator: --token, or --work-dir on the machine of the control plane")
}

/// Whether zones follow the history that global shows.
async fn history(client: &ApiClient, index: &Value) -> Option<CheckLine> {
    if index["strait"]["mode"] != "global" {
        return None;
    }
    let answer = client.send(Method::GET, "/strait/epoch", None).await.ok()?.success().ok()?;
    let epoch: Value = answer.json().ok()?;
    let held: Vec<&String> =
        epoch["heldBack"].as_object().into_iter().flat_map(|zones| zones.keys()).collect();
    let shown = format!("epoch {}, revision {}", epoch["epoch"], epoch["revision"]);
    Some(match held.as_slice() {
        [] => CheckLine::ok(ABOUT, format!("zones follow its history: {shown}")),
        zones => {
            let zones: Vec<&str> = zones.iter().map(|zone| zone.as_str()).collect();
            CheckLine::failure(ABOUT, format!("{} do not follow its history: {shown}", zones.join(", "))).but(
                "after a restore or a loss: `straitctl global recover` shows what zones still have; \
                 `straitctl epoch raise` goes on without",
            )
        }
    })
}
