//! What is asked for.

use common::rest::ApiError;

use crate::ads::{
    node::{Proxy, ProxyId},
    proxies::StreamId,
};

/// What a connection is called: the id of its node, and its number.
pub(super) fn connection_id(proxy: &ProxyId, stream: StreamId) -> String {
    format!("{proxy}-{stream}")
}

/// The parameters of a request, as they are known to Pilot; what is not known is passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DebugQuery {
    /// A part of the names of the connections that are meant.
    pub(super) proxy: Option<String>,
    /// The sections of a dump that are meant; all if none is named.
    pub(super) types: Vec<String>,
    /// Of which mesh.
    pub(super) mesh: Option<String>,
    /// Of which kind.
    pub(super) kind: Option<String>,
    /// With endpoints.
    pub(super) include_eds: bool,
    /// Bytes instead of names.
    pub(super) sizes: bool,
    /// For people.
    pub(super) pretty: bool,
    /// Push to everybody.
    pub(super) push: bool,
    /// Forget what is kept.
    pub(super) clear: bool,
}

impl DebugQuery {
    /// Reads the parameters.
    ///
    /// # Errors
    /// 400 for a flag that is neither on nor off.
    pub(super) fn read(parameters: &[(String, String)]) -> Result<Self, ApiError> {
        let mut query = Self::default();
        for (name, value) in parameters {
            let text = || Some(value.clone()).filter(|value| !value.is_empty());
            match name.as_str() {
                "proxyID" => query.proxy = text(),
                "types" => query.types = value.split(',').map(str::to_owned).collect(),
                // What Pilot calls a namespace is a mesh here.
                "mesh" | "namespace" => query.mesh = text(),
                "kind" => query.kind = text(),
                "include_eds" => query.include_eds = is_set(name, value)?,
                "sizes" => query.sizes = is_set(name, value)?,
                "pretty" => query.pretty = is_set(name, value)?,
                "push" => query.push = is_set(name, value)?,
                "clear" => query.clear = is_set(name, value)?,
                _ => {}
            }
        }
        query.types.retain(|name| !name.is_empty());
        Ok(query)
    }

    /// Whether a connection is meant.
    pub(super) fn means(&self, proxy: &Proxy, stream: StreamId) -> bool {
        let in_mesh = self.mesh.as_ref().is_none_or(|mesh| **mesh == *proxy.id.mesh);
        let named = |part: &String| connection_id(&proxy.id, stream).contains(part.as_str());
        in_mesh && self.proxy.as_ref().is_none_or(named)
    }

    /// The part of a name without which nothing can be answered.
    ///
    /// # Errors
    /// 400 when there is none.
    pub(super) fn required_proxy(&self) -> Result<&str, ApiError> {
        let needed = || ApiError::bad_request("You must provide a proxyID in the query string");
        self.proxy.as_deref().ok_or_else(needed)
    }
}

/// The bare name sets a flag.
fn is_set(name: &str, value: &str) -> Result<bool, ApiError> {
    match value {
        "" | "1" | "t" | "true" => Ok(true),
        "0" | "f" | "false" => Ok(false),
        _ => Err(ApiError::unsupported(name)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use super::DebugQuery;
    use crate::ads::node::{Proxy, ProxyId, ProxyKind};

    fn read(text: &str) -> Result<DebugQuery, u16> {
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (name.to_owned(), value.to_owned())
        };
        let all: Vec<(String, String)> = text.split('&').filter(|pair| !pair.is_empty()).map(pair).collect();
        DebugQuery::read(&all).map_err(|error| error.status().as_u16())
    }

    #[test]
    fn flags_are_set_by_their_names_and_what_is_neither_on_nor_off_is_refused() {
        let query = read("proxyID=web-1&types=cds,,lds&include_eds&pretty=true&namespace=demo&x=y").unwrap();
        assert_eq!((query.proxy.as_deref(), query.mesh.as_deref()), (Some("web-1"), Some("demo")));
        assert_eq!(query.types, ["cds", "lds"]);
        assert!(query.include_eds && query.pretty && !query.sizes && !query.push);
        assert!(!read("include_eds=false").unwrap().include_eds);
        for flag in ["include_eds", "sizes", "pretty", "push", "clear"] {
            assert_eq!(read(&format!("{flag}=maybe")), Err(400), "{flag}");
        }
        assert_eq!(read("proxyID=").unwrap().required_proxy().unwrap_err().status(), 400);
    }

    #[test]
    fn a_connection_is_meant_by_any_part_of_its_name() {
        let proxy = Proxy {
            id: ProxyId::new(ProxyKind::Dataplane, "demo", "web-1"),
            cluster: Arc::default(),
            metadata: Arc::default(),
            user_agent: String::new(),
        };
        for (query, meant) in [
            ("", true),
            ("proxyID=web", true),
            ("proxyID=demo.web-1-7", true),
            ("proxyID=demo.web-1-8", false),
            ("proxyID=web&mesh=demo", true),
            ("proxyID=web&mesh=other", false),
        ] {
            assert_eq!(read(query).unwrap().means(&proxy, 7), meant, "{query}");
        }
    }
}
