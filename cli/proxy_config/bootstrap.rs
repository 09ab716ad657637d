//! What a proxy was started with.

use serde_json::Value;

use super::{ConfigTable, or_dash};
use crate::proxy::{ProxyDump, text};

/// The bootstrap, and in short the versions in it.
pub(super) fn shown(dump: &ProxyDump) -> ConfigTable {
    let headings = vec!["NODE", "CLUSTER", "ENVOY", "AGENT"];
    let Some(bootstrap) = &dump.bootstrap else {
        return ConfigTable { headings, rows: Vec::new(), document: Value::Null };
    };
    let node = &bootstrap["node"];
    let version = &node["userAgentBuildVersion"]["version"];
    let number = |member: &str| version[member].as_u64().unwrap_or_default();
    let envoy = match version.is_object() {
        true => format!("{}.{}.{}", number("majorNumber"), number("minorNumber"), number("patch")),
        false => text(&node["userAgentVersion"]).to_owned(),
    };
    let agent = text(&node["metadata"]["version"]["kumaDp"]["version"]);
    let row = vec![text(&node["id"]), text(&node["cluster"]), &envoy, agent];
    let rows = vec![row.into_iter().map(or_dash).collect()];
    ConfigTable { headings, rows, document: bootstrap.clone() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn versions_are_read_from_the_node() {
        let version = json!({ "version": { "major_number": 1, "minor_number": 40, "patch": 0 } });
        let node = json!({ "id": "default.web-1", "cluster": "web", "user_agent_build_version": version });
        let dump = json!({ "configs": [{
            "@type": "x/envoy.admin.v3.BootstrapConfigDump", "bootstrap": { "node": node },
        }] });
        let read = shown(&ProxyDump::of_envoy(&dump).unwrap());
        assert_eq!(read.rows, [["default.web-1", "web", "1.40.0", "-"]]);
        assert_eq!(read.document["node"]["id"], "default.web-1");
    }
}
