//! Reverse calls: global asks over streams that the zone opened, and the zone answers.
//!
//! There is one stream per kind of question, each with messages of its own; here they become one [`Call`]
//! and one [`Answer`].

use bytes::Bytes;

use crate::{
    envoy_admin::{AdminFormat, Ask, ConfigOptions},
    model::ResourceKey,
    proto::kuma::mesh::v1alpha1::{
        AdminOutputFormat, ClustersRequest, ClustersResponse, StatsRequest, StatsResponse, StraitPlan,
        XdsConfigRequest, XdsConfigResponse, clusters_response, stats_response, xds_config_response,
    },
    registry,
};

/// How long a zone takes at most. Global of Kuma gives up after 10 s, and takes an answer after that for a
/// breach of the protocol.
pub const ANSWER_WITHIN: std::time::Duration = std::time::Duration::from_secs(8);
/// Questions answered at once per stream. An answer may fill a whole message.
pub const AT_ONCE: usize = 8;

/// A question of global about the Envoy of one proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The answer bears the same.
    pub id: String,
    /// Kind of the proxy, as a resource type.
    pub resource_type: String,
    /// Its mesh, empty for zone proxies.
    pub mesh: String,
    /// Its name in the zone.
    pub name: String,
    /// What is asked.
    pub ask: Ask,
}

/// What a zone says to a [`Call`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// That of the call.
    pub id: String,
    /// What Envoy said, or why it did not.
    pub result: Result<Bytes, String>,
}

impl Call {
    /// The proxy it is about, unless no resource of that type has an Envoy.
    pub fn proxy(&self) -> Option<ResourceKey> {
        let kind = registry::by_name(&self.resource_type).filter(|kind| kind.is_proxy)?;
        Some(ResourceKey::new(kind, if kind.is_mesh_scoped() { &self.mesh } else { "" }, &self.name))
    }

    fn format(&self) -> AdminOutputFormat {
        if self.ask.is_json() { AdminOutputFormat::Json } else { AdminOutputFormat::Text }
    }
}

fn format(of: AdminOutputFormat) -> AdminFormat {
    match of {
        AdminOutputFormat::Text => AdminFormat::Text,
        AdminOutputFormat::Json => AdminFormat::Json,
    }
}

impl From<XdsConfigRequest> for Call {
    fn from(request: XdsConfigRequest) -> Self {
        Self {
            ask: match request.strait_plan {
                Some(StraitPlan { shadow, diff }) => Ask::Plan(ConfigOptions { shadow, diff }),
                None => Ask::ConfigDump { include_eds: request.include_eds },
            },
            id: request.request_id,
            resource_type: request.resource_type,
            mesh: request.resource_mesh,
            name: request.resource_name,
        }
    }
}

impl From<StatsRequest> for Call {
    fn from(request: StatsRequest) -> Self {
        Self {
            ask: Ask::Stats { format: format(request.format()), used_only: request.used_only },
            id: request.request_id,
            resource_type: request.resource_type,
            mesh: request.resource_mesh,
            name: request.resource_name,
        }
    }
}

impl From<ClustersRequest> for Call {
    fn from(request: ClustersRequest) -> Self {
        Self {
            ask: Ask::Clusters { format: format(request.format()) },
            id: request.request_id,
            resource_type: request.resource_type,
            mesh: request.resource_mesh,
            name: request.resource_name,
        }
    }
}

impl From<Call> for XdsConfigRequest {
    fn from(call: Call) -> Self {
        Self {
            include_eds: matches!(call.ask, Ask::ConfigDump { include_eds: true }),
            strait_plan: match call.ask {
                Ask::Plan(ConfigOptions { shadow, diff }) => Some(StraitPlan { shadow, diff }),
                _ => None,
            },
            request_id: call.id,
            resource_type: call.resource_type,
            resource_name: call.name,
            resource_mesh: call.mesh,
        }
    }
}

impl From<Call> for StatsRequest {
    fn from(call: Call) -> Self {
        Self {
            format: call.format().into(),
            used_only: matches!(call.ask, Ask::Stats { used_only: true, .. }),
            request_id: call.id,
            resource_type: call.resource_type,
            resource_name: call.name,
            resource_mesh: call.mesh,
        }
    }
}

impl From<Call> for ClustersRequest {
    fn from(call: Call) -> Self {
        Self {
            format: call.format().into(),
            request_id: call.id,
            resource_type: call.resource_type,
            resource_name: call.name,
            resource_mesh: call.mesh,
        }
    }
}

impl From<Answer> for XdsConfigResponse {
    fn from(Answer { id, result }: Answer) -> Self {
        use xds_config_response::Result::{Config, Error};
        Self { request_id: id, result: Some(result.map_or_else(Error, Config)) }
    }
}

impl From<Answer> for StatsResponse {
    fn from(Answer { id, result }: Answer) -> Self {
        use stats_response::Result::{Error, Stats};
        Self { request_id: id, result: Some(result.map_or_else(Error, Stats)) }
    }
}

impl From<Answer> for ClustersResponse {
    fn from(Answer { id, result }: Answer) -> Self {
        use clusters_response::Result::{Clusters, Error};
        Self { request_id: id, result: Some(result.map_or_else(Error, Clusters)) }
    }
}

// An answer without a result is an empty one: so Kuma's zones send it.

impl From<XdsConfigResponse> for Answer {
    fn from(response: XdsConfigResponse) -> Self {
        use xds_config_response::Result::{Config, Error};
        let result = match response.result {
            Some(Error(reason)) => Err(reason),
            Some(Config(body)) => Ok(body),
            None => Ok(Bytes::new()),
        };
        Self { id: response.request_id, result }
    }
}

impl From<StatsResponse> for Answer {
    fn from(response: StatsResponse) -> Self {
        use stats_response::Result::{Error, Stats};
        let result = match response.result {
            Some(Error(reason)) => Err(reason),
            Some(Stats(body)) => Ok(body),
            None => Ok(Bytes::new()),
        };
        Self { id: response.request_id, result }
    }
}

impl From<ClustersResponse> for Answer {
    fn from(response: ClustersResponse) -> Self {
        use clusters_response::Result::{Clusters, Error};
        let result = match response.result {
            Some(Error(reason)) => Err(reason),
            Some(Clusters(body)) => Ok(body),
            None => Ok(Bytes::new()),
        };
        Self { id: response.request_id, result }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_answers_survive_their_messages() {
        let call = |ask| Call {
            id: "1".to_owned(),
            resource_type: "Dataplane".to_owned(),
            mesh: "default".to_owned(),
            name: "web-1".to_owned(),
            ask,
        };
        for include_eds in [false, true] {
            let call = call(Ask::ConfigDump { include_eds });
            assert_eq!(Call::from(XdsConfigRequest::from(call.clone())), call);
        }
        for format in [AdminFormat::Text, AdminFormat::Json] {
            let stats = call(Ask::Stats { format, used_only: format == AdminFormat::Json });
            assert_eq!(Call::from(StatsRequest::from(stats.clone())), stats);
            let clusters = call(Ask::Clusters { format });
            assert_eq!(Call::from(ClustersRequest::from(clusters.clone())), clusters);
        }
        for result in [Ok(Bytes::from_static(b"{}")), Err("no".to_owned())] {
            let answer = Answer { id: "1".to_owned(), result };
            assert_eq!(Answer::from(XdsConfigResponse::from(answer.clone())), answer);
            assert_eq!(Answer::from(StatsResponse::from(answer.clone())), answer);
            assert_eq!(Answer::from(ClustersResponse::from(answer.clone())), answer);
        }
        let empty = StatsResponse { request_id: "1".to_owned(), result: None };
        assert_eq!(Answer::from(empty).result, Ok(Bytes::new()));
    }

    #[test]
    fn only_proxies_have_an_envoy() {
        let proxy = |resource_type: &str| {
            let call = Call {
                id: String::new(),
                resource_type: resource_type.to_owned(),
                mesh: "default".to_owned(),
                name: "a".to_owned(),
                ask: Ask::ConfigDump { include_eds: false },
            };
            call.proxy().map(|key| key.to_string())
        };
        assert_eq!(proxy("Dataplane").as_deref(), Some("Dataplane default/a"));
        assert_eq!(proxy("ZoneIngress").as_deref(), Some("ZoneIngress a"));
        assert_eq!(proxy("ZoneEgress").as_deref(), Some("ZoneEgress a"));
        assert_eq!(proxy("Secret"), None);
    }
}
