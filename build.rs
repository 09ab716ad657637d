//! Build script of the `common` library: compiles `proto/` without a `protoc` on the machine.
//!
//! Our own files import Envoy's and Google's. Those are not copied into this repository: the
//! `envoy-types` package ships them next to the Rust code generated from them, so we compile against
//! its folder and map their packages to its types.

#![allow(clippy::disallowed_methods, reason = "cargo speaks to build scripts through the environment")]

use std::{env, error::Error, fs, path::PathBuf};

use cargo_metadata::{CargoOpt, MetadataCommand};
use prost::Message;

/// Folders inside `envoy-types/proto` that hold the roots of import paths.
const THIRD_PARTY_ROOTS: [&str; 4] = ["data-plane-api", "xds", "protoc-gen-validate", "googleapis"];

/// What the zone sends to Envoy, or finds packed inside it: the roots of the reflection set, which is
/// needed to show configuration as JSON and to encode maps in a stable order.
const ENVOY_ROOTS: [&str; 26] = [
    "envoy/config/bootstrap/v3/bootstrap.proto",
    "envoy/config/cluster/v3/cluster.proto",
    "envoy/config/endpoint/v3/endpoint.proto",
    "envoy/config/listener/v3/listener.proto",
    "envoy/config/rbac/v3/rbac.proto",
    "envoy/config/route/v3/route.proto",
    "envoy/config/route/v3/scoped_route.proto",
    "envoy/service/discovery/v3/discovery.proto",
    "envoy/service/runtime/v3/rtds.proto",
    "envoy/extensions/filters/http/grpc_stats/v3/config.proto",
    "envoy/extensions/filters/http/rbac/v3/rbac.proto",
    "envoy/extensions/filters/http/router/v3/router.proto",
    "envoy/extensions/filters/listener/tls_inspector/v3/tls_inspector.proto",
    "envoy/extensions/filters/network/direct_response/v3/config.proto",
    "envoy/extensions/filters/network/http_connection_manager/v3/http_connection_manager.proto",
    "envoy/extensions/filters/network/rbac/v3/rbac.proto",
    "envoy/extensions/filters/network/set_filter_state/v3/set_filter_state.proto",
    "envoy/extensions/filters/network/tcp_proxy/v3/tcp_proxy.proto",
    "envoy/extensions/matching/common_inputs/network/v3/network_inputs.proto",
    "envoy/extensions/matching/common_inputs/ssl/v3/ssl_inputs.proto",
    "envoy/extensions/rbac/principals/mtls_authenticated/v3/mtls_authenticated.proto",
    "envoy/extensions/retry/host/omit_host_metadata/v3/omit_host_metadata_config.proto",
    "envoy/extensions/retry/host/previous_hosts/v3/previous_hosts.proto",
    "envoy/extensions/retry/priority/previous_priorities/v3/previous_priorities_config.proto",
    "envoy/extensions/transport_sockets/tls/v3/tls.proto",
    "envoy/extensions/upstreams/http/v3/http_protocol_options.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?)
        .parent()
        .ok_or("`common` lies inside the workspace")?
        .to_owned();
    let own = root.join("proto");
    println!("cargo::rerun-if-changed={}", own.display());
    println!("cargo::rerun-if-changed={}", root.join("build.rs").display());

    let mut includes = vec![own.clone()];
    includes.extend(third_party_includes(&root)?);

    let files = proto_files(&own)?;
    let all = protox::compile(&files, &includes)?;

    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Reflection (JSON form, unknown fields) is needed for resources only, not for Envoy's messages.
    let resources: Vec<_> = files.iter().filter(|f| !f.ends_with("kds.proto")).collect();
    fs::write(out.join("resources.bin"), protox::compile(&resources, &includes)?.encode_to_vec())?;
    fs::write(out.join("envoy.bin"), protox::compile(ENVOY_ROOTS, &includes)?.encode_to_vec())?;

    tonic_prost_build::configure()
        .extern_path(".google.protobuf", "::envoy_types::pb::google::protobuf")
        .extern_path(".envoy", "::envoy_types::pb::envoy")
        .bytes(".kuma")
        .btree_map(".kuma")
        .compile_well_known_types(true)
        .compile_fds(all)?;
    Ok(())
}

fn third_party_includes(root: &std::path::Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .features(CargoOpt::NoDefaultFeatures)
        // Without a platform filter, cargo wants the packages of every other platform too.
        .other_options(vec!["--filter-platform".into(), env::var("TARGET")?, "--offline".into()])
        .exec()?;
    let package = metadata
        .packages
        .iter()
        .find(|p| p.name.as_str() == "envoy-types")
        .ok_or("`envoy-types` is a dependency of this workspace")?;
    let proto =
        package.manifest_path.parent().ok_or("a manifest has a folder")?.join("proto").into_std_path_buf();
    Ok(THIRD_PARTY_ROOTS.iter().map(|r| proto.join(r)).collect())
}

/// Every `.proto` file below `own`, sorted, so that the generated code does not depend on the disk.
fn proto_files(own: &std::path::Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut found = Vec::new();
    let mut folders = vec![own.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "proto") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
