//! `straitctl version`.

use serde_json::Value;

use crate::{
    client::{self, ApiClient},
    output, table,
};

/// Prints both versions. A control plane that does not answer is worth a warning only.
pub(crate) async fn print(connect: impl Fn() -> anyhow::Result<ApiClient>) -> anyhow::Result<()> {
    output::line(concat!("straitctl ", env!("CARGO_PKG_VERSION")));
    let index = async { connect()?.get::<Value>("/").await };
    match index.await {
        Ok(index) => {
            output::line(&server(&index));
            for warning in client::warnings(&index) {
                crate::output::note!("warning: {warning}");
            }
        }
        Err(error) => {
            crate::output::note!("warning: the version of the control plane is not known: {error:#}")
        }
    }
    Ok(())
}

fn server(index: &Value) -> String {
    let api = format!("{} {}", table::text(&index["product"]), table::text(&index["version"]));
    let strait = &index["strait"];
    match (strait["mode"].as_str(), strait["zone"].as_str().filter(|zone| !zone.is_empty())) {
        (None, _) => format!("control plane {api}"),
        (Some(mode), None) => format!("strait-{mode} {}, API of {api}", table::text(&strait["version"])),
        (Some(mode), Some(zone)) => {
            format!("strait-{mode} {} of zone {zone}, API of {api}", table::text(&strait["version"]))
        }
    }
}
