//! Configuration by file, environment and flag, with one name for each setting.
//!
//! A setting is a leaf of the process' config struct. Its path (`multizone.zone.name`) is the path in the
//! YAML file, the flag (`--multizone.zone.name`) and, in upper snake case, the environment variable
//! (`STRAIT_MULTIZONE_ZONE_NAME`, or `KUMA_MULTIZONE_ZONE_NAME` as Kuma calls it). A flag wins over the
//! environment, the environment over the file, the file over the default. The environment is read here
//! and nowhere else.

mod access;
mod audit;
mod connections;
mod environment;
mod history;
mod interval;
mod leaf;
mod open_id;
mod sections;
mod setting;
mod tracing;
mod without_effect;

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command};
use figment::{
    Figment,
    error::{Actual, Kind},
    providers::Serialized,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use thiserror::Error;

use self::without_effect::Cleaned;
use crate::redact;

pub use access::{AccessSection, AccessType, Authn, AuthnType, UserTokens};
pub use audit::AuditSection;
pub use connections::ConnectionsSection;
pub use history::HistorySection;
pub use interval::Interval;
pub use leaf::{Leaf, leaves};
pub(crate) use open_id::RESERVED;
pub use open_id::{OpenIdConnectSection, protected_url};
pub use sections::{
    ApiServer, DataplaneDefaults, Diagnostics, General, HttpListener, HttpsListener, KdsV1, Logging,
    PlatformKind, Postgres, PostgresTls, PostgresTlsMode, Sqlite, StoreSection, StoreType, SyncLabels,
};
pub use setting::{Setting, settings};
pub use tracing::{OpenTelemetrySection, TracingSection};
pub use without_effect::WITHOUT_EFFECT;

/// Prefixes of environment variables; the first that is set wins.
const PREFIXES: [&str; 2] = ["STRAIT", "KUMA"];
const FILE_FLAG: &str = "config-file";
const PRINT_FLAG: &str = "print-config";

/// Why the configuration is not usable.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be found.
    #[error("config file {0} does not exist")]
    NoFile(PathBuf),
    /// A value does not fit its setting, or a setting does not exist.
    #[error("{}", describe(.0))]
    Invalid(Box<figment::Error>),
    /// A flag or variable cannot be read as a value.
    #[error("{from}: {reason}")]
    Value {
        /// The flag or variable.
        from: String,
        /// What is wrong.
        reason: String,
    },
    /// The environment asks for security that is not there.
    #[error(
        "the environment sets {}, which would change who may do what or what is encrypted, and no such setting \
         exists here: unset it, or use one that does (--help lists them all)", .0.join(", ")
    )]
    Environment(Vec<String>),
    /// Settings exclude each other, or one is missing.
    #[error("setting {path}: {reason}")]
    Rule {
        /// The setting.
        path: String,
        /// What is expected.
        reason: String,
    },
}

/// Which setting is wrong, how, and in which file if not on the command line or in the environment.
fn describe(error: &figment::Error) -> String {
    let file = error.metadata.as_ref().and_then(|from| from.source.as_ref()?.file_path());
    let place = file.map_or_else(String::new, |file| format!(" in {}", file.display()));
    let reason = match &error.kind {
        Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
            let is_secret =
                expected.contains("struct") || error.path.iter().any(|part| redact::is_secret(part));
            format!("found {}, expected {expected}", shown(found, is_secret))
        }
        other => other.to_string(),
    };
    if error.path.is_empty() {
        return format!("{reason}{place}");
    }
    format!("setting {}{place}: {reason}", error.path.join("."))
}

/// What was found. A text, and whatever stands where a secret or a section belongs, may be a password without quotes or in the
/// wrong place, and is not shown.
fn shown(found: &Actual, is_secret: bool) -> String {
    let form = match found {
        Actual::Bool(_) | Actual::Unsigned(_) | Actual::Signed(_) | Actual::Float(_) if !is_secret => {
            return found.to_string();
        }
        Actual::Bool(_) => "a boolean",
        Actual::Unsigned(_) | Actual::Signed(_) | Actual::Float(_) => "a number",
        Actual::Char(_) | Actual::Str(_) => "a text",
        Actual::Unit | Actual::Option => "nothing",
        Actual::Seq => "a list",
        Actual::Map => "a section",
        _ => "something else",
    };
    form.to_owned()
}

impl ConfigError {
    /// A broken rule between settings.
    pub fn rule(path: &str, reason: impl Into<String>) -> Self {
        Self::Rule { path: path.to_owned(), reason: reason.into() }
    }
}

/// A config struct of one process.
pub trait Config: Default + Serialize + DeserializeOwned {
    /// A line of help for every setting of its own, by path; those of the shared sections have theirs.
    const HELP: &'static [(&'static str, &'static str)];

    /// Sections, as variables name them, that belong to the other process of a federation: an environment
    /// may be shared.
    const ELSEWHERE: &'static [&'static str] = &[];

    /// Checks the rules between settings.
    ///
    /// # Errors
    /// [`ConfigError::Rule`] naming the setting.
    fn validate(&self) -> Result<(), ConfigError>;
}

/// What the command line asked for.
#[derive(Debug)]
pub enum Asked<C> {
    /// Run with this configuration.
    Run(C),
    /// Print this configuration and stop.
    Print(String),
}

/// Adds one flag for every setting of `C`, plus `--config-file` and `--print-config`.
pub fn command<C: Config>(command: Command) -> Command {
    let file = Arg::new(FILE_FLAG)
        .short('c')
        .long(FILE_FLAG)
        .value_name("PATH")
        .help("YAML file with settings; the environment and flags win over it");
    let print = Arg::new(PRINT_FLAG)
        .long(PRINT_FLAG)
        .action(clap::ArgAction::SetTrue)
        .help("Print the effective settings, secrets masked, and stop");
    leaves(&defaults::<C>()).into_iter().fold(command.arg(file).arg(print), |command, leaf| {
        let help = help::<C>(&leaf.path).unwrap_or_default();
        let help = format!("{help} [env {}, default {}]", leaf.variable(PREFIXES[0]), leaf.default);
        let value_name = leaf.value_name();
        command.arg(Arg::new(leaf.path.clone()).long(leaf.path).value_name(value_name).help(help))
    })
}

/// The line of help for the setting at `path`.
pub fn help<C: Config>(path: &str) -> Option<&'static str> {
    let shared =
        [sections::HELP, access::HELP, open_id::HELP, history::HELP, audit::HELP].into_iter().flatten();
    let mut all = C::HELP.iter().chain(shared);
    all.find(|(name, _)| *name == path).map(|(_, help)| *help)
}

/// Loads the configuration of a process from matches of [`command`] and the process environment.
///
/// # Errors
/// [`ConfigError`] naming the setting and where its value came from.
#[allow(clippy::disallowed_methods, reason = "the one place that reads the environment")]
pub fn load<C: Config>(matches: &ArgMatches) -> Result<Asked<C>, ConfigError> {
    let config: C = merge(matches, |name| std::env::var(name).ok())?;
    let refused = environment::strangers::<C>(variables()).refused;
    if !refused.is_empty() {
        return Err(ConfigError::Environment(refused));
    }
    if matches.get_flag(PRINT_FLAG) {
        let masked = masked(&config);
        let text = serde_norway::to_string(&masked).map_err(|e| ConfigError::rule("", e.to_string()))?;
        return Ok(Asked::Print(text));
    }
    config.validate()?;
    Ok(Asked::Run(config))
}

/// Variables of the environment that look like settings and are none, and that do nothing. Not refused:
/// whatever starts the process may set names of its own with this prefix, as Kubernetes does for a service
/// called `strait`.
pub fn unknown_variables<C: Config>() -> Vec<String> {
    environment::strangers::<C>(variables()).idle
}

/// Settings in the file of `matches` that Kuma knows and that have no effect here.
pub fn settings_without_effect<C: Config>(matches: &ArgMatches) -> Vec<&'static str> {
    let file = matches.get_one::<String>(FILE_FLAG).map(PathBuf::from);
    file.map(|path| Cleaned::new(&path, has_setting::<C>).passed_over()).unwrap_or_default()
}

/// Whether `path` is a setting of this process, or a section with settings of it.
fn has_setting<C: Config>(path: &str) -> bool {
    let within = |leaf: &Leaf| {
        leaf.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    leaves(&defaults::<C>()).iter().any(within)
}

/// A variable of the environment that something other than a setting names.
#[allow(clippy::disallowed_methods, reason = "the one place that reads the environment")]
pub fn variable(name: &str) -> Option<String> {
    // Names with these in them make the standard library panic.
    (!name.is_empty() && !name.contains(['=', '\0'])).then(|| std::env::var(name).ok())?
}

#[allow(clippy::disallowed_methods, reason = "the one place that reads the environment")]
fn variables() -> impl Iterator<Item = (String, String)> {
    let lossy = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
    std::env::vars_os().filter_map(move |(name, value)| Some((name.into_string().ok()?, lossy(value))))
}

/// The names of the variable of a setting, the strongest last.
fn variables_of(leaf: &Leaf, prefix: &str) -> Vec<String> {
    let name = leaf.variable(prefix);
    let regular = name[prefix.len() + 1..].to_owned();
    environment::names(&leaf.path, regular).into_iter().map(|name| format!("{prefix}_{name}")).collect()
}

fn merge<C: Config>(
    matches: &ArgMatches,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<C, ConfigError> {
    let mut figment = Figment::from(Serialized::defaults(C::default()));
    if let Some(path) = matches.get_one::<String>(FILE_FLAG).map(PathBuf::from) {
        if !path.exists() {
            return Err(ConfigError::NoFile(path));
        }
        figment = figment.merge(Cleaned::new(&path, has_setting::<C>));
    }
    for leaf in leaves(&defaults::<C>()) {
        for name in PREFIXES.iter().rev().flat_map(|prefix| variables_of(&leaf, prefix)) {
            if let Some(text) = variable(&name) {
                figment = figment.merge(Serialized::default(&leaf.path, leaf.value(&text, &name)?));
            }
        }
        if let Some(text) = matches.get_one::<String>(&leaf.path) {
            let value = leaf.value(text, &format!("--{}", leaf.path))?;
            figment = figment.merge(Serialized::default(&leaf.path, value));
        }
    }
    figment.extract().map_err(|e| ConfigError::Invalid(Box::new(e)))
}

fn defaults<C: Config>() -> Value {
    serde_json::to_value(C::default()).expect("a config struct holds nothing JSON cannot show")
}

/// The configuration as shown to people: secrets replaced by `*****`.
pub fn masked<C: Serialize>(config: &C) -> Value {
    let mut shown = serde_json::to_value(config).expect("a config struct holds nothing JSON cannot show");
    mask(&mut shown);
    redact::json(&mut shown);
    shown
}

fn mask(value: &mut Value) {
    let Value::Object(members) = value else { return };
    for (name, member) in members {
        match member {
            Value::String(text) if redact::is_secret(name) && !text.is_empty() => {
                redact::MASKED.clone_into(text)
            }
            _ => mask(member),
        }
    }
}

#[cfg(test)]
mod tests;
