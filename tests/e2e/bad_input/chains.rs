//! Certificates a client must not believe.

use std::net::IpAddr;

use common::tls::KeyPairPem;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::ServerConfig;
use time::{Duration, OffsetDateTime};

/// How a server introduces itself, and whom its client believes.
pub struct Chain {
    /// What is wrong with it.
    pub what: &'static str,
    change: fn(&mut Plan),
}

/// A certificate chain to be made.
struct Plan {
    /// From when to when the leaf is good, from now.
    good: (Duration, Duration),
    name: SanType,
    usage: ExtendedKeyUsagePurpose,
    /// Authorities between the root and the leaf, and whether they are.
    between: usize,
    between_may_sign: bool,
    /// The client believes another root of the same name.
    other_root: bool,
    /// The server does not show what is between.
    forgets_between: bool,
    /// The leaf vouches for itself.
    self_signed: bool,
    between_is_over: bool,
}

/// What a server shows, and what its client believes.
pub struct Made {
    pair: KeyPairPem,
    /// The root, as PEM.
    pub authority: String,
}

/// One that is right.
pub static RIGHT: Chain = Chain { what: "right", change: |_| {} };

/// Those that are not.
#[rustfmt::skip]
pub static CHAINS: &[Chain] = &[
    Chain { what: "another authority", change: |p| p.other_root = true },
    Chain { what: "self-signed", change: |p| p.self_signed = true },
    Chain { what: "expired", change: |p| p.good = (Duration::days(-2), Duration::days(-1)) },
    Chain { what: "expired a minute ago", change: |p| p.good = (Duration::days(-2), Duration::minutes(-1)) },
    Chain { what: "not valid yet", change: |p| p.good = (Duration::days(1), Duration::days(2)) },
    Chain { what: "an authority between that is over", change: |p| { p.between = 1; p.between_is_over = true } },
    Chain { what: "another name", change: |p| p.name = SanType::DnsName("global.example".try_into().unwrap()) },
    Chain { what: "another address", change: |p| p.name = SanType::IpAddress(IpAddr::from([192, 0, 2, 1])) },
    Chain { what: "the address as a name", change: |p| p.name = SanType::DnsName("127.0.0.1".try_into().unwrap()) },
    Chain { what: "any name", change: |p| p.name = SanType::DnsName("*".try_into().unwrap()) },
    Chain { what: "a certificate of clients", change: |p| p.usage = ExtendedKeyUsagePurpose::ClientAuth },
    Chain { what: "a certificate of programs", change: |p| p.usage = ExtendedKeyUsagePurpose::CodeSigning },
    Chain { what: "signed by one that may not", change: |p| { p.between = 1; p.between_may_sign = false } },
    Chain { what: "one between is missing", change: |p| { p.between = 1; p.forgets_between = true } },
    Chain { what: "10 deep, one may not sign", change: |p| { p.between = 10; p.between_may_sign = false } },
];

impl Chain {
    /// Makes it.
    pub fn made(&self) -> Made {
        let mut plan = Plan {
            good: (Duration::days(-1), Duration::days(1)),
            name: SanType::IpAddress(IpAddr::from([127, 0, 0, 1])),
            usage: ExtendedKeyUsagePurpose::ServerAuth,
            between: 0,
            between_may_sign: true,
            other_root: false,
            forgets_between: false,
            self_signed: false,
            between_is_over: false,
        };
        (self.change)(&mut plan);
        plan.make()
    }
}

impl Plan {
    fn make(&self) -> Made {
        let over = (Duration::days(-2), Duration::days(-1));
        let valid = (Duration::days(-1), Duration::days(1));
        let root = authority("root", valid, true);
        let mut issuer = CertifiedIssuer::self_signed(root.clone(), KeyPair::generate().unwrap()).unwrap();
        let believed = if self.other_root {
            CertifiedIssuer::self_signed(root, KeyPair::generate().unwrap()).unwrap().pem()
        } else {
            issuer.pem()
        };
        let mut shown = String::new();
        for n in 0..self.between {
            // The last of them is the one that vouches for the leaf.
            let may_sign = self.between_may_sign || n + 1 < self.between;
            let good = if self.between_is_over { over } else { valid };
            let params = authority(&format!("between {n}"), good, may_sign);
            issuer = CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), &issuer).unwrap();
            shown.insert_str(0, &issuer.pem());
        }
        let mut leaf = named("leaf", self.good);
        leaf.subject_alt_names.push(self.name.clone());
        leaf.extended_key_usages = vec![self.usage.clone()];
        let key = KeyPair::generate().unwrap();
        let certificate = match self.self_signed {
            true => leaf.self_signed(&key).unwrap(),
            false => leaf.signed_by(&key, &issuer).unwrap(),
        };
        if self.forgets_between {
            shown.clear();
        }
        let pair = KeyPairPem { certificate: [certificate.pem(), shown].concat(), key: key.serialize_pem() };
        Made { pair, authority: believed }
    }
}

fn named(name: &str, (from, to): (Duration, Duration)) -> CertificateParams {
    let now = OffsetDateTime::from(std::time::UNIX_EPOCH) + Duration::seconds(super::forged::now());
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    (params.not_before, params.not_after) = (now + from, now + to);
    params
}

fn authority(name: &str, good: (Duration, Duration), may_sign: bool) -> CertificateParams {
    let mut params = named(name, good);
    if may_sign {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    }
    params
}

impl Made {
    /// A server that shows it.
    pub fn server_config(&self, alpn: &[&str]) -> ServerConfig {
        self.pair.server_config(alpn).unwrap()
    }
}
