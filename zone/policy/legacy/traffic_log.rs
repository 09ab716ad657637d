//! `TrafficLog`: lines about what is called, to a backend of the mesh, beside those of the newer kind.

use std::collections::BTreeSet;

use common::{
    policy::{
        legacy::traffic_log::KIND,
        mesh_access_log::{FileLog, LogBackend, LogBackendType, LogFormatType, LogLineFormat, TcpLog},
    },
    proto::kuma::mesh::v1alpha1::LoggingBackend,
};

use super::traffic_trace::text;
use crate::{
    generator::{Backend, ListenerDraft},
    mesh::{MeshContext, Problem},
    policy::{Outside, Reporter, mesh_access_log},
};

pub(super) fn apply(
    outside: Outside<'_>,
    called: &Backend,
    listener: &mut ListenerDraft,
    problems: &mut BTreeSet<Problem>,
) {
    let Some(conf) = outside.profile.legacy.log(&called.name) else { return };
    let mut reporter = Reporter { kind: &KIND, problems };
    match backend(outside.mesh, &conf.backend).map(in_newer_terms) {
        Some(Ok(backend)) => {
            mesh_access_log::log_calls(outside, called, listener, backend, &mut reporter);
        }
        Some(Err(reason)) => reporter.report(format!("nothing is logged: {reason}")),
        None => {
            let name = &conf.backend;
            reporter.report(format!("nothing is logged: the mesh has no logging backend {name:?}"));
        }
    }
}

/// The backend of this name; the default one of the mesh when it is empty.
fn backend<'a>(mesh: &'a MeshContext, name: &str) -> Option<&'a LoggingBackend> {
    let logging = mesh.spec.logging.as_ref()?;
    let name = if name.is_empty() { &logging.default_backend } else { name };
    logging.backends.iter().find(|backend| backend.name == *name)
}

fn in_newer_terms(backend: &LoggingBackend) -> Result<LogBackend, String> {
    let format = Some(backend.format.clone()).filter(|format| !format.is_empty()).map(|plain| {
        LogLineFormat { kind: LogFormatType::Plain, plain: Some(plain), json: None, omit_empty_values: false }
    });
    let none = LogBackend { kind: LogBackendType::File, tcp: None, file: None, open_telemetry: None };
    let missing = |member: &str| format!("backend {:?} has no {member}", backend.name);
    match backend.r#type.as_str() {
        "file" => {
            let path = text(backend.conf.as_ref(), "path").ok_or_else(|| missing("path"))?;
            Ok(LogBackend { file: Some(FileLog { format, path }), ..none })
        }
        "tcp" => {
            let address = text(backend.conf.as_ref(), "address").ok_or_else(|| missing("address"))?;
            Ok(LogBackend { kind: LogBackendType::Tcp, tcp: Some(TcpLog { format, address }), ..none })
        }
        other => Err(format!("backend {:?} is of a type nobody knows: {other:?}", backend.name)),
    }
}
