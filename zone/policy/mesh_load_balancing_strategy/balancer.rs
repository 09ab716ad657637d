//! How one of several endpoints is picked.

use common::{
    policy::{
        IntOrString,
        mesh_load_balancing_strategy::{
            HashFunction, LeastRequest, LoadBalancer, LoadBalancerType, Maglev, RingHash, is_prime,
        },
    },
    proto::{
        envoy::config::{
            cluster::v3::{
                Cluster,
                cluster::{
                    LbConfig, LbPolicy, LeastRequestLbConfig, MaglevLbConfig, RingHashLbConfig,
                    ring_hash_lb_config,
                },
            },
            core::v3::RuntimeDouble,
        },
        google::protobuf::UInt64Value,
    },
};

use super::Reporter;
use crate::generator::envoy::number;

/// What Envoy takes for the least size of a ring when nobody says it.
const LEAST_RING: u32 = 1024;

/// Makes `cluster` choose as `balancer` says.
pub(in crate::policy) fn set(cluster: &mut Cluster, balancer: &LoadBalancer, reporter: &mut Reporter<'_>) {
    let (policy, config) = match balancer.kind {
        LoadBalancerType::RoundRobin => (LbPolicy::RoundRobin, None),
        LoadBalancerType::Random => (LbPolicy::Random, None),
        LoadBalancerType::LeastRequest => {
            (LbPolicy::LeastRequest, balancer.least_request.as_ref().and_then(least_request))
        }
        LoadBalancerType::RingHash => {
            (LbPolicy::RingHash, balancer.ring_hash.as_ref().map(|ring| ring_hash(ring, reporter)))
        }
        LoadBalancerType::Maglev => {
            (LbPolicy::Maglev, balancer.maglev.as_ref().and_then(|table| maglev(table, reporter)))
        }
    };
    cluster.set_lb_policy(policy);
    cluster.lb_config = config;
}

fn least_request(least: &LeastRequest) -> Option<LbConfig> {
    let bias = least.active_request_bias.as_ref().and_then(IntOrString::value);
    let config = LeastRequestLbConfig {
        choice_count: least.choice_count.and_then(number),
        active_request_bias: bias.map(|value| RuntimeDouble {
            default_value: value.max(0.0),
            // Envoy insists on a name, under which an operator can change it.
            runtime_key: "upstream.least_request.active_request_bias".to_owned(),
        }),
        ..LeastRequestLbConfig::default()
    };
    (config != LeastRequestLbConfig::default()).then_some(LbConfig::LeastRequestLbConfig(config))
}

fn ring_hash(ring: &RingHash, reporter: &mut Reporter<'_>) -> LbConfig {
    let (mut least, mut most) = (ring.min_ring_size, ring.max_ring_size);
    match (least, most) {
        (Some(min), Some(max)) if min > max => {
            reporter.report(format!(
                "minRingSize {min} and maxRingSize {max} are left out: no ring has such a size"
            ));
            (least, most) = (None, None);
        }
        (None, Some(max)) if max < LEAST_RING => least = Some(max),
        (Some(min), None) if min > 8_000_000 => least = Some(8_000_000),
        _ => {}
    }
    let function = match ring.hash_function {
        Some(HashFunction::MurmurHash2) => ring_hash_lb_config::HashFunction::MurmurHash2,
        Some(HashFunction::XXHash) | None => ring_hash_lb_config::HashFunction::XxHash,
    };
    LbConfig::RingHashLbConfig(RingHashLbConfig {
        minimum_ring_size: least.map(long),
        maximum_ring_size: most.map(long),
        hash_function: function.into(),
    })
}

fn maglev(maglev: &Maglev, reporter: &mut Reporter<'_>) -> Option<LbConfig> {
    let size = maglev.table_size?;
    if !is_prime(size) {
        reporter.report(format!("tableSize {size} is left out: it is not a prime number"));
        return None;
    }
    Some(LbConfig::MaglevLbConfig(MaglevLbConfig { table_size: Some(long(size)) }))
}

fn long(value: u32) -> UInt64Value {
    UInt64Value { value: value.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_tables_are_primes() {
        let primes: Vec<u32> = (0..20).filter(|n| is_prime(*n)).collect();
        assert_eq!(primes, [2, 3, 5, 7, 11, 13, 17, 19]);
        assert!(is_prime(65_537) && is_prime(5_000_011) && !is_prime(65_536));
    }
}
