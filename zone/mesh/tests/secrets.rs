//! Secrets that are for proxies because somebody named them.

use super::*;

/// Who may say where services outside are need not be one who may see the keys of the mesh, and every proxy is sent what he
/// names.
#[test]
fn no_key_by_which_control_planes_sign_is_for_a_proxy() {
    let mesh = "
type: Mesh
name: demo
mtls:
  enabledBackend: ca-1
  backends:
  - {name: ca-1, type: builtin}
  - {name: ca-2, type: provided, conf: {cert: {inlineString: x}, key: {secret: provided-key}}}
---
type: MeshIdentity
mesh: demo
name: all
spec: {provider: {type: Bundled, bundled: {insecureAllowSelfSigned: true, autogenerate: {enabled: true}}}}
---
type: MeshIdentity
mesh: demo
name: own
spec:
  provider:
    type: Bundled
    bundled:
      ca:
        certificate: {type: Secret, secretRef: {kind: Secret, name: own-certificate}}
        privateKey: {type: Secret, secretRef: {kind: Secret, name: own-key}}
";
    for (name, is_for_proxies) in [
        ("partner-ca", true),
        ("own-certificate", true),
        ("all-root-ca", true),
        ("demo.ca-builtin-key-ca-1", false),
        ("dataplane-token-signing-key-demo-1", false),
        ("provided-key", false),
        ("all-private-key", false),
        ("own-key", false),
    ] {
        let service = format!(
            "---\ntype: Secret\nmesh: demo\nname: {name}\ndata: cGVt\n---\ntype: ExternalService\nmesh: demo\nname: out\n\
             tags: {{kuma.io/service: out}}\nnetworking: {{address: '192.0.2.7:443', tls: {{enabled: true, caCert: \
             {{secret: {name}}}}}}}\n"
        );
        let context = context_with(&format!("{mesh}{service}"), Hosts::default());
        let out = context.external.tagged("out").next().unwrap();
        assert_eq!(out.endpoints.len(), usize::from(is_for_proxies), "{name}: {:?}", out.problems);
        let told = out.problems.iter().any(|problem| problem.reason.contains("control planes sign"));
        assert_eq!(told, !is_for_proxies, "{name}: {:?}", out.problems);
    }
}
