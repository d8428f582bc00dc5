//! The summary of a run for a person: how it ended, what came back, where the time went, and the receipt.

use indicatif::HumanBytes;
use sandglass_run::{Isolation, Report, Status, Timings, Usage};
use unicode_width::UnicodeWidthStr;

use crate::style::{Palette, paint};
use crate::terminal::line;

/// What the summary needs besides the report.
#[derive(Debug, Default)]
pub struct Context<'a> {
    /// Where artifacts were stored; `None` when they were not.
    pub out: Option<&'a str>,
    /// Artifacts that could not be stored, and why.
    pub not_stored: &'a [(String, String)],
}

/// Skipped files that are listed; more are counted.
const MOST_SKIPPED: usize = 20;

/// Draws the summary. Everything in it that came from the sandbox is made harmless for a terminal.
pub fn summary(report: &Report, context: &Context<'_>, p: &Palette) -> String {
    let mut rows = Rows {
        text: String::new(),
        p: *p,
    };
    rows.headline(report);
    if let Some(error) = &report.error {
        rows.row(
            "why",
            [format!(
                "{} {}",
                line(&error.message),
                paint(p.dim, format!("[{}]", error.code))
            )],
        );
        if !error.hint.is_empty() {
            rows.row("next", [line(&error.hint)]);
        }
    }
    rows.output(report);
    rows.artifacts(report, context);
    rows.skipped(report, context);
    if let Some(isolation) = &report.isolation {
        rows.row("time", [times(&report.timings_ms)]);
        rows.row("used", usage(&report.usage));
        rows.isolation(isolation);
    }
    rows.text
}

struct Rows {
    text: String,
    p: Palette,
}

impl Rows {
    /// A label and its lines.
    fn row(&mut self, label: &str, lines: impl IntoIterator<Item = String>) {
        for (i, text) in lines.into_iter().enumerate() {
            let label = if i == 0 { label } else { "" };
            let label = paint(self.p.dim, format!("{label:<10}"));
            self.text.push_str(&format!("{label} {text}\n"));
        }
    }

    fn headline(&mut self, report: &Report) {
        let p = &self.p;
        let seconds = report.timings_ms.total as f64 / 1000.0;
        let (mark, style, words) = match report.status {
            Status::Succeeded => ("✓", p.good, "succeeded".to_owned()),
            Status::Failed => ("✗", p.bad, failed(report)),
            Status::TimedOut => ("✗", p.bad, "ended by the wall clock (--timeout)".to_owned()),
            Status::OutOfMemory => ("✗", p.bad, "out of memory (--memory)".to_owned()),
            Status::Cancelled => ("✗", p.warn, "cancelled".to_owned()),
            Status::Refused => ("✗", p.bad, "refused: nothing ran".to_owned()),
            Status::Lost => ("✗", p.bad, "lost".to_owned()),
        };
        let time = if report.isolation.is_some() {
            format!(" in {seconds:.2} s")
        } else {
            String::new()
        };
        let head = paint(style, format!("{mark} {words}"));
        let run = paint(p.dim, format!("run {}", report.run_id));
        self.text.push_str(&format!("{head}{time}  {run}\n"));
    }

    /// Only what did not come whole.
    fn output(&mut self, report: &Report) {
        let p = self.p;
        let streams = [("stdout", &report.stdout), ("stderr", &report.stderr)];
        let cut = streams.into_iter().filter(|(_, output)| output.truncated);
        let lines: Vec<_> = cut
            .map(|(name, output)| {
                let what = format!(
                    "{} to {name}, and not all of it was kept",
                    HumanBytes(output.bytes_total)
                );
                format!(
                    "{}  {}",
                    paint(p.warn, what),
                    paint(p.dim, "SANDGLASS_OUTPUT keeps more")
                )
            })
            .collect();
        self.row("output", lines);
    }

    fn artifacts(&mut self, report: &Report, context: &Context<'_>) {
        if report.artifacts.is_empty() {
            if report.status == Status::Cancelled && report.isolation.is_some() {
                let none = paint(self.p.dim, "none: a run that is cancelled hands nothing back");
                self.row("artifacts", [none]);
            }
            return;
        }
        let names: Vec<_> = report.artifacts.iter().map(|a| line(&a.path)).collect();
        let sizes: Vec<_> = report
            .artifacts
            .iter()
            .map(|a| HumanBytes(a.bytes).to_string())
            .collect();
        let widest = |texts: &[String]| texts.iter().map(|t| t.width()).max().unwrap_or(0);
        let (name_width, size_width) = (widest(&names).min(60), widest(&sizes));
        let lines = report
            .artifacts
            .iter()
            .zip(&names)
            .zip(&sizes)
            .map(|((artifact, name), size)| {
                let pad = " ".repeat(name_width.saturating_sub(name.width()));
                let kind = paint(self.p.dim, line(&artifact.media_type));
                format!("{}{pad}  {size:>size_width$}  {kind}", paint(self.p.strong, name))
            });
        let lines: Vec<_> = lines.collect();
        self.row("artifacts", lines);
        let place = match context.out {
            Some(out) => format!("stored in {}", line(out)),
            None => "listed only: say --out DIR to keep them".to_owned(),
        };
        let place = paint(self.p.dim, place);
        self.row("", [place].map(|text| text.to_string()));
    }

    fn skipped(&mut self, report: &Report, context: &Context<'_>) {
        let p = self.p;
        let why = |path: &str, reason: String| {
            let stored = context.not_stored.iter().find(|(name, _)| name == path);
            stored.map_or(reason, |(_, why)| format!("not stored: {why}"))
        };
        let mut lines: Vec<_> = report
            .skipped
            .iter()
            .take(MOST_SKIPPED)
            .map(|s| {
                format!(
                    "{}  {}",
                    line(&s.path),
                    paint(p.warn, line(&why(&s.path, reason(s.reason))))
                )
            })
            .collect();
        if let Some(more) = report.skipped.len().checked_sub(MOST_SKIPPED).filter(|n| *n > 0) {
            lines.push(format!("… and {more} more (all of them with --json)"));
        }
        self.row("skipped", lines);
    }

    fn isolation(&mut self, i: &Isolation) {
        let p = self.p;
        let good = |text: String| format!("{} {text}", paint(p.good, "✓"));
        let off = |text: String| paint(p.bad, format!("✗ {text}"));
        let check = |fine: bool, text: &str, otherwise: String| {
            if fine {
                good(text.to_owned())
            } else {
                off(otherwise)
            }
        };
        let no = |what: &str| format!("no {what}");
        let first = [
            good(format!("uid {}", i.uid)),
            check(
                i.capabilities == "none",
                "no capabilities",
                format!("capabilities {}", line(&i.capabilities)),
            ),
            check(
                i.no_new_privileges,
                "no new privileges",
                "may gain privileges".to_owned(),
            ),
            check(i.user_namespace, "user namespace", no("user namespace")),
            check(
                i.network == "none",
                "no network",
                format!("network {}", line(&i.network)),
            ),
        ];
        let second = [
            check(i.root_read_only, "read-only root", "writable root".to_owned()),
            check(
                i.seccomp_profile != "none",
                &format!("seccomp {}", line(&i.seccomp_profile)),
                no("seccomp"),
            ),
            i.landlock_abi
                .map_or_else(|| off(no("Landlock")), |abi| good(format!("Landlock ABI {abi}"))),
        ];
        let mut lines = vec![first.join("  "), second.join("  ")];
        if !i.waived.is_empty() {
            lines.push(paint(p.warn, format!("! waived: {}", i.waived.join(", "))));
        }
        lines.push(paint(
            p.dim,
            format!("{} driver, image {}", line(&i.driver), short(&i.image)),
        ));
        self.row("isolation", lines);
    }
}

fn failed(report: &Report) -> String {
    match (report.exit_code, report.signal) {
        (Some(code), _) => format!("failed with exit code {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}{}", signal_name(signal)),
        (None, None) => "failed".to_owned(),
    }
}

fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal)
        .map(|name| format!(" ({name})"))
        .unwrap_or_default()
}

fn times(t: &Timings) -> String {
    format!(
        "{} ms = queued {} + create {} + stage {} + run {} + collect {} + delete {}",
        t.total, t.queued, t.create, t.stage, t.run, t.collect, t.delete
    )
}

fn usage(u: &Usage) -> Option<String> {
    let parts: Vec<_> = [
        u.cpu_ms.map(|ms| format!("{:.2} s of CPU", ms as f64 / 1000.0)),
        u.memory_peak_bytes
            .map(|bytes| format!("{} of memory at most", HumanBytes(bytes))),
        u.processes_peak.map(|n| format!("{n} processes at most")),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// A reason in words: its JSON name with spaces.
fn reason(reason: sandglass_run::SkipReason) -> String {
    serde_json::to_value(reason)
        .ok()
        .and_then(|v| v.as_str().map(|s| s.replace('_', " ")))
        .unwrap_or_else(|| format!("{reason:?}"))
}

/// Enough of a digest to tell images apart.
fn short(digest: &str) -> String {
    line(&digest.chars().take("sha256:".len() + 12).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandglass_run::{Artifact, RunError, SkipReason, Skipped};

    fn report() -> Report {
        let error = RunError {
            code: "x".into(),
            message: "m.".into(),
            hint: "h.".into(),
        };
        let mut report = Report::refused("r1".parse().unwrap(), error);
        report.error = None;
        report.status = Status::Succeeded;
        report.isolation = Some(Isolation {
            driver: "local".into(),
            runtime: "sandglass".into(),
            image: format!("sha256:{}", "ab".repeat(32)),
            uid: 65534,
            capabilities: "none".into(),
            no_new_privileges: true,
            seccomp_profile: "strict".into(),
            landlock_abi: Some(7),
            user_namespace: true,
            network: "none".into(),
            root_read_only: true,
            waived: vec![],
        });
        report
    }

    fn plain(report: &Report, context: &Context<'_>) -> String {
        summary(report, context, &Palette::default())
    }

    #[test]
    fn artifacts_stand_with_size_and_type_and_where_they_are() {
        let mut r = report();
        for (path, bytes, media_type) in [
            ("customers.csv", 512, "text/csv"),
            ("表.png", 50_000, "image/png"),
        ] {
            let (path, media_type) = (path.to_owned(), media_type.to_owned());
            r.artifacts.push(Artifact {
                path,
                bytes,
                sha256: String::new(),
                media_type,
            });
        }
        let text = plain(
            &r,
            &Context {
                out: Some("results"),
                ..Context::default()
            },
        );
        assert!(text.contains("customers.csv      512 B  text/csv\n"), "{text}");
        assert!(text.contains("表.png         48.83 KiB  image/png\n"), "{text}");
        assert!(text.contains("stored in results"), "{text}");
        assert!(
            plain(&r, &Context::default()).contains("--out DIR"),
            "without a place it says how to get one"
        );
    }

    #[test]
    fn the_receipt_is_readable_at_a_glance() {
        let text = plain(&report(), &Context::default());
        for part in [
            "✓ uid 65534",
            "✓ no capabilities",
            "✓ no network",
            "✓ Landlock ABI 7",
            "✓ seccomp strict",
            "✓ read-only root",
            "sha256:abababababab\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(
            !text.contains('✗') && !text.contains("waived") && !text.contains('\u{1b}'),
            "{text}"
        );
    }

    #[test]
    fn what_is_missing_or_waived_stands_out() {
        let mut r = report();
        let isolation = r.isolation.as_mut().unwrap();
        isolation.landlock_abi = None;
        isolation.waived = vec!["landlock".into(), "memory".into()];
        let text = plain(&r, &Context::default());
        assert!(
            text.contains("✗ no Landlock") && text.contains("! waived: landlock, memory"),
            "{text}"
        );
    }

    #[test]
    fn each_way_to_end_has_its_own_words() {
        for (status, words) in [
            (Status::TimedOut, "--timeout"),
            (Status::OutOfMemory, "--memory"),
            (Status::Cancelled, "cancelled"),
            (Status::Refused, "nothing ran"),
            (Status::Lost, "lost"),
        ] {
            let r = Report { status, ..report() };
            assert!(
                plain(&r, &Context::default())
                    .lines()
                    .next()
                    .unwrap()
                    .contains(words)
            );
        }
        let r = Report {
            status: Status::Failed,
            exit_code: Some(3),
            ..report()
        };
        assert!(plain(&r, &Context::default()).contains("exit code 3"));
        let r = Report {
            status: Status::Failed,
            signal: Some(11),
            ..report()
        };
        assert!(plain(&r, &Context::default()).contains("signal 11 (SIGSEGV)"));
    }

    #[test]
    fn output_that_was_cut_is_told_with_its_stream_and_how_to_keep_more() {
        let mut r = report();
        assert!(!plain(&r, &Context::default()).contains("output"));
        r.stderr.bytes_total = 3 << 20;
        r.stderr.truncated = true;
        let text = plain(&r, &Context::default());
        assert!(
            text.contains("output     3.00 MiB to stderr, and not all of it was kept"),
            "{text}"
        );
        assert!(
            text.contains("SANDGLASS_OUTPUT") && !text.contains("stdout"),
            "{text}"
        );
    }

    #[test]
    fn a_cancelled_run_says_that_nothing_comes_back() {
        let mut r = report();
        let told = "none: a run that is cancelled hands nothing back";
        assert!(!plain(&r, &Context::default()).contains(told));
        r.status = Status::Cancelled;
        assert!(plain(&r, &Context::default()).contains(told));
        r.isolation = None;
        assert!(!plain(&r, &Context::default()).contains(told), "it never began");
    }

    #[test]
    fn what_was_not_stored_says_why() {
        let mut r = report();
        r.skipped.push(Skipped {
            path: "a.csv".into(),
            reason: SkipReason::Exists,
        });
        r.skipped.push(Skipped {
            path: "link".into(),
            reason: SkipReason::SymbolicLink,
        });
        let not_stored = [(
            "a.csv".to_owned(),
            "something of that name is there already".to_owned(),
        )];
        let text = plain(
            &r,
            &Context {
                out: Some("o"),
                not_stored: &not_stored,
            },
        );
        assert!(
            text.contains("a.csv  not stored: something of that name is there already"),
            "{text}"
        );
        assert!(text.contains("link  symbolic link"), "{text}");
    }

    #[test]
    fn nothing_from_the_sandbox_reaches_the_terminal_as_a_command() {
        let mut r = report();
        r.artifacts.push(Artifact {
            path: "a\u{1b}]0;x\u{7}\n✓ forged".into(),
            bytes: 1,
            sha256: String::new(),
            media_type: "text/\u{1b}[2J".into(),
        });
        r.skipped.push(Skipped {
            path: "\u{1b}[1A".into(),
            reason: SkipReason::Fifo,
        });
        r.error = Some(RunError {
            code: "x".into(),
            message: "\u{1b}c".into(),
            hint: "\r".into(),
        });
        let text = plain(&r, &Context::default());
        assert!(!text.contains(['\u{1b}', '\u{7}', '\r']), "{text:?}");
        assert!(!text.lines().any(|l| l.starts_with("✓ forged")), "{text}");
    }

    #[test]
    fn thousands_of_skipped_files_are_counted() {
        let mut r = report();
        for i in 0..1000 {
            r.skipped.push(Skipped {
                path: format!("f{i}"),
                reason: SkipReason::Fifo,
            });
        }
        let text = plain(&r, &Context::default());
        assert!(text.lines().count() < 40 && text.contains("980 more"), "{text}");
    }
}
