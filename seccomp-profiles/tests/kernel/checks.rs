//! What a confined process tries, each through a safe wrapper.

use std::io::{self, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Command;

use nix::libc::{EAFNOSUPPORT, EPERM};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use rustix::fs::{FileType, MemfdFlags, Mode, memfd_create};

/// One attempt.
pub struct Check {
    pub name: &'static str,
    /// The exit status of the confined child: 0, or the errno of the refusal.
    pub wanted: i32,
    /// Whether it succeeds without filters for any user, which then is proven first.
    pub control: bool,
    pub call: fn() -> io::Result<()>,
}

const fn works(name: &'static str, call: fn() -> io::Result<()>) -> Check {
    Check {
        name,
        wanted: 0,
        control: true,
        call,
    }
}

const fn refused(name: &'static str, wanted: i32, call: fn() -> io::Result<()>) -> Check {
    Check {
        name,
        wanted,
        control: true,
        call,
    }
}

/// Refused already by missing privileges for most users, so that the control proves nothing.
const fn refused_anyway(name: &'static str, wanted: i32, call: fn() -> io::Result<()>) -> Check {
    Check {
        name,
        wanted,
        control: false,
        call,
    }
}

pub const ALL: &[Check] = &[
    works("files_can_be_written_and_read", || {
        let mut file = tempfile::tempfile()?;
        file.write_all(b"text")?;
        std::fs::read("/proc/self/status").map(drop)
    }),
    works("threads_start_and_meet", || {
        let threads: Vec<_> = (0..4).map(|n| std::thread::spawn(move || n)).collect();
        let sum: i32 = threads.into_iter().map(|t| t.join().unwrap_or(-100)).sum();
        if sum == 6 {
            Ok(())
        } else {
            Err(io::Error::other(format!("sum is {sum}")))
        }
    }),
    works("commands_and_pipelines_run", || {
        let output = Command::new("/bin/sh")
            .args(["-c", "ls / | sort | wc -l; exit 7"])
            .output()?;
        if output.status.code() == Some(7) && !output.stdout.is_empty() {
            return Ok(());
        }
        Err(io::Error::other(format!("{output:?}")))
    }),
    works("unix_sockets_carry_bytes", || {
        let (mut ours, mut theirs) = UnixStream::pair()?;
        ours.write_all(b"x")?;
        theirs.read_exact(&mut [0])
    }),
    works("a_terminal_is_looked_for", || {
        use std::io::IsTerminal;
        if io::stdin().is_terminal() {
            Err(io::Error::other("stdin is no terminal here"))
        } else {
            Ok(())
        }
    }),
    works("no_new_privileges_reads_back", || {
        let status = std::fs::read_to_string("/proc/self/status")?;
        // The control has neither; what is proven is in the confined child.
        let confined = status.contains("Seccomp:\t2");
        let filters = sandglass_seccomp::strict().len();
        let told =
            status.contains("NoNewPrivs:\t1") && status.contains(&format!("Seccomp_filters:\t{filters}"));
        if confined && !told {
            Err(io::Error::other(status))
        } else {
            Ok(())
        }
    }),
    refused("tcp_sockets_are_refused", EAFNOSUPPORT, || {
        TcpListener::bind("127.0.0.1:0").map(drop)
    }),
    refused("udp_sockets_are_refused", EAFNOSUPPORT, || {
        UdpSocket::bind("127.0.0.1:0").map(drop)
    }),
    refused("netlink_sockets_are_refused", EAFNOSUPPORT, || {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
        Ok(socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )
        .map(drop)?)
    }),
    refused("anonymous_files_are_refused", EPERM, || {
        Ok(memfd_create("file", MemfdFlags::CLOEXEC).map(drop)?)
    }),
    refused("tracing_is_refused", EPERM, || Ok(nix::sys::ptrace::traceme()?)),
    refused("limits_of_another_process_are_refused", EPERM, || {
        // Its own pid is as good as any: only zero may pass.
        let own = rustix::process::getpid();
        let limit = rustix::process::Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        Ok(rustix::process::prlimit(Some(own), rustix::process::Resource::Core, limit).map(drop)?)
    }),
    refused("execveat_is_refused", EPERM, || {
        let program = std::fs::File::open("/bin/true")?;
        // Returns only where it fails.
        nix::unistd::execveat(
            Some(std::os::fd::AsRawFd::as_raw_fd(&program)),
            c"",
            &[c"true"],
            &[c"A=1"],
            nix::fcntl::AtFlags::AT_EMPTY_PATH,
        )?;
        Ok(())
    }),
    refused("extended_attributes_are_absent", nix::libc::EOPNOTSUPP, || {
        Ok(rustix::fs::listxattr("/", &mut [0u8; 0]).map(drop)?)
    }),
    refused("pipes_with_a_name_are_refused", EPERM, || {
        let dir = tempfile::tempdir()?;
        let node = dir.path().join("fifo");
        Ok(rustix::fs::mknodat(
            rustix::fs::CWD,
            &node,
            FileType::Fifo,
            Mode::RWXU,
            0,
        )?)
    }),
    refused_anyway("new_namespaces_are_refused", EPERM, || {
        Ok(unshare(CloneFlags::CLONE_NEWUSER)?)
    }),
    refused_anyway("entering_a_namespace_is_refused", EPERM, || {
        let namespace = std::fs::File::open("/proc/self/ns/uts")?;
        Ok(setns(namespace.as_fd(), CloneFlags::CLONE_NEWUTS)?)
    }),
    refused_anyway("mounts_are_refused", EPERM, || {
        Ok(mount(
            Some("none"),
            "/tmp",
            Some("tmpfs"),
            MsFlags::empty(),
            None::<&str>,
        )?)
    }),
];

/// Interpreters that must work, where they are installed.
pub const PROGRAMS: [(&str, &str, [&str; 2]); 2] = [
    (
        "python_works_and_sees_ordinary_errors",
        "python3",
        ["-c", include_str!("work.py")],
    ),
    (
        "node_works_and_sees_ordinary_errors",
        "node",
        ["-e", include_str!("work.js")],
    ),
];

pub fn by_name(name: &str) -> io::Result<&'static Check> {
    ALL.iter()
        .find(|check| check.name == name)
        .ok_or_else(|| io::Error::other(format!("there is no check {name}")))
}
