//! What a row was when it was written, in 32 bits. It is about damage, not about attacks: a CRC notices
//! every flipped bit.

/// The sum over the columns of one row, in order. Two rows that differ only in where one column ends and
/// the next begins, or in `NULL` and empty, have different inputs.
#[derive(Default)]
pub(super) struct Checksum(crc32fast::Hasher);

impl Checksum {
    pub(super) fn text(self, column: &str) -> Self {
        self.bytes(column.as_bytes())
    }

    pub(super) fn bytes(mut self, column: &[u8]) -> Self {
        self.0.update(&(column.len() as u64).to_le_bytes());
        self.0.update(column);
        self
    }

    pub(super) fn number(mut self, column: i64) -> Self {
        self.0.update(&column.to_le_bytes());
        self
    }

    /// A column that may be `NULL`.
    pub(super) fn optional(mut self, column: Option<&[u8]>) -> Self {
        self.0.update(&[u8::from(column.is_some())]);
        self.bytes(column.unwrap_or_default())
    }

    /// As a column.
    pub(super) fn finish(self) -> i64 {
        i64::from(self.0.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_same_row_has_another_sum() {
        let sum = |of: fn(Checksum) -> Checksum| of(Checksum::default()).finish();
        let sums = [
            sum(|s| s.text("ab").text("c")),
            sum(|s| s.text("a").text("bc")),
            sum(|s| s.optional(None)),
            sum(|s| s.optional(Some(b""))),
            sum(|s| s.number(1)),
            sum(|s| s.number(2)),
        ];
        for (n, one) in sums.iter().enumerate() {
            assert!(!sums[..n].contains(one), "{sums:?}");
        }
    }
}
