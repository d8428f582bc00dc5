//! How far a build is, on stderr: bars on a terminal, plain lines elsewhere.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use sandglass_image::Progress;

use crate::run::say;

/// How often a spinner turns.
const TURN: Duration = Duration::from_millis(120);
/// How often a long step says how far it is, without a terminal.
const SAY_AGAIN: Duration = Duration::from_secs(5);

/// One bar for each step that is under way.
#[derive(Debug, Default)]
pub struct Bars {
    all: MultiProgress,
    open: Mutex<BTreeMap<String, ProgressBar>>,
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants; a bad one would show the default style.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

impl Progress for Bars {
    fn started(&self, step: &str) {
        let bar = self.all.add(ProgressBar::no_length());
        bar.set_style(style("{spinner:.cyan} {msg}"));
        bar.set_message(step.to_owned());
        bar.enable_steady_tick(TURN);
        self.open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(step.to_owned(), bar);
    }

    fn bytes(&self, step: &str, done: u64, total: u64) {
        if let Some(bar) = self.open.lock().unwrap_or_else(PoisonError::into_inner).get(step) {
            if bar.length() != Some(total) {
                bar.set_length(total);
                bar.set_style(style(
                    "{spinner:.cyan} {msg}  {bar:24.cyan/dim} {bytes}/{total_bytes}",
                ));
            }
            bar.set_position(done);
        }
    }

    fn finished(&self, step: &str, detail: &str) {
        if let Some(bar) = self
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(step)
        {
            bar.set_style(style("{prefix:.green} {msg}"));
            bar.set_prefix("✓");
            bar.finish_with_message(format!("{step}  {detail}"));
        }
    }
}

/// One line when a step begins and one when it ends, and a few on the way where it takes long.
#[derive(Debug, Default)]
pub struct Lines {
    said: Mutex<BTreeMap<String, Instant>>,
}

impl Progress for Lines {
    fn started(&self, step: &str) {
        self.said
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(step.to_owned(), Instant::now());
        say(&format!("{step} …"));
    }

    fn bytes(&self, step: &str, done: u64, total: u64) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = said.get_mut(step).filter(|last| last.elapsed() >= SAY_AGAIN) {
            *last = Instant::now();
            let percent = done.saturating_mul(100) / total.max(1);
            say(&format!("{step}: {percent} %"));
        }
    }

    fn finished(&self, step: &str, detail: &str) {
        self.said
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(step);
        say(&format!("{step}: {detail}"));
    }
}
