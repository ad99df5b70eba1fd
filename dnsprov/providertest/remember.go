package providertest

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/mailstead/mailstead/dnsprov"
)

// Remember returns p with the caller's part for a provider that cannot mark records: it remembers
// for each owner tag the IDs of what was made, and gives these records their Purpose. It notes them
// before they are made, so that they are known if the answer is lost.
func Remember(p dnsprov.Provider) dnsprov.Provider {
	return &memory{Provider: p, ours: map[string]map[string]string{}}
}

type memory struct {
	dnsprov.Provider
	mu   sync.Mutex
	ours map[string]map[string]string // purposes by owner tag and ID
}

func (m *memory) Records(ctx context.Context, at dnsprov.ZoneRef) ([]dnsprov.Record, error) {
	have, err := m.Provider.Records(ctx, at)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, r := range have {
		if r.ID != "" {
			have[i].Purpose = m.ours[at.OwnerTag][r.ID]
		}
	}
	return have, err
}

func (m *memory) Apply(ctx context.Context, at dnsprov.ZoneRef, changes []dnsprov.Change) ([]dnsprov.Record, error) {
	m.mu.Lock()
	before := maps.Clone(m.ours[at.OwnerTag])
	during := map[string]string{}
	maps.Copy(during, before)
	for _, c := range changes {
		if c.Want != nil {
			during[c.Want.Key()] = c.Want.Purpose
		}
	}
	m.ours[at.OwnerTag] = during
	m.mu.Unlock()

	made, err := m.Provider.Apply(ctx, at, changes)
	after := during // the answer may have been lost
	if err == nil || errors.Is(err, dnsprov.ErrChanged) || errors.As(err, new(*dnsprov.Conflict)) {
		after = map[string]string{}
		maps.Copy(after, before)
	}
	for _, c := range changes {
		if c.Have != nil && err == nil {
			delete(after, c.Have.ID)
		}
	}
	for _, r := range made {
		if r.Purpose != "" {
			after[r.ID] = r.Purpose
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ours[at.OwnerTag] = after
	return made, err
}
