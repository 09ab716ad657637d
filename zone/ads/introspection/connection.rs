//! Connections: one for each stream of each client, whether a proxy of a mesh or a node of none.

use std::{sync::Arc, time::Duration};

use common::rest::ApiError;
use tokio::time::{Instant, timeout_at};

use super::{query::connection_id, request::DebugRequest};
use crate::ads::{
    config::ProxyConfig,
    inquiry::{InquiryScope, StreamReport},
    node::Proxy,
    proxies::{AskedProxy, ProxyView, StreamId, StreamView},
};

/// How long streams may take to say what they told their clients.
const REPORTED_WITHIN: Duration = Duration::from_secs(5);

/// A client and what its streams say, the newest last.
pub(super) struct ReportedClient {
    pub(super) proxy: Arc<Proxy>,
    pub(super) config: Option<Arc<ProxyConfig>>,
    pub(super) problems: Arc<[String]>,
    pub(super) streams: Vec<(StreamView, Option<StreamReport>)>,
}

impl DebugRequest {
    /// Clients with connections that are meant.
    pub(super) fn clients(&self) -> Vec<ProxyView> {
        let means = |proxy: &Proxy, stream: StreamId| self.query.means(proxy, stream);
        let mut all = self.seen().proxies.view_of(means);
        all.extend(self.seen().nodes.view_of(means));
        all
    }

    /// The same, with what their streams say when they are asked.
    pub(super) async fn reports(&self, scope: InquiryScope) -> Vec<ReportedClient> {
        let means = |proxy: &Proxy, stream: StreamId| self.query.means(proxy, stream);
        let mut asked = self.seen().proxies.ask(scope, means);
        asked.extend(self.seen().nodes.ask(scope, means));
        reported(asked).await
    }

    /// The one client that is meant, with what its streams say: the one of this name, else the first that has the name
    /// as a part of its own.
    pub(super) async fn report(&self) -> Result<ReportedClient, ApiError> {
        let wanted = self.query.required_proxy()?;
        let found = self.clients();
        let is_called = |client: &&ProxyView| {
            let id = client.proxy.id.to_string();
            id == wanted
                || client.streams.iter().any(|stream| connection_id(&client.proxy.id, stream.id) == wanted)
        };
        let client = found.iter().find(is_called).or_else(|| found.first());
        let away = || ApiError::not_found("The proxy is not connected to this control plane");
        let client = Arc::clone(&client.ok_or_else(away)?.proxy);
        let is = |proxy: &Proxy, _| proxy.id == client.id;
        let among = if client.id.is_of_no_mesh() { &self.seen().nodes } else { &self.seen().proxies };
        let asked = among.ask(InquiryScope::Resources, is);
        reported(asked).await.into_iter().next().ok_or_else(away)
    }
}

async fn reported(asked: Vec<AskedProxy>) -> Vec<ReportedClient> {
    let until = Instant::now() + REPORTED_WITHIN;
    let mut clients = Vec::with_capacity(asked.len());
    for client in asked {
        let mut streams = Vec::with_capacity(client.streams.len());
        for (view, answer) in client.streams {
            let told = match answer {
                // One that ended meanwhile says nothing.
                Some(answer) => timeout_at(until, answer).await.ok().and_then(Result::ok),
                None => None,
            };
            streams.push((view, told));
        }
        let AskedProxy { proxy, config, problems, .. } = client;
        clients.push(ReportedClient { proxy, config, problems, streams });
    }
    clients
}
