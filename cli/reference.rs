//! `docs/reference/cli.md`: every command with its options, as clap has them.

use std::fmt::Write;

use clap::{Arg, ArgAction, Command, CommandFactory};
use common::{
    control_plane::process,
    testing::reference::{assert_current, cell},
};

use crate::Cli;

/// Writes a command and those below it.
fn describe(page: &mut String, command: &Command, path: &str, depth: usize) {
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let heading = "#".repeat(depth.min(4));
    let _fits = writeln!(page, "\n{heading} {path}\n\n{}", prose(&about));
    if let Some(after) = command.get_after_help() {
        let _fits = writeln!(page, "\n```text\n{after}\n```");
    }
    let aliases: Vec<String> = command.get_all_aliases().map(|alias| format!("`{alias}`")).collect();
    if !aliases.is_empty() {
        let _fits = writeln!(page, "\nAlso {}.", aliases.join(", "));
    }
    if !command.has_subcommands() || command.get_arguments().any(|arg| own(arg, depth)) {
        let usage = command.clone().bin_name(path).render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").replace("\n       ", "\n");
        let _fits = writeln!(page, "\n```text\n{usage}\n```");
    }
    let rows: Vec<String> = command.get_arguments().filter(|arg| own(arg, depth)).map(row).collect();
    if !rows.is_empty() {
        let head = "| argument | default | variable | meaning |\n| --- | --- | --- | --- |";
        let _fits = writeln!(page, "\n{head}\n{}", rows.join("\n"));
    }
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
    {
        describe(page, below, &format!("{path} {}", below.get_name()), depth + 1);
    }
}

/// Whether it is told of here: what every command has stands at the top, settings have a page.
fn own(arg: &Arg, depth: usize) -> bool {
    let is_everywhere =
        matches!(arg.get_action(), ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong);
    let is_told = depth > 2 && arg.is_global_set();
    !is_everywhere && !is_told && !arg.is_hide_set() && !is_setting(arg)
}

/// Flags of servers whose names are paths in their file.
fn is_setting(arg: &Arg) -> bool {
    let of_servers = ["mode", "resources"];
    let is_flag = |long: &str| long.contains('.') || of_servers.contains(&long);
    arg.get_help().is_some_and(|help| help.to_string().contains("[env STRAIT_"))
        && arg.get_long().is_some_and(is_flag)
}

fn row(arg: &Arg) -> String {
    let takes_value = arg.get_action().takes_values();
    let value = arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect::<Vec<_>>();
    let value = if value.is_empty() { arg.get_id().to_string().to_uppercase() } else { value.join(" ") };
    let name = match (arg.get_short(), arg.get_long()) {
        (None, None) => format!("<{value}>"),
        (short, long) => {
            let names = short
                .map(|short| format!("-{short}"))
                .into_iter()
                .chain(long.map(|long| format!("--{long}")));
            let names = names.collect::<Vec<_>>().join(", ");
            if takes_value { format!("{names} <{value}>") } else { names }
        }
    };
    let defaults = arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned());
    let defaults = if takes_value { defaults.collect::<Vec<_>>().join(",") } else { String::new() };
    let default = if defaults.is_empty() { defaults } else { format!("`{defaults}`") };
    let variable = arg.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
    let mut help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let possible = arg.get_possible_values();
    if takes_value && !possible.is_empty() {
        let names = possible
            .iter()
            .filter(|value| !value.is_hide_set())
            .map(|value| format!("`{}`", value.get_name()));
        help = format!("{help}: {}", names.collect::<Vec<_>>().join(", "));
    }
    let required = if arg.is_required_set() { " (needed)" } else { "" };
    format!(
        "| `{}`{required} | {} | {variable} | {} |",
        name.replace('|', "\\|"),
        cell(&default),
        cell(&help)
    )
}

/// What clap prints as it is, with the marks Markdown would read taken out of the way.
fn prose(text: &str) -> String {
    text.replace('<', "\\<")
}

fn server<C: common::config::Config>(page: &mut String, name: &'static str, about: &'static str) {
    let command = process::command::<C>(Command::new(name).about(about));
    describe(page, &command, name, 2);
}

#[test]
fn the_page_of_commands_says_what_there_is() {
    let mut page = "# Commands\n\n\
        Made from what the programs say of themselves; `UPDATE_REFERENCES=1 cargo test --bin straitctl reference` writes \
        it anew. `straitctl man FOLDER` writes the same as manual pages, `straitctl completions SHELL` what lets a shell \
        complete it. The servers take every [setting](settings.md) as a flag.\n"
        .to_owned();
    describe(&mut page, &Cli::command(), "straitctl", 2);
    server::<global::config::GlobalConfig>(&mut page, "strait-global", global::app::ABOUT);
    server::<zone::config::ZoneConfig>(&mut page, "strait-zone", zone::app::ABOUT);
    server::<global::relay::config::RelayConfig>(&mut page, "strait-relay", global::relay::app::ABOUT);
    assert_current("docs/reference/cli.md", &page);
}
