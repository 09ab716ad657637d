//! Metrics as the mesh itself offers them, in the older generation, where no policy says anything of them.

use std::net::IpAddr;

use common::{
    model::kinds,
    policy::ineffective,
    proto::envoy::{
        config::{
            core::v3::{Address, TrafficDirection},
            listener::v3::{FilterChainMatch, Listener},
            route::v3::route::Action,
        },
        extensions::transport_sockets::tls::v3::DownstreamTlsContext,
    },
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{MetricContext, PROMETHEUS, forward};
use crate::{
    generator::{
        Draft, HttpFilters, ListenerDraft,
        envoy::{address, cluster, endpoint, flag, seconds, tls},
    },
    mesh::{MetricsTls, OfferedMetrics},
    policy::{Reporter, legacy, telemetry},
};

const LISTENER: &str = "kuma:metrics:prometheus";
const HIJACKER: &str = "kuma:metrics:hijacker";

impl MetricContext<'_> {
    /// Says so where the mesh or the proxy speaks of metrics and a policy says it instead.
    pub(super) fn replaced(&self, reporter: &mut Reporter<'_>) {
        if self.offered().is_some() {
            let reason = "'metrics' has no effect, because a MeshMetric is for the proxy";
            of_mesh(reporter).report(reason);
        }
    }

    /// Adds a listener for who asks, if the mesh says that there is one.
    pub(super) fn offer(&self, draft: &mut Draft, reporter: &mut Reporter<'_>) {
        let mut reporter = of_mesh(reporter);
        let Some(offered) = self.offered() else {
            let metrics = self.mesh.spec.metrics.as_ref();
            if metrics.is_some_and(|metrics| !metrics.backends.is_empty()) {
                reporter.report(ineffective::METRICS_OF_MESH);
            } else if self.proxy.dataplane.metrics.is_some() {
                reporter
                    .report("'metrics' of the dataplane has no effect: its mesh enables no backend for them");
            }
            return;
        };
        match self.older_listener(&offered, draft, &mut reporter) {
            Ok((listener, at)) => {
                draft.listeners.insert(LISTENER.to_owned(), listener);
                let mut message = cluster::fixed(HIJACKER, endpoint::at_address(HIJACKER, at));
                message.connect_timeout = Some(seconds(5));
                draft.clusters.insert(HIJACKER.to_owned(), telemetry::of_message(message, PROMETHEUS));
            }
            Err(reason) => {
                let port = offered.port;
                reporter.report(format!("nobody is answered who asks for metrics on port {port}: {reason}"));
            }
        }
    }

    fn offered(&self) -> Option<OfferedMetrics> {
        OfferedMetrics::of(&self.mesh.spec, self.proxy.dataplane.metrics.as_deref())
    }

    /// The listener, and who has the metrics.
    ///
    /// # Errors
    /// Why there can be none, in words.
    fn older_listener(
        &self,
        offered: &OfferedMetrics,
        draft: &Draft,
        reporter: &mut Reporter<'_>,
    ) -> Result<(ListenerDraft, Address), String> {
        let (source, path) = self.older_source(offered, reporter)?;
        let (ip, at) = self.free(offered.port, draft)?;
        let mut route = forward(&offered.path, HIJACKER);
        if let Some(Action::Route(action)) = &mut route.action {
            action.prefix_rewrite = path;
        }
        let message = Listener {
            name: LISTENER.to_owned(),
            address: Some(at),
            traffic_direction: TrafficDirection::Inbound.into(),
            enable_reuse_port: flag(self.proxy.metadata.reuses_ports()),
            ..Listener::default()
        };
        let mut listener = self.local(message, PROMETHEUS, route, HttpFilters::default(), None);
        if let Some(tls) = self.older_tls(offered)? {
            self.guard(&mut listener, (offered, ip), tls, reporter);
        }
        Ok((listener, source))
    }

    /// Who has the metrics, and on which path.
    fn older_source(
        &self,
        offered: &OfferedMetrics,
        reporter: &mut Reporter<'_>,
    ) -> Result<(Address, String), String> {
        let metadata = &self.proxy.metadata;
        let filter = offered
            .filter
            .as_ref()
            .map(|filter| format!("filter={}", utf8_percent_encode(filter, NON_ALPHANUMERIC)));
        let used = offered.used_only.then(|| "usedonly".to_owned());
        let asked: Vec<String> = filter.into_iter().chain(used).collect();
        let query = if asked.is_empty() { String::new() } else { format!("?{}", asked.join("&")) };
        if !metadata.work_dir.is_empty() {
            let name = format!("kuma-mh-{}-{}", self.proxy.dataplane.name(), self.mesh.mesh);
            return Ok((address::pipe(&telemetry::socket(metadata, &name)), format!("/{query}")));
        }
        if !offered.workloads.is_empty() {
            reporter.report(
                "metrics are told of the Envoy, and none of workloads: nobody runs beside it who could merge them",
            );
        }
        let admin = metadata.admin.as_ref().ok_or("the proxy has no admin endpoint")?;
        Ok((admin.local(), format!("/stats/prometheus{query}")))
    }

    /// # Errors
    /// Why there is nothing to show, in words.
    fn older_tls(&self, offered: &OfferedMetrics) -> Result<Option<DownstreamTlsContext>, String> {
        match offered.tls {
            MetricsTls::Disabled => Ok(None),
            MetricsTls::Mesh if self.mesh.mtls.is_none() => Ok(None),
            MetricsTls::Mesh => match self.proxy.downstream(self.mesh) {
                None => Err("the proxy has no certificate of the mesh".to_owned()),
                context => Ok(context),
            },
            MetricsTls::Provided => match &self.proxy.metadata.metrics_certificate {
                Some((certificate, key)) => Ok(Some(tls::of_files(certificate, key))),
                None => Err("the proxy was given no files with a certificate and its key".to_owned()),
            },
        }
    }

    /// Asks everybody for TLS but who comes from the address of the proxy: a collector beside it may be no member of
    /// the mesh. Of members those may ask who may call the tags of what is offered.
    fn guard(
        &self,
        listener: &mut ListenerDraft,
        (offered, ip): (&OfferedMetrics, IpAddr),
        tls: DownstreamTlsContext,
        reporter: &mut Reporter<'_>,
    ) {
        let Some(open) = listener.chains.first_mut() else { return };
        let mut guarded = open.clone();
        guarded.tls = Some(tls);
        if offered.tls == MetricsTls::Mesh {
            let (filter, some) = legacy::permission_to_call(self.mesh, LISTENER, &offered.tags);
            guarded.filters.permission = Some(filter);
            if !some {
                let tags = &offered.tags;
                reporter.report(format!("nobody may ask for metrics: no TrafficPermission is for {tags:?}"));
            }
        }
        let own = vec![address::network(&ip.to_string(), if ip.is_ipv6() { 128 } else { 32 })];
        open.matches = Some(FilterChainMatch { source_prefix_ranges: own, ..FilterChainMatch::default() });
        listener.chains.push(guarded);
    }
}

/// What is reported is about the mesh, not about a policy.
fn of_mesh<'a>(reporter: &'a mut Reporter<'_>) -> Reporter<'a> {
    Reporter { kind: &kinds::mesh::KIND, problems: reporter.problems }
}
