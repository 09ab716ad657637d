//! What every control plane looks up when somebody asks for its metrics.

use std::sync::{Arc, Weak};

use crate::{
    metering::{ProcessUse, samples::Sampled},
    registry,
    runtime::Env,
    store::{Store, index::IndexReader},
};

/// Has `sampled` look at the process, at `store`, and at what `index` holds.
pub(super) fn sample(sampled: &Sampled, env: &Env, store: &Arc<dyn Store>, index: &IndexReader) {
    let process = ProcessUse::since(env.now());
    let (instance, identity) = (Arc::clone(&env.instance_id), store.identity());
    // The store belongs to those who close it.
    let (store, index): (Weak<dyn Store>, _) = (Arc::downgrade(store), index.clone());
    sampled.add(move |samples| {
        process.sample(samples);
        let cluster = identity.store_id.to_string();
        samples.add(
            "cp_info",
            &[
                ("product", "Strait"),
                ("version", env!("CARGO_PKG_VERSION")),
                ("instance_id", &instance),
                ("cluster_id", &cluster),
            ],
            1.0,
        );
        let current = index.current();
        for kind in registry::ALL.iter() {
            let count = u32::try_from(current.count(kind)).unwrap_or(u32::MAX);
            if count > 0 {
                samples.add("resources_count", &[("resource_type", kind.name)], count.into());
            }
        }
        for pool in store.upgrade().iter().flat_map(|store| store.connections()) {
            for (what, count) in
                [("open_connections", pool.in_use + pool.idle), ("in_use", pool.in_use), ("idle", pool.idle)]
            {
                samples.add(
                    "store_postgres_connections",
                    &[("type", what), ("pool", pool.pool)],
                    count.into(),
                );
            }
            samples.add("store_postgres_connections_max", &[("pool", pool.pool)], pool.most.into());
        }
    });
}
