#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::model::Scope;

mod corpus;
mod verdicts;

/// What peers expect of every kind. Flags: `g` and `z` may be written on global and on a zone, `d` is
/// requested by zones, `u` is requested by global, `x` is forwarded between zones. The fourth column says
/// what becomes of a name on its way down.
const TABLE: &str = "
    AccessRole                Global gzd   skip JSON        accessroles
    AccessRoleBinding         Global gzd   skip JSON        accessrolebindings
    CircuitBreaker            Mesh   gd    hash proto       circuit-breakers
    Config                    Global gzd   skip proto       -
    Dataplane                 Mesh   zu    -    proto       dataplanes
    DataplaneInsight          Mesh   zu    -    proto       dataplane-insights
    EnvoyConfig               Global z     -    JSON        envoyconfigs
    ExternalService           Mesh   gd    hash proto       external-services
    FaultInjection            Mesh   gd    hash proto       fault-injections
    GlobalSecret              Global gzd   skip proto       globalsecrets
    HealthCheck               Mesh   gd    hash proto       health-checks
    HostnameGenerator         Global gzdu  hash JSON        hostnamegenerators
    Mesh                      Global gd    skip proto       meshes
    MeshAccessLog             Mesh   gzdux hash JSON+status meshaccesslogs
    MeshCircuitBreaker        Mesh   gzdux hash JSON        meshcircuitbreakers
    MeshExternalService       Mesh   gzdu  hash JSON+status meshexternalservices
    MeshFaultInjection        Mesh   gzdux hash JSON        meshfaultinjections
    MeshGateway               Mesh   gzdu  hash proto       meshgateways
    MeshGatewayRoute          Mesh   gd    hash proto       meshgatewayroutes
    MeshHTTPRoute             Mesh   gzdux hash JSON        meshhttproutes
    MeshHealthCheck           Mesh   gzdux hash JSON        meshhealthchecks
    MeshIdentity              Mesh   gzdu  hash JSON+status meshidentities
    MeshInsight               Global g     -    proto       mesh-insights
    MeshLoadBalancingStrategy Mesh   gzdux hash JSON        meshloadbalancingstrategies
    MeshMetric                Mesh   gzdux hash JSON+status meshmetrics
    MeshMultiZoneService      Mesh   gd    hash JSON+status meshmultizoneservices
    MeshOpenTelemetryBackend  Mesh   gzdu  hash JSON+status meshopentelemetrybackends
    MeshPassthrough           Mesh   gzdux hash JSON        meshpassthroughs
    MeshProxyPatch            Mesh   gzdux hash JSON        meshproxypatches
    MeshRateLimit             Mesh   gzdux hash JSON        meshratelimits
    MeshRetry                 Mesh   gzdux hash JSON        meshretries
    MeshService               Mesh   zdux  hash JSON+status meshservices
    MeshTCPRoute              Mesh   gzdux hash JSON        meshtcproutes
    MeshTLS                   Mesh   gzdux hash JSON        meshtlses
    MeshTimeout               Mesh   gzdux hash JSON        meshtimeouts
    MeshTrace                 Mesh   gzdux hash JSON+status meshtraces
    MeshTrafficPermission     Mesh   gzdux hash JSON        meshtrafficpermissions
    MeshTrust                 Mesh   gzdu  hash JSON+status meshtrusts
    MeshZoneAddress           Mesh   zdux  hash JSON        meshzoneaddresses
    ProxyTemplate             Mesh   gd    hash proto       proxytemplates
    RateLimit                 Mesh   gd    hash proto       rate-limits
    Retry                     Mesh   gd    hash proto       retries
    Rollout                   Global g     -    JSON        rollouts
    RolloutInsight            Global g     -    JSON        rollout-insights
    RolloutKept               Global g     -    JSON        -
    Secret                    Mesh   gzd   skip proto       secrets
    ServiceInsight            Mesh   gd    hash proto       service-insights
    Timeout                   Mesh   gd    hash proto       timeouts
    TrafficLog                Mesh   gd    hash proto       traffic-logs
    TrafficPermission         Mesh   gd    hash proto       traffic-permissions
    TrafficRoute              Mesh   gd    hash proto       traffic-routes
    TrafficTrace              Mesh   gd    hash proto       traffic-traces
    VirtualOutbound           Mesh   gd    hash proto       virtual-outbounds
    Workload                  Mesh   zu    -    JSON+status workloads
    Zone                      Global gz    -    proto       zones
    ZoneEgress                Global zu    -    proto       zoneegresses
    ZoneEgressInsight         Global zu    -    proto       zoneegressinsights
    ZoneIngress               Global zdux  hash proto       zoneingresses
    ZoneIngressInsight        Global zu    -    proto       zone-ingress-insights
    ZoneInsight               Global gz    -    proto       zone-insights
";

#[test]
fn kinds_are_as_peers_expect_them() {
    let rows: Vec<Vec<&str>> = TABLE.trim().lines().map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), ALL.len());
    for row in rows {
        let kind = by_name(row[0]).unwrap_or_else(|| panic!("no kind {}", row[0]));
        let flow = kind.flow;
        let scope = if kind.scope == Scope::Mesh { "Mesh" } else { "Global" };
        let flags = [
            (flow.written_by_global(), 'g'),
            (flow.written_by_zone(), 'z'),
            (flow.requested_by_zone(), 'd'),
            (flow.requested_by_global(), 'u'),
            (flow.across_zones(), 'x'),
        ];
        let flags: String = flags.into_iter().filter_map(|(is, flag)| is.then_some(flag)).collect();
        let name = match (flow.requested_by_zone(), kind.keeps_name) {
            (false, _) => "-",
            (true, true) => "skip",
            (true, false) => "hash",
        };
        let spec = match (kind.is_json(), kind.has_status()) {
            (false, _) => "proto",
            (true, false) => "JSON",
            (true, true) => "JSON+status",
        };
        let path = if kind.path.is_empty() { "-" } else { kind.path };
        assert_eq!([kind.name, scope, &flags, name, spec, path], *row);
    }
}

/// What people call every kind: a second path, the argument of kumactl, the short name; and whether only
/// administrators may see it.
const NAMES: &str = "
    AccessRole                -                accessrole               -        admin
    AccessRoleBinding         -                accessrolebinding        -        admin
    CircuitBreaker            -                circuit-breaker          -        -
    Config                    -                -                        -        -
    Dataplane                 -                dataplane                dp       -
    DataplaneInsight          -                -                        -        -
    EnvoyConfig               -                envoyconfig              ec       admin
    ExternalService           -                external-service         -        -
    FaultInjection            -                fault-injection          -        -
    GlobalSecret              global-secrets   global-secret            -        admin
    HealthCheck               -                healthcheck              -        -
    HostnameGenerator         -                hostnamegenerator        hg       -
    Mesh                      -                mesh                     m        -
    MeshAccessLog             -                meshaccesslog            mal      -
    MeshCircuitBreaker        -                meshcircuitbreaker       mcb      -
    MeshExternalService       -                meshexternalservice      extsvc   -
    MeshFaultInjection        -                meshfaultinjection       mfi      -
    MeshGateway               -                meshgateway              mgw      -
    MeshGatewayRoute          -                meshgatewayroute         -        -
    MeshHTTPRoute             -                meshhttproute            mhttpr   -
    MeshHealthCheck           -                meshhealthcheck          mhc      -
    MeshIdentity              -                meshidentity             mid      -
    MeshInsight               -                -                        -        -
    MeshLoadBalancingStrategy -                meshloadbalancingstrategy mlbs     -
    MeshMetric                -                meshmetric               mm       -
    MeshMultiZoneService      -                meshmultizoneservice     mzsvc    -
    MeshOpenTelemetryBackend  -                meshopentelemetrybackend motb     -
    MeshPassthrough           -                meshpassthrough          mp       -
    MeshProxyPatch            -                meshproxypatch           mpp      -
    MeshRateLimit             -                meshratelimit            mrl      -
    MeshRetry                 -                meshretry                mr       -
    MeshService               -                meshservice              msvc     -
    MeshTCPRoute              -                meshtcproute             mtcpr    -
    MeshTLS                   -                meshtls                  mtls     -
    MeshTimeout               -                meshtimeout              mt       -
    MeshTrace                 -                meshtrace                mtr      -
    MeshTrafficPermission     -                meshtrafficpermission    mtp      -
    MeshTrust                 -                meshtrust                mtrust   -
    MeshZoneAddress           -                meshzoneaddress          mza      -
    ProxyTemplate             -                proxytemplate            -        -
    RateLimit                 -                rate-limit               -        -
    Retry                     -                retry                    -        -
    Rollout                   -                rollout                  -        -
    RolloutInsight            -                -                        -        -
    RolloutKept               -                -                        -        -
    Secret                    -                secret                   -        admin
    ServiceInsight            -                -                        -        -
    Timeout                   -                timeout                  -        -
    TrafficLog                -                traffic-log              -        -
    TrafficPermission         -                traffic-permission       -        -
    TrafficRoute              -                traffic-route            -        -
    TrafficTrace              -                traffic-trace            -        -
    VirtualOutbound           -                virtual-outbound         -        -
    Workload                  -                workload                 wl       -
    Zone                      -                zone                     z        -
    ZoneEgress                -                zoneegress               ze       -
    ZoneEgressInsight         -                -                        -        -
    ZoneIngress               zone-ingresses   zoneingress              zi       -
    ZoneIngressInsight        -                -                        -        -
    ZoneInsight               -                -                        -        -
";

#[test]
fn kinds_are_called_what_people_call_them() {
    let rows: Vec<Vec<&str>> = NAMES.trim().lines().map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), ALL.len());
    for row in rows {
        let kind = by_name(row[0]).unwrap_or_else(|| panic!("no kind {}", row[0]));
        let shown = |name: &'static str| if name.is_empty() { "-" } else { name };
        let admin = if kind.admin_only { "admin" } else { "-" };
        assert_eq!([kind.name, shown(kind.alias), shown(kind.arg), shown(kind.short), admin], *row);
    }
}

#[test]
fn an_argument_or_short_name_means_one_kind() {
    let mut meant = BTreeMap::new();
    for kind in ALL.iter() {
        for name in [kind.arg, kind.short, kind.path, kind.alias].into_iter().filter(|name| !name.is_empty())
        {
            let other = meant.insert(name, kind.name).filter(|other| *other != kind.name);
            assert_eq!(other, None, "{name} means {} as well", kind.name);
        }
    }
}

#[test]
fn names_and_paths_are_unique() {
    let mut seen = BTreeSet::new();
    for kind in ALL.iter() {
        assert!(seen.insert(kind.name), "two kinds are called {}", kind.name);
        for path in [kind.path, kind.alias].into_iter().filter(|p| !p.is_empty()) {
            assert!(seen.insert(path), "two kinds are served at {path}");
        }
    }
}

/// The lists a Kuma 2.14 peer requests.
#[test]
fn sync_lists_have_the_size_peers_expect() {
    assert_eq!(ALL.len(), 60);
    let of_kuma = || ALL.iter().filter(|kind| kind.known_by.is_none());
    assert_eq!(of_kuma().filter(|k| k.flow.requested_by_zone()).count(), 45);
    assert_eq!(ALL.iter().filter(|k| k.flow.requested_by_global()).count(), 31);
}

#[test]
fn what_is_sent_down_without_a_status_is_valid_json() {
    for kind in ALL.iter().filter(|kind| kind.has_status()) {
        let status: serde_json::Value = serde_json::from_str(kind.empty_status).unwrap();
        assert!(status.is_object(), "{}", kind.name);
    }
}

#[test]
fn every_kind_is_typed() {
    let opaque: Vec<&str> = ALL.iter().filter(|kind| !kind.is_typed).map(|kind| kind.name).collect();
    assert_eq!(opaque, [""; 0]);
}
