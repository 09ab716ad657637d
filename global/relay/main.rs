//! The process `strait-relay`.

use std::process::ExitCode;

use clap::Command;
use common::control_plane::process::{self, Sections};
use global::relay::{app, config::RelayConfig};

fn main() -> ExitCode {
    let command = Command::new("strait-relay").version(env!("CARGO_PKG_VERSION")).about(app::ABOUT);
    process::main(command, sections, app::run)
}

fn sections(config: &RelayConfig) -> Sections<'_> {
    Sections { logging: &config.logging, general: &config.general, store: &config.store }
}
