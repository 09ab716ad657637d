//! What a proxy is to look at, and what it found. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use common::{
    model::Resource,
    proto::{
        envoy::{
            config::{
                core::v3::{
                    Address, HealthCheck, HealthStatus,
                    health_check::{HealthChecker, HttpHealthCheck, TcpHealthCheck},
                },
                endpoint::v3::Endpoint,
            },
            service::health::v3::{
                ClusterHealthCheck, EndpointHealthResponse, HealthCheckSpecifier, LocalityEndpoints,
            },
        },
        google::protobuf::UInt32Value,
        kuma::mesh::v1alpha1 as proto,
    },
};
use proto::dataplane::{
    Networking,
    networking::{
        Inbound,
        inbound::{Health, ServiceProbe, State},
    },
};

use crate::{
    generator::{
        ADMIN, AdminEndpoint,
        envoy::{address, duration},
    },
    mesh::Hosts,
};

/// How probes are made that do not say it themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckSettings {
    /// How often a proxy says what it found.
    pub report_interval: Duration,
    /// How often it looks.
    pub interval: Duration,
    /// How long the workload may take.
    pub timeout: Duration,
    /// After how many successes it serves.
    pub healthy_threshold: u32,
    /// After how many failures it does not.
    pub unhealthy_threshold: u32,
}

impl Default for CheckSettings {
    fn default() -> Self {
        Self {
            report_interval: Duration::from_secs(5),
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(2),
            healthy_threshold: 1,
            unhealthy_threshold: 1,
        }
    }
}

/// What a proxy found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ObservedHealth {
    /// Whether it takes traffic itself; unknown where it was not asked.
    proxy: Option<bool>,
    /// Whether workloads do, by the names of their clusters.
    workloads: BTreeMap<String, bool>,
}

/// What a proxy with this resource is to look at; `None` when there is no probe.
pub(super) fn specifier(
    networking: &Networking,
    hosts: &Hosts,
    admin: Option<&AdminEndpoint>,
    settings: &CheckSettings,
) -> Option<HealthCheckSpecifier> {
    let probed = networking.inbound.iter().filter_map(|inbound| {
        let (ip, port) = workload(networking, inbound, hosts)?;
        let probe = inbound.service_probe.as_ref()?;
        Some(of_workload(probe, &cluster(port), address::socket(ip, port), settings))
    });
    let mut checks: Vec<ClusterHealthCheck> = probed.collect();
    if checks.is_empty() {
        return None;
    }
    // One that is about to end takes no traffic, however well its workload is.
    checks.extend(admin.map(|admin| of_proxy(admin, settings)));
    Some(HealthCheckSpecifier {
        cluster_health_checks: checks,
        interval: Some(duration(settings.report_interval)),
    })
}

fn workload(networking: &Networking, inbound: &Inbound, hosts: &Hosts) -> Option<(IpAddr, u32)> {
    let first = |texts: [&str; 3]| texts.into_iter().find(|text| !text.is_empty()).map(str::to_owned);
    let address = first([&inbound.service_address, &inbound.address, &networking.address])?;
    let port = if inbound.service_port == 0 { inbound.port } else { inbound.service_port };
    Some((hosts.resolve(&address).ok()?, port))
}

/// As the workload is called among the clusters of its proxy.
fn cluster(port: u32) -> String {
    format!("localhost:{port}")
}

fn of_workload(
    probe: &ServiceProbe,
    name: &str,
    at: Address,
    settings: &CheckSettings,
) -> ClusterHealthCheck {
    let defaults = of_settings(settings, HealthChecker::TcpHealthCheck(TcpHealthCheck::default()));
    let check = HealthCheck {
        timeout: probe.timeout.or(defaults.timeout),
        interval: probe.interval.or(defaults.interval),
        healthy_threshold: probe.healthy_threshold.or(defaults.healthy_threshold),
        unhealthy_threshold: probe.unhealthy_threshold.or(defaults.unhealthy_threshold),
        ..defaults
    };
    of_endpoint(name, at, check)
}

fn of_proxy(admin: &AdminEndpoint, settings: &CheckSettings) -> ClusterHealthCheck {
    let ready = HttpHealthCheck { path: "/ready".to_owned(), ..HttpHealthCheck::default() };
    of_endpoint(ADMIN, admin.local(), of_settings(settings, HealthChecker::HttpHealthCheck(ready)))
}

fn of_settings(settings: &CheckSettings, checker: HealthChecker) -> HealthCheck {
    HealthCheck {
        timeout: Some(duration(settings.timeout)),
        interval: Some(duration(settings.interval)),
        // Nobody sends traffic to these clusters.
        no_traffic_interval: Some(duration(settings.interval)),
        healthy_threshold: Some(UInt32Value { value: settings.healthy_threshold }),
        unhealthy_threshold: Some(UInt32Value { value: settings.unhealthy_threshold }),
        health_checker: Some(checker),
        ..HealthCheck::default()
    }
}

fn of_endpoint(name: &str, at: Address, check: HealthCheck) -> ClusterHealthCheck {
    let endpoint = Endpoint { address: Some(at), ..Endpoint::default() };
    let locality = LocalityEndpoints { endpoints: vec![endpoint], ..LocalityEndpoints::default() };
    ClusterHealthCheck {
        cluster_name: name.to_owned(),
        health_checks: vec![check],
        locality_endpoints: vec![locality],
        ..ClusterHealthCheck::default()
    }
}

impl ObservedHealth {
    /// As the proxy says of those clusters it was `asked` about. What else it names is not kept.
    pub(super) fn of(report: &EndpointHealthResponse, asked: &BTreeSet<String>) -> Self {
        let mut found = Self::default();
        let clusters = report.cluster_endpoints_health.iter();
        for cluster in clusters.filter(|cluster| asked.contains(&cluster.cluster_name)) {
            let endpoints = cluster.locality_endpoints_health.iter().flat_map(|l| &l.endpoints_health);
            let mut states = endpoints.map(|endpoint| {
                matches!(endpoint.health_status(), HealthStatus::Healthy | HealthStatus::Unknown)
            });
            let Some(healthy) = states.next() else { continue };
            if cluster.cluster_name == ADMIN {
                found.proxy = Some(healthy);
            } else {
                found.workloads.insert(cluster.cluster_name.clone(), healthy);
            }
        }
        found
    }

    /// The spec that says this of the inbounds of `resource` that have a probe; `None` when it does already.
    pub(super) fn applied_to(&self, resource: &Resource, hosts: &Hosts) -> Option<proto::Dataplane> {
        let mut spec = resource.spec::<proto::Dataplane>().ok()?;
        let mut networking = spec.networking.take()?;
        let workloads: Vec<_> =
            networking.inbound.iter().map(|inbound| workload(&networking, inbound, hosts)).collect();
        let mut differs = false;
        for (inbound, workload) in networking.inbound.iter_mut().zip(workloads) {
            let found = workload.and_then(|(_, port)| self.workloads.get(&cluster(port)));
            let (Some(found), true) = (found, inbound.service_probe.is_some()) else { continue };
            let state = match *found && self.proxy != Some(false) {
                true => State::Ready,
                false => State::NotReady,
            };
            // What nobody is to see stays so.
            if inbound.state() != State::Ignored && inbound.state() != state {
                differs = true;
                inbound.state = state.into();
                // Older control planes look at this.
                inbound.health = Some(Health { ready: state == State::Ready });
            }
        }
        spec.networking = Some(networking);
        differs.then_some(spec)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use common::{
        document::Document,
        proto::envoy::service::health::v3::{
            ClusterEndpointsHealth, EndpointHealth, LocalityEndpointsHealth,
        },
    };

    use super::*;

    fn dataplane(state: &str) -> Resource {
        let yaml = format!(
            "{{type: Dataplane, mesh: default, name: web-1, networking: {{address: 127.0.0.2, inbound: [{{port: 80, servicePort: \
             8080, state: {state}, serviceProbe: {{interval: 3s, tcp: {{}}}}, tags: {{kuma.io/service: web}}}}, {{port: 81, tags: \
             {{kuma.io/service: other}}}}]}}}}"
        );
        let document = Document::parse(&serde_norway::from_str(&yaml).unwrap()).unwrap();
        document.into_resource(chrono::DateTime::UNIX_EPOCH)
    }

    fn report(clusters: &[(&str, HealthStatus)]) -> ObservedHealth {
        let cluster = |(name, status): &(&str, HealthStatus)| ClusterEndpointsHealth {
            cluster_name: (*name).to_owned(),
            locality_endpoints_health: vec![LocalityEndpointsHealth {
                endpoints_health: vec![EndpointHealth {
                    health_status: (*status).into(),
                    ..EndpointHealth::default()
                }],
                ..LocalityEndpointsHealth::default()
            }],
        };
        let report = EndpointHealthResponse {
            cluster_endpoints_health: clusters.iter().map(cluster).collect(),
            ..EndpointHealthResponse::default()
        };
        let asked = ["localhost:8080", "localhost:81", ADMIN].map(str::to_owned);
        ObservedHealth::of(&report, &asked.into())
    }

    fn states(found: &ObservedHealth, resource: &Resource) -> Option<Vec<State>> {
        let spec = found.applied_to(resource, &Hosts::default())?;
        Some(spec.networking.unwrap().inbound.iter().map(Inbound::state).collect())
    }

    #[test]
    fn what_was_found_is_said_of_inbounds_with_a_probe() {
        use HealthStatus::{Healthy, Timeout, Unhealthy};
        let sick = report(&[("localhost:8080", Unhealthy), ("localhost:81", Unhealthy)]);
        assert_eq!(states(&sick, &dataplane("Ready")), Some(vec![State::NotReady, State::Ready]));
        assert_eq!(states(&sick, &dataplane("NotReady")), None);
        let well = report(&[("localhost:8080", Healthy), (ADMIN, Healthy)]);
        assert_eq!(states(&well, &dataplane("NotReady")), Some(vec![State::Ready, State::Ready]));
        assert_eq!(states(&well, &dataplane("Ready")), None);
        assert_eq!(states(&well, &dataplane("Ignored")), None);
        let ending = report(&[("localhost:8080", Healthy), (ADMIN, Timeout)]);
        assert_eq!(states(&ending, &dataplane("Ready")), Some(vec![State::NotReady, State::Ready]));
        assert_eq!(states(&report(&[]), &dataplane("Ready")), None);
    }

    #[test]
    fn what_nobody_asked_about_is_not_kept() {
        use HealthStatus::Healthy;
        let found = report(&[("localhost:8080", Healthy), ("localhost:8081", Healthy), ("x", Healthy)]);
        assert_eq!(found.workloads.into_keys().collect::<Vec<_>>(), ["localhost:8080"]);
    }

    #[test]
    fn only_what_has_a_probe_is_looked_at() {
        let networking =
            |resource: &Resource| resource.spec::<proto::Dataplane>().unwrap().networking.unwrap();
        let admin = AdminEndpoint {
            address: [127, 0, 0, 1].into(),
            port: 9901,
            socket: Some("/tmp/admin.sock".to_owned()),
            readiness_port: None,
        };
        let mut with_probe = networking(&dataplane("Ready"));
        let settings = CheckSettings::default();
        let wanted = specifier(&with_probe, &Hosts::default(), Some(&admin), &settings).unwrap();
        let names: Vec<&str> =
            wanted.cluster_health_checks.iter().map(|check| check.cluster_name.as_str()).collect();
        assert_eq!(names, ["localhost:8080", ADMIN]);
        let check = &wanted.cluster_health_checks[0].health_checks[0];
        assert_eq!(
            (check.interval.as_ref().unwrap().seconds, check.timeout.as_ref().unwrap().seconds),
            (3, 2)
        );
        with_probe.inbound[0].service_probe = None;
        assert_eq!(specifier(&with_probe, &Hosts::default(), Some(&admin), &settings), None);
    }
}
