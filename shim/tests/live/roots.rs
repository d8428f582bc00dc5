//! Where a container comes from: its root and its spec, in the forms that containerd has for them.

use std::path::PathBuf;
use std::time::Duration;

use libtest_mimic::Trial;

use crate::common::bundle::Exec;
use crate::common::{Bench, Bundle, Code, Outcome, contains, equal, holds, root};
use crate::requests::{gone, refusal};
use crate::trial;

pub fn trials() -> Vec<Trial> {
    vec![
        trial(
            "a_root_of_more_layers_than_one_page_of_options_holds_is_mounted",
            many_layers,
        ),
        trial(
            "nothing_of_the_image_is_read_by_the_c_library_before_the_filters_hold",
            name_services,
        ),
        trial("a_working_directory_in_a_mount_is_made_there", mounted_directory),
        trial("a_home_is_that_of_the_containers_own_passwd", home),
        trial(
            "an_image_whose_dev_is_a_link_is_refused_and_the_node_untouched",
            linked_dev,
        ),
        trial("the_root_can_be_an_overlay_or_lie_in_the_bundle", roots),
        trial("a_spec_of_a_megabyte_and_its_exec_are_taken", large_spec),
    ]
}

/// A root of the bundle's own, which may be written to.
fn own_root(bundle: &mut Bundle) -> Outcome<PathBuf> {
    bundle.mounts.clear();
    let root = bundle.dir.join("rootfs");
    root::make(&root)?;
    Ok(root)
}

/// Without HOME, in both modes.
fn homeless(bench: &Bench, name: &str, script: &str) -> Outcome<[Bundle; 2]> {
    let one = |name: String| -> Outcome<Bundle> {
        Ok(bench.script(&name, script)?.edited(|spec| {
            spec["process"]["env"] = serde_json::json!(["PATH=/bin"]);
        }))
    };
    Ok([one(name.to_owned())?, one(format!("{name}-spec"))?.by_spec()])
}

/// The C library's name services read `/etc/nsswitch.conf` and load modules that it names. Whoever opens a FIFO waits for
/// its other end for ever; a module would say nothing at all.
async fn name_services(bench: &mut Bench) -> Outcome {
    for mut bundle in homeless(bench, "names", "echo home is $HOME; exec sleep 60")? {
        let root = own_root(&mut bundle)?;
        for name in ["nsswitch.conf", "passwd", "group"] {
            let path = root.join("etc").join(name);
            let _ = std::fs::remove_file(&path);
            nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU)?;
        }
        let shim = bench.shim(&bundle).await?;
        let ran = tokio::time::timeout(Duration::from_secs(10), shim.run(&bundle)).await;
        // Whatever waits for the FIFO is not left waiting.
        for name in ["nsswitch.conf", "passwd", "group"] {
            std::fs::remove_file(root.join("etc").join(name))?;
        }
        holds(ran.is_ok(), || "the image's name services were asked".into())?;
        ran??;
        let mut exec =
            Exec::new(bench, &bundle, "e", &["sh", "-c", "echo exec at $HOME"])?.edited(|process| {
                process["env"] = serde_json::json!(["PATH=/bin"]);
            });
        nix::unistd::mkfifo(&root.join("etc/nsswitch.conf"), nix::sys::stat::Mode::S_IRWXU)?;
        shim.add_exec(&bundle.id, &exec).await?;
        let started =
            tokio::time::timeout(Duration::from_secs(10), shim.start_process(&bundle.id, "e")).await;
        std::fs::remove_file(root.join("etc/nsswitch.conf"))?;
        holds(started.is_ok(), || {
            "an exec asked the image's name services".into()
        })?;
        started??;
        equal(exec.stdout.text().await?.as_str(), "exec at /\n", "of the exec")?;
        shim.kill(&bundle.id, "", 9, false).await?;
        contains(&bundle.stdout.text().await?, "home is /\n")?;
        shim.end(&bundle.id, "").await?;
        bench.nothing_of(&bundle)?;
    }
    Ok(())
}

async fn mounted_directory(bench: &mut Bench) -> Outcome {
    for mut bundle in homeless(bench, "cwd", "pwd; touch here && ls")? {
        // One of the spec's own; a sandbox has the same.
        bundle = bundle.edited(|spec| {
            spec["process"]["cwd"] = serde_json::json!("/work/new/one");
        });
        if bundle.id.ends_with("spec") {
            bundle = bundle.edited(|spec| {
                let scratch = serde_json::json!({"destination": "/work", "type": "tmpfs", "source": "tmpfs"});
                if let Some(mounts) = spec["mounts"].as_array_mut() {
                    mounts.push(scratch);
                }
            });
        }
        let shim = bench.shim(&bundle).await?;
        shim.run(&bundle).await?;
        equal(
            bundle.stdout.text().await?.as_str(),
            "/work/new/one\nhere\n",
            "output",
        )?;
        equal(shim.end(&bundle.id, "").await?, 0, "status")?;
        bench.nothing_of(&bundle)?;
    }
    Ok(())
}

async fn home(bench: &mut Bench) -> Outcome {
    for mut bundle in homeless(bench, "home", "echo $HOME")? {
        let root = own_root(&mut bundle)?;
        let uid = &bundle.spec["process"]["user"]["uid"];
        std::fs::write(root.join("etc/passwd"), format!("a:x:{uid}:7::/home/a:\n"))?;
        let shim = bench.shim(&bundle).await?;
        shim.run(&bundle).await?;
        equal(bundle.stdout.text().await?.as_str(), "/home/a\n", "HOME")?;
        equal(shim.end(&bundle.id, "").await?, 0, "status")?;
        bench.nothing_of(&bundle)?;
    }
    Ok(())
}

async fn linked_dev(bench: &mut Bench) -> Outcome {
    let node = bench.dir().join("node");
    std::fs::create_dir_all(&node)?;
    std::fs::write(node.join("ptmx"), "the node's")?;
    let names = || -> Outcome<Vec<_>> {
        let entries = std::fs::read_dir(&node)?;
        Ok(entries
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<Result<_, _>>()?)
    };
    for mut bundle in homeless(bench, "dev", "true")? {
        let root = own_root(&mut bundle)?;
        std::fs::remove_dir_all(root.join("dev"))?;
        std::os::unix::fs::symlink(&node, root.join("dev"))?;
        // So that the link leads somewhere in the container as well.
        std::fs::create_dir_all(root.join(node.strip_prefix("/")?))?;
        let shim = bench.shim(&bundle).await?;
        let refused = shim.create(&bundle).await;
        equal(names()?, ["ptmx"], "what is in the node's directory")?;
        refusal(refused, Code::UNKNOWN, "/dev is not a plain directory")?;
        gone(bench, &shim, &bundle).await?;
        shim.shut_down().await?;
    }
    Ok(())
}

async fn roots(bench: &mut Bench) -> Outcome {
    use crate::common::bundle::mount;
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
