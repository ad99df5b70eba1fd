package store

import (
	"errors"
	"fmt"
	"slices"
)

// A keeper is a table seen without its record type.
type keeper interface {
	buckets() []string
	check(tx *Tx) []error
}

// tables lists every table; what is not here is neither made nor checked.
var tables = []keeper{
	Accounts, Users, Tokens, DayStats, Idempotencies,
	Domains, CustomRecords,
	Mailboxes, Templates,
	Jobs,
	Webhooks, Events, Deliveries,
	Submissions, Outgoings, Mappings, Suppressions,
}

func bucketNames() []string {
	names := slices.Clone(messageBuckets)
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
func (t *Table[T]) check(tx *Tx) []error {
	var errs []error
	want := make([]int, len(t.indexes))
	c := tx.bucket(t.name).Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		rec, err := t.decode(k, v)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if t.id(rec) != string(k) {
			errs = append(errs, fmt.Errorf("%s %s: stored under %s", t.name, t.id(rec), k))
		}
		for i, x := range t.indexes {
			key := x.entry(rec, string(k))
			if key == "" {
				continue
			}
			want[i]++
			if id := tx.bucket(x.name).Get([]byte(key)); string(id) != string(k) {
				errs = append(errs, fmt.Errorf("%s %s: index %s lacks it", t.name, k, x.name))
			}
		}
	}
	for i, x := range t.indexes {
		if have := x.Count(tx, "", 0); have != want[i] {
			errs = append(errs, fmt.Errorf("index %s has %d entries, its table explains %d", x.name, have, want[i]))
		}
	}
	return errs
}

// Check verifies every table, index, counter, message and blob reference. It reads everything; nil means all is well.
func (s *Store) Check() error {
	var errs []error
	err := s.View(func(tx *Tx) error {
		for _, t := range tables {
			errs = append(errs, t.check(tx)...)
		}
		errs = append(errs, tx.checkMessages()...)
		return nil
	})
	return errors.Join(append(errs, err)...)
}
