//! A group of dataplanes that run the same program. Only its name says something.

use serde::{Deserialize, Serialize};

use crate::model::{Kind, Spec, SpecError, Violations, decode};

/// The descriptor.
pub static KIND: Kind = Kind::json("Workload", "workloads")
    .flow(12)
    .named("workload", "wl")
    .with_status()
    .empty_status(r#"{"dataplaneProxies":{"connected":0,"healthy":0,"total":0}}"#)
    .typed::<Workload>();

/// The spec, which has no members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {}

impl Spec for Workload {
    fn decode(spec: &[u8]) -> Result<Self, SpecError> {
        decode::spec(spec)
    }

    fn encode(&self) -> Vec<u8> {
        decode::encode(self)
    }

    fn validate(&self) -> Violations {
        Violations::none()
    }
}
