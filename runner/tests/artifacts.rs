//! What a script leaves in `/out` comes back only where it is a plain file within the bounds; the rest is told.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails the test")]

mod common;

use common::{BOUNDS, perl, run, shell};
use sandglass_run::SkipReason;
use sandglass_run::protocol::{ArtifactBounds, Job, MAX_SKIPPED};

#[test]
fn files_come_back_in_order_with_their_bytes() {
    let outcome = run(&shell(
        "cd /out; mkdir a; printf 1 > a/z; printf 2 > a.txt; printf 3 > B; head -c 200000 /dev/zero > big; : > empty; chmod 4755 B",
    ));
    assert_eq!(outcome.paths(), ["B", "a/z", "a.txt", "big", "empty"]);
    assert_eq!(outcome.artifacts[1].1, b"1");
    assert_eq!(outcome.artifacts[3].1, vec![0; 200_000]);
    assert_eq!(
        outcome.artifacts[0].0.mode, 0o755,
        "set-user-id is not carried out"
    );
    assert!(outcome.skipped.is_empty() && outcome.success);
}

#[test]
fn nothing_but_plain_files_is_opened() {
    let outcome = run(&perl(
        r#"
        use Socket;
        chdir '/out';
        symlink '/etc/passwd', 'link'; symlink '/proc/1/root', 'root'; symlink '.', 'loop'; symlink 'gone', 'dangling';
        mkdir 'real'; symlink 'real', 'dirlink'; symlink '..', 'real/up';
        system 'mkfifo', 'fifo';
        socket(my $s, AF_UNIX, SOCK_STREAM, 0); bind($s, sockaddr_un('socket')) or die;
        open my $f, '>', 'plain'; print $f 'x'; close $f; link 'plain', 'hard';
        open my $g, '>', 'secret'; close $g; chmod 0, 'secret';
        mkdir 'locked'; chmod 0, 'locked';
        "#,
    ));
    assert_eq!(outcome.paths(), ["hard", "plain"]);
    let mut reasons = outcome.reasons();
    reasons.sort_unstable_by_key(|(path, _)| *path);
    use SkipReason::{Fifo, Socket, SymbolicLink, Unreadable};
    assert_eq!(
        reasons,
        [
            ("dangling", SymbolicLink),
            ("dirlink", SymbolicLink),
            ("fifo", Fifo),
            ("link", SymbolicLink),
            ("locked", Unreadable),
            ("loop", SymbolicLink),
            ("real/up", SymbolicLink),
            ("root", SymbolicLink),
            ("secret", Unreadable),
            ("socket", Socket),
        ]
    );
}

#[test]
fn hostile_names_are_told_and_not_taken() {
    let outcome = run(&perl(
        r#"
        chdir '/out';
        for my $n ("a\nb", "esc\e[2J", "bad\xff", "\xe2\x80\xaegpj", "good", "-rf", "..x", 'x' x 255) {
            open my $f, '>', $n or die; close $f;
        }
        mkdir "d\x01"; open my $f, '>', "d\x01/inside"; close $f;
        "#,
    ));
    assert_eq!(outcome.paths(), ["-rf", "..x", "good", &"x".repeat(255)]);
    assert_eq!(outcome.skipped.len(), 5);
    assert!(
        outcome
            .skipped
            .iter()
            .all(|entry| entry.reason == SkipReason::NameInvalid),
        "{:?}",
        outcome.skipped
    );
}

#[test]
fn depth_is_bounded() {
    let outcome = run(&shell(
        "cd /out; for i in 1 2 3 4 5 6 7 8 9; do mkdir d; cd d; : > f; done",
    ));
    assert_eq!(outcome.artifacts.len(), 7, "{:?}", outcome.paths());
    assert_eq!(
        outcome.paths().iter().map(|path| path.split('/').count()).max(),
        Some(8)
    );
    assert_eq!(
        outcome.reasons(),
        [("d/d/d/d/d/d/d/d", SkipReason::DirectoryTooDeep)]
    );
}

#[test]
fn a_directory_of_a_thousand_levels_is_not_entered() {
    let outcome = run(&perl("chdir '/out'; for (1 .. 1000) { mkdir 'd'; chdir 'd' }"));
    assert_eq!(
        outcome.reasons(),
        [("d/d/d/d/d/d/d/d", SkipReason::DirectoryTooDeep)]
    );
}

#[test]
fn sparse_files_count_as_what_they_say() {
    let outcome = run(&shell(
        "cd /out; truncate -s 1T huge; truncate -s 20M a; truncate -s 20M b; printf x > c",
    ));
    assert_eq!(outcome.paths(), ["a", "c"]);
    assert_eq!(
        outcome.reasons(),
        [("b", SkipReason::TooLarge), ("huge", SkipReason::TooLarge)]
    );
}

#[test]
fn a_hundred_thousand_files_are_bounded_and_counted() {
    let outcome = run(&perl(
        "chdir '/out'; for (1 .. 100_000) { open my $f, '>', sprintf '%06d', $_; }",
    ));
    assert_eq!(outcome.artifacts.len(), 100);
    assert_eq!(outcome.paths()[0], "000001");
    assert_eq!(outcome.paths()[99], "000100");
    assert_eq!(outcome.skipped.len(), MAX_SKIPPED);
    assert!(
        outcome
            .skipped
            .iter()
            .all(|entry| entry.reason == SkipReason::TooMany)
    );
    assert_eq!(outcome.skipped_more, 100_000 - 100 - MAX_SKIPPED as u64);
}

#[test]
fn a_hundred_thousand_directories_are_bounded_and_counted() {
    let outcome = run(&perl(
        "chdir '/out'; for (1 .. 100_000) { mkdir sprintf '%06d', $_; }",
    ));
    assert_eq!((outcome.artifacts.len(), outcome.skipped.len()), (0, 0));
    assert!(outcome.skipped_more > 90_000, "{}", outcome.skipped_more);
}

#[test]
fn the_jobs_own_bounds_hold() {
    let artifacts = ArtifactBounds {
        max_count: 2,
        max_bytes_total: 10,
        max_depth: 2,
        max_name_bytes: 3,
    };
    let script = "cd /out; printf 12345678 > a; printf 123 > b; printf 12 > c; : > d; : > long; mkdir -p e/f; : > e/f/g; : > e/h";
    let outcome = run(&Job {
        artifacts,
        ..shell(script)
    });
    assert_eq!(outcome.paths(), ["a", "c"]);
    use SkipReason::{DirectoryTooDeep, NameInvalid, TooLarge, TooMany};
    assert_eq!(
        outcome.reasons(),
        [
            ("b", TooLarge),
            ("d", TooMany),
            ("e/f", DirectoryTooDeep),
            ("e/h", TooMany),
            ("long", NameInvalid)
        ]
    );
}

#[test]
fn a_script_that_locks_or_fills_out_is_answered() {
    let outcome = run(&shell("chmod 0 /out"));
    assert!(outcome.success && outcome.artifacts.is_empty());
    let outcome = run(&shell("head -c 100M /dev/zero > /out/full || echo full"));
    assert_eq!(outcome.text(), "full\n");
    assert_eq!(outcome.reasons(), [("full", SkipReason::TooLarge)]);
}

#[test]
fn the_order_is_the_same_whatever_the_file_system_says() {
    let names = ["b", "a", "c/x", "c.d", "c/b", "A"];
    let make = names
        .map(|n| format!("mkdir -p $(dirname /out/{n}); : > /out/{n}"))
        .join("; ");
    let outcome = run(&Job {
        artifacts: BOUNDS,
        ..shell(&make)
    });
    assert_eq!(outcome.paths(), ["A", "a", "b", "c/b", "c/x", "c.d"]);
}
