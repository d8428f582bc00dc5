//! `docs/SPECIFICATION.md` names a test for each promise. These tests hold the page to the sources: every named test
//! exists, no promise stands without one, and no group of cases is forgotten.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper that fails fails the test"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Fewer rows than this mean that the table was not read, not that little is promised.
const LEAST_ROWS: usize = 100;

/// A promise, a control, a contract or a number, with the tests that prove it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    id: String,
    tests: Vec<String>,
}

/// The rows of every table of the page whose last column is headed `test`.
///
/// # Errors
/// A row of another width than its heading, without an id, or with anything beside test names in its last cell.
fn rows(page: &str) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    let mut heading: Option<Vec<String>> = None;
    for (number, line) in page.lines().enumerate() {
        let at = |what: &str| format!("line {}: {what}: {line}", number + 1);
        let Some(cells) = cells(line) else {
            heading = None;
            continue;
        };
        let Some(head) = &heading else {
            heading = Some(cells);
            continue;
        };
        if head.last().is_none_or(|name| name != "test") || cells.iter().all(|cell| is_rule(cell)) {
            continue;
        }
        if cells.len() != head.len() {
            return Err(at("as many cells as the heading has"));
        }
        let (Some(id), Some(last)) = (cells.first(), cells.last()) else {
            return Err(at("an id and tests"));
        };
        if id.is_empty() || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.') {
            return Err(at("an id such as P1.2"));
        }
        let tests =
            names(last).ok_or_else(|| at("test names in backticks, and nothing else, in the last cell"))?;
        rows.push(Row {
            id: id.clone(),
            tests,
        });
    }
    Ok(rows)
}

/// The cells of a table's line, trimmed; `None` for any other line.
fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(|cell| cell.trim().to_owned()).collect())
}

/// Whether a cell is a part of the line between heading and rows.
fn is_rule(cell: &str) -> bool {
    !cell.is_empty() && cell.bytes().all(|b| b == b'-' || b == b':')
}

/// The names in a cell of backticked words; `None` if there is anything else in it.
fn names(cell: &str) -> Option<Vec<String>> {
    cell.split_whitespace()
        .map(|word| {
            let name = word.strip_prefix('`')?.strip_suffix('`')?;
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-/:".contains(&b);
            (!name.is_empty() && name.bytes().all(plain)).then(|| name.to_owned())
        })
        .collect()
}

/// Everything that can prove a promise.
#[derive(Debug, Default)]
struct Known {
    /// Cases of the suite, `group/name`.
    cases: BTreeSet<String>,
    /// Rust tests, by the folder of their crate.
    tests: BTreeMap<String, BTreeSet<String>>,
}

impl Known {
    fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("the workspace is above this crate");
        let mut known = Self {
            cases: listed_cases(),
            tests: BTreeMap::new(),
        };
        for folder in folders(root) {
            let mut found = BTreeSet::new();
            for file in sources(&root.join(&folder)) {
                found.extend(tests_in(
                    &std::fs::read_to_string(&file).expect("a source is text"),
                ));
            }
            known.tests.insert(folder, found);
        }
        known
    }

    fn has(&self, name: &str) -> bool {
        match name.split_once("::") {
            Some((folder, test)) => self.tests.get(folder).is_some_and(|tests| tests.contains(test)),
            None => self.cases.contains(name),
        }
    }

    /// What is wrong with the rows, as sentences.
    fn faults(&self, rows: &[Row]) -> Vec<String> {
        let mut faults = Vec::new();
        let mut seen = BTreeSet::new();
        for row in rows {
            if !seen.insert(&row.id) {
                faults.push(format!("{} is there twice", row.id));
            }
            if row.tests.is_empty() {
                faults.push(format!("{} names no test", row.id));
            }
            for test in row.tests.iter().filter(|test| !self.has(test)) {
                faults.push(format!("{} names {test}, which does not exist", row.id));
            }
        }
        let group = |name: &str| name.split_once('/').map(|(group, _)| group.to_owned());
        let named: BTreeSet<String> = rows
            .iter()
            .flat_map(|row| &row.tests)
            .filter_map(|test| group(test))
            .collect();
        let groups: BTreeSet<String> = self.cases.iter().filter_map(|case| group(case)).collect();
        for forgotten in groups.difference(&named) {
            faults.push(format!("no promise names a case of {forgotten}/"));
        }
        faults
    }
}

/// The cases that the suite itself lists.
fn listed_cases() -> BTreeSet<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_sandglass-conformance"))
        .arg("--list")
        .output()
        .expect("the suite can be started");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("the list is text");
    let cases: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect();
    assert!(cases.len() > 100, "only {} cases are listed", cases.len());
    cases
}

/// The folders of the workspace's crates, as the root manifest has them.
fn folders(root: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(root.join("Cargo.toml")).expect("the workspace has a manifest");
    let manifest: toml::Table = text.parse().expect("it is TOML");
    let members = manifest["workspace"]["members"]
        .as_array()
        .expect("it lists members");
    members
        .iter()
        .filter_map(|member| member.as_str().map(str::to_owned))
        .collect()
}

/// The Rust files below `src` and `tests` of a crate.
fn sources(krate: &Path) -> Vec<PathBuf> {
    let mut waiting = vec![krate.join("src"), krate.join("tests")];
    let mut found = Vec::new();
    while let Some(directory) = waiting.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else {
            continue;
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

/// The names of the tests in a source: functions marked as tests, and trials of a harness of its own.
fn tests_in(source: &str) -> BTreeSet<String> {
    let word = |text: &str| -> Option<String> {
        let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))?;
        (end > 0).then(|| text[..end].to_owned())
    };
    let mut found = BTreeSet::new();
    let (mut marked, mut trial) = (false, false);
    for line in source.lines().map(str::trim) {
        if matches!(line, "#[test]" | "#[tokio::test]") {
            marked = true;
        } else if let Some(rest) = line
            .strip_prefix("fn ")
            .or_else(|| line.strip_prefix("async fn "))
        {
            if std::mem::take(&mut marked) {
                found.extend(word(rest));
            }
        } else if marked && !(line.is_empty() || line.starts_with("#[") || line.starts_with("//")) {
            marked = false;
        }
        // `Trial::test("name", …)` or `trial("name", …)`, the name on the next line where it is long.
        let named = line
            .split_once("Trial::test(")
            .or_else(|| line.split_once("trial("))
            .map(|(_, rest)| rest);
        let literal = named
            .or(trial.then_some(line))
            .and_then(|text| text.strip_prefix('"'));
        found.extend(literal.and_then(word));
        trial = named.is_some_and(str::is_empty);
    }
    found
}

fn page() -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/SPECIFICATION.md");
    let text = std::fs::read_to_string(path).expect("the page is there");
    rows(&text).expect("its tables can be read")
}

#[test]
fn every_promise_names_a_test_and_every_named_test_exists() {
    let rows = page();
    assert!(rows.len() >= LEAST_ROWS, "only {} rows were read", rows.len());
    let faults = Known::read().faults(&rows);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_promise_and_every_kind_of_row_is_there() {
    let rows = page();
    let wanted = (1..=8)
        .map(|n| format!("P{n}."))
        .chain((1..=8).map(|n| format!("K{n}.")));
    for start in wanted
        .chain((1..=5).map(|n| format!("C{n}.")))
        .chain(["B".to_owned(), "N".to_owned()])
    {
        assert!(
            rows.iter().any(|row| row.id.starts_with(&start)),
            "no row begins with {start}"
        );
    }
}

#[test]
fn a_made_up_name_an_empty_cell_a_second_id_and_a_forgotten_group_are_faults() {
    let known = Known {
        cases: ["kernel/a", "files/b"].map(str::to_owned).into(),
        tests: [("run".to_owned(), ["c".to_owned()].into())].into(),
    };
    let faults = |table: &str| {
        known.faults(&rows(&format!("| id | promise | test |\n| --- | --- | --- |\n{table}")).unwrap())
    };
    let good = "| P1.1 | x | `kernel/a` `run::c` |\n| P1.2 | y | `files/b` |\n";
    assert_eq!(faults(good), [""; 0]);
    for made_up in ["kernel/z", "kernel", "run::z", "ran::c", "c", "run::kernel/a"] {
        let table = good.replace("run::c", made_up);
        assert_eq!(
            faults(&table),
            [format!("P1.1 names {made_up}, which does not exist")]
        );
    }
    assert_eq!(faults(&good.replace("`run::c`", "")), [""; 0]);
    assert_eq!(
        faults(&good.replace("`kernel/a` `run::c`", "")),
        ["P1.1 names no test", "no promise names a case of kernel/"]
    );
    assert_eq!(faults(&good.replace("P1.2", "P1.1")), ["P1.1 is there twice"]);
}

#[test]
fn what_is_no_row_of_tests_is_an_error_and_other_tables_are_passed_over() {
    let table = |row: &str| rows(&format!("| id | promise | test |\n| --- | --- | --- |\n{row}\n"));
    assert!(
        table("| P1 | x | kernel/a |").is_err(),
        "a name without backticks"
    );
    assert!(table("| P1 | x | `kernel/a`, `kernel/b` |").is_err(), "a comma");
    assert!(
        table("| P1 | x | see `kernel/a` |").is_err(),
        "words beside names"
    );
    assert!(table("| P1 | x | `kernel/*` |").is_err(), "a pattern");
    assert!(table("| P1 | x |").is_err(), "a cell too few");
    assert!(table("| the first | x | `kernel/a` |").is_err(), "no id");
    assert_eq!(
        rows("| folder | crate |\n| --- | --- |\n| `run/` | x |\n"),
        Ok(vec![])
    );
    assert_eq!(rows("text\n\n`kernel/a`\n"), Ok(vec![]));
}

#[test]
fn only_tests_are_found_in_a_source() {
    let source = r#"
        #[test]
        #[ignore = "slow"]
        /// About it.
        fn one() {}
        fn helper() {}
        proptest! {
            #[test]
            fn two(x in any::<u8>()) {}
        }
        let trials = vec![
            Trial::test("three", body).with_ignored_flag(!root),
            Trial::test(
                "four",
                body,
            ),
        ];
        let name = "five";
    "#;
    assert_eq!(
        tests_in(source),
        ["one", "two", "three", "four"].map(str::to_owned).into()
    );
}
