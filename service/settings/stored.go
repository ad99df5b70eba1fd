package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Limits of what the store keeps.
const (
	maxStored = 1000     // values
	maxValue  = 16 << 10 // bytes of the JSON of a value
)

// Read returns the values in the store, those that were added first at first. A value that no
// master key opens has no JSON, see Value.Damaged.
func Read(st *store.Store, keys *core.Keys) (list []Stored, err error) {
	var rows []*store.Setting
	err = st.View(func(tx *store.Tx) error {
		rows = nil
		for row := range store.Settings.All(tx) {
			rows = append(rows, row)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the settings in the store: %w", err)
	}
	slices.SortFunc(rows, func(a, b *store.Setting) int {
		if by := a.CreatedAt.Compare(b.CreatedAt); by != 0 {
			return by
		}
		return strings.Compare(a.Key, b.Key)
	})
	for _, row := range rows {
		text, err := keys.Open(store.SettingBinding(row.Key), row.Sealed)
		if err != nil {
			text = nil
		}
		list = append(list, Stored{row.Key, Value{text}})
	}
	return list, nil
}

// A write is what one transaction does to a value in the store.
type write struct {
	key    string
	sealed []byte // nil: the value is deleted
}

// writes returns what makes the store have the values next instead of before.
func (s *Service) writes(before, next []Stored) (out []write) {
	for _, v := range before {
		if !slices.ContainsFunc(next, func(n Stored) bool { return n.Key == v.Key }) {
			out = append(out, write{key: v.Key})
		}
	}
	for _, v := range next {
		if !slices.ContainsFunc(before, func(b Stored) bool { return b.Key == v.Key && string(b.Value.raw) == string(v.Value.raw) }) {
			out = append(out, write{v.Key, s.Keys.Seal(store.SettingBinding(v.Key), v.Value.raw)})
		}
	}
	return out
}

// commit makes the writes, with a row in the audit log that names the keys.
func (s *Service) commit(who core.Actor, list []write) error {
	if who.Request != nil {
		request := *who.Request
		request.Fields = nil
		for _, w := range list {
			request.Fields = append(request.Fields, w.key)
		}
		who.Request = &request
	}
	return s.Store.Update(func(tx *store.Tx) error {
		for _, w := range list {
			if w.sealed == nil {
				if err := store.Settings.Delete(tx, w.key); err != nil {
					return err
				}
				continue
			}
			row, err := store.Settings.Find(tx, w.key)
			if err != nil {
				return err
			}
			next := store.Setting{Key: w.key, Sealed: w.sealed, CreatedAt: tx.Now(), UpdatedAt: tx.Now()}
			if row != nil {
				next.CreatedAt = row.CreatedAt
			}
			if err := store.Settings.Put(tx, &next); err != nil {
				return err
			}
		}
		return core.Audit(tx, who, store.AuditTarget{Type: "settings", ID: "settings", Name: s.Hostname()})
	})
}
