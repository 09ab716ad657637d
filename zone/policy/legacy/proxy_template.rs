//! `ProxyTemplate`: what a proxy gets beside what is made for it. Its modifications are among the
//! [patches](crate::policy::mesh_proxy_patch).

use std::{collections::BTreeSet, sync::Arc};

use common::policy::{
    legacy::{
        LegacyConf, LegacyPolicy,
        proxy_template::{self, DEFAULT_PROFILE, KIND},
    },
    mesh_proxy_patch::native,
};
use prost_reflect::ReflectMessage;

use crate::{
    generator::{Encoded, ResourceCollection, type_url},
    mesh::Problem,
    policy::Reporter,
};

/// Origin of what the user wrote.
pub(crate) const RAW: &str = "proxy-template-raw";

/// Adds what the user wrote in whole.
pub(crate) fn add_raw(
    template: &LegacyPolicy,
    own: &mut ResourceCollection,
    problems: &mut BTreeSet<Problem>,
) {
    let LegacyConf::ProxyTemplate(conf) = &template.conf else { return };
    let mut reporter = Reporter { kind: &KIND, problems };
    let name = template.resource.display_name();
    if !conf.imports.iter().any(|import| import == DEFAULT_PROFILE) {
        reporter
            .report(format!("{name} does not import {DEFAULT_PROFILE}, which its proxies get all the same"));
    }
    for resource in &conf.resources {
        match encoded(&resource.resource) {
            Ok(encoded) => own.insert(encoded),
            Err(reason) => {
                let of = &resource.name;
                reporter.report(format!("the resource {of:?} of {name} is left out: {reason}"));
            }
        }
    }
}

fn encoded(yaml: &str) -> Result<Arc<Encoded>, String> {
    let message = proxy_template::raw(yaml)?;
    let packed = format!("type.googleapis.com/{}", message.descriptor().full_name());
    let of = type_url::ALL.into_iter().find(|known| *known == packed);
    let of = of.ok_or_else(|| format!("an Envoy asks for nothing of type {packed}"))?;
    let name = match of {
        type_url::ENDPOINT => {
            let field = message.descriptor().get_field_by_name("cluster_name");
            let name = field.and_then(|field| message.get_field(&field).as_str().map(str::to_owned));
            name.unwrap_or_default()
        }
        _ => native::name(&message),
    };
    if name.is_empty() {
        return Err("it has no name".to_owned());
    }
    Ok(Arc::new(Encoded::dynamic(&name, of, RAW, &message)))
}
