//! `strait-load`: how large a zone has to be. Plays the proxies of a mesh against a zone of Strait, or a control
//! plane of Kuma, and says what that costs it.

// A binary has no outside.
#![allow(unreachable_pub)]

mod arguments;
mod report;

use std::{path::Path, time::Duration};

use anyhow::{Context, bail, ensure};
use clap::Parser;
use load::{
    AdminApi, Exercise, Fleet, FleetOptions, Scenario, Slowness, StandaloneZone, Trusting,
    process::{processor, resident},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{Instant, sleep},
};

use self::{arguments::Arguments, report::LoadReport};

/// How long memory may settle before it is read.
const REST: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // The HTTP client and the proxies speak TLS only with a provider of cryptography; nobody else sets one.
    let _set_before = rustls::crypto::ring::default_provider().install_default();
    let arguments = Arguments::parse();
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    // What was started for the measurement ends with it.
    tokio::select! {
        outcome = run(&arguments) => outcome,
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("terminated"),
    }
}

/// The control plane that is measured.
struct MeasuredControlPlane {
    zone: AdminApi,
    policies: AdminApi,
    xds: String,
    certificate: Option<std::path::PathBuf>,
    pid: Option<u32>,
    /// Ends it, when it was started here.
    _local: Option<StandaloneZone>,
}

async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let scenario = arguments.scenario();
    let measured = measured(arguments).await?;
    let report = LoadReport::new(&scenario, arguments.protocol);
    if !arguments.prepared {
        prepare(arguments, &scenario, &measured, &report).await?;
    }
    let tokens = tokens(arguments, &scenario, &measured).await?;
    let names = (0..scenario.proxies).map(Scenario::proxy);
    let trusting = match &measured.certificate {
        Some(file) => Trusting::File(file),
        None => Trusting::Anybody,
    };
    let (memory, spent) = (measured.pid.and_then(resident), measured.pid.and_then(processor));
    let fleet = Fleet::start(FleetOptions {
        url: &measured.xds,
        trusting,
        mesh: &scenario.mesh,
        proxies: names.zip(tokens).collect(),
        protocol: arguments.protocol,
        slowness: (arguments.slow_every > 0)
            .then_some(Slowness { every: arguments.slow_every, bytes_per_second: arguments.slow_rate }),
        connecting: arguments.connecting,
        record: false,
    })?;
    let ready = fleet.ready(arguments.patience()).await?;
    report.ready(ready, fleet.observer(), spent.zip(measured.pid.and_then(processor)));
    if let Some(pid) = measured.pid {
        sleep(REST).await;
        report.memory(memory.unwrap_or_default(), resident(pid).unwrap_or_default());
    }
    let exercise = Exercise {
        scenario: &scenario,
        zone: &measured.zone,
        policies: &measured.policies,
        fleet: &fleet,
        pid: measured.pid,
        patience: arguments.patience(),
    };
    changes(arguments, &exercise, &report).await?;
    report.streams(&fleet);
    if arguments.stay > 0 {
        sleep(Duration::from_secs(arguments.stay)).await;
    }
    drop(fleet);
    if arguments.delete {
        clean(&scenario, &measured, arguments.policies).await?;
    }
    Ok(())
}

async fn measured(arguments: &Arguments) -> anyhow::Result<MeasuredControlPlane> {
    if let Some(program) = &arguments.start {
        let zone = StandaloneZone::start(program, &[]).await?;
        let admin = AdminApi::new(&zone.api(), None);
        return Ok(MeasuredControlPlane {
            policies: admin.clone(),
            zone: admin,
            xds: zone.dp_server(),
            certificate: Some(zone.certificate()),
            pid: Some(zone.pid()),
            _local: Some(zone),
        });
    }
    let zone = AdminApi::new(&arguments.api, arguments.user_token.as_deref().map(read).transpose()?);
    let policy_token = arguments.policy_user_token.as_deref().map(read).transpose()?;
    let policies = arguments.policy_api.as_ref().map_or(zone.clone(), |url| AdminApi::new(url, policy_token));
    let (zone, policies) = match &arguments.ca {
        Some(file) => {
            let pem = std::fs::read(file).with_context(|| format!("read {}", file.display()))?;
            (zone.trusting(&pem)?, policies.trusting(&pem)?)
        }
        None => (zone, policies),
    };
    Ok(MeasuredControlPlane {
        policies,
        zone,
        xds: arguments.xds.clone(),
        certificate: arguments.ca.clone(),
        pid: arguments.pid,
        _local: None,
    })
}

/// Makes the mesh and what is in it.
async fn prepare(
    arguments: &Arguments,
    scenario: &Scenario,
    measured: &MeasuredControlPlane,
    report: &LoadReport,
) -> anyhow::Result<()> {
    measured.policies.put(&scenario.mesh()).await?;
    let mesh = format!("/meshes/{}", scenario.mesh);
    let begun = Instant::now();
    while !measured.zone.has(&mesh).await? {
        ensure!(begun.elapsed() < arguments.patience(), "the mesh made at global does not reach the zone");
        sleep(Duration::from_millis(100)).await;
    }
    let policies = (0..arguments.policies)
        .map(|n| scenario.timeout(&format!("load-{n:06}"), Some(n % scenario.services), 0));
    measured.policies.put_all(policies).await?;
    let begun = Instant::now();
    measured.zone.put_dataplanes(scenario).await?;
    report.stored(begun.elapsed(), measured.pid.and_then(resident));
    Ok(())
}

/// The tokens the proxies show.
async fn tokens(
    arguments: &Arguments,
    scenario: &Scenario,
    measured: &MeasuredControlPlane,
) -> anyhow::Result<Vec<Option<String>>> {
    let names = (0..scenario.proxies).map(Scenario::proxy);
    if arguments.no_tokens {
        return Ok(vec![None; scenario.proxies]);
    }
    if let Some(file) = &arguments.token {
        return Ok(vec![Some(read(file)?); scenario.proxies]);
    }
    if let Some(folder) = &arguments.tokens {
        return names.map(|name| read(&folder.join(name)).map(Some)).collect();
    }
    let tokens = measured.policies.tokens(&scenario.mesh, names.collect()).await?;
    Ok(tokens.into_iter().map(Some).collect())
}

fn read(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    Ok(text.trim().to_owned())
}

async fn changes(arguments: &Arguments, exercise: &Exercise<'_>, report: &LoadReport) -> anyhow::Result<()> {
    if arguments.rounds > 0 && exercise.scenario.endpoints > 0 {
        let mut seen = Vec::new();
        let spent = exercise.processor();
        for round in 0..arguments.rounds {
            seen.push(exercise.endpoint(round % exercise.scenario.endpoints, round + 1).await?);
        }
        report.change("one endpoint", &seen, exercise.processor() - spent);
    }
    for (name, wide) in [("route of one service", false), ("policy for the whole mesh", true)] {
        let mut seen = Vec::new();
        let spent = exercise.processor();
        for round in 0..arguments.rounds {
            seen.push(if wide { exercise.mesh_wide(round).await? } else { exercise.route(0, round).await? });
        }
        if !seen.is_empty() {
            report.change(name, &seen, exercise.processor() - spent);
        }
    }
    if arguments.storm > 0 && exercise.scenario.endpoints > 0 {
        report.storm(&exercise.storm(arguments.storm, arguments.storm_seconds).await?);
    }
    Ok(())
}

/// Deletes what was made.
async fn clean(scenario: &Scenario, measured: &MeasuredControlPlane, policies: usize) -> anyhow::Result<()> {
    for number in 0..scenario.proxies {
        measured.zone.delete(&scenario.proxy_document(number)).await?;
    }
    for number in 0..scenario.endpoints {
        measured.zone.delete(&scenario.endpoint_document(number, 0)).await?;
    }
    for number in 0..policies {
        measured.policies.delete(&scenario.timeout(&format!("load-{number:06}"), None, 0)).await?;
    }
    measured.policies.delete(&scenario.timeout("load-everywhere", None, 0)).await?;
    measured.policies.delete(&scenario.route("load-route", 0, 0)).await?;
    Ok(measured.policies.delete(&scenario.mesh()).await?)
}
