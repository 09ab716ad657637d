//! Policies of the older kinds come, change and go.

use chrono::{DateTime, TimeDelta};
use common::{model::ResourceKey, policy::legacy::KINDS};
use rand::Rng;

use super::World;

impl World {
    /// One random change of them.
    pub(super) fn change_legacy(&mut self, n: usize, one: &str, other: &str) {
        // Without routes those about calls have no effect.
        let kind = match self.rng.random_range(0..3_u32) {
            0 => KINDS.into_iter().find(|kind| kind.name == "TrafficRoute").unwrap(),
            _ => KINDS[self.rng.random_range(0..KINDS.len())],
        };
        let name = format!("older-{}", self.rng.random_range(0..2_u32));
        if self.rng.random_range(0..4_u32) == 0 {
            self.apply(ResourceKey::new(kind, "default", &name), None);
            return;
        }
        let who = [
            "{kuma.io/service: '*'}".to_owned(),
            "{kuma.io/service: '*', version: v1}".to_owned(),
            format!("{{kuma.io/service: {one}}}"),
        ];
        let whom = [
            "{kuma.io/service: '*'}".to_owned(),
            format!("{{kuma.io/service: {other}}}"),
            "{kuma.io/service: dataplane-metrics}".to_owned(),
        ];
        let who = &who[self.rng.random_range(0..who.len())];
        let whom = &whom[self.rng.random_range(0..whom.len())];
        let seconds = n + 1;
        let conf = match kind.name {
            "TrafficRoute" => match n % 4 {
                0 => "destination: {kuma.io/service: '*'}".to_owned(),
                1 => format!(
                    "destination: {{kuma.io/service: {one}, version: v0}}, loadBalancer: {{random: {{}}}}"
                ),
                2 => format!(
                    "split: [{{weight: 1, destination: {{kuma.io/service: {one}}}}}, {{weight: {seconds}, destination: \
                     {{kuma.io/service: '*', version: v1}}}}]"
                ),
                _ => format!(
                    "http: [{{match: {{path: {{prefix: /{n}}}}}, destination: {{kuma.io/service: {one}}}}}], destination: \
                     {{kuma.io/service: '*'}}"
                ),
            },
            "Timeout" => format!("connectTimeout: {seconds}s"),
            "Retry" => format!("http: {{numRetries: {seconds}}}, tcp: {{maxConnectAttempts: {seconds}}}"),
            "CircuitBreaker" => format!("thresholds: {{maxConnections: {seconds}}}"),
            "HealthCheck" => {
                format!("interval: {seconds}s, timeout: 1s, unhealthyThreshold: 1, healthyThreshold: 1")
            }
            "TrafficLog" | "TrafficTrace" => ["backend: a", "backend: none", "backend: ''"][n % 3].to_owned(),
            "FaultInjection" => format!("abort: {{percentage: {n}, httpStatus: 500}}"),
            "RateLimit" => format!("http: {{requests: {seconds}, interval: 1s}}"),
            "ProxyTemplate" => format!(
                "imports: [default-proxy], modifications: [{{cluster: {{operation: patch, match: {{name: {one}}}, value: \
                 'connectTimeout: {seconds}s'}}}}]"
            ),
            _ => String::new(),
        };
        let selected = match kind.name {
            "TrafficTrace" | "ProxyTemplate" => format!("selectors: [{{match: {who}}}]"),
            _ => format!("sources: [{{match: {who}}}], destinations: [{{match: {whom}}}]"),
        };
        let conf = if conf.is_empty() { conf } else { format!(", conf: {{{conf}}}") };
        let created = DateTime::UNIX_EPOCH + TimeDelta::seconds(self.rng.random_range(0..2));
        let kind = kind.name;
        self.put_at(created, &format!("{{type: {kind}, mesh: default, name: {name}, {selected}{conf}}}"), "");
    }
}
