//! What the script is started with: a program, arguments, and an environment that is built from nothing.

use sandglass_run::protocol::Job;

/// What to execute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// The program, looked up on the sandbox's `PATH`.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its whole environment.
    pub env: Vec<(String, String)>,
}

/// The program, its arguments and its environment for a job whose first file is `script`. `None` for a job that
/// names neither a script nor a program, which the session does not let through.
pub fn invocation(job: &Job, script: Option<&str>) -> Option<Invocation> {
    let (program, args) = match job.language.interpreter() {
        Some(interpreter) => {
            let mut args = vec![format!("/work/{}", script?)];
            args.extend(job.args.iter().cloned());
            (interpreter.to_owned(), args)
        }
        None => {
            let (program, args) = job.args.split_first()?;
            (program.clone(), args.to_vec())
        }
    };
    Some(Invocation {
        program,
        args,
        env: environment(job),
    })
}

fn environment(job: &Job) -> Vec<(String, String)> {
    let threads = threads(job.cpus).to_string();
    let mut env: Vec<(String, String)> = [
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("HOME", "/work"),
        ("USER", "nobody"),
        ("TMPDIR", "/tmp"),
        ("LANG", "C.UTF-8"),
        ("LC_ALL", "C.UTF-8"),
        ("TZ", "UTC"),
        ("PYTHONUNBUFFERED", "1"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
        ("MPLBACKEND", "Agg"),
        ("MPLCONFIGDIR", "/tmp/.matplotlib"),
        // Libraries that count processors see those of the host, and a quota is none to them.
        ("OPENBLAS_NUM_THREADS", &threads),
        ("OMP_NUM_THREADS", &threads),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    if let Some(bytes) = job.memory_bytes {
        // Node collects garbage before the kernel would kill it; a quarter is left for what is not its heap.
        let heap_mib = (bytes / 4 * 3) >> 20;
        env.push((
            "NODE_OPTIONS".to_owned(),
            format!("--max-old-space-size={}", heap_mib.max(1)),
        ));
    }
    // A variable of the job takes the place of one of ours; those that matter cannot be named in a job.
    env.retain(|(name, _)| !job.env.contains_key(name));
    env.extend(job.env.iter().map(|(name, value)| (name.clone(), value.clone())));
    env
}

/// One thread for each CPU's worth of time that was begun.
fn threads(cpus: f64) -> u32 {
    // The session bounds it; a cast of a float saturates.
    (cpus.ceil() as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandglass_run::Language;
    use sandglass_run::protocol::ArtifactBounds;

    fn job(language: Language, args: &[&str]) -> Job {
        Job {
            protocol: 1,
            language,
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            wall_ms: 1,
            output_cap_bytes: 1,
            artifacts: ArtifactBounds {
                max_count: 1,
                max_bytes_total: 1,
                max_depth: 1,
                max_name_bytes: 1,
            },
            cpus: 0.5,
            memory_bytes: None,
            env: [("REGION".to_owned(), "eu".to_owned())].into(),
            entries: 1,
        }
    }

    #[test]
    fn the_interpreter_gets_the_script_and_its_arguments() {
        let python = invocation(&job(Language::Python, &["a", "-b"]), Some("main.py")).unwrap();
        assert_eq!(
            (python.program.as_str(), &python.args[..]),
            ("python3", &["/work/main.py", "a", "-b"].map(String::from)[..])
        );
        let node = invocation(&job(Language::Node, &[]), Some("main.mjs")).unwrap();
        assert_eq!(
            (node.program.as_str(), &node.args[..]),
            ("node", &["/work/main.mjs".to_owned()][..])
        );
        let exec = invocation(&job(Language::Exec, &["true", "x"]), None).unwrap();
        assert_eq!(
            (exec.program.as_str(), &exec.args[..]),
            ("true", &["x".to_owned()][..])
        );
    }

    #[test]
    fn the_environment_is_whole_and_holds_nothing_twice() {
        let env = invocation(&job(Language::Exec, &["true"]), None).unwrap().env;
        let get = |name: &str| {
            env.iter()
                .filter(|(n, _)| n == name)
                .map(|(_, v)| v.as_str())
                .collect::<Vec<_>>()
        };
        assert_eq!(get("HOME"), ["/work"]);
        assert_eq!(get("LC_ALL"), ["C.UTF-8"]);
        assert_eq!(get("REGION"), ["eu"]);
        assert_eq!(get("NODE_OPTIONS"), [""; 0]);
        assert_eq!(env.len(), 14);
    }

    #[test]
    fn libraries_learn_the_limits() {
        assert_eq!([0.1, 0.5, 1.0, 1.5, 4.0].map(threads), [1, 1, 1, 2, 4]);
        let job = Job {
            memory_bytes: Some(512 << 20),
            ..job(Language::Node, &[])
        };
        let env = environment(&job);
        assert!(env.contains(&("NODE_OPTIONS".to_owned(), "--max-old-space-size=384".to_owned())));
    }
}
