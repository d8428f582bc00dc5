//! Strategies for frames, and pieces of byte streams.
#![allow(dead_code, reason = "each test file uses a part of it")]

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use sandglass_run::protocol::{
    ArtifactBounds, ArtifactEnd, ArtifactStart, Dropped, EntryStart, Exit, ExitUsage, Failed, FailureCode,
    IdRange, Job, Observed, OutputEnd, ScratchMount, SkippedEntry, SkippedMore, Started,
};
use sandglass_run::{FromRunner, Language, SkipReason, Stream, ToRunner};

fn language() -> impl Strategy<Value = Language> {
    prop_oneof![Just(Language::Python), Just(Language::Node), Just(Language::Exec)]
}

pub fn stream() -> impl Strategy<Value = Stream> {
    prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr)]
}

fn bounds() -> impl Strategy<Value = ArtifactBounds> {
    (any::<u32>(), any::<u64>(), any::<u32>(), any::<u32>()).prop_map(
        |(max_count, max_bytes_total, max_depth, max_name_bytes)| ArtifactBounds {
            max_count,
            max_bytes_total,
            max_depth,
            max_name_bytes,
        },
    )
}

fn job() -> impl Strategy<Value = Job> {
    (
        (
            any::<u32>().prop_map(|_| 1),
            language(),
            vec(any::<String>(), 0..5),
            any::<u64>(),
            any::<u64>(),
        ),
        (
            bounds(),
            0.0..1e6_f64,
            any::<Option<u64>>(),
            btree_map(any::<String>(), any::<String>(), 0..4),
            any::<u32>(),
        ),
    )
        .prop_map(
            |(
                (protocol, language, args, wall_ms, output_cap_bytes),
                (artifacts, cpus, memory_bytes, env, entries),
            )| {
                Job {
                    protocol,
                    language,
                    args,
                    wall_ms,
                    output_cap_bytes,
                    artifacts,
                    cpus,
                    memory_bytes,
                    env,
                    entries,
                }
            },
        )
}

pub fn to_runner() -> impl Strategy<Value = ToRunner> {
    prop_oneof![
        job().prop_map(ToRunner::Job),
        (any::<String>(), any::<u64>())
            .prop_map(|(name, bytes)| ToRunner::EntryStart(EntryStart { name, bytes })),
        vec(any::<u8>(), 0..3_000).prop_map(ToRunner::EntryData),
        Just(ToRunner::EntryEnd),
        Just(ToRunner::Go),
    ]
}

fn mount() -> impl Strategy<Value = ScratchMount> {
    (
        any::<String>(),
        any::<String>(),
        any::<[bool; 4]>(),
        any::<Option<u64>>(),
        any::<Option<u64>>(),
    )
        .prop_map(
            |(path, kind, [read_only, nosuid, nodev, noexec], size_bytes, inodes)| ScratchMount {
                path,
                kind,
                read_only,
                nosuid,
                nodev,
                noexec,
                size_bytes,
                inodes,
            },
        )
}

fn range() -> impl Strategy<Value = IdRange> {
    any::<[u32; 3]>().prop_map(|[inside, outside, count]| IdRange {
        inside,
        outside,
        count,
    })
}

fn observed() -> impl Strategy<Value = Observed> {
    (
        (
            any::<u32>(),
            any::<[u32; 4]>(),
            any::<[u32; 4]>(),
            vec(any::<u32>(), 0..4),
            any::<[u64; 5]>(),
        ),
        (any::<[bool; 3]>(), any::<u8>(), any::<Option<u32>>()),
        (vec(any::<String>(), 0..3), vec(mount(), 0..4), vec(range(), 0..3)),
    )
        .prop_map(
            |(
                (pid, uids, gids, groups, [cap_inh, cap_prm, cap_eff, cap_bnd, cap_amb]),
                ([no_new_privs, root_read_only, dumpable], seccomp_mode, seccomp_filters),
                (interfaces, scratch, uid_map),
            )| Observed {
                pid,
                uids,
                gids,
                groups,
                cap_inh,
                cap_prm,
                cap_eff,
                cap_bnd,
                cap_amb,
                no_new_privs,
                seccomp_mode,
                seccomp_filters,
                root_read_only,
                interfaces,
                scratch,
                uid_map,
                dumpable,
            },
        )
}

fn exit() -> impl Strategy<Value = Exit> {
    let usage = (any::<u64>(), any::<u64>(), any::<Option<u32>>()).prop_map(
        |(cpu_ms, max_rss_bytes, processes_peak)| ExitUsage {
            cpu_ms,
            max_rss_bytes,
            processes_peak,
        },
    );
    (
        option::of(any::<i32>()),
        option::of(any::<i32>()),
        any::<bool>(),
        any::<u64>(),
        usage,
        any::<u32>(),
    )
        .prop_map(
            |(code, signal, timed_out, run_ms, usage, killed_leftovers)| Exit {
                code,
                signal,
                timed_out,
                run_ms,
                usage,
                killed_leftovers,
            },
        )
}

pub fn from_runner() -> impl Strategy<Value = FromRunner> {
    let bytes = || vec(any::<u8>(), 0..3_000);
    prop_oneof![
        observed().prop_map(FromRunner::Ready),
        any::<String>().prop_map(|message| FromRunner::Failed(Failed {
            code: FailureCode::StagingNoSpace,
            message
        })),
        any::<u32>().prop_map(|pid| FromRunner::Started(Started { pid })),
        (stream(), bytes()).prop_map(|(stream, bytes)| FromRunner::Output { stream, bytes }),
        (stream(), any::<u64>()).prop_map(|(stream, bytes)| FromRunner::Dropped(Dropped { stream, bytes })),
        (stream(), any::<u64>(), any::<u64>()).prop_map(|(stream, bytes_total, dropped_bytes)| {
            FromRunner::OutputEnd(OutputEnd {
                stream,
                bytes_total,
                dropped_bytes,
            })
        }),
        exit().prop_map(FromRunner::Exit),
        (any::<String>(), any::<u64>(), any::<u32>())
            .prop_map(|(path, bytes, mode)| FromRunner::ArtifactStart(ArtifactStart { path, bytes, mode })),
        bytes().prop_map(FromRunner::ArtifactData),
        any::<bool>().prop_map(|complete| FromRunner::ArtifactEnd(ArtifactEnd { complete })),
        any::<String>().prop_map(|path_lossy| FromRunner::Skipped(SkippedEntry {
            path_lossy,
            reason: SkipReason::DirectoryTooDeep
        })),
        any::<u64>().prop_map(|count| FromRunner::SkippedMore(SkippedMore { count })),
        Just(FromRunner::End),
    ]
}

/// Cuts a byte stream at these places.
pub fn pieces(stream: &[u8], cuts: &[usize]) -> Vec<Vec<u8>> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (stream.len() + 1)).collect();
    cuts.extend([0, stream.len()]);
    cuts.sort_unstable();
    cuts.windows(2)
        .map(|pair| stream[pair[0]..pair[1]].to_vec())
        .collect()
}
