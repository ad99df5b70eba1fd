package store

import (
	"context"
	"errors"
	"slices"
)

// A tableCheck is a table seen without its record type.
type tableCheck interface {
	buckets() []string
	check(tx *Tx, p *problems)
}

// tables lists every table; what is not here is neither made nor checked.
var tables = []tableCheck{
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
func (t *Table[T]) check(tx *Tx, p *problems) {
	want := make([]int, len(t.indexes))
	for k, v := range tx.ascend(tx.bucket(t.name), nil) {
		rec, err := t.decode(k, v)
		if err != nil {
			p.add("%w", err)
			continue
		}
		if t.id(rec) != string(k) {
			p.add("%s %s: stored under %s", t.name, t.id(rec), k)
		}
		for i, x := range t.indexes {
			key := x.entry(rec, string(k))
			if key == "" {
				continue
			}
			want[i]++
			if id := tx.bucket(x.name).Get([]byte(key)); string(id) != string(k) {
				p.add("%s %s: index %s lacks it", t.name, k, x.name)
			}
		}
	}
	for i, x := range t.indexes {
		if have := tx.bucket(x.name).Stats().KeyN; have != want[i] {
			p.add("index %s has %d entries, its table explains %d", x.name, have, want[i])
		}
	}
}

// Check verifies every table, index, counter and reference in one snapshot, and then the bytes of
// every message, while others write and compaction waits. nil means that all is well; of faults it
// names the first hundred.
func (s *Store) Check() error {
	if err := s.compact.lock(context.Background()); err != nil {
		return err
	}
	defer s.compact.unlock()
	p := &problems{}
	err := s.View(func(tx *Tx) error {
		for _, t := range tables {
			t.check(tx, p)
		}
		tx.checkMessages(p)
		s.records.check(p)
		return nil
	})
	if err == nil {
		err = s.verifyBlobs(p)
	}
	return errors.Join(p.join(), err)
}
