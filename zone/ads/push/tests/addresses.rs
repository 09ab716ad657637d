//! What happens to virtual addresses, and to those who call them, at random.

use common::model::ResourceKey;
use rand::Rng;

use super::World;
use crate::{
    ads::node::{ProxyId, ProxyKind},
    generator::type_url,
    mesh::address_book,
};

impl World {
    /// One random change about redirected traffic.
    pub(super) fn change_addresses(&mut self, n: usize, one: &str, other: &str, who: usize) {
        match self.rng.random_range(0..6_u32) {
            0 | 1 => {
                let limits = [
                    String::new(),
                    format!(", reachableServices: [{one}]"),
                    format!(", reachableBackends: {{refs: [{{kind: MeshService, name: {one}-here}}]}}"),
                    format!(", directAccessServices: [{other}]"),
                    ", reachableBackends: {refs: [{kind: MeshService, labels: {kuma.io/zone: west}}]}"
                        .to_owned(),
                    format!(", reachableServices: [{one}], directAccessServices: ['*']"),
                ];
                let yaml = format!(
                    "{{type: Dataplane, mesh: default, name: p-{who}, probes: {{port: 9000, endpoints: [{{inboundPort: 8080, \
                     inboundPath: /a, path: /b}}]}}, networking: {{address: 127.0.0.{}, inbound: [{{port: 80, servicePort: \
                     8080, tags: {{kuma.io/service: {one}, version: v{}}}}}], transparentProxying: {{redirectPortInbound: \
                     15006, redirectPortOutbound: 15001{}}}}}}}",
                    who + 1,
                    n % 2,
                    limits[n % 6]
                );
                self.put(&yaml, "east");
            }
            2 | 3 => {
                let entry = |service: &str, last: usize| {
                    format!(
                        r#""0:{service}":{{"address":"240.0.0.{last}","outbounds":[{{"Port":0,"TagSet":{{"kuma.io/service":"{service}"}}}}]}}"#
                    )
                };
                let made_up = format!(
                    r#""2:x.test":{{"address":"240.0.0.99","outbounds":[{{"Port":8080,"TagSet":{{"kuma.io/service":"{other}","version":"v1"}}}}]}}"#
                );
                let text = [
                    format!("{{{}}}", entry(one, n)),
                    format!("{{{},{made_up}}}", entry(one, 1)),
                    "{}".to_owned(),
                    "broken".to_owned(),
                ];
                let name = address_book::key("default").name;
                self.put(&format!("{{type: Config, name: {name}, config: '{}'}}", text[n % 4]), "east");
            }
            4 => {
                let status = [
                    "{}".to_owned(),
                    format!("{{vips: [{{ip: 241.0.0.{n}}}], addresses: [{{hostname: {one}.test}}]}}"),
                    "{vips: [{ip: 241.0.0.1}], addresses: [{hostname: same.test}]}".to_owned(),
                ];
                let yaml = format!(
                    "{{type: MeshService, mesh: default, name: {one}-here, labels: {{kuma.io/zone: east}}, spec: {{selector: \
                     {{dataplaneTags: {{kuma.io/service: {other}}}}}, ports: [{{port: 80, appProtocol: http}}]}}, status: {}}}",
                    status[n % 3]
                );
                self.put(&yaml, "east");
            }
            _ => {
                let conf = [
                    "passthroughMode: None",
                    "passthroughMode: All",
                    "appendMatch: [{type: Domain, value: '*.a.test', port: 443, protocol: tls}]",
                    "appendMatch: [{type: Domain, value: a.test, port: 80, protocol: http}]",
                ];
                let yaml = format!(
                    "{{type: MeshPassthrough, mesh: default, name: outside-{}, spec: {{targetRef: {}, default: {{{}}}}}}}",
                    n % 2,
                    ["{kind: Mesh}", "{kind: MeshSubset, tags: {version: v1}}"][n % 2],
                    conf[n % 4]
                );
                if n == 9 {
                    let kind = &common::policy::mesh_passthrough::KIND;
                    self.apply(ResourceKey::new(kind, "default", "outside-1"), None);
                } else {
                    self.put(&yaml, "");
                }
            }
        }
    }
}

/// What is called by name is told to those whose traffic is redirected, and to nobody else.
#[test]
fn an_address_more_is_told_where_traffic_is_redirected() {
    let mut world = World::new(0);
    world.put("{type: Mesh, name: default}", "");
    let dataplane = |name: &str, last: u32, more: &str| {
        format!(
            "{{type: Dataplane, mesh: default, name: {name}, networking: {{address: 127.0.0.{last}, inbound: [{{port: 80, tags: \
             {{kuma.io/service: web}}}}]{more}}}}}"
        )
    };
    let redirected = ", transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}";
    world.put(&dataplane("p-0", 1, redirected), "east");
    world.put(&dataplane("p-1", 2, ""), "east");
    world.settle();
    world.has.clear();
    let name = address_book::key("default").name;
    let book =
        r#"{"0:web":{"address":"240.0.0.0","outbounds":[{"Port":0,"TagSet":{"kuma.io/service":"web"}}]}}"#;
    world.put(&format!("{{type: Config, name: {name}, config: '{book}'}}"), "east");
    world.settle();
    world.check(0, 0);
    let client = ProxyId::new(ProxyKind::Dataplane, "default", "p-0");
    assert_eq!(world.has.keys().collect::<Vec<_>>(), [&client]);
    let listener = world.has[&client].get(type_url::LISTENER, "outbound:240.0.0.0:80").unwrap();
    assert_eq!(listener.to_json().unwrap()["bindToPort"], false);
    let dns = world.has[&client].get(type_url::LISTENER, "kuma:dns").unwrap().to_json().unwrap();
    assert!(dns.to_string().contains("web.mesh"), "{dns}");
}
