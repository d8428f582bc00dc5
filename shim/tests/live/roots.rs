//! Where a container comes from: its root and its spec, in the forms that containerd has for them.

use libtest_mimic::Trial;

use crate::common::bundle::Exec;
use crate::common::{Bench, Outcome, contains, equal, holds};
use crate::trial;

pub fn trials() -> Vec<Trial> {
    vec![
        trial(
            "a_root_of_more_layers_than_one_page_of_options_holds_is_mounted",
            many_layers,
        ),
        trial("the_root_can_be_an_overlay_or_lie_in_the_bundle", roots),
        trial("a_spec_of_a_megabyte_and_its_exec_are_taken", large_spec),
    ]
}

async fn roots(bench: &mut Bench) -> Outcome {
    use crate::common::bundle::mount;
    use crate::common::root;
    let dir = |name: &str| {
        let path = bench.dir().join(name);
        std::fs::create_dir_all(&path).map(|()| path.display().to_string())
    };
    let lower = root::shared()?.display().to_string();
    let mut overlay = bench
        .script("overlay", "touch /home/written && echo written")?
        .by_spec();
    let options = [
        format!("lowerdir={lower}"),
        format!("upperdir={}", dir("upper")?),
        format!("workdir={}", dir("work")?),
    ];
    overlay.mounts = vec![mount(
        "overlay",
        "overlay",
        &options.each_ref().map(String::as_str),
    )];
    let shim = bench.shim(&overlay).await?;
    shim.run(&overlay).await?;
    equal(
        overlay.stdout.text().await?.as_str(),
        "written\n",
        "output on an overlay",
    )?;
    equal(shim.end(&overlay.id, "").await?, 0, "status")?;
    holds(bench.dir().join("upper/home/written").exists(), || {
        "nothing is in the upper layer".into()
    })?;
    bench.nothing_of(&overlay)?;

    let mut plain = bench.script("plain", "touch /home/written 2>&1; echo $?")?;
    plain.mounts.clear();
    root::make(&plain.dir.join("rootfs"))?;
    shim.run(&plain).await?;
    contains(&plain.stdout.text().await?, "Read-only file system")?;
    shim.end(&plain.id, "").await?;
    holds(plain.dir.join("rootfs/bin/busybox").exists(), || {
        "the root that was not mounted is gone".into()
    })?;
    bench.nothing_of(&plain)
}

async fn many_layers(bench: &mut Bench) -> Outcome {
    use crate::common::bundle::mount;
    use crate::common::root;
    // The longest that the kernel takes as options is one page.
    let layers = bench
        .dir()
        .join("a-directory-of-layers-with-a-long-name-as-snapshotters-have-them");
    let mut lower = Vec::new();
    for index in 0..60 {
        let layer = layers.join(format!("{index:03}/fs"));
        std::fs::create_dir_all(layer.join("home"))?;
        std::fs::write(layer.join(format!("home/{index}")), "")?;
        lower.push(layer.display().to_string());
    }
    // All in one directory, as a snapshotter has them: what they have in common need not be said each time.
    let base = layers.join("base/fs");
    root::make(&base)?;
    lower.push(base.display().to_string());
    let option = format!("lowerdir={}", lower.join(":"));
    holds(option.len() > 4096, || {
        format!("{} bytes of options", option.len())
    })?;
    let mut bundle = bench.script("a", "ls /home | wc -l")?;
    bundle.mounts = vec![mount("overlay", "overlay", &[&option])];
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    equal(
        bundle.stdout.text().await?.as_str(),
        "60\n",
        "files of all layers",
    )?;
    equal(shim.end(&bundle.id, "").await?, 0, "status")?;
    bench.nothing_of(&bundle)
}

async fn large_spec(bench: &mut Bench) -> Outcome {
    let variables: Vec<String> = (0..10)
        .map(|index| format!("V{index}={}", "x".repeat(100_000)))
        .collect();
    let count = "env | wc -c";
    let mut bundle = bench
        .script("a", &format!("{count}; echo done; exec sleep 60"))?
        .edited(|spec| {
            if let Some(env) = spec["process"]["env"].as_array_mut() {
                env.extend(variables.into_iter().map(serde_json::Value::from));
            }
        });
    let shim = bench.shim(&bundle).await?;
    shim.run(&bundle).await?;
    let text = bundle.stdout.until("done").await?;
    let bytes = |text: &str| {
        text.lines()
            .next()
            .and_then(|line| line.parse::<usize>().ok())
            .unwrap_or(0)
    };
    holds(bytes(&text) > 1_000_000, || text.clone())?;
    let mut exec = Exec::new(bench, &bundle, "e", &["sh", "-c", count])?;
    shim.exec(&bundle.id, &exec).await?;
    let text = exec.stdout.text().await?;
    holds(bytes(&text) > 1_000_000, || text.clone())?;
    equal(shim.end(&bundle.id, "e").await?, 0, "status")?;
    shim.kill_and_delete(&bundle.id).await
}
