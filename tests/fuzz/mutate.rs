//! Makes new inputs of old ones, the same ones at every run.

use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

/// Bytes and texts that decoders trip over.
const TRAPS: &[&[u8]] = &[
    b"\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x0a\x06zone-2",
    b"kuma.io/zone",
    b"\xed\xa0\x80",
    "\u{202e}".as_bytes(),
    b"\r\n",
    b"{{{{{{{{{{{{{{{{",
    b"[[[[[[[[[[[[[[[[",
    b"- - - - - - - -",
    b"&a [*a, *a]",
    b"9223372036854775808",
    b"-1",
    b"NaN",
    b"../..",
];

/// Longest input that is made.
const LONGEST: usize = 64 << 10;

/// An endless source of mutations of `seeds`.
pub struct Mutations<'a> {
    seeds: &'a [Vec<u8>],
    random: StdRng,
}

impl<'a> Mutations<'a> {
    /// Of these seeds, of which there must be one.
    pub fn of(seeds: &'a [Vec<u8>], number: u64) -> Self {
        Self { seeds, random: StdRng::seed_from_u64(number) }
    }

    /// The next input.
    pub fn next(&mut self) -> Vec<u8> {
        let mut input = self.seeds.choose(&mut self.random).cloned().unwrap_or_default();
        for _ in 0..self.random.random_range(1..=4) {
            self.change(&mut input);
        }
        input.truncate(LONGEST);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.random.random_range(0..=input.len());
        let end = self.random.random_range(at..=input.len().min(at + 64));
        match self.random.random_range(0..7) {
            0 => input.truncate(at),
            1 => drop(input.drain(at..end)),
            2 => {
                let part = input[at..end].to_vec();
                input.splice(at..at, part);
            }
            3 => {
                let trap = TRAPS.choose(&mut self.random).copied().unwrap_or_default();
                input.splice(at..at, trap.iter().copied());
            }
            4 => {
                let other = self.seeds.choose(&mut self.random).map(Vec::as_slice).unwrap_or_default();
                let from = self.random.random_range(0..=other.len());
                let to = self.random.random_range(from..=other.len().min(from + 256));
                input.splice(at..end, other[from..to].iter().copied());
            }
            5 => {
                let random = &mut self.random;
                input[at..end].iter_mut().for_each(|byte| *byte = random.random());
            }
            _ => {
                let bit = 1 << self.random.random_range(0..8);
                input.get_mut(at).into_iter().for_each(|byte| *byte ^= bit);
            }
        }
    }
}
