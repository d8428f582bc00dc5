//! What a case is: a name, the behaviours that it stands for, what must hold, and how to look.

use crate::context::Context;
use crate::judge::Expect;
use crate::verdict::Stop;

/// One named case.
#[derive(Clone)]
pub struct Case {
    /// `group/name`, unique.
    pub name: String,
    /// Numbers of the families of hostile behaviour that it covers (see `families.rs`).
    pub families: &'static [u8],
    /// What must hold, as a short sentence.
    pub says: String,
    /// What the run must be able to give; otherwise the case is skipped with that reason.
    pub needs: Vec<Need>,
    /// It measures time or counts what is on the host, so nothing may run beside it.
    pub alone: bool,
    /// How to look.
    pub body: Body,
}

/// How a case looks.
#[derive(Clone)]
pub enum Body {
    /// One probe inside one sandbox, judged by a table.
    Probe(Probe),
    /// Code of its own. It cannot pass without having seen what it asks for; see the comment of each.
    Code(fn(&Context<'_>) -> Result<(), Stop>),
    /// A script of ordinary work that checks its own results.
    Work(Work),
}

/// One attempt of the prober.
#[derive(Clone)]
pub struct Probe {
    /// Name and arguments; `{…}` are filled in by the context.
    pub args: Vec<String>,
    /// Further flags of `sandglass run`.
    pub flags: &'static [&'static str],
    /// What must come of it in a sandbox.
    pub expect: Expect,
    /// What comes of it where nothing is confined.
    pub control: Control,
}

/// What the same probe does unconfined, as root in throw-away namespaces. Whatever it is, the verdict of the case on
/// it must be a failure, or the case could not tell a sandbox from none.
#[derive(Clone, Copy)]
pub struct Control {
    /// The answer that is expected.
    pub want: Want,
    /// Error numbers that say that this kernel lacks the thing altogether, with the reason for the skip.
    pub absent: &'static [(i32, &'static str)],
    /// Further arguments of the probe in the control only.
    pub more_args: &'static [&'static str],
    /// Files that are planted before the control runs.
    pub planted: &'static [Planted],
}

/// The answer of a control.
#[derive(Clone, Copy)]
pub enum Want {
    /// The attempt succeeds.
    Allowed,
    /// The kernel's own answer to harmless arguments, after its permission checks: the call was reached.
    Errno(&'static [i32]),
    /// Whatever it is, the case fails on it: for cases that judge the detail.
    Fails,
    /// Not an attack: what must work inside works outside too.
    Works,
}

/// A file that only exists in a control.
#[derive(Debug, Clone, Copy)]
pub struct Planted {
    /// Where.
    pub path: &'static str,
    /// With which mode.
    pub mode: u32,
}

/// A script that does ordinary work.
#[derive(Clone)]
pub struct Work {
    /// File name, by which the language is known.
    pub file: &'static str,
    /// Its text.
    pub text: &'static str,
    /// Further flags of `sandglass run`.
    pub flags: &'static [&'static str],
}

/// What a case needs of the run under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A memory limit (it can be waived).
    Memory,
    /// A limit of processes.
    Pids,
    /// A CPU limit.
    Cpu,
    /// Landlock.
    Landlock,
    /// The suite runs as root.
    Root,
    /// Leave to change a setting of the host for a moment.
    TouchHost,
    /// An x86_64 machine.
    X86,
    /// `sandglass run` itself: its words, its admission, its report. No question where a runtime is under test.
    Driver,
    /// The image's runner around the script: artifacts, capped output, exit codes told from signals, nothing left behind
    /// by the script. No question where a script is a process of a container by itself.
    Runner,
    /// A first process that is not the script: the kernel has rules of its own for that one.
    Child,
    /// A sandbox without pseudo terminals; a pod has them, since it can be asked for one at any time.
    NoTerminals,
    /// A user namespace of the run's own, which pods do not have.
    UserNamespace,
    /// Pods: a containerd with its CRI. No question where `sandglass run` is under test.
    Pods,
}

/// The default control: the attempt succeeds.
pub const ALLOWED: Control = Control {
    want: Want::Allowed,
    absent: &[],
    more_args: &[],
    planted: &[],
};

impl Case {
    /// A probe that must be refused with one of the usual numbers; unconfined it succeeds.
    pub fn refused(
        name: impl Into<String>,
        families: &'static [u8],
        args: &str,
        says: impl Into<String>,
    ) -> Self {
        Self::probe(
            name,
            families,
            args,
            says,
            Expect::Refused(crate::judge::REFUSED),
            ALLOWED,
        )
    }

    /// A probe with everything said; `args` are separated by spaces.
    pub fn probe(
        name: impl Into<String>,
        families: &'static [u8],
        args: &str,
        says: impl Into<String>,
        expect: Expect,
        control: Control,
    ) -> Self {
        let args = args.split(' ').map(str::to_owned).collect();
        let body = Body::Probe(Probe {
            args,
            flags: &[],
            expect,
            control,
        });
        Self {
            name: name.into(),
            families,
            says: says.into(),
            needs: Vec::new(),
            alone: false,
            body,
        }
    }

    /// A case with code of its own.
    pub fn code(
        name: impl Into<String>,
        families: &'static [u8],
        says: impl Into<String>,
        run: fn(&Context<'_>) -> Result<(), Stop>,
    ) -> Self {
        let body = Body::Code(run);
        Self {
            name: name.into(),
            families,
            says: says.into(),
            needs: Vec::new(),
            alone: false,
            body,
        }
    }

    /// Sets what must come of the probe.
    pub fn expect(mut self, expect: Expect) -> Self {
        if let Body::Probe(probe) = &mut self.body {
            probe.expect = expect;
        }
        self
    }

    /// Only these error numbers are right.
    pub fn exactly(self, errnos: &'static [i32]) -> Self {
        self.expect(Expect::Refused(errnos))
    }

    /// Unconfined, the kernel answers with one of these numbers.
    pub fn answers(self, errnos: &'static [i32]) -> Self {
        self.want(Want::Errno(errnos))
    }

    /// Sets what the control must answer.
    pub fn want(mut self, want: Want) -> Self {
        if let Body::Probe(probe) = &mut self.body {
            probe.control.want = want;
        }
        self
    }

    /// Error numbers of the control that mean that this kernel lacks the thing.
    pub fn absent(mut self, absent: &'static [(i32, &'static str)]) -> Self {
        if let Body::Probe(probe) = &mut self.body {
            probe.control.absent = absent;
        }
        self
    }

    /// Further arguments of the control.
    pub fn control_args(mut self, more: &'static [&'static str]) -> Self {
        if let Body::Probe(probe) = &mut self.body {
            probe.control.more_args = more;
        }
        self
    }

    /// Files that exist in the control.
    pub fn planted(mut self, planted: &'static [Planted]) -> Self {
        if let Body::Probe(probe) = &mut self.body {
            probe.control.planted = planted;
        }
        self
    }

    /// Further flags of `sandglass run`.
    pub fn flags(mut self, flags: &'static [&'static str]) -> Self {
        match &mut self.body {
            Body::Probe(probe) => probe.flags = flags,
            Body::Work(work) => work.flags = flags,
            Body::Code(_) => {}
        }
        self
    }

    /// What it needs, besides what it was said to need already.
    pub fn needs(mut self, needs: &[Need]) -> Self {
        self.needs.extend_from_slice(needs);
        self
    }

    /// Nothing may run beside it.
    pub fn alone(mut self) -> Self {
        self.alone = true;
        self
    }
}
