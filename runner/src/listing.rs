//! The names in one directory, in order, in bounded memory.

use std::collections::BinaryHeap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::RawDir;
use rustix::io::Errno;

/// The first names of a directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Them, in bytewise descending order: to be popped from the end.
    pub names: Vec<Vec<u8>>,
    /// How many more there are.
    pub more: u64,
}

/// Reads all names and keeps the first `keep` of them, bytewise. The order in which a file system lists names
/// does not matter, so the same files give the same listing.
///
/// # Errors
/// What the kernel says when the directory cannot be read.
pub fn list(directory: &OwnedFd, keep: usize) -> Result<Listing, Errno> {
    let mut space = [MaybeUninit::<u8>::uninit(); 8 * 1024];
    let mut entries = RawDir::new(directory, &mut space);
    let mut kept = Kept {
        first: BinaryHeap::new(),
        keep,
        more: 0,
    };
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            kept.add(name);
        }
    }
    let mut names = kept.first.into_sorted_vec();
    names.reverse();
    Ok(Listing {
        names,
        more: kept.more,
    })
}

struct Kept {
    first: BinaryHeap<Vec<u8>>,
    keep: usize,
    more: u64,
}

impl Kept {
    fn add(&mut self, name: &[u8]) {
        if self.first.len() < self.keep {
            self.first.push(name.to_vec());
            return;
        }
        self.more += 1;
        if let Some(mut last) = self.first.peek_mut()
            && name < last.as_slice()
        {
            last.clear();
            last.extend_from_slice(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_names_are_kept_in_order_and_the_rest_counted() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["d", "b", "a", "c", "b.x"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let open = OwnedFd::from(std::fs::File::open(dir.path()).unwrap());
        let listing = list(&open, 3).unwrap();
        assert_eq!(
            listing,
            Listing {
                names: vec![b"b.x".to_vec(), b"b".to_vec(), b"a".to_vec()],
                more: 2
            }
        );
    }
}
