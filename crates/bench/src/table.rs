//! Tables in Markdown, in columns that line up.

use std::fmt;

/// Rows under a head; every row has as many cells as the head.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(head: [&str; N]) -> Self {
        Self { rows: vec![head.map(str::to_owned).to_vec()] }
    }

    /// # Panics
    /// When it has more or fewer cells than the head.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        assert_eq!(cells.len(), self.rows[0].len(), "a cell for each column");
        self.rows.push(cells.into());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.rows[0].len()).map(width).collect();
        for (number, row) in self.rows.iter().enumerate() {
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let (width, end) = (*width, if column + 1 == row.len() { " |" } else { "" });
                // Names to the left, figures to the right.
                if column == 0 {
                    write!(f, "| {cell:<width$}{end}")?;
                } else {
                    write!(f, " | {cell:>width$}{end}")?;
                }
            }
            writeln!(f)?;
            if number == 0 {
                let rules = widths.iter().enumerate();
                let rules = rules.map(|(column, width)| match column {
                    0 => "-".repeat(width + 2),
                    _ => format!("{}:", "-".repeat(width + 1)),
                });
                writeln!(f, "|{}|", rules.collect::<Vec<_>>().join("|"))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["what", "µs"]);
        table.row(["a long name".to_owned(), "7".to_owned()]);
        let expected = "| what        | µs |\n|-------------|---:|\n| a long name |  7 |\n";
        assert_eq!(table.to_string(), expected);
    }
}
