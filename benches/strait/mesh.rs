//! A zone with the proxies of a mesh, played.

use std::{path::Path, time::Duration};

use load::{AdminApi, AdsProtocol, Exercise, Fleet, FleetOptions, Scenario, StandaloneZone, Trusting};

use crate::policies::Around;

/// Longest wait for anything. Some of what is measured takes minutes.
pub const PATIENCE: Duration = Duration::from_secs(900);
/// Handshakes at once.
const CONNECTING: usize = 200;

/// A zone on its own whose mesh holds what a scenario says.
pub struct PlayedMesh {
    pub scenario: Scenario,
    pub zone: StandaloneZone,
    pub admin: AdminApi,
}

impl PlayedMesh {
    /// Starts a zone and stores everything.
    pub async fn start(scenario: Scenario) -> Self {
        Self::start_among(scenario, Around::Nothing).await
    }

    /// The same, with more around it.
    pub async fn start_among(scenario: Scenario, around: Around) -> Self {
        let zone = StandaloneZone::start(Path::new(env!("CARGO_BIN_EXE_strait-zone")), &[]).await;
        let zone = zone.expect("strait-zone starts");
        let admin = AdminApi::new(&zone.api(), None);
        admin.put(&scenario.mesh()).await.expect("the mesh is stored");
        around.put(&admin, &scenario).await;
        admin.put_dataplanes(&scenario).await.expect("the dataplanes are stored");
        Self { scenario, zone, admin }
    }

    /// Connects all its proxies.
    pub async fn connect(&self, protocol: AdsProtocol) -> Fleet {
        let names: Vec<_> = (0..self.scenario.proxies).map(Scenario::proxy).collect();
        let tokens = self.admin.tokens(&self.scenario.mesh, names.clone()).await.expect("tokens are made");
        let proxies = names.into_iter().zip(tokens.into_iter().map(Some)).collect();
        connect(&self.zone.dp_server(), &self.zone.certificate(), &self.scenario, proxies, protocol)
    }

    /// The means to change it while `fleet` listens.
    pub fn exercise<'a>(&'a self, fleet: &'a Fleet) -> Exercise<'a> {
        Exercise {
            scenario: &self.scenario,
            zone: &self.admin,
            policies: &self.admin,
            fleet,
            pid: Some(self.zone.pid()),
            patience: PATIENCE,
        }
    }
}

/// The proxies of a scenario, connected to any server.
pub fn connect(
    url: &str,
    certificate: &Path,
    scenario: &Scenario,
    proxies: Vec<(String, Option<String>)>,
    protocol: AdsProtocol,
) -> Fleet {
    let options = FleetOptions {
        url,
        trusting: Trusting::File(certificate),
        mesh: &scenario.mesh,
        proxies,
        protocol,
        slowness: None,
        connecting: CONNECTING,
        record: true,
    };
    Fleet::start(options).expect("the machine allows so many connections")
}

/// The same proxies without tokens, for a server that asks for none.
pub fn connect_bare(url: &str, certificate: &Path, scenario: &Scenario, protocol: AdsProtocol) -> Fleet {
    let proxies = (0..scenario.proxies).map(|n| (Scenario::proxy(n), None)).collect();
    connect(url, certificate, scenario, proxies, protocol)
}

/// A mesh of the usual form.
pub fn scenario(proxies: usize, services: usize, outbounds: usize, endpoints: usize) -> Scenario {
    Scenario { mesh: "load".to_owned(), proxies, services, outbounds, endpoints, mtls: true }
}
