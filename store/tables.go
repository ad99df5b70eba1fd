package store

import (
	"context"
	"errors"
	"slices"
)

// A keeper is a table seen without its record type.
type keeper interface {
	buckets() []string
	check(tx *Tx, f *findings)
}

// tables lists every table; what is not here is neither made nor checked.
var tables = []keeper{
	Accounts, Users, Tokens, DayStats, Idempotencies,
	Domains, CustomRecords, Purchases, PretendDomains, ZoneBases, Certificates, CertificateAccounts,
	Mailboxes, SubscribedNames, CopyIntents, RemoteBoxes, RemoteCopies, Templates, Exports,
	Jobs,
	Webhooks, Events, Deliveries,
	Submissions, PendingRecipients, Arrivals, Outgoings, Mappings, Suppressions, TLSPolicies, TLSCounts,
	ReportMails, Reports, DMARCCounts, DMARCDays,
	GreyTuples, KnownSenders, MasterKeys,
}

func bucketNames() []string {
	names := slices.Clone(messageBuckets[:])
	for _, t := range tables {
		names = append(names, t.buckets()...)
	}
	return names
}

func (t *Table[T]) buckets() []string {
	names := []string{t.name}
	for _, x := range t.indexes {
		names = append(names, x.name)
	}
	return names
}

// check reports every record that an index lacks and every index entry that no record explains.
func (t *Table[T]) check(tx *Tx, f *findings) {
	want := make([]int, len(t.indexes))
	for k, v := range tx.ascend(tx.bucket(t.name), nil) {
		rec, err := t.decode(k, v)
		if err != nil {
			f.add("%w", err)
			continue
		}
		if t.id(rec) != string(k) {
			f.add("%s %s: stored under %s", t.name, t.id(rec), k)
		}
		for i, x := range t.indexes {
			key := x.entry(rec, string(k))
			if key == "" {
				continue
			}
			want[i]++
			if id := tx.bucket(x.name).Get([]byte(key)); string(id) != string(k) {
				f.add("%s %s: index %s lacks it", t.name, k, x.name)
			}
		}
	}
	for i, x := range t.indexes {
		if have := tx.bucket(x.name).Stats().KeyN; have != want[i] {
			f.add("index %s has %d entries, its table explains %d", x.name, have, want[i])
		}
	}
}

// Check verifies every table, index, counter and reference in one snapshot, and then the bytes of
// every message, while others write and compaction waits. nil means that all is well; of faults it
// names the first hundred.
func (s *Store) Check() error {
	if err := s.compact.enter(context.Background()); err != nil {
		return err
	}
	defer s.compact.leave()
	f := &findings{}
	err := s.View(func(tx *Tx) error {
		for _, t := range tables {
			t.check(tx, f)
		}
		tx.checkMessages(f)
		s.records.check(f)
		return nil
	})
	if err == nil {
		err = s.verifyBlobs(f)
	}
	return errors.Join(f.join(), err)
}
