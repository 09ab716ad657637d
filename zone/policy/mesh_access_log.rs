//! `MeshAccessLog`: lines about requests and connections, in files, over connections or to collectors.

mod condition;
mod line;

use std::collections::{BTreeMap, BTreeSet};

use common::{
    model::{Kind, kri::Kri},
    policy::{
        mesh_access_log::{self, AccessLogConf, LogBackend, OpenTelemetryLog},
        rules::Policy,
    },
    proto::{
        envoy::{
            config::{
                accesslog::v3::{AccessLog, AccessLogFilter, access_log},
                core::v3::TrafficDirection,
            },
            extensions::access_loggers::{
                file::v3::{FileAccessLog, file_access_log::AccessLogFormat},
                open_telemetry::v3::OpenTelemetryAccessLogConfig,
            },
        },
        opentelemetry::proto::common::v1::KeyValueList,
    },
};
use prost::{Message, Name};
use serde::Deserialize;

use self::line::PlaceholderValues;
use super::{
    InboundConfs, OutboundConfs, Outside, PolicyEffect, Reporter,
    caller::{Caller, Particular, UNKNOWN},
    inbound_of,
    telemetry::{self, Collector},
};
use crate::{
    generator::{Backend, Chain, Draft, ListenerDraft, Role, Sidecar, Terminal, envoy::cluster, transparent},
    mesh::MeshContext,
};

/// Origin of the clusters of collectors.
const ORIGIN: &str = "meshaccesslog";

/// See the module.
pub(super) struct MeshAccessLogEffect;

impl PolicyEffect for MeshAccessLogEffect {
    const KIND: &'static Kind = &mesh_access_log::KIND;
    type Conf = AccessLogConf;
    const TELLS: bool = true;

    fn proxy(
        &self,
        mesh: &MeshContext,
        proxy: &Sidecar,
        confs: &InboundConfs<'_, AccessLogConf>,
        draft: &mut Draft,
        reporter: &mut Reporter<'_>,
    ) {
        let collectors = telemetry::log_collectors(&confs.selection.policies, mesh);
        let ipv6 = proxy.dataplane.address.is_some_and(|address| address.is_ipv6());
        for (number, collector) in collectors.iter().enumerate() {
            let name = cluster_name(number);
            draft.clusters.insert(name.clone(), collector.cluster(&name, ORIGIN, ipv6));
        }
        let caller = Caller::everything(mesh, &proxy.dataplane, &proxy.metadata);
        let passing = |listener: &&mut ListenerDraft| {
            listener.role == Role::Machine(transparent::ORIGIN)
                && listener.message.traffic_direction() == TrafficDirection::Outbound
        };
        let passed: Vec<&mut ListenerDraft> = draft.listeners.values_mut().filter(passing).collect();
        if let Some(conf) = confs.passing(mesh, reporter).filter(|_| !passed.is_empty()) {
            let values = PlaceholderValues {
                mesh: &mesh.mesh,
                zone: &mesh.zone,
                direction: "UNSPECIFIED",
                source: caller.get(Particular::Service),
                destination: "external",
                caller: &caller,
                http: false,
            };
            let loggers = LogContext { values, mesh, collectors: &collectors }.loggers(&conf, None, reporter);
            passed.into_iter().for_each(|listener| add(listener, loggers.clone()));
        }
        for listener in draft.listeners.values_mut() {
            let Some(inbound) = inbound_of(&listener.role).cloned() else { continue };
            let values = PlaceholderValues {
                mesh: &mesh.mesh,
                zone: &mesh.zone,
                direction: "INBOUND",
                source: UNKNOWN,
                destination: inbound.service().unwrap_or(UNKNOWN),
                caller: &caller,
                http: inbound.protocol.is_http(),
            };
            let place = LogContext { values, mesh, collectors: &collectors };
            for (condition, conf) in confs.each(&inbound, reporter) {
                listener.inspects_tls |= condition.as_ref().is_some_and(|c| c.sni.is_some());
                let filter = condition.as_ref().and_then(condition::of_client);
                add(listener, place.loggers(&conf, filter.as_ref(), reporter));
            }
        }
    }

    fn tells(&self, policy: &Policy) -> BTreeSet<Particular> {
        let confs = policy.to.iter().filter_map(|item| AccessLogConf::deserialize(&item.conf).ok());
        confs
            .flat_map(|conf| conf.backends.unwrap_or_default())
            .flat_map(|backend| asked_by(&backend))
            .collect()
    }

    fn outbound(
        &self,
        confs: &OutboundConfs<'_, AccessLogConf>,
        backend: &Backend,
        listener: &mut ListenerDraft,
        reporter: &mut Reporter<'_>,
    ) {
        let place = LogContext::of_calls(confs.outside, backend, listener);
        let by_route = backend.resource.is_some() && place.values.http;
        if let Some(conf) = confs.of(backend, reporter) {
            let unmarked = by_route.then(condition::unmarked);
            add(listener, place.loggers(&conf, unmarked.as_ref(), reporter));
        }
        if by_route {
            let special = special_routes(confs, listener, reporter);
            mark(listener, &special);
            for (route, conf) in &special {
                let marked = condition::marked(&route.to_string());
                add(listener, place.loggers(conf, Some(&marked), reporter));
            }
        }
    }

    /// What comes in is told as of an inbound, where it goes as of everything the gateway calls.
    fn entrance(
        &self,
        confs: &OutboundConfs<'_, AccessLogConf>,
        listener: &mut ListenerDraft,
        reporter: &mut Reporter<'_>,
    ) {
        let (mesh, profile) = (confs.outside.mesh, confs.outside.profile);
        let Role::Gateway(entrance) = listener.role.clone() else { return };
        let outgoing = PlaceholderValues {
            mesh: &mesh.mesh,
            zone: &mesh.zone,
            direction: "OUTBOUND",
            source: &entrance.service,
            destination: "*",
            caller: &profile.caller,
            http: entrance.protocol.is_http(),
        };
        let incoming = PlaceholderValues {
            direction: "INBOUND",
            source: UNKNOWN,
            destination: &entrance.service,
            ..outgoing
        };
        let said = [(outgoing, confs.of_gateway(reporter)), (incoming, confs.of_incoming(reporter))];
        for (values, conf) in said {
            let Some(conf) = conf else { continue };
            let place = LogContext { values, mesh, collectors: &profile.collectors };
            add(listener, place.loggers(&conf, None, reporter));
        }
    }
}

/// Adds a logger for calls of `called` by what an older policy says.
pub(super) fn log_calls(
    outside: Outside<'_>,
    called: &Backend,
    listener: &mut ListenerDraft,
    to: LogBackend,
    reporter: &mut Reporter<'_>,
) {
    let place = LogContext::of_calls(outside, called, listener);
    let loggers = place.loggers(&AccessLogConf { backends: Some(vec![to]) }, None, reporter);
    add(listener, loggers);
}

/// What the lines of `backend` ask about the caller.
fn asked_by(backend: &LogBackend) -> Vec<Particular> {
    let LogBackend { tcp, file, open_telemetry, .. } = backend;
    let mut asked = Vec::new();
    if let Some(tcp) = tcp {
        asked.push(Particular::LogPipe);
        asked.extend(line::texts(tcp.format.as_ref()).into_iter().flat_map(line::asks));
    }
    if let Some(file) = file {
        asked.extend(line::texts(file.format.as_ref()).into_iter().flat_map(line::asks));
    }
    if let Some(otel) = open_telemetry {
        asked.push(Particular::Workload);
        match &otel.body {
            Some(body) => asked.extend(line::asks(&body.to_string())),
            None => asked.extend(line::texts(None).into_iter().flat_map(line::asks)),
        }
        let fields = otel.attributes.iter().flat_map(|field| [&field.key, &field.value]);
        asked.extend(fields.flat_map(|text| line::asks(text)));
    }
    asked
}

/// Routes with logs of their own.
fn special_routes(
    confs: &OutboundConfs<'_, AccessLogConf>,
    listener: &ListenerDraft,
    reporter: &mut Reporter<'_>,
) -> BTreeMap<Kri, AccessLogConf> {
    let chains = listener.chains.iter().filter_map(|chain| match &chain.terminal {
        Terminal::Http(http) => Some(&http.routes),
        Terminal::Tcp(_) | Terminal::Other(_) => None,
    });
    let policies: BTreeSet<&Kri> = chains.flatten().filter_map(|route| route.policy.as_ref()).collect();
    let special = |policy: &Kri| Some((policy.clone(), confs.of_route(policy, reporter)?));
    policies.into_iter().filter_map(special).collect()
}

/// Notes which of `special` was taken with each request. A logger does not see the route itself.
fn mark(listener: &mut ListenerDraft, special: &BTreeMap<Kri, AccessLogConf>) {
    if special.is_empty() {
        return;
    }
    for Chain { terminal, .. } in &mut listener.chains {
        let Terminal::Http(http) = terminal else { continue };
        http.filters.route_mark = Some(condition::marker());
        let is_special = |route: &Option<Kri>| route.as_ref().is_some_and(|kri| special.contains_key(kri));
        for route in http.routes.iter_mut().filter(|route| is_special(&route.policy)) {
            let name = route.policy.as_ref().map(ToString::to_string).unwrap_or_default();
            condition::set_mark(&mut route.message, name);
        }
    }
}

/// Adds `loggers` to every chain.
fn add(listener: &mut ListenerDraft, loggers: Vec<AccessLog>) {
    for Chain { terminal, .. } in &mut listener.chains {
        match terminal {
            Terminal::Http(http) => http.manager.access_log.extend(loggers.iter().cloned()),
            Terminal::Tcp(proxy) => proxy.access_log.extend(loggers.iter().cloned()),
            Terminal::Other(_) => {}
        }
    }
}

fn cluster_name(number: usize) -> String {
    format!("meshaccesslog:opentelemetry:{number}")
}

/// Where something is logged.
struct LogContext<'a> {
    values: PlaceholderValues<'a>,
    mesh: &'a MeshContext,
    collectors: &'a BTreeSet<Collector>,
}

impl<'a> LogContext<'a> {
    /// The listener by which `called` is called.
    fn of_calls(outside: Outside<'a>, called: &'a Backend, listener: &ListenerDraft) -> Self {
        let Outside { mesh, profile, .. } = outside;
        let http = listener.chains.iter().any(|chain| matches!(chain.terminal, Terminal::Http(_)));
        let values = PlaceholderValues {
            mesh: &mesh.mesh,
            zone: &mesh.zone,
            direction: "OUTBOUND",
            source: profile.caller.get(Particular::Service),
            destination: called.resource.as_ref().map_or(&*called.name, |resource| &resource.kri.name),
            caller: &profile.caller,
            http,
        };
        Self { values, mesh, collectors: &profile.collectors }
    }

    /// A logger for each backend. Those that nothing can be made of are reported and left out.
    fn loggers(
        &self,
        conf: &AccessLogConf,
        filter: Option<&AccessLogFilter>,
        reporter: &mut Reporter<'_>,
    ) -> Vec<AccessLog> {
        let mut loggers = Vec::new();
        for backend in conf.backends.iter().flatten() {
            match self.logger(backend) {
                Ok(logger) => loggers.push(AccessLog { filter: filter.cloned(), ..logger }),
                Err(reason) => {
                    let (kind, destination) = (backend.kind, self.values.destination);
                    reporter.report(format!("a {kind:?} backend for {destination} is left out: {reason}"));
                }
            }
        }
        loggers
    }

    fn logger(&self, backend: &LogBackend) -> Result<AccessLog, String> {
        let LogBackend { tcp, file, open_telemetry, .. } = backend;
        if let Some(tcp) = tcp {
            let pipe = self.values.caller.get(Particular::LogPipe);
            if pipe.is_empty() {
                return Err(
                    "nobody beside the proxy passes lines on; its bootstrap names no workdir".to_owned()
                );
            }
            return Ok(file_logger(pipe, self.values.line_for(&tcp.address, tcp.format.as_ref())?));
        }
        if let Some(file) = file {
            return Ok(file_logger(&file.path, self.values.line(file.format.as_ref())?));
        }
        match open_telemetry {
            Some(otel) => self.record(otel),
            None => Err("it says nothing".to_owned()),
        }
    }

    fn record(&self, log: &OpenTelemetryLog) -> Result<AccessLog, String> {
        let collector = Collector::of(log.endpoint.as_deref(), log.backend_ref.as_ref(), self.mesh)?;
        let number = self.collectors.iter().position(|known| *known == collector);
        let cluster = cluster_name(number.unwrap_or_default());
        let values = telemetry::attributes([
            ("kuma.mesh", self.values.mesh.to_owned()),
            ("kuma.zone", self.values.zone.to_owned()),
            ("kuma.workload", self.values.caller.get(Particular::Workload).to_owned()),
        ]);
        let http_service = collector.http(&cluster, "logs");
        let config = OpenTelemetryAccessLogConfig {
            log_name: "MeshAccessLog".to_owned(),
            grpc_service: http_service.is_none().then(|| collector.grpc(&cluster)),
            http_service,
            resource_attributes: Some(KeyValueList { values }),
            body: Some(self.values.body(log)?),
            attributes: Some(self.values.attributes(log)?),
            ..OpenTelemetryAccessLogConfig::default()
        };
        Ok(logger("envoy.access_loggers.open_telemetry", &config))
    }
}

fn file_logger(
    path: &str,
    line: common::proto::envoy::config::core::v3::SubstitutionFormatString,
) -> AccessLog {
    let format = Some(AccessLogFormat::LogFormat(line));
    let config = FileAccessLog { path: path.to_owned(), access_log_format: format };
    logger("envoy.access_loggers.file", &config)
}

fn logger<M: Message + Name>(name: &str, config: &M) -> AccessLog {
    AccessLog {
        name: name.to_owned(),
        config_type: Some(access_log::ConfigType::TypedConfig(cluster::pack(config))),
        ..AccessLog::default()
    }
}
