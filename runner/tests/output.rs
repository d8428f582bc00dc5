//! Output never blocks the script, is counted to the byte, and is kept within its cap.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails the test")]

mod common;

use std::time::Duration;

use common::{Outer, perl, run, shell};
use sandglass_run::protocol::Job;
use sandglass_run::{FromRunner, Stream};

const FLOOD: &str = "my $l = 'x' x 1_023 . qq(\\n); for (1 .. 10_240) { print $l; print STDERR $l } print 'end'; print STDERR 'END'";

#[test]
fn ten_mebibytes_on_both_streams_are_capped_and_counted() {
    let outcome = run(&perl(FLOOD));
    assert_eq!(outcome.exit().code, Some(0));
    for (output, end) in [(&outcome.stdout, "end"), (&outcome.stderr, "END")] {
        assert_eq!(output.bytes_total, (10 << 20) + 3);
        assert!(output.truncated);
        let kept = output.content.as_bytes();
        let marker = kept.windows(12).position(|w| w == b"\n[sandglass:").unwrap();
        assert!(((1 << 19) - 3..=1 << 19).contains(&marker), "{marker}");
        assert!(kept.ends_with(end.as_bytes()));
        assert!(
            kept.len() <= (1 << 20) + 100 && kept.len() > (1 << 20) - 100,
            "{}",
            kept.len()
        );
    }
}

#[test]
fn a_slow_reader_does_not_hold_up_the_script() {
    let mut outer = Outer::start();
    outer.stage(
        &perl(&format!("{FLOOD}; open my $f, '>', '/out/done'; print $f time")),
        &[],
    );
    outer.ready();
    outer.go();
    // Nobody reads while the script writes 20 MiB; it must end all the same.
    std::thread::sleep(Duration::from_secs(4));
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let outcome = outer.outcome();
    assert_eq!(outcome.exit().code, Some(0));
    assert_eq!(outcome.stdout.bytes_total, (10 << 20) + 3);
    let ended: u64 = String::from_utf8(outcome.artifacts[0].1.clone())
        .unwrap()
        .parse()
        .unwrap();
    assert!(ended < now, "the script ended while nobody read");
}

#[test]
fn the_wall_clock_holds_while_nobody_reads() {
    let mut outer = Outer::start();
    outer.stage(
        &Job {
            wall_ms: 500,
            ..perl("print 'x' x 100_000 while 1")
        },
        &[],
    );
    outer.ready();
    outer.go();
    std::thread::sleep(Duration::from_secs(2));
    let outcome = outer.outcome();
    assert!(
        outcome.exit().timed_out && outcome.exit().run_ms < 1_000,
        "{} ms",
        outcome.exit().run_ms
    );
}

#[test]
fn output_comes_while_the_script_runs() {
    let mut outer = Outer::start();
    outer.stage(&shell("echo first; read x < /dev/zero; exec sleep 60"), &[]);
    outer.ready();
    outer.go();
    assert!(matches!(outer.receive(), Some(FromRunner::Started(_))));
    let first = outer.receive();
    assert_eq!(
        first,
        Some(FromRunner::Output {
            stream: Stream::Stdout,
            bytes: b"first\n".to_vec()
        })
    );
}

#[test]
fn a_script_may_close_its_streams() {
    let outcome = run(&shell("exec 1>&- 2>&-; sleep 0.2; echo x > /out/after; exit 3"));
    assert_eq!(outcome.exit().code, Some(3));
    assert_eq!((outcome.stdout.bytes_total, outcome.stderr.bytes_total), (0, 0));
    assert_eq!(outcome.paths(), ["after"]);
}

#[test]
fn bytes_are_preserved_whatever_they_are() {
    let outcome = run(&perl("print pack('C*', 0 .. 255)"));
    assert_eq!(outcome.stdout.content.as_bytes(), (0..=255).collect::<Vec<u8>>());
}

#[test]
fn a_small_cap_is_kept_too() {
    let outcome = run(&Job {
        output_cap_bytes: 10,
        ..shell("printf 'abcdefghijklmnopqrstuvwxyz'")
    });
    assert_eq!(outcome.stdout.bytes_total, 26);
    let text = outcome.text();
    assert!(text.starts_with("ab") && text.ends_with("vwxyz"), "{text}");
}

#[test]
fn a_pipe_that_is_in_flight_does_not_hold_up_the_end() {
    // The script sends its own output, and the socket that it is sent to, along that socket: a circle that keeps
    // the pipe open after all processes are dead, until the kernel looks for such circles.
    let script = r#"
        use Socket;
        socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, 0) or die;
        my $iov = pack('P Q', 'x', 1);
        my $control = pack('Q l l l l', 24, 1, 1, 1, fileno $b);
        my $message = pack('Q Q P Q P Q Q', 0, 0, $iov, 1, $control, length $control, 0);
        my $sendmsg = `uname -m` =~ /aarch64/ ? 211 : 46;
        syscall($sendmsg, fileno $a, $message, 0) == 1 or die "sendmsg: $!";
        print 'sent';
    "#;
    let outcome = run(&perl(script));
    assert_eq!(
        (outcome.text(), outcome.exit().code),
        ("sent", Some(0)),
        "{:?}",
        outcome.stderr
    );
    assert!(outcome.exit().run_ms < 10_000);
}
