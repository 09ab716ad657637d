//! The process `strait-global`.

use std::process::ExitCode;

use clap::Command;
use common::control_plane::process::{self, Sections};
use global::{app, config::GlobalConfig};

fn main() -> ExitCode {
    let command = Command::new("strait-global").version(env!("CARGO_PKG_VERSION")).about(app::ABOUT);
    process::main(command, sections, app::run)
}

fn sections(config: &GlobalConfig) -> Sections<'_> {
    Sections { logging: &config.logging, general: &config.general, store: &config.store }
}
