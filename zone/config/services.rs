//! Settings about how services are called.

use common::config::{ConfigError, Interval};
use serde::{Deserialize, Serialize};

use crate::{
    mesh::Naming,
    services::{Cidr, Ranges},
};

/// `dnsServer`: of services that are known by their tags.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DnsServer {
    /// Below which their names are.
    pub domain: String,
    /// The range of their addresses.
    #[serde(rename = "CIDR")]
    pub cidr: String,
    /// The port on which they are called there.
    pub service_vip_port: u16,
}

impl Default for DnsServer {
    fn default() -> Self {
        Self { domain: "mesh".to_owned(), cidr: "240.0.0.0/4".to_owned(), service_vip_port: 80 }
    }
}

impl DnsServer {
    /// The same, as those use it who call services.
    ///
    /// # Errors
    /// [`ConfigError`] for what is no name, no range or no port.
    pub(crate) fn naming(&self) -> Result<Naming, ConfigError> {
        let wrong =
            |setting: &str, reason: String| ConfigError::rule(&format!("dnsServer.{setting}"), reason);
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_label = |label: &str| (1..=63).contains(&label.len()) && label.chars().all(allowed);
        if !self.domain.split('.').all(is_label) {
            return Err(wrong("domain", format!("{:?} is not the end of a host name", self.domain)));
        }
        if self.service_vip_port == 0 {
            return Err(wrong("serviceVipPort", "must be in the range [1, 65535]".to_owned()));
        }
        let range: Cidr = self.cidr.parse().map_err(|error| wrong("CIDR", format!("{error}")))?;
        let Some(addresses) = range.v4() else {
            return Err(wrong("CIDR", format!("{range} is not a range of IPv4 addresses")));
        };
        Ok(Naming { domain: self.domain.as_str().into(), port: self.service_vip_port.into(), addresses })
    }
}

/// `ipam`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Ipam {
    /// Of services of one zone.
    pub mesh_service: MeshServiceRange,
    /// Of services outside the mesh.
    pub mesh_external_service: MeshExternalServiceRange,
    /// Of services of several zones.
    pub mesh_multi_zone_service: MeshMultiZoneServiceRange,
}

/// `ipam.meshService`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MeshServiceRange {
    /// The range.
    pub cidr: String,
}

impl Default for MeshServiceRange {
    fn default() -> Self {
        Self { cidr: "241.0.0.0/8".to_owned() }
    }
}

/// `ipam.meshExternalService`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MeshExternalServiceRange {
    /// The range.
    pub cidr: String,
}

impl Default for MeshExternalServiceRange {
    fn default() -> Self {
        Self { cidr: "242.0.0.0/8".to_owned() }
    }
}

/// `ipam.meshMultiZoneService`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MeshMultiZoneServiceRange {
    /// The range.
    pub cidr: String,
}

impl Default for MeshMultiZoneServiceRange {
    fn default() -> Self {
        Self { cidr: "243.0.0.0/8".to_owned() }
    }
}

impl Ipam {
    /// The ranges.
    ///
    /// # Errors
    /// [`ConfigError`] when one of them is none.
    pub(crate) fn ranges(&self) -> Result<Ranges, ConfigError> {
        let range = |kind: &str, text: &str| {
            let parsed = text.parse::<Cidr>();
            parsed.map_err(|error| ConfigError::rule(&format!("ipam.{kind}.cidr"), error.to_string()))
        };
        Ok(Ranges {
            mesh_service: range("meshService", &self.mesh_service.cidr)?,
            mesh_external_service: range("meshExternalService", &self.mesh_external_service.cidr)?,
            mesh_multi_zone_service: range("meshMultiZoneService", &self.mesh_multi_zone_service.cidr)?,
        })
    }
}

/// `meshService`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MeshServiceSection {
    /// How long a generated service stays when nobody serves it any more.
    pub deletion_grace_period: Interval,
}

impl Default for MeshServiceSection {
    fn default() -> Self {
        Self { deletion_grace_period: Interval::seconds(60 * 60) }
    }
}
