//! Keys made ahead for a decision that cannot wait for them.

use super::{KeyForm, PrivateKey};

/// What a decision may draw keys from. One that finds too little leaves its wish here, gives up, and is made
/// again when the wish is fulfilled; a decision that is made again for another reason finds the same keys.
#[derive(Debug, Default)]
pub struct KeySupply {
    stock: Vec<(KeyForm, PrivateKey)>,
    /// Which of the stock this decision has drawn.
    drawn: Vec<bool>,
    missing: Vec<KeyForm>,
}

impl KeySupply {
    /// A decision begins.
    pub fn begin(&mut self) {
        self.drawn = vec![false; self.stock.len()];
        self.missing.clear();
    }

    /// A key nobody else got in this decision; `None` when there is none yet, and then it is wished for.
    pub fn draw(&mut self, form: KeyForm) -> Option<PrivateKey> {
        let free = (0..self.stock.len()).find(|&i| self.stock[i].0 == form && !self.drawn[i]);
        let Some(free) = free else {
            self.missing.push(form);
            return None;
        };
        self.drawn[free] = true;
        Some(self.stock[free].1.clone())
    }

    /// What the last decision did not find.
    pub fn missing(&self) -> &[KeyForm] {
        &self.missing
    }

    /// Adds a key.
    pub fn add(&mut self, form: KeyForm, key: PrivateKey) {
        self.stock.push((form, key));
        self.drawn.push(false);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_wish_is_fulfilled_once_and_kept_for_the_next_decision() {
        let mut supply = KeySupply::default();
        supply.begin();
        assert_eq!((supply.draw(KeyForm::P256), supply.draw(KeyForm::P256)), (None, None));
        for form in supply.missing().to_vec() {
            supply.add(form, PrivateKey::generate(form).unwrap());
        }
        let decide = |supply: &mut KeySupply| {
            supply.begin();
            [supply.draw(KeyForm::P256).unwrap(), supply.draw(KeyForm::P256).unwrap()]
        };
        let first = decide(&mut supply);
        assert_ne!(first[0], first[1], "no key is used twice");
        assert_eq!(decide(&mut supply), first);
        assert!(supply.missing().is_empty());
        assert_eq!(supply.draw(KeyForm::Rsa2048), None);
    }
}
