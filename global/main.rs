//! The process `strait-global`.

use std::process::ExitCode;

use clap::Command;
use common::runtime::process;
use global::{app, config::GlobalConfig};

fn main() -> ExitCode {
    let command = Command::new("strait-global").version(env!("CARGO_PKG_VERSION")).about(app::ABOUT);
    process::main(command, |config: &GlobalConfig| &config.logging, app::run)
}
