//! Build script of the `common` library: compiles `proto/` without a `protoc` on the machine.
//!
//! Our own files import Envoy's and Google's. Those are not copied into this repository: the
//! `envoy-types` package ships them next to the Rust code generated from them, so we compile against
//! its folder and map their packages to its types.

#![allow(clippy::disallowed_methods, reason = "cargo speaks to build scripts through the environment")]

#[path = "build/rules.rs"]
mod rules;
#[path = "common/envoy_rules/table.rs"]
mod table;

use std::{collections::BTreeMap, env, error::Error, fs, path::PathBuf};

use cargo_metadata::{CargoOpt, MetadataCommand};
use prost::Message;
use protox::prost_reflect::prost_types::{FileDescriptorProto, FileDescriptorSet};

/// Folders inside `envoy-types/proto` that hold the roots of import paths.
const THIRD_PARTY_ROOTS: &[&str] = &[
    "data-plane-api",
    "xds",
    "protoc-gen-validate",
    "googleapis",
    "opentelemetry-proto",
    "client_model",
    "cel-spec/proto",
];

/// What the zone sends to Envoy, or finds packed inside it: the roots of the reflection set, which is
/// needed to show configuration as JSON and to encode maps in a stable order.
const ENVOY_ROOTS: &[&str] = &[
    // These two say `common.ratelimit`, which the compiler takes for a part of `envoy.extensions.filters.common`
    // once it has seen a file of that package.
    "envoy/extensions/filters/http/local_ratelimit/v3/local_rate_limit.proto",
    "envoy/extensions/filters/network/local_ratelimit/v3/local_rate_limit.proto",
    "envoy/config/bootstrap/v3/bootstrap.proto",
    "envoy/config/cluster/v3/cluster.proto",
    "envoy/config/endpoint/v3/endpoint.proto",
    "envoy/config/listener/v3/listener.proto",
    "envoy/config/rbac/v3/rbac.proto",
    "envoy/config/route/v3/route.proto",
    "envoy/config/route/v3/scoped_route.proto",
    "envoy/service/discovery/v3/discovery.proto",
    "envoy/service/runtime/v3/rtds.proto",
    "envoy/service/status/v3/csds.proto",
    "envoy/extensions/common/matching/v3/extension_matcher.proto",
    "envoy/extensions/filters/common/matcher/action/v3/skip_action.proto",
    "envoy/extensions/filters/http/fault/v3/fault.proto",
    "envoy/config/trace/v3/datadog.proto",
    "envoy/config/trace/v3/opentelemetry.proto",
    "envoy/config/trace/v3/zipkin.proto",
    "envoy/extensions/access_loggers/file/v3/file.proto",
    "envoy/extensions/access_loggers/filters/cel/v3/cel.proto",
    "envoy/extensions/access_loggers/open_telemetry/v3/logs_service.proto",
    "envoy/extensions/compression/gzip/compressor/v3/gzip.proto",
    "envoy/extensions/filters/http/compressor/v3/compressor.proto",
    "envoy/extensions/filters/http/grpc_stats/v3/config.proto",
    "envoy/extensions/filters/http/lua/v3/lua.proto",
    "envoy/extensions/filters/http/rbac/v3/rbac.proto",
    "envoy/extensions/filters/http/router/v3/router.proto",
    "envoy/extensions/filters/listener/http_inspector/v3/http_inspector.proto",
    "envoy/extensions/filters/listener/tls_inspector/v3/tls_inspector.proto",
    "envoy/extensions/filters/network/direct_response/v3/config.proto",
    "envoy/extensions/filters/network/http_connection_manager/v3/http_connection_manager.proto",
    "envoy/extensions/filters/network/rbac/v3/rbac.proto",
    "envoy/extensions/filters/network/set_filter_state/v3/set_filter_state.proto",
    "envoy/extensions/filters/network/tcp_proxy/v3/tcp_proxy.proto",
    "envoy/extensions/filters/udp/dns_filter/v3/dns_filter.proto",
    "envoy/extensions/health_check/event_sinks/file/v3/file.proto",
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
    for own in ["build.rs", "build", "common/envoy_rules/table.rs"] {
        println!("cargo::rerun-if-changed={}", root.join(own).display());
    }

    let mut includes = vec![own.clone()];
    includes.extend(third_party_includes(&root)?);

    let files = proto_files(&own)?;
    let all = protox::compile(&files, &includes)?;

    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Reflection (JSON form, unknown fields) is needed for resources only, not for Envoy's messages.
    const PROTOCOLS: [&str; 3] = ["kds.proto", "mux.proto", "relay.proto"];
    let is_protocol = |f: &&PathBuf| PROTOCOLS.iter().any(|protocol| f.ends_with(protocol));
    let resources: Vec<_> = files.iter().filter(|f| !is_protocol(f)).collect();
    fs::write(out.join("resources.bin"), protox::compile(&resources, &includes)?.encode_to_vec())?;
    let (mut native, mut rules) = (BTreeMap::new(), rules::Found::new());
    compile_apart(&native_files(&includes)?, &includes, &mut native, &mut rules)?;
    let native = FileDescriptorSet { file: in_order_of_imports(native) };
    fs::write(out.join("native.bin"), native.encode_to_vec())?;
    fs::write(out.join("rules.bin"), rules::table(rules).encode_to_vec())?;
    fs::write(out.join("envoy.bin"), protox::compile(ENVOY_ROOTS, &includes)?.encode_to_vec())?;

    fs::write(out.join("calls.rs"), calls(&all))?;

    tonic_prost_build::configure()
        .extern_path(".google.protobuf", "::envoy_types::pb::google::protobuf")
        .extern_path(".envoy", "::envoy_types::pb::envoy")
        .bytes(".kuma")
        .bytes(".strait.federation")
        .btree_map(".kuma")
        .compile_well_known_types(true)
        .codec_path("crate::parts::CountedCodec")
        .compile_fds(all)?;
    Ok(())
}

/// The calls of our own services, as an array of Rust.
fn calls(all: &FileDescriptorSet) -> String {
    let own =
        all.file.iter().filter(|file| ["kuma.", "strait."].iter().any(|own| file.package().starts_with(own)));
    let mut calls = String::from("[\n");
    for file in own {
        for service in &file.service {
            for method in &service.method {
                let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                let is_stream = method.client_streaming();
                calls += &format!("DeclaredCall {{ path: {path:?}, is_stream: {is_stream} }},\n");
            }
        }
    }
    calls + "]"
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

/// What users may write in Envoy's own terms: everything a listener, a route or a cluster can hold.
fn native_files(includes: &[PathBuf]) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut found = Vec::new();
    for root in includes {
        for part in ["envoy/config", "envoy/extensions", "envoy/service/runtime", "envoy/type"] {
            if root.join(part).is_dir() {
                found.extend(proto_files(&root.join(part))?);
            }
        }
    }
    // The generation before is refused by Envoys of today. Of this cluster protox does not find a message, which the
    // package of what it imports hides.
    let hidden = std::path::Path::new("clusters/dynamic_forward_proxy/v3/cluster.proto");
    found.retain(|file| file.iter().any(|part| part == "v3") && !file.ends_with(hidden));
    Ok(found)
}

/// Compiles files of which some cannot be read beside others, because a package hides what another one names: as
/// many at once as possible. With them the rules that stand in them, which the compiled form has no place for.
fn compile_apart(
    files: &[PathBuf],
    includes: &[PathBuf],
    compiled: &mut BTreeMap<String, FileDescriptorProto>,
    rules: &mut rules::Found,
) -> Result<(), Box<dyn Error>> {
    let mut compiler = protox::Compiler::new(includes)?;
    compiler.include_imports(true);
    match compiler.open_files(files) {
        Ok(all) => {
            let named = all.file_descriptor_set().file.into_iter();
            compiled.extend(named.map(|file| (file.name().to_owned(), file)));
            rules::gather(&all.descriptor_pool(), rules)?;
            Ok(())
        }
        Err(_) if files.len() > 1 => {
            let (some, others) = files.split_at(files.len() / 2);
            compile_apart(some, includes, compiled, rules)?;
            compile_apart(others, includes, compiled, rules)
        }
        Err(error) => Err(error.into()),
    }
}

/// Who reads descriptors wants to have seen what a file imports.
fn in_order_of_imports(mut files: BTreeMap<String, FileDescriptorProto>) -> Vec<FileDescriptorProto> {
    let mut ordered = Vec::new();
    let mut names: Vec<String> = files.keys().rev().cloned().collect();
    while let Some(name) = names.pop() {
        let Some(file) = files.remove(&name) else { continue };
        let missing: Vec<String> =
            file.dependency.iter().filter(|import| files.contains_key(*import)).cloned().collect();
        if missing.is_empty() {
            ordered.push(file);
            continue;
        }
        files.insert(name.clone(), file);
        names.push(name);
        names.extend(missing);
    }
    ordered
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
