//! What is looked up of certificates when somebody asks for the metrics.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, Utc};
use common::metering::{self, samples::Samples};

use super::ProxyInsights;

impl ProxyInsights {
    /// Takes down when the first certificate of each mesh runs out, of those that were signed here.
    pub(in crate::ads) fn sample(&self, samples: &mut Samples) {
        let mut first: BTreeMap<Arc<str>, DateTime<Utc>> = BTreeMap::new();
        for (proxy, (certificate, _)) in &self.lock().certificates {
            let life = certificate.as_ref().and_then(|certificate| certificate.life);
            if let Some((_, ends)) = life {
                let known = first.entry(Arc::clone(&proxy.mesh)).or_insert(ends);
                *known = ends.min(*known);
            }
        }
        for (mesh, ends) in first {
            // Seconds of a century fit into a float.
            #[expect(clippy::cast_precision_loss)]
            let ends = ends.timestamp() as f64;
            let mesh = metering::mesh(&mesh);
            samples.add("xds_cert_expiration_timestamp_seconds", &[("mesh", &mesh)], ends);
        }
    }
}
