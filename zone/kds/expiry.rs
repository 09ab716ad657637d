//! Tells of what this zone shows before it runs out: in the status, as a metric, and in the log once a day.

use std::{convert::Infallible, time::Duration};

use tokio::time::sleep;

use super::{
    credentials::{ShownCredential, ShownTo},
    link::Link,
};

/// How often an operator is warned.
const WARN_EVERY: Duration = Duration::from_secs(24 * 3600);
/// How often what is shown is looked at: certificates of meshes are replaced while a connection lives.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Keeps the status of `link` up to date with what `look` finds, and warns once a day of what runs out.
pub(super) async fn watch(link: &Link, look: impl Fn() -> Vec<ShownCredential>) -> Infallible {
    loop {
        note(link, look());
        sleep(LOOK_EVERY).await;
    }
}

/// Takes over what is shown, and warns of what runs out, unless that was done a short time ago.
pub(super) fn note(link: &Link, shown: Vec<ShownCredential>) {
    for (word, to) in [("global", ShownTo::Global), ("workloads", ShownTo::Workloads)] {
        let until = shown.iter().filter(|one| one.to == to).filter_map(|one| one.credential.until).min();
        // Seconds of a century fit into a float.
        let until = until.map_or(f64::INFINITY, |until| until.timestamp() as f64);
        metrics::gauge!("credential_expires_seconds", "shown_to" => word).set(until);
    }
    let now = link.time();
    let warnings: Vec<String> = shown.iter().filter_map(|one| one.warning(now)).collect();
    link.shows(shown, &warnings);
    if !warnings.is_empty() && link.warns(WARN_EVERY) {
        let warnings = warnings.join("; ");
        tracing::warn!(warnings, "what this zone shows runs out");
    }
}
