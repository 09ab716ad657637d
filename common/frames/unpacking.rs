//! A compressed message on its way to what it was.

use std::io::Read;

use bytes::{Buf, Bytes, buf::Reader};
use flate2::bufread::GzDecoder;
use tonic::Status;

/// What is no longer than this, in bytes, and becomes no longer, is unpacked and decoded where it came.
pub(super) const SHORT: usize = 64 << 10;

/// A message that is unpacked in two steps: how long it becomes is not known before.
pub(super) struct Unpacking {
    packed: GzDecoder<Reader<Bytes>>,
    plain: Vec<u8>,
    limit: usize,
}

impl Unpacking {
    /// Of `message`, which may become so many bytes.
    pub(super) fn new(message: Bytes, limit: usize) -> Self {
        Self { packed: GzDecoder::new(message.reader()), plain: Vec::new(), limit }
    }

    /// Unpacks the first bytes; whether that was all.
    pub(super) fn begin(&mut self) -> Result<bool, Status> {
        self.go_on(SHORT.min(self.limit.saturating_add(1)))
    }

    /// Unpacks the rest.
    pub(super) fn finish(mut self) -> Result<Bytes, Status> {
        let left = self.limit.saturating_sub(self.plain.len());
        self.go_on(left.saturating_add(1))?;
        Ok(self.into_plain())
    }

    /// What was unpacked.
    pub(super) fn into_plain(self) -> Bytes {
        self.plain.into()
    }

    fn go_on(&mut self, most: usize) -> Result<bool, Status> {
        let read = self.packed.by_ref().take(most as u64).read_to_end(&mut self.plain);
        let read =
            read.map_err(|error| Status::internal(format!("a message cannot be decompressed: {error}")))?;
        let limit = self.limit;
        if self.plain.len() > limit {
            return Err(Status::resource_exhausted(format!(
                "a message is larger than {limit} bytes without its compression, which is the limit"
            )));
        }
        Ok(read < most)
    }
}
