//! How the link to global is, for whoever asks for the metrics.

use common::metering::samples::Samples;

use super::Link;

impl Link {
    /// Takes down whether global is followed and how far both are. A replica that stands by knows nothing of that.
    pub fn sample(&self, samples: &mut Samples) {
        let status = self.status();
        if status.standby {
            return;
        }
        samples.add("kds_global_connected", &[], f64::from(u8::from(status.connected)));
        for (direction, position) in [("down", status.down), ("up", status.up)] {
            let lag = u32::try_from(position.lag).unwrap_or(u32::MAX);
            samples.add("kds_global_lag", &[("direction", direction)], lag.into());
        }
    }
}
