//! Measures entering and leaving a sandbox.

#![allow(clippy::unwrap_used)]
use sandglass_sandbox::*;
use std::io::Read;
use std::time::Instant;
fn main() -> std::process::ExitCode {
    if is_worker() {
        return worker_main();
    }
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let n: usize = args.remove(0).parse().unwrap();
    let rootfs = args.remove(0);
    let mut times = vec![];
    for i in 0..n {
        let t = Instant::now();
        let mut s = match Sandbox::launch(&Launch {
            run_id: format!("t-{}-{i}", std::process::id()),
            rootfs: rootfs.clone().into(),
            args: args.clone(),
            limits: Default::default(),
            waived: std::env::var("WAIVE")
                .map(|w| sandglass_run::Waiver::parse_list(&w).unwrap())
                .unwrap_or_default(),
            state_root: std::env::var("STATE").unwrap_or("/run/sandglass".into()).into(),
        }) {
            Ok(s) => s,
            Err(e) => {
                eprintln!("{e} HINT {}", e.hint());
                return std::process::ExitCode::FAILURE;
            }
        };
        let t1 = t.elapsed();
        let (tx, rx) = s.channel().unwrap();
        drop(tx);
        let err = s.stderr().unwrap();
        let mut out = String::new();
        std::fs::File::from(rx).read_to_string(&mut out).unwrap();
        let t2 = t.elapsed();
        let obs = s.observed().clone();
        let e = s.finish();
        let t3 = t.elapsed();
        if n == 1 {
            let mut es = String::new();
            std::fs::File::from(err)
                .take(4096)
                .read_to_string(&mut es)
                .unwrap();
            println!("{out}\n--err {es}\n{obs:#?}\n{e:?}");
        }
        if let Err(e) = e {
            eprintln!("{e}");
        }
        times.push((t3, t1, t2, obs.phases));
    }
    times.sort_by_key(|x| x.0);
    println!("{:?}", times[n / 2]);
    std::process::ExitCode::SUCCESS
}
