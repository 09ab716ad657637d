//! Regular expressions of a request.

use regex::{Error, Regex, RegexBuilder};

use super::MatcherError;

/// Bytes of all expressions of a request, compiled.
pub(super) const ROOM: usize = 1 << 20;
/// What one counts for at least.
const LEAST: usize = 8 << 10;
/// Bytes that matching one may take besides: more is for long texts, and these are names.
const SCRATCH: usize = 64 << 10;

/// How much more may be compiled for a request.
pub(super) struct ExpressionRoom(usize);

impl Default for ExpressionRoom {
    fn default() -> Self {
        Self(ROOM)
    }
}

impl ExpressionRoom {
    /// Compiles an expression. Nobody says how large one is, so it is tried whether it fits into little, and into more
    /// and more where it does not: it counts for as much as it needed.
    pub(super) fn compile(&mut self, expression: &str) -> Result<Regex, MatcherError> {
        let mut size = LEAST;
        while size <= self.0 {
            let built = RegexBuilder::new(expression).size_limit(size).dfa_size_limit(SCRATCH).build();
            match built {
                Ok(built) => {
                    self.0 -= size;
                    return Ok(built);
                }
                Err(Error::CompiledTooBig(_)) => size *= 2,
                Err(error) => return Err(MatcherError::Expression(error.to_string())),
            }
        }
        Err(MatcherError::TooLarge)
    }
}
