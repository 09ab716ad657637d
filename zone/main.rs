//! The process `strait-zone`.

use std::process::ExitCode;

use clap::Command;
use common::runtime::process;
use zone::{app, config::ZoneConfig};

fn main() -> ExitCode {
    let command = Command::new("strait-zone").version(env!("CARGO_PKG_VERSION")).about(app::ABOUT);
    process::main(command, |config: &ZoneConfig| &config.logging, app::run)
}
