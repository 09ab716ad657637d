//! `straitctl`: the command line of operators.
//!
//! A command reads its arguments, asks the control plane over REST ([`client`]), and prints a table or a
//! document. Errors end the process with code 1 and say what to do next.

mod apply;
mod audit;
mod auth;
mod backup;
mod body;
mod bootstrap;
mod check;
mod client;
mod completions;
mod config;
mod delete;
#[cfg(test)]
mod documented;
mod documents;
mod epoch;
mod explain;
mod export;
mod generate;
mod get;
mod grpc_agent;
mod history;
mod import;
mod inspect;
mod kinds;
mod link;
mod login;
mod machine;
mod output;
mod proxy;
mod proxy_config;
mod proxy_status;
mod recover;
#[cfg(test)]
mod reference;
mod rollout;
mod sync;
mod table;
mod top;
mod version;
mod wait;
mod zones;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use clap::{Args, Parser, Subcommand};

use client::{ApiClient, ControlPlaneEndpoint};

/// Operates Strait and Kuma control planes.
#[derive(Parser)]
#[command(name = "straitctl", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(subcommand)]
    command: Command,
}

/// Where the control plane is, and as whom to ask it.
#[derive(Args)]
#[command(next_help_heading = "Connection")]
struct ConnectionArgs {
    /// Address of the control plane, instead of the one of the current context
    #[arg(long, global = true, env = "STRAITCTL_ADDRESS", value_name = "URL")]
    address: Option<String>,
    /// User token to send; without any, the administrator's to the control plane on this machine
    #[arg(long, global = true, env = "STRAITCTL_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<String>,
    /// Work folder of the control plane on this machine, where the token of its administrator is
    #[arg(
        long,
        global = true,
        env = "STRAIT_GENERAL_WORK_DIR",
        default_value = ".strait",
        value_name = "FOLDER"
    )]
    work_dir: PathBuf,
    /// Certificate authority of the control plane, as PEM; the roots of the machine when absent
    #[arg(long, global = true, value_name = "FILE")]
    ca_cert_file: Option<PathBuf>,
    /// Trust any certificate of the control plane
    #[arg(long, global = true)]
    skip_verify: bool,
    /// Longest time one request may take
    #[arg(long, global = true, default_value = "60s", value_name = "DURATION", value_parser = duration)]
    api_timeout: Duration,
    /// File with control planes and contexts, in kumactl's format
    #[arg(long, global = true, value_name = "FILE")]
    config_file: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Creates or updates resources from files, folders or standard input
    Apply(apply::Apply),
    /// Shows resources
    Get(get::Get),
    /// Deletes a resource
    Delete(delete::Delete),
    /// Shows who changed which resources, and when
    History(history::History),
    /// Shows how a resource differs between two revisions
    Diff(history::Diff),
    /// Logs in to a control plane through the provider of OpenID Connect that it believes
    Login(login::Login),
    /// Forgets who logged in to a control plane, and gives the login back to the provider
    Logout(login::Logout),
    /// Shows who the control plane takes one for, and what one may do there
    Auth(auth::AuthArgs),
    /// Writes all that a control plane holds to a file
    Backup(backup::BackupArgs),
    /// Shows who asked this control plane for what, and what came of it
    Audit(audit::Audit),
    /// Shows how far a change is that goes out in waves, and steers it
    Rollout(rollout::RolloutArgs),
    /// Takes changes back: one, or everything since a revision or time
    Undo(history::Undo),
    /// Shows how zones, dataplanes and meshes are doing
    Inspect(inspect::Inspect),
    /// Shows zones and proxies as they are now, the worst first
    Top(top::Top),
    /// Shows which resource put what into the configuration of a proxy, and what lost against it
    Explain(explain::Explain),
    /// Shows how far each proxy is with what it is sent, or where its Envoy differs from that
    #[command(alias = "ps")]
    ProxyStatus(proxy_status::ProxyStatusArgs),
    /// Shows what one proxy has: listeners, routes, clusters, endpoints, secrets
    #[command(alias = "pc")]
    ProxyConfig(proxy_config::ProxyConfigArgs),
    /// Makes tokens and keys to sign them with
    Generate(generate::Generate),
    /// Asks a zone for the bootstrap of an Envoy, or writes that of a gRPC library
    Bootstrap(bootstrap::BootstrapArgs),
    /// Connects an application that has a gRPC library instead of an Envoy with its zone
    GrpcAgent(grpc_agent::GrpcAgentArgs),
    /// Shows how a zone stands with global, and approves what the zone holds back
    Link(link::LinkArgs),
    /// Writes what a control plane owns to standard output
    Export(export::Export),
    /// Puts what `export` wrote into a control plane
    Import(import::Import),
    /// Looks after global itself: rebuilds it from its zones
    Global(recover::GlobalArgs),
    /// Moves a zone to another global, or gives it another name
    Zones(zones::ZonesArgs),
    /// Looks for what is wrong with a control plane, its zones and meshes, and says what to do
    Check(check::Check),
    /// Shows which history zones are shown, and raises its epoch after a restore
    Epoch(epoch::EpochArgs),
    /// Waits until zones are online or a resource exists
    Wait(wait::Wait),
    /// Remembers control planes and chooses among them
    Config(config::ConfigArgs),
    /// Shows the version of this program and of the control plane
    Version,
    /// Writes what lets a shell complete commands
    Completions(completions::Completions),
    /// Writes the manual pages of all commands to a folder
    Man(completions::Man),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.context("start the runtime").and_then(|runtime| runtime.block_on(run(cli)));
    match outcome {
        Ok(code) => code,
        Err(error) => {
            crate::output::note!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let connection = cli.connection;
    if cli.command.asks_the_current_one() {
        login::renew(&connection).await;
    }
    let file = || config::ConfigFile::open(connection.config_file.as_deref());
    let client = || ApiClient::new(connection.endpoint(&file()?)?, connection.api_timeout);
    let done = match cli.command {
        Command::Check(check) => return check.run(client).await,
        Command::Login(login) => login.run(&connection).await,
        Command::Logout(logout) => logout.run(&connection).await,
        Command::Completions(completions) => completions.run(),
        Command::Man(man) => man.run(),
        Command::Apply(apply) => apply.run(client).await,
        Command::Get(get) => get.run(&client()?).await,
        Command::Delete(delete) => delete.run(&client()?).await,
        Command::History(history) => history.run(&client()?).await,
        Command::Backup(backup) => backup.run(&client()?).await,
        Command::Auth(auth) => auth.run(&client()?).await,
        Command::Audit(audit) => audit.run(&client()?).await,
        Command::Diff(diff) => diff.run(&client()?).await,
        Command::Undo(undo) => undo.run(&client()?).await,
        Command::Rollout(rollout) => rollout.run(&client()?).await,
        Command::Inspect(inspect) => inspect.run(&client()?).await,
        Command::Top(top) => top.run(&client()?).await,
        Command::Explain(explain) => explain.run(&client()?).await,
        Command::ProxyStatus(status) => status.run(&client()?).await,
        Command::ProxyConfig(config) => config.run(client).await,
        Command::Generate(generate) => generate.run(client).await,
        Command::Bootstrap(bootstrap) => bootstrap.run(&connection).await,
        Command::GrpcAgent(agent) => agent.run(&connection).await,
        Command::Link(link) => link.run(&client()?).await,
        Command::Export(export) => export.run(&client()?).await,
        Command::Import(import) => import.run(client).await,
        Command::Global(global) => global.run(&client()?).await,
        Command::Zones(zones) => zones.run(&client()?).await,
        Command::Epoch(epoch) => epoch.run(&client()?).await,
        Command::Wait(wait) => wait.run(&client()?).await,
        Command::Version => version::print(client).await,
        Command::Config(config) => config.run(file()?, &connection).await,
    };
    done.map(|()| ExitCode::SUCCESS)
}

impl Command {
    /// Whether it asks the control plane of the current context, in the name of whom that says.
    fn asks_the_current_one(&self) -> bool {
        !matches!(
            self,
            Self::Login(_)
                | Self::Logout(_)
                | Self::Config(_)
                | Self::Completions(_)
                | Self::Man(_)
                | Self::Bootstrap(_)
                | Self::GrpcAgent(_)
        )
    }
}

impl ConnectionArgs {
    /// A control plane, trusted as the flags say.
    fn trusting(&self, mut endpoint: ControlPlaneEndpoint) -> ControlPlaneEndpoint {
        if let Some(file) = &self.ca_cert_file {
            endpoint.ca_cert_file = Some(file.clone());
        }
        endpoint.skip_verify |= self.skip_verify;
        endpoint
    }

    /// The current context, with the flags on top. Who names no credential is the administrator of a control
    /// plane on this machine, if he may read its token.
    fn endpoint(&self, file: &config::ConfigFile) -> anyhow::Result<ControlPlaneEndpoint> {
        let mut endpoint = match &self.address {
            Some(address) => ControlPlaneEndpoint { url: address.clone(), ..ControlPlaneEndpoint::default() },
            None => file.current()?,
        };
        if let Some(token) = &self.token {
            endpoint.token = Some(token.clone());
            endpoint.logs_in = false;
        }
        endpoint = self.trusting(endpoint);
        if !endpoint.has_credential() {
            endpoint.found = machine::admin_token(&client::address(&endpoint.url)?, &self.work_dir)?;
        }
        Ok(endpoint)
    }
}

/// A duration as a command line takes it: `60s`, `1h30m`.
fn duration(text: &str) -> Result<Duration, String> {
    common::config::Interval::parse(text).map(|interval| interval.0)
}
