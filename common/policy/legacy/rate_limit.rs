//! `RateLimit`: how many requests an inbound takes of each of its clients' groups.

use super::check::{ANYBODY, is_nothing, selectors};
use crate::{
    model::{FieldPath, Kind, MessageSpec, Violations},
    proto::kuma::mesh::v1alpha1::RateLimit,
};

/// The descriptor.
pub static KIND: Kind = super::kind("RateLimit", "rate-limits", "kuma.mesh.v1alpha1.RateLimit", "rate-limit")
    .typed::<RateLimit>();

impl MessageSpec for RateLimit {
    fn violations(&self) -> Violations {
        let mut violations = selectors("sources", &self.sources, ANYBODY);
        violations.extend(selectors("destinations", &self.destinations, ANYBODY));
        let path = FieldPath::new("conf");
        let Some(conf) = &self.conf else {
            violations.add(path, "must have conf");
            return violations;
        };
        let Some(http) = &conf.http else { return violations };
        let path = path.field("http");
        violations.check(http.requests == 0, path.field("requests"), "requests must be set");
        let no_interval = http.interval.as_ref().is_none_or(is_nothing);
        violations.check(no_interval, path.field("interval"), "interval must be set");
        let path = path.field("onRateLimit").field("header");
        for (i, header) in http.on_rate_limit.iter().flat_map(|answer| &answer.headers).enumerate() {
            let path = path.key(&i.to_string());
            violations.check(header.key.is_empty(), path.clone(), "key must be set");
            violations.check(header.value.is_empty(), path, "value must be set");
        }
        violations
    }
}
