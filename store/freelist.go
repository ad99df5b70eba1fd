package store

import bolt "go.etcd.io/bbolt"

// bbolt keeps the list of its free pages in memory. Without a copy in the file it walks the whole
// database at Open, and again after each commit that the system refused. A copy costs 8 bytes a
// free page at each commit, so it is written while the list is short, and always by Close. bbolt
// looks at NoFreelistSync in Commit alone, which the committer calls: so it may be switched from
// one commit to the next. A commit that leaves the copy out says so in its meta page.

// freelistMost is how many free pages a list that is written at each commit may have: 8 KiB, two
// pages.
const freelistMost = 1000

// keepFreelist decides, before a commit, whether the list of free pages goes with it.
func (s *Store) keepFreelist() {
	stats := s.db.Stats()
	s.db.NoFreelistSync = stats.FreePageN+stats.PendingPageN > freelistMost
}

// closeFreelist writes the list of free pages if the last commit has not.
func (s *Store) closeFreelist() {
	if !s.freelistMissing || s.failure.get() != nil {
		return
	}
	s.db.NoFreelistSync = false
	if err := s.db.Update(func(*bolt.Tx) error { return nil }); err != nil {
		s.log.Warn("the list of free pages was not written; the next start takes longer", "error", err)
	}
}
