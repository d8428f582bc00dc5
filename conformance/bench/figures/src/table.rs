//! Tables, for people.

use comfy_table::CellAlignment;
pub use comfy_table::Table;
use comfy_table::presets::NOTHING;

use crate::budget::Budget;

/// Appends a titled table to a text, its lines without trailing blanks.
pub fn section(text: &mut String, title: &str, table: &Table) {
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    text.push_str(&format!("\n{title}\n\n{}\n", lines.join("\n")));
}

/// A table of words. A header of empty words is none.
#[must_use]
pub fn lines(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    if header.iter().any(|title| !title.is_empty()) {
        table.set_header(header);
    }
    table
}

/// A table some of whose columns hold figures.
#[must_use]
pub fn figures(header: &[&str], right: std::ops::Range<usize>) -> Table {
    let mut table = lines(header);
    for at in right {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// All budgets: promise, limit, figure, unit, verdict.
#[must_use]
pub fn budgets(budgets: &[Budget]) -> Table {
    let mut table = figures(&["budget", "at most", "measured", "", ""], 1..3);
    for budget in budgets {
        table.add_row(budget_line(budget));
    }
    table
}

fn budget_line(budget: &Budget) -> [String; 5] {
    let limit = format!("{}{}", if budget.at_least { "≥ " } else { "" }, budget.limit);
    let measured = budget
        .measured
        .map_or("-".to_owned(), |figure| format!("{figure:.2}"));
    let verdict = match budget.met {
        Some(true) => "met",
        Some(false) => "NOT MET",
        None => "not measured",
    };
    [
        budget.promise.to_owned(),
        limit,
        measured,
        budget.unit.to_owned(),
        verdict.to_owned(),
    ]
}

/// Milliseconds.
#[must_use]
pub fn ms(time: f64) -> String {
    format!("{time:.2}")
}

/// A ratio; nothing where there is none.
#[must_use]
pub fn times(ratio: Option<f64>) -> String {
    ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_budget_is_said_plainly() {
        let table = budgets(&[
            Budget::most("memory", ("MiB", 4.0), Some(5.0)),
            Budget::most("time", ("ms", 4.0), None),
        ]);
        let mut text = String::new();
        section(&mut text, "Budgets", &table);
        let line = text.lines().find(|line| line.contains("memory")).unwrap();
        assert!(line.contains("5.00") && line.contains("NOT MET"), "{line}");
        assert!(text.contains("not measured"));
    }
}
