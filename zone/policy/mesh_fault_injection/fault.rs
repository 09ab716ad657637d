//! What goes wrong, in Envoy's words.

use common::{
    policy::{
        IntOrString,
        mesh_fault_injection::{Abort, Bandwidth, Delay, Fault, FaultInjectionConf, ResponseBandwidth},
    },
    proto::envoy::{
        extensions::filters::{
            common::fault::v3::{FaultDelay, FaultRateLimit, fault_delay, fault_rate_limit},
            http::fault::v3::{FaultAbort, HttpFault, fault_abort::ErrorType},
        },
        r#type::v3::{FractionalPercent, fractional_percent::DenominatorType},
    },
};

use crate::{generator::envoy::duration, policy::Reporter};

/// The faults of a configuration, in order. One that does nothing is left out.
pub(in crate::policy) fn all(conf: &FaultInjectionConf, reporter: &mut Reporter<'_>) -> Vec<HttpFault> {
    let one = |fault: &Fault| {
        let config = HttpFault {
            abort: fault.abort.as_ref().and_then(|given| abort(given, reporter)),
            delay: fault.delay.as_ref().and_then(delay),
            response_rate_limit: fault.response_bandwidth.as_ref().and_then(bandwidth),
            ..HttpFault::default()
        };
        (config != HttpFault::default()).then_some(config)
    };
    conf.http.iter().flatten().filter_map(one).collect()
}

fn abort(given: &Abort, reporter: &mut Reporter<'_>) -> Option<FaultAbort> {
    let status = u32::try_from(given.http_status).ok().filter(|status| (200..600).contains(status));
    if status.is_none() {
        let status = given.http_status;
        reporter.report(format!("a fault is left out: no answer can end with status {status}"));
    }
    Some(FaultAbort {
        error_type: Some(ErrorType::HttpStatus(status?)),
        percentage: fraction(&given.percentage),
        ..FaultAbort::default()
    })
}

/// No time at all would be refused.
fn delay(given: &Delay) -> Option<FaultDelay> {
    let fixed = fault_delay::FaultDelaySecifier::FixedDelay(duration(given.value.to_std()));
    let percentage = fraction(&given.percentage);
    (!given.value.is_zero()).then_some(FaultDelay { fault_delay_secifier: Some(fixed), percentage })
}

/// A speed of zero would be refused.
fn bandwidth(given: &ResponseBandwidth) -> Option<FaultRateLimit> {
    let Bandwidth(limit_kbps) = given.limit.parse().ok().filter(|Bandwidth(kbps)| *kbps > 0)?;
    let limit = fault_rate_limit::LimitType::FixedLimit(fault_rate_limit::FixedLimit { limit_kbps });
    Some(FaultRateLimit { limit_type: Some(limit), percentage: fraction(&given.percentage) })
}

/// In the coarsest steps that fit.
fn fraction(percentage: &IntOrString) -> Option<FractionalPercent> {
    let percentage = percentage.value()?.clamp(0.0, 100.0);
    let steps = [
        (1.0, DenominatorType::Hundred),
        (100.0, DenominatorType::TenThousand),
        (10_000.0, DenominatorType::Million),
    ];
    let whole = |steps: f64| (percentage * steps).fract() == 0.0;
    let (steps, denominator) = steps.into_iter().find(|(steps, _)| whole(*steps)).unwrap_or(steps[2]);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0 to 1000000")]
    let numerator = (percentage * steps).round() as u32;
    Some(FractionalPercent { numerator, denominator: denominator.into() })
}
