//! How ids inside a user namespace, or on a mount, relate to ids outside: read from containerd's options, from a spec
//! and from the kernel, and written for the kernel (user_namespaces(7)). Pure.

use oci_spec::runtime::LinuxIdMapping;

/// The kernel's own bound on the lines of a map.
const MOST_LINES: usize = 340;

/// One range of ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Line {
    inside: u32,
    outside: u32,
    count: u32,
}

/// The ranges of uids, or those of gids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lines(Vec<Line>);

/// A map of uids and one of gids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdMap {
    pub(super) uids: Lines,
    pub(super) gids: Lines,
}

impl IdMap {
    /// Reads containerd's mount options `uidmap=` and `gidmap=`, without their names: `INSIDE:OUTSIDE:COUNT`, more of
    /// them after commas.
    ///
    /// # Errors
    /// A sentence that names the text that is no such list.
    pub fn parse(uids: &str, gids: &str) -> Result<Self, String> {
        let read = |name: &str, text: &str| {
            Lines::read(text.split(','), ':').map_err(|why| format!("{name}={text:.120}: {why}"))
        };
        Ok(Self {
            uids: read("uidmap", uids)?,
            gids: read("gidmap", gids)?,
        })
    }

    /// Reads the mappings of a spec, or of one of its mounts. `None` where there are none.
    pub(super) fn of_spec(
        uids: Option<&[LinuxIdMapping]>,
        gids: Option<&[LinuxIdMapping]>,
    ) -> Result<Option<Self>, String> {
        let (uids, gids) = (uids.unwrap_or_default(), gids.unwrap_or_default());
        match (uids.is_empty(), gids.is_empty()) {
            (true, true) => Ok(None),
            (false, false) => Ok(Some(Self {
                uids: Lines::of_spec(uids).map_err(|why| format!("uidMappings: {why}"))?,
                gids: Lines::of_spec(gids).map_err(|why| format!("gidMappings: {why}"))?,
            })),
            _ => Err("uidMappings and gidMappings go together: give both, or neither".into()),
        }
    }

    /// Reads `/proc/PID/uid_map` and `/proc/PID/gid_map`.
    pub(super) fn of_kernel(uids: &str, gids: &str) -> Result<Self, String> {
        let read = |name: &str, text: &str| {
            Lines::read(text.lines(), ' ').map_err(|why| format!("the kernel's {name}: {why}"))
        };
        Ok(Self {
            uids: read("uid_map", uids)?,
            gids: read("gid_map", gids)?,
        })
    }

    /// The uid outside of a uid inside. `None` where it has none.
    pub(super) fn uid_outside(&self, uid: u32) -> Option<u32> {
        self.uids.outside(uid)
    }

    /// The ids outside of root and its group. `None` where either has none.
    pub(super) fn root_outside(&self) -> Option<(u32, u32)> {
        Some((self.uids.outside(0)?, self.gids.outside(0)?))
    }
}

impl Lines {
    fn read<'a>(lines: impl Iterator<Item = &'a str>, between: char) -> Result<Self, String> {
        let number = |word: &str| {
            // No sign: `parse` alone would take a plus.
            let plain = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| word.parse::<u32>().ok()).flatten()
        };
        let lines = lines.map(|line| {
            // The kernel pads with blanks.
            let mut words = line
                .split(between)
                .filter(|word| between != ' ' || !word.is_empty());
            let mut next = || number(words.next()?);
            let read = (next(), next(), next());
            match (read, words.next()) {
                ((Some(inside), Some(outside), Some(count)), None) => Ok(Line {
                    inside,
                    outside,
                    count,
                }),
                _ => Err("a range is INSIDE:OUTSIDE:COUNT, three numbers below 2^32".to_owned()),
            }
        });
        Self::checked(lines.collect::<Result<_, _>>()?)
    }

    fn of_spec(mappings: &[LinuxIdMapping]) -> Result<Self, String> {
        let lines = mappings.iter().map(|mapping| Line {
            inside: mapping.container_id(),
            outside: mapping.host_id(),
            count: mapping.size(),
        });
        Self::checked(lines.collect())
    }

    fn checked(mut lines: Vec<Line>) -> Result<Self, String> {
        // As the kernel shows them when there are many.
        lines.sort_unstable_by_key(|line| line.inside);
        if !(1..=MOST_LINES).contains(&lines.len()) {
            return Err(format!("{} ranges, where 1 to {MOST_LINES} can be", lines.len()));
        }
        for line in &lines {
            let last = line.count.checked_sub(1).ok_or("a range of no ids")?;
            // 2^32-1 is no id: it means "unchanged" to the calls that set ids. The kernel's own map of everything
            // ends just before it.
            let fits = |first: u32| first.checked_add(last).is_some_and(|end| end < u32::MAX);
            if !(fits(line.inside) && fits(line.outside)) {
                return Err("a range that goes beyond the last id, 4294967294".into());
            }
        }
        Ok(Self(lines))
    }

    fn outside(&self, id: u32) -> Option<u32> {
        self.0.iter().find_map(|line| {
            let above = id.checked_sub(line.inside)?;
            (above < line.count).then(|| line.outside + above)
        })
    }

    /// As `/proc/PID/uid_map` takes it. The kernel refuses ranges that overlap.
    pub(super) fn to_kernel(&self) -> String {
        let line = |line: &Line| format!("{} {} {}\n", line.inside, line.outside, line.count);
        self.0.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oci_spec::runtime::LinuxIdMappingBuilder;

    fn mapping(inside: u32, outside: u32, count: u32) -> LinuxIdMapping {
        let built = LinuxIdMappingBuilder::default()
            .container_id(inside)
            .host_id(outside)
            .size(count);
        built.build().unwrap()
    }

    #[test]
    fn containerds_options_a_spec_and_the_kernel_say_the_same_in_their_own_words() {
        let options = IdMap::parse("0:100000:65536", "1000:5:1,0:200000:1000").unwrap();
        let uids = [mapping(0, 100_000, 65536)];
        let gids = [mapping(0, 200_000, 1000), mapping(1000, 5, 1)];
        assert_eq!(
            IdMap::of_spec(Some(&uids), Some(&gids)).unwrap(),
            Some(options.clone())
        );
        assert_eq!(options.gids.to_kernel(), "0 200000 1000\n1000 5 1\n");
        let kernel = IdMap::of_kernel(
            "         0     100000      65536\n",
            "         0     200000       1000\n      1000          5          1\n",
        );
        assert_eq!(kernel.unwrap(), options);
    }

    #[test]
    fn an_id_is_mapped_only_within_a_range() {
        let map = IdMap::parse("0:100000:10,20:5:1", "0:7:1").unwrap();
        assert_eq!(map.root_outside(), Some((100_000, 7)));
        assert_eq!(IdMap::parse("0:1:1", "1:1:1").unwrap().root_outside(), None);
        assert_eq!(map.uid_outside(0), Some(100_000));
        assert_eq!(map.uid_outside(9), Some(100_009));
        assert_eq!(map.uid_outside(10), None);
        assert_eq!(map.uid_outside(20), Some(5));
        assert_eq!(map.uid_outside(u32::MAX), None);
    }

    #[test]
    fn the_hosts_own_map_is_one() {
        let whole = "         0          0 4294967295\n";
        let map = IdMap::of_kernel(whole, whole).unwrap();
        assert_eq!(map.uid_outside(4_294_967_294), Some(4_294_967_294));
    }

    #[test]
    fn what_is_no_map_is_refused_with_the_text_that_is_none() {
        for bad in [
            "",
            "0:0",
            "0:0:1:1",
            "0:0:0",
            "-1:0:1",
            "+1:0:1",
            "0:0:x",
            " 0:0:1",
            "0:0:1,",
            "0:4294967295:1",
            "1:0:4294967295",
            "0:0:4294967296",
        ] {
            let error = IdMap::parse(bad, "0:0:1").unwrap_err();
            assert!(error.starts_with(&format!("uidmap={bad}: ")), "{error}");
            assert!(IdMap::parse("0:0:1", bad).unwrap_err().starts_with("gidmap="));
        }
        let many = vec!["0:0:1"; MOST_LINES + 1].join(",");
        assert!(IdMap::parse(&many, "0:0:1").is_err());
    }

    #[test]
    fn a_spec_maps_both_kinds_of_ids_or_none() {
        assert_eq!(IdMap::of_spec(None, Some(&[])).unwrap(), None);
        let one = [mapping(0, 1, 1)];
        assert!(IdMap::of_spec(Some(&one), None).is_err());
        assert!(IdMap::of_spec(None, Some(&one)).is_err());
        assert!(IdMap::of_spec(Some(&[mapping(0, 1, 0)]), Some(&one)).is_err());
    }
}
