//! The process `strait-zone`.

use std::process::ExitCode;

use clap::Command;
use common::control_plane::process::{self, Sections};
use zone::{app, config::ZoneConfig};

fn main() -> ExitCode {
    let command = Command::new("strait-zone").version(env!("CARGO_PKG_VERSION")).about(app::ABOUT);
    process::main(command, sections, app::run)
}

fn sections(config: &ZoneConfig) -> Sections<'_> {
    Sections { logging: &config.logging, general: &config.general, store: &config.store }
}
