//! Builds the zone process from its settings.

use std::{path::Path, sync::Arc};

use anyhow::Context;
use common::{
    audit::AuditLog,
    config::{self, StoreType},
    control_plane::{self, ControlPlane, host_name},
    defaults::{MeshDefaults, ensure_defaults},
    envoy_admin::{EnvoyAdmin, Mailbox},
    gui::{self, PageParts},
    issuing,
    mode::Mode,
    model::{ResourceKey, kinds},
    oidc::OpenIdProvider,
    rest::{Api, ApiConfig, Mounted, ResourceFiles, standard_admissions},
    runtime::{Env, stop_signal},
    tls::Trust,
    token,
    traces::Traces,
};

use crate::{
    ads::{
        Ads, AdsConfig,
        absence::{Absence, AbsenceTimeouts},
        admin_authority::AdminAuthority,
        auth::{Credential, Requirement},
        bootstrap,
        convergence::Convergence,
        debug,
        envoys::Envoys,
        health::CheckSettings,
        inherited,
        introspection::{self, Introspection},
        preview::Previews,
        proxies::Proxies,
        push_status::PushStatus,
        replicas::EnvoysOfReplicas,
    },
    api,
    config::{DpProxyAuth, Hds, NodeAuth, ZoneConfig, ZoneProxyAuth},
    folder::{FolderResources, FolderStatus},
    kds::{
        ClientCertificateFiles, Connector, Dial, DialError, Link, TokenSource, Trusted, Ways, ZoneKdsSettings,
    },
    leader::{Both, Candidate, Work},
    monitoring::{self, Monitoring},
    page::LinkSeen,
    renamed,
    services::{self, Services},
    traces::ZoneTraces,
};

/// One line for `--help`.
pub const ABOUT: &str = "A zone control plane: configures the proxies of one zone and follows a global";

/// Runs the process until it is told to stop.
///
/// # Errors
/// When it cannot start, or a part of it ends.
pub async fn run(settings: ZoneConfig) -> anyhow::Result<()> {
    let stop = stop_signal()?;
    let env = Env::system(&host_name());
    control_plane::run(build(settings, env), stop).await
}

/// Builds everything and binds every port; nothing else opens sockets.
///
/// # Errors
/// When the store is not usable, a port is taken or a certificate is broken.
pub async fn build(settings: ZoneConfig, env: Env) -> anyhow::Result<ControlPlane> {
    let zone = settings.multizone.zone.name.as_str();
    let mode = if settings.is_federated() { Mode::federated_zone(zone) } else { Mode::standalone_zone(zone) };
    let mut cp =
        ControlPlane::start(env, zone, &settings.general, &settings.store, &settings.diagnostics).await?;
    cp.reached_at(settings.dp_server.interface);
    // Only Postgres lets replicas share a store.
    let alone = settings.store.kind != StoreType::Postgres;
    let candidate = Candidate::new(Arc::clone(&cp.store), mode.clone(), &cp.env, alone);
    if let Some(former) = candidate.enter().await? {
        tracing::warn!(
            former,
            zone,
            "this zone was given another name; the old one stays on global until it is deleted there"
        );
    }
    renamed::adopt(&cp.store, &cp.index, &cp.env, zone).await?;
    inherited::mark(&cp.store, &cp.index, &cp.env, zone).await?;
    ensure_defaults(&cp.store, &cp.index, &cp.env, &mode, &settings.defaults.with_api(&settings.api_server))
        .await?;

    let admin = admin_authority(&cp);
    let audit = cp.audit(&settings.api_server)?;
    let seen = (admin.clone(), Arc::clone(&audit));
    let (proxies, nodes, previews, status) = serve_proxies(&mut cp, &settings, &mode, alone, seen)?;
    let absence = absence(&cp, &settings, Arc::clone(&proxies));
    let envoys = Envoys::new(Arc::clone(&proxies), admin.as_ref()).with_previews(previews.clone());
    let envoys = of_replicas(&mut cp, Arc::new(envoys), alone);
    let convergence = Arc::clone(proxies.convergence());
    let mut routes = look_inside(&cp, &settings, (proxies, nodes), status, previews);
    let folder = (!settings.resources.is_empty()).then(|| Path::new(&settings.resources));
    let files = folder.map(|folder| Arc::new(FolderStatus::new(folder)));
    let name = settings.multizone.zone.name.as_str();
    let traces = cp.traces(&settings.tracing, "strait-zone", Some(name))?;
    let told = ZoneTraces::new(name, cp.store.identity(), traces.clone(), cp.env.clone());
    if traces.is_heard() {
        let following = told.clone().follow(Arc::clone(&convergence) as _, cp.supervisor.shutdown());
        cp.supervisor.spawn("traces of writes", async move {
            following.await;
            Ok(())
        });
    }
    let open_id = cp.open_id(&settings.api_server)?;
    let watched = (Arc::clone(&convergence), alone, audit, (traces, told.clone()), open_id);
    let api = resources(&cp, &settings, mode, Arc::clone(&envoys), files.clone(), watched);
    let folder = folder.zip(files.clone()).map(|(folder, files)| {
        FolderResources::new(folder, files, Arc::clone(&api), cp.index.clone(), cp.env.clone())
    });
    if let Some(files) = files {
        routes = routes.merge(api::resources(files));
    }
    let monitoring = Monitoring::new(cp.index.clone());
    let fetch_timeout = settings.monitoring_assignment_server.default_fetch_timeout.0;
    let assignments = monitoring::routes(&monitoring, fetch_timeout);
    let following = monitoring.run(cp.supervisor.shutdown());
    cp.supervisor.spawn("monitoring assignments", async move {
        following.await;
        Ok(())
    });
    routes = routes.merge(assignments.clone());
    let work = Both(folder, Both(services(&cp, &settings)?, absence));
    let mut seen = LinkSeen { link: None, proxies: Arc::clone(&convergence) };
    if settings.is_federated() {
        // Other replicas have proxies as well, of which this one knows nothing.
        let convergence = alone.then_some(convergence);
        let (of_link, link) =
            follow_global(&mut cp, &settings, candidate, work, envoys, (convergence, told))?;
        (routes, seen.link) = (routes.merge(of_link), Some(link));
    } else {
        lead(&mut cp, candidate, work);
    }
    let parts = PageParts { bus: cp.bus.clone(), source: Arc::new(seen), shutdown: cp.supervisor.shutdown() };
    let (router, recording) = gui::router(&api, routes, parts);
    cp.supervisor.spawn("page", recording);
    monitoring::serve(&mut cp, &settings.monitoring_assignment_server, &api, assignments)?;
    cp.serve_api(&settings.api_server, router)?;
    Ok(cp)
}

/// What global is asked to certify. Without it the zone gets no authority in meshes where each has its own.
fn issuing_request(cp: &ControlPlane) -> Option<String> {
    let place = ResourceKey::global(&kinds::secret::GLOBAL_SECRET, issuing::KEY_SECRET);
    let key = cp.index.current().get(&place).and_then(|secret| token::data_of(secret)).unwrap_or_default();
    match issuing::request(&String::from_utf8_lossy(&key)) {
        Ok(request) => Some(request),
        Err(error) => {
            let name = issuing::KEY_SECRET;
            tracing::warn!(%error, "GlobalSecret {name} is not a key, delete it and start again");
            None
        }
    }
}

/// Who may ask Envoys on other machines. Without it a zone serves its proxies all the same.
fn admin_authority(cp: &ControlPlane) -> Option<AdminAuthority> {
    match AdminAuthority::stored(&cp.index.current(), cp.env.now()) {
        Ok(authority) => Some(authority),
        Err(error) => {
            tracing::warn!(%error, "Envoys on other machines cannot be asked");
            None
        }
    }
}

/// The proxies of meshes, the nodes of none, what makes configurations that nobody is sent, and what is wrong with those that
/// are.
type ServedClients = (Arc<Proxies>, Arc<Proxies>, Previews, Arc<PushStatus>);

/// Gives the proxies that are connected, the nodes that belong to no mesh, and what shows what they would get.
fn serve_proxies(
    cp: &mut ControlPlane,
    settings: &ZoneConfig,
    mode: &Mode,
    alone: bool,
    (admin_authority, audit): (Option<AdminAuthority>, Arc<AuditLog>),
) -> anyhow::Result<ServedClients> {
    let section = &settings.dp_server;
    let pair = match section.plaintext {
        true => None,
        false => Some(cp.certificate(&section.tls_cert_file, &section.tls_key_file)?),
    };
    let params = &settings.bootstrap_server.params;
    let demand = |token: bool| if token { Credential::Token } else { Credential::None };
    let config = AdsConfig {
        admin_authority,
        requirement: Requirement {
            dataplane: demand(section.authn.dp_proxy.kind == DpProxyAuth::DpToken),
            zone_proxy: demand(section.authn.zone_proxy.kind == ZoneProxyAuth::ZoneToken),
            node: demand(section.authn.node.kind == NodeAuth::UserToken),
            bound: section.authn.dp_proxy.dp_token.require_bound,
        },
        access: settings.access.rules.clone(),
        bootstrap: bootstrap::BootstrapSettings {
            xds_host: Some(params.xds_host.clone()).filter(|host| !host.is_empty()),
            connect_timeout: params.xds_connect_timeout.0,
            admin_address: params.admin_address.clone(),
            admin_port: params.admin_port,
            admin_access_log: params.admin_access_log_path.clone(),
            admin_socket: params.envoy_admin_unix_socket,
            gateway_connections: settings.proxy.gateway.connections(),
            corefile_template: corefile_template(&params.corefile_template_path)?,
            ..bootstrap::BootstrapSettings::default()
        },
        advertised_port: Some(params.xds_port).filter(|port| *port != 0),
        deregister_after: settings.xds_server.dataplane_deregistration_delay.0,
        resource_ttl: Some(settings.xds_server.resource_ttl.0).filter(|ttl| !ttl.is_zero()),
        insight_interval: settings.xds_server.dataplane_status_flush_interval.0,
        subscriptions: settings.metrics.dataplane.subscription_limit.into(),
        idle: settings.metrics.dataplane.idle_timeout.0,
        naming: settings.dns_server.naming()?,
        agent_socket: settings.runtime.universal.spire.socket()?,
        health: checks(&section.hds),
        http: cp.main_limits(),
        sole_writer: alone,
        ..AdsConfig::new(mode.clone(), pair)
    };
    let ads = Ads::new(config, Arc::clone(&cp.store), cp.index.clone(), cp.env.clone()).with_audit(audit);
    let (proxies, nodes, previews, status) = (ads.proxies(), ads.nodes(), ads.previews(), ads.push_status());
    let listener = cp.bind("dpServer", "dpServer.port", section.interface, section.port)?;
    ads.spawn(&mut cp.supervisor, listener, &cp.sampled)?;
    Ok((proxies, nodes, previews, status))
}

/// The Envoys of this zone, also those that are connected to other replicas, unless there can be none.
fn of_replicas(cp: &mut ControlPlane, local: Arc<dyn EnvoyAdmin>, alone: bool) -> Arc<dyn EnvoyAdmin> {
    if alone {
        return local;
    }
    let mailbox = Arc::new(Mailbox::new(Arc::clone(&cp.store), Arc::clone(&cp.env.instance_id)));
    let answering = Arc::clone(&mailbox).run(Arc::clone(&local), cp.supervisor.shutdown());
    cp.supervisor.spawn("questions of replicas", async move {
        answering.await;
        Ok(())
    });
    Arc::new(EnvoysOfReplicas::new(local, mailbox, cp.index.clone(), cp.env.clone()))
}

/// Shows what is inside to those who may see it.
fn look_inside(
    cp: &ControlPlane,
    settings: &ZoneConfig,
    (proxies, nodes): (Arc<Proxies>, Arc<Proxies>),
    status: Arc<PushStatus>,
    previews: Previews,
) -> Mounted {
    let seen = Introspection {
        proxies: Arc::clone(&proxies),
        nodes,
        previews: previews.clone(),
        status,
        index: cp.index.clone(),
        zone: settings.multizone.zone.name.as_str().into(),
        instance: Arc::clone(&cp.env.instance_id),
    };
    debug::routes(proxies, previews).merge(introspection::routes(seen))
}

/// What the API tells of, and who hears what is done through it: how far the proxies are, whether they are all there are,
/// the audit log, traces, and who vouches for those who ask.
type ApiWatchers = (Arc<Convergence>, bool, Arc<AuditLog>, (Traces, ZoneTraces), Option<Arc<OpenIdProvider>>);

/// Read once: Kuma too reads it only at its start.
fn corefile_template(path: &str) -> anyhow::Result<Option<String>> {
    if path.is_empty() {
        return Ok(None);
    }
    let read = std::fs::read_to_string(path);
    read.map(Some).with_context(|| format!("read bootstrapServer.params.corefileTemplatePath {path}"))
}

fn checks(hds: &Hds) -> Option<CheckSettings> {
    let defaults = &hds.check_defaults;
    hds.enabled.then(|| CheckSettings {
        report_interval: hds.interval.0,
        interval: defaults.interval.0,
        timeout: defaults.timeout.0,
        healthy_threshold: defaults.healthy_threshold.max(1),
        unhealthy_threshold: defaults.unhealthy_threshold.max(1),
    })
}

/// Gives the routes that show the link, and the link.
fn follow_global(
    cp: &mut ControlPlane,
    settings: &ZoneConfig,
    candidate: Candidate,
    work: impl Work + Sync + 'static,
    envoys: Arc<dyn EnvoyAdmin>,
    (convergence, traces): (Option<Arc<Convergence>>, ZoneTraces),
) -> anyhow::Result<(Mounted, Link)> {
    let section = &settings.multizone.zone;
    let ca_file = Some(section.kds.root_ca_file.as_str()).filter(|path| !path.is_empty()).map(Path::new);
    let trust = Trust::from_settings(ca_file, section.kds.tls_skip_verify)?;
    let (certificate, key) = (section.kds.client_cert_file.as_str(), section.kds.client_key_file.as_str());
    let shown = (!certificate.is_empty())
        .then(|| ClientCertificateFiles { certificate: certificate.into(), key: key.into() });
    let addresses = std::iter::once(&section.global_address).chain(&section.more_global_addresses);
    let ways = addresses.clone().map(|address| {
        let way = Trusted::new(address, &trust)?.showing(shown.clone());
        Ok(Arc::new(way) as Arc<dyn Dial>)
    });
    let dial = Arc::new(Ways::new(ways.collect::<Result<_, DialError>>()?, &cp.env));
    let general = &settings.general;
    let kds = ZoneKdsSettings {
        address: section.global_address.clone(),
        token: TokenSource::from_settings(&section.kds.token, &section.kds.token_file),
        certificate: shown,
        trusted_keys: Some(section.kds.trusted_keys_file.as_str())
            .filter(|path| !path.is_empty())
            .map(Into::into),
        v1: section.kds.v1.enabled,
        max_message: section.kds.max_msg_size,
        skip_label_prefixes: section.kds.labels.skip_prefixes.clone(),
        backoff: (general.resilient_component_base_backoff.0, general.resilient_component_max_backoff.0),
        config: config::masked(settings).to_string(),
        issuing_request: issuing_request(cp),
        shares_store: settings.store.kind == StoreType::Postgres,
        gives_secrets: addresses.clone().all(|address| address.starts_with("grpcs://"))
            && !section.kds.tls_skip_verify,
        ..ZoneKdsSettings::new(&section.name)
    };
    let connector =
        Connector::new(kds, Arc::clone(&cp.store), cp.index.clone(), cp.env.clone(), dial, envoys)
            .tracing(traces);
    let connector = match convergence {
        Some(convergence) => connector.with_proxies(convergence),
        None => connector,
    };
    let (link, moves) = (connector.link(), connector.moves());
    let sampled = link.clone();
    cp.sampled.add(move |samples| sampled.sample(samples));
    lead(cp, candidate, Both(connector, work));
    Ok((api::link(link.clone(), moves, cp.index.clone()), link))
}

/// Does `work` while this replica leads its zone.
fn lead(cp: &mut ControlPlane, candidate: Candidate, work: impl Work + Sync + 'static) {
    let shutdown = cp.supervisor.shutdown();
    cp.supervisor.spawn("leader", async move { Ok(candidate.run(work, shutdown).await?) });
}

/// Forgets proxies that stay away.
fn absence(cp: &ControlPlane, settings: &ZoneConfig, proxies: Arc<Proxies>) -> Absence {
    let universal = &settings.runtime.universal;
    let idle = settings.metrics.dataplane.idle_timeout.0;
    let brought = settings.xds_server.dataplane_deregistration_delay.0.max(idle);
    let shares_store = settings.store.kind == StoreType::Postgres;
    let patience = AbsenceTimeouts {
        dataplane: universal.dataplane_cleanup_age.0,
        zone_proxy: universal.zone_resource_cleanup_age.0,
        brought,
        unseen: (!shares_store).then_some(brought),
        idle,
    };
    let zone = settings.multizone.zone.name.as_str().into();
    Absence::new(zone, patience, Arc::clone(&cp.store), cp.index.clone(), proxies, cp.env.clone())
}

/// Keeps the services of the zone.
fn services(cp: &ControlPlane, settings: &ZoneConfig) -> anyhow::Result<Services> {
    let chosen = services::ServiceSettings {
        zone: settings.multizone.zone.name.as_str().into(),
        grace: settings.mesh_service.deletion_grace_period.0,
        ranges: settings.ipam.ranges()?,
    };
    Ok(Services::new(chosen, Arc::clone(&cp.store), cp.index.clone(), cp.env.clone()))
}

fn resources(
    cp: &ControlPlane,
    settings: &ZoneConfig,
    mode: Mode,
    envoys: Arc<dyn EnvoyAdmin>,
    files: Option<Arc<FolderStatus>>,
    (convergence, alone, audit, (traces, told), open_id): ApiWatchers,
) -> Arc<Api> {
    let mut admissions = standard_admissions(settings.store.unsafe_delete, None);
    admissions.push(Arc::new(MeshDefaults));
    let config = ApiConfig {
        require_origin_label: !settings.multizone.zone.disable_origin_label_validation,
        shown_config: config::masked(settings),
        hostname: host_name(),
        admissions,
        envoys: Some(envoys),
        proxies: Some(convergence),
        shares_proxies: !alone,
        audit,
        traces,
        open_id,
        written: Some(Arc::new(move |revision| told.written(revision))),
        files: files.map(|files| files as Arc<dyn ResourceFiles>),
        ..ApiConfig::from_settings(mode, &settings.api_server, &settings.access)
    };
    Api::new(Arc::clone(&cp.store), cp.index.clone(), cp.env.clone(), config)
}
