//! What is shown at one moment.

use crate::{inspect::RowTrouble, table};

/// Everything there is.
#[derive(Clone, Debug, Default)]
pub(super) struct Board {
    /// Which control plane it is.
    pub(super) title: String,
    pub(super) tables: Vec<BoardTable>,
}

/// One table, the worst first.
#[derive(Clone, Debug)]
pub(super) struct BoardTable {
    pub(super) name: &'static str,
    pub(super) headings: Vec<&'static str>,
    pub(super) rows: Vec<(RowTrouble, Vec<String>)>,
}

impl BoardTable {
    pub(super) fn new(
        name: &'static str,
        headings: &[&'static str],
        rows: impl Iterator<Item = (RowTrouble, Vec<String>)>,
    ) -> Self {
        let mut rows: Vec<_> = rows.collect();
        // Those with the same trouble stay in the order of their names, so that a row does not jump about.
        rows.sort_by(|(a, x), (b, y)| b.cmp(a).then_with(|| x.cmp(y)));
        Self { name, headings: headings.to_vec(), rows }
    }

    /// How many rows there are, and how many of them are in trouble.
    pub(super) fn summary(&self) -> String {
        let count = |trouble: RowTrouble| self.rows.iter().filter(|(of_row, _)| *of_row == trouble).count();
        let (bad, noted) = (count(RowTrouble::Away), count(RowTrouble::Noted));
        format!("{} {}, {bad} away, {noted} with something to know", self.rows.len(), self.name)
    }

    /// The rows in which `text` stands somewhere.
    pub(super) fn chosen<'a>(&'a self, text: &'a str) -> impl Iterator<Item = &'a (RowTrouble, Vec<String>)> {
        self.rows.iter().filter(move |(_, cells)| cells.iter().any(|cell| cell.contains(text)))
    }

    /// Prints it for whoever has no terminal.
    pub(super) fn print(&self) {
        crate::output::line(&self.summary());
        table::print(&self.headings, self.rows.iter().map(|(_, cells)| cells.clone()).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(trouble: RowTrouble, name: &str) -> (RowTrouble, Vec<String>) {
        (trouble, vec![name.to_owned()])
    }

    #[test]
    fn the_worst_comes_first_and_equals_stay_in_order() {
        let rows = [
            row(RowTrouble::None, "b"),
            row(RowTrouble::Noted, "c"),
            row(RowTrouble::Away, "d"),
            row(RowTrouble::None, "a"),
        ];
        let table = BoardTable::new("zones", &["NAME"], rows.into_iter());
        let names: Vec<&str> = table.rows.iter().map(|(_, cells)| cells[0].as_str()).collect();
        assert_eq!(names, ["d", "c", "a", "b"]);
        assert_eq!(table.summary(), "4 zones, 1 away, 1 with something to know");
        assert_eq!(table.chosen("a").count(), 1);
    }
}
