//! One proxy: which is meant, and what its Envoy or its control plane says it has.

mod dump;

use std::{fs, io::Read};

use anyhow::{Context, bail};
use reqwest::{Method, StatusCode};
use serde_json::Value;

pub(crate) use self::dump::{DumpedItem, ProxyDump, text};
use crate::{
    client::ApiClient,
    kinds::{query, segment},
};

/// Bytes of a dump.
const LONGEST: u64 = 256 << 20;
/// The mesh that is meant where none is named.
const DEFAULT_MESH: &str = "default";

/// A client of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProxyPlace {
    /// One with a resource, which is at this path.
    Resource(String),
    /// A node that belongs to no mesh, by its id.
    Node(String),
}

impl ProxyPlace {
    /// The proxy of this name: a dataplane of `mesh`, `MESH.NAME` as nodes are called, a zone ingress, a zone egress, or
    /// a node that is connected.
    pub(crate) async fn find(client: &ApiClient, name: &str, mesh: Option<&str>) -> anyhow::Result<Self> {
        for path in paths(name, mesh) {
            let answer = client.send(Method::GET, &path, None).await?;
            if answer.status != StatusCode::NOT_FOUND {
                answer.success()?;
                return Ok(Self::Resource(path));
            }
        }
        if Self::is_node(client, name).await? {
            return Ok(Self::Node(name.to_owned()));
        }
        let mesh = mesh.unwrap_or(DEFAULT_MESH);
        bail!(
            "there is no proxy {name} in mesh {mesh}; `straitctl proxy-status` lists those that are connected"
        )
    }

    /// Whether a node of this id is connected; a control plane that knows no nodes has none.
    async fn is_node(client: &ApiClient, name: &str) -> anyhow::Result<bool> {
        let path = format!("/debug/connections{}", query(&[("proxyID", name.to_owned())]));
        let answer = client.send(Method::GET, &path, None).await?;
        if matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED) {
            return Ok(false);
        }
        let found: Value = answer.success()?.json()?;
        let mut ids = found["clients"].as_array().into_iter().flatten();
        let is_of_it = |id: &str| id.rsplit_once('-').is_some_and(|(node, _)| node == name);
        Ok(ids.any(|client| client["connectionId"].as_str().is_some_and(is_of_it)))
    }

    /// What its Envoy has.
    pub(crate) async fn envoy(&self, client: &ApiClient) -> anyhow::Result<ProxyDump> {
        let path = match self {
            Self::Resource(path) => format!("{path}/xds?include_eds=true"),
            Self::Node(id) => {
                bail!("nobody here can ask the Envoy of node {id}; --held shows what is held for it")
            }
        };
        let answer = client.send(Method::GET, &path, None).await?;
        if answer.status == StatusCode::BAD_REQUEST {
            bail!("{:#}; --held shows what the control plane holds for it", answer.error());
        }
        ProxyDump::of_envoy(&answer.success()?.json()?)
    }

    /// What the control plane holds for it.
    pub(crate) async fn held(&self, client: &ApiClient) -> anyhow::Result<ProxyDump> {
        match self {
            Self::Resource(path) => Ok(ProxyDump::of_plan(&client.get(&format!("{path}/_config")).await?)),
            Self::Node(id) => {
                let asked = query(&[("proxyID", id.clone()), ("include_eds", "true".to_owned())]);
                ProxyDump::of_envoy(&client.get(&format!("/debug/config_dump{asked}")).await?)
            }
        }
    }

    /// Its endpoints, as its Envoy sees them at the moment.
    pub(crate) async fn endpoints(&self, client: &ApiClient) -> anyhow::Result<ProxyDump> {
        let path = match self {
            Self::Resource(path) => format!("{path}/clusters?format=json"),
            Self::Node(id) => {
                bail!("nobody here can ask the Envoy of node {id}; --held shows what is held for it")
            }
        };
        ProxyDump::of_envoy(&client.get(&path).await?)
    }
}

/// Where resources would be that are called so.
fn paths(name: &str, mesh: Option<&str>) -> Vec<String> {
    let dataplane =
        |mesh: &str, name: &str| format!("/meshes/{}/dataplanes/{}", segment(mesh), segment(name));
    let mut paths = Vec::new();
    let of_zone = name.strip_prefix('.');
    if of_zone.is_none() {
        paths.push(dataplane(mesh.unwrap_or(DEFAULT_MESH), name));
        if let (None, Some((mesh, name))) = (mesh, name.split_once('.')) {
            paths.push(dataplane(mesh, name));
        }
    }
    if mesh.is_none() {
        let name = of_zone.unwrap_or(name);
        paths.extend(["zoneingresses", "zoneegresses"].map(|list| format!("/{list}/{}", segment(name))));
    }
    paths
}

/// What is in a file, or on standard input for `-`.
pub(crate) fn read_dump(file: &str) -> anyhow::Result<ProxyDump> {
    let mut bytes = Vec::new();
    let read = match file {
        "-" => std::io::stdin().take(LONGEST + 1).read_to_end(&mut bytes),
        path => fs::File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes)),
    };
    let read = read.with_context(|| format!("read {file}"))?;
    if read as u64 > LONGEST {
        bail!("{file} is longer than {LONGEST} bytes, which no dump is that can be read here");
    }
    let dump: Value = serde_json::from_slice(&bytes).with_context(|| {
        format!(
            "{file} is no dump: `curl localhost:ADMIN_PORT/config_dump?include_eds` of an Envoy makes one"
        )
    })?;
    ProxyDump::of_envoy(&dump).with_context(|| format!("read {file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_up_where_it_can_be() {
        let dataplane = |mesh: &str, name: &str| format!("/meshes/{mesh}/dataplanes/{name}");
        let of_zones = |name: &str| [format!("/zoneingresses/{name}"), format!("/zoneegresses/{name}")];
        assert_eq!(paths("web-1", Some("demo")), [dataplane("demo", "web-1")]);
        assert_eq!(paths("web-1", None), [&[dataplane("default", "web-1")][..], &of_zones("web-1")].concat());
        let both = [dataplane("default", "demo.web-1"), dataplane("demo", "web-1")];
        assert_eq!(paths("demo.web-1", None), [&both[..], &of_zones("demo.web-1")].concat());
        assert_eq!(paths(".in", None), of_zones("in"));
    }
}
