//! Ordinary work that must just work. Each script checks its own results and ends with how many of its checks held.

use crate::case::{Body, Case, Need, Work};
use crate::context::PROBER_JS;

/// Every script of ordinary work.
pub fn cases() -> Vec<Case> {
    macro_rules! work {
        ($language:literal, $file:literal, $says:literal) => {
            Case {
                name: format!(
                    "work/{}-{}",
                    $language,
                    $file.split('.').next().unwrap_or($file)
                ),
                families: &[],
                says: $says.to_owned(),
                needs: Vec::new(),
                alone: false,
                body: Body::Work(Work {
                    file: $file,
                    text: include_str!(concat!("../../work/", $language, "/", $file)),
                    flags: &[],
                }),
            }
        };
    }
    vec![
        work!(
            "python",
            "subscription.py",
            "the scenario that the product exists for"
        ),
        work!("python", "tables.py", "pandas: tables, groups, dates, time zones"),
        // The runner's environment says how many threads to start, and where the font cache of the image is.
        work!("python", "arrays.py", "numpy: linear algebra with threads").needs(&[Need::Runner]),
        work!(
            "python",
            "charts.py",
            "matplotlib: PNG, SVG, PDF with CJK text, no font cache built"
        )
        .needs(&[Need::Runner]),
        work!("python", "images.py", "Pillow: PNG, JPEG, WebP, CJK text"),
        work!(
            "python",
            "documents.py",
            "reportlab and fpdf2, read again by pypdf"
        ),
        work!(
            "python",
            "workers.py",
            "multiprocessing in every way to start, shared memory, managers"
        )
        .flags(&["--cpus", "1"]),
        work!("python", "threads.py", "threads, asyncio, signals, timers"),
        work!("python", "programs.py", "subprocess: shells, pipes, timeouts"),
        work!(
            "python",
            "storage.py",
            "temporary files, compression, databases, locks"
        ),
        work!(
            "python",
            "text.py",
            "locale, encodings, time zones, questions about the machine"
        ),
        work!("node", "files.js", "Node: files by promises, streams, zlib"),
        work!(
            "node",
            "workers.js",
            "Node: worker threads, child processes, timers"
        )
        .flags(&["--cpus", "1"]),
        work!(
            "node",
            "language.mjs",
            "Node: crypto, Intl, URL, WebAssembly, and no crash of the os module"
        ),
        Case {
            name: "work/node-refusals".to_owned(),
            families: &[10, 15, 43],
            says: "Node gets along with what is refused".to_owned(),
            needs: Vec::new(),
            alone: false,
            body: Body::Work(Work {
                file: "refusals.js",
                text: PROBER_JS,
                flags: &[],
            }),
        },
    ]
}
