//! The layer of the runtime that an Envoy gets over RTDS.

use std::sync::Arc;

use common::{proto::envoy::service::runtime::v3::Runtime, structure};
use serde_json::{Map, Value};

use super::resource_set::{Encoded, type_url};

/// Announced by proxies whose bootstrap has a place for the layer. Not known to Kuma.
pub const FEATURE_RUNTIME: &str = "feature-runtime-layer";
/// Its name, in the bootstrap and over RTDS.
pub(crate) const RUNTIME_LAYER: &str = "mesh";

/// A layer with these values.
pub(crate) fn layer(values: Map<String, Value>) -> Arc<Encoded> {
    let runtime = Runtime { name: RUNTIME_LAYER.to_owned(), layer: Some(structure::from_json(values)) };
    Arc::new(Encoded::new(RUNTIME_LAYER, type_url::RUNTIME, "runtime", &runtime))
}
