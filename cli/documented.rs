//! The commands on the pages are commands of this program.

use std::path::Path;

use clap::{
    CommandFactory,
    error::{ContextKind, ContextValue, ErrorKind},
};
use common::testing::{
    markdown,
    shell::{self, ShellCommand},
};

use crate::Cli;

/// The arguments after the name of this program, where that is called.
fn own(command: &ShellCommand) -> Option<&[String]> {
    let start = command.words.iter().position(|word| word == "straitctl")?;
    Some(&command.words[start..])
}

/// Why these are no arguments of this program. Where some are left out, nothing can be missing.
fn problem(words: &[String], is_abridged: bool) -> Option<String> {
    let error = Cli::command().try_get_matches_from(words).err()?;
    let lacks_value = || {
        let given = error.get(ContextKind::InvalidValue);
        matches!(given, Some(ContextValue::String(value)) if value.is_empty())
    };
    let is_incomplete = match error.kind() {
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => true,
        ErrorKind::InvalidValue => lacks_value(),
        _ => false,
    };
    let is_answered = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    (!(is_answered || is_abridged && is_incomplete)).then(|| error.to_string())
}

/// With a word in the place for one: `<zone>` is no file.
fn filled(code: &str) -> String {
    let places = code.split('<').enumerate().map(|(number, part)| match part.split_once('>') {
        Some((place, rest)) if number > 0 && !place.contains(char::is_whitespace) => format!("{place}{rest}"),
        _ if number > 0 => format!("<{part}"),
        _ => part.to_owned(),
    });
    places.collect()
}

#[test]
fn every_command_on_a_page_is_one() {
    let (mut wrong, mut tried) = (Vec::new(), [0, 0]);
    for page in markdown::pages(Path::new(env!("CARGO_MANIFEST_DIR"))) {
        // Made from the commands themselves.
        if page.path.starts_with("docs/reference") {
            continue;
        }
        let mut check = |line: usize, command: &ShellCommand, is_abridged: bool| {
            let Some(words) = own(command) else { return };
            tried[usize::from(is_abridged)] += 1;
            if let Some(problem) = problem(words, is_abridged || command.is_abridged) {
                wrong.push(format!("{}:{line}: {}: {problem}", page.path.display(), words.join(" ")));
            }
        };
        for block in page.blocks().into_iter().filter(|block| block.what.language == "sh") {
            shell::commands(&block.what.text).iter().for_each(|command| check(block.line, command, false));
        }
        for span in page.spans().into_iter().filter(|span| span.what.starts_with("straitctl ")) {
            shell::commands(&filled(&span.what)).iter().for_each(|command| check(span.line, command, true));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(tried[0] > 100 && tried[1] > 80, "only {tried:?} were tried");
}

#[test]
fn what_is_no_command_is_noticed() {
    assert_eq!(filled("a <b> c > d"), "a b c > d");
    let words = |line: &str| shell::commands(line).first().and_then(own).map(<[String]>::to_vec).unwrap();
    for (line, is_abridged, good) in [
        ("docker exec global straitctl get meshes", false, true),
        ("straitctl generate zone-token --scope cp", false, true),
        ("straitctl apply", false, false),
        ("straitctl apply", true, true),
        ("straitctl apply -f", true, true),
        ("straitctl apply -f", false, false),
        ("straitctl inspect", true, true),
        ("straitctl apply --fil x", true, false),
        ("straitctl wait zones --online many", true, false),
        ("straitctl zones move a --to grpcs://b --back", false, false),
        ("straitctl mesh", true, false),
    ] {
        assert_eq!(problem(&words(line), is_abridged).is_none(), good, "{line}");
    }
}
