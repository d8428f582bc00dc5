//! Which containers a shim has, and when it is over: a pure state, whose answers the service carries out.
//!
//! containerd asks a shim to end once, after each delete, and means it where nothing is left. A create that it gave up
//! it deletes, which finds nothing yet, and then asks the shim to end, which has nothing yet. Nobody asks again; so both
//! are remembered here.

use std::collections::{HashMap, HashSet};

/// The containers, by their ids.
#[derive(Debug)]
pub(super) struct Containers<T> {
    made: HashMap<String, T>,
    being_made: HashSet<String>,
    /// Those whose delete came while they were being made, until somebody starts them.
    given_up: HashSet<String>,
    /// Nothing here is wanted any more, nor anything new.
    ending: bool,
}

/// Why an id cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is another's.
    Exists,
    /// The shim is about to end.
    Ending,
}

/// What a request to end comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked<T> {
    /// There are containers that somebody wants.
    Stay,
    /// At once.
    End,
    /// When these are taken away, and what is being made.
    After(Vec<T>),
}

impl<T> Default for Containers<T> {
    fn default() -> Self {
        Self {
            made: HashMap::new(),
            being_made: HashSet::new(),
            given_up: HashSet::new(),
            ending: false,
        }
    }
}

impl<T: Clone> Containers<T> {
    pub(super) fn get(&self, id: &str) -> Option<T> {
        self.made.get(id).cloned()
    }

    /// A create begins.
    pub(super) fn reserve(&mut self, id: &str) -> Result<(), Taken> {
        if self.ending {
            return Err(Taken::Ending);
        }
        if self.made.contains_key(id) || !self.being_made.insert(id.to_owned()) {
            return Err(Taken::Exists);
        }
        Ok(())
    }

    /// It made something. `false` where that is to be taken away again.
    pub(super) fn made(&mut self, id: &str, container: T) -> bool {
        self.made.insert(id.to_owned(), container);
        !self.ending
    }

    /// It is over, whatever it made. `true` where the shim is, too.
    pub(super) fn reserved_no_more(&mut self, id: &str) -> bool {
        self.being_made.remove(id);
        if !self.made.contains_key(id) {
            self.given_up.remove(id);
        }
        self.is_over()
    }

    /// A delete begins, maybe of something that is not there yet.
    pub(super) fn delete_asked(&mut self, id: &str) {
        if self.being_made.contains(id) && !self.made.contains_key(id) {
            self.given_up.insert(id.to_owned());
        }
    }

    /// Somebody starts it after all.
    pub(super) fn wanted(&mut self, id: &str) {
        self.given_up.remove(id);
    }

    /// It is gone. `false` where it was before.
    pub(super) fn remove(&mut self, id: &str) -> bool {
        self.given_up.remove(id);
        self.made.remove(id).is_some()
    }

    /// True for a shim that was asked to end and has nothing left.
    pub(super) fn is_over(&self) -> bool {
        self.ending && self.made.is_empty() && self.being_made.is_empty()
    }

    /// containerd asks the shim to end. It asks after each container of a pod; the last one is meant.
    pub(super) fn shut_down(&mut self) -> Asked<T> {
        if self.ending {
            // It is on its way.
            return Asked::After(Vec::new());
        }
        if self.made.keys().any(|id| !self.given_up.contains(id)) {
            return Asked::Stay;
        }
        self.ending = true;
        if self.is_over() {
            return Asked::End;
        }
        Asked::After(self.made.values().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shim_ends_at_once_where_nothing_is_left_and_stays_where_something_is() {
        let mut containers = Containers::default();
        containers.reserve("a").unwrap();
        assert_eq!(containers.reserve("a"), Err(Taken::Exists));
        assert!(containers.made("a", 1));
        assert!(!containers.reserved_no_more("a"));
        assert_eq!(containers.reserve("a"), Err(Taken::Exists));
        assert_eq!(containers.shut_down(), Asked::Stay);
        containers.delete_asked("a");
        assert_eq!(containers.shut_down(), Asked::Stay);
        assert!(containers.remove("a") && !containers.remove("a"));
        assert_eq!(containers.shut_down(), Asked::End);
        assert_eq!(containers.reserve("b"), Err(Taken::Ending));
    }

    #[test]
    fn a_shim_that_is_asked_during_its_creates_ends_after_the_last() {
        let mut containers = Containers::default();
        containers.reserve("works").unwrap();
        containers.reserve("fails").unwrap();
        assert_eq!(containers.shut_down(), Asked::After(Vec::new()));
        assert!(!containers.made("works", 1), "nobody wants it");
        assert!(containers.remove("works"));
        assert!(!containers.reserved_no_more("works"), "one is still being made");
        assert!(containers.reserved_no_more("fails"));
    }

    #[test]
    fn a_container_whose_create_was_given_up_and_worked_goes_with_the_shim() {
        let mut containers = Containers::default();
        containers.reserve("a").unwrap();
        containers.delete_asked("a");
        assert!(containers.made("a", 1), "nobody has asked the shim to end");
        assert!(!containers.reserved_no_more("a"));
        assert_eq!(containers.shut_down(), Asked::After(vec![1]));
        assert!(!containers.is_over());
        assert!(containers.remove("a") && containers.is_over());
    }

    #[test]
    fn a_container_that_is_started_after_all_keeps_its_shim_and_so_does_another_of_its_pod() {
        let mut containers = Containers::default();
        containers.reserve("a").unwrap();
        containers.delete_asked("a");
        containers.made("a", 1);
        containers.reserved_no_more("a");
        containers.wanted("a");
        assert_eq!(containers.shut_down(), Asked::Stay);
        containers.reserve("b").unwrap();
        containers.delete_asked("b");
        assert_eq!(containers.shut_down(), Asked::Stay);
        assert!(containers.made("b", 2));
        // An id whose create failed is as good as new.
        containers.reserve("c").unwrap();
        containers.delete_asked("c");
        containers.reserved_no_more("c");
        containers.reserve("c").unwrap();
        containers.made("c", 3);
        containers.reserved_no_more("c");
        containers.remove("a");
        containers.remove("b");
        assert_eq!(containers.shut_down(), Asked::Stay);
    }
}
