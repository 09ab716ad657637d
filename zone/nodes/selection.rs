//! Which nodes an `EnvoyConfig` is for.

use std::sync::Arc;

use common::{
    envoy_config::{NodeSelector, fits, is_like},
    proto::google::protobuf::{Struct, Value, value::Kind},
};
use serde_json::{Map, Number, Value as Json};

/// What a node says about itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeTraits {
    /// Its id.
    pub(crate) id: Arc<str>,
    /// Its cluster.
    pub(crate) cluster: Arc<str>,
    /// Its metadata.
    pub(crate) metadata: Map<String, Json>,
}

impl NodeTraits {
    /// Of a node with this metadata, whose depth is known to be small.
    pub(crate) fn new(id: &Arc<str>, cluster: &Arc<str>, metadata: &Struct) -> Self {
        Self { id: Arc::clone(id), cluster: Arc::clone(cluster), metadata: object(metadata) }
    }

    /// Whether one of `selectors` selects it.
    pub(crate) fn is_selected(&self, selectors: &[NodeSelector]) -> bool {
        selectors.iter().any(|selector| self.fits(selector))
    }

    fn fits(&self, selector: &NodeSelector) -> bool {
        let NodeSelector { id, cluster, metadata } = selector;
        let mut metadata = metadata.iter().flatten();
        id.as_deref().is_none_or(|id| is_like(id, &self.id))
            && cluster.as_deref().is_none_or(|cluster| is_like(cluster, &self.cluster))
            && metadata.all(|(name, expected)| self.metadata.get(name).is_some_and(|is| fits(expected, is)))
    }
}

fn object(metadata: &Struct) -> Map<String, Json> {
    metadata.fields.iter().map(|(name, value)| (name.clone(), json(value))).collect()
}

fn json(value: &Value) -> Json {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Json::Null,
        Some(Kind::BoolValue(flag)) => Json::Bool(*flag),
        Some(Kind::NumberValue(number)) => Number::from_f64(*number).map_or(Json::Null, Json::Number),
        Some(Kind::StringValue(text)) => Json::String(text.clone()),
        Some(Kind::StructValue(members)) => Json::Object(object(members)),
        Some(Kind::ListValue(list)) => list.values.iter().map(json).collect(),
    }
}

#[cfg(test)]
mod tests {
    use common::envoy_config::EnvoyConfig;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_is_selected_by_everything_one_selector_asks_for() {
        let text = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
        let fields = [
            ("role".to_owned(), text("edge")),
            ("level".to_owned(), Value { kind: Some(Kind::NumberValue(2.0)) }),
        ];
        let metadata = Struct { fields: fields.into_iter().collect() };
        let node = NodeTraits::new(&"edge-1".into(), &"front".into(), &metadata);
        for (nodes, expected) in [
            (json!([{"id": "*"}]), true),
            (json!([{"id": "edge-1"}]), true),
            (json!([{"id": "edge-2"}]), false),
            (json!([{"id": "edge-2"}, {"cluster": "front"}]), true),
            (json!([{"id": "edge-*", "cluster": "back"}]), false),
            (json!([{"metadata": {"role": "edge", "level": 2}}]), true),
            (json!([{"metadata": {"role": "edge", "color": "*"}}]), false),
            (json!([{"cluster": "f*t", "metadata": {"role": "e*"}}]), true),
        ] {
            let config: Option<EnvoyConfig> = serde_json::from_value(json!({ "nodes": nodes })).ok();
            assert_eq!(config.map(|config| node.is_selected(&config.nodes)), Some(expected), "{nodes}");
        }
    }
}
