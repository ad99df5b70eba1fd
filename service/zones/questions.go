package zones

import (
	"context"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/store"
)

// GetZoneQuestionsIn is the query of get_zone_questions.
type GetZoneQuestionsIn struct {
	DomainID string `path:"domain_id"`
}

// ZoneQuestions is how many questions for a domain's zone this server has answered. Those of
// Mailstead itself do not count.
type ZoneQuestions struct {
	Domain      string            `json:"domain" words:"ours"`
	Since       core.Time         `json:"since"`         // When Mailstead began to count: when it was started, or when it began to serve the zone. Null while it does not serve it.
	Total       int64             `json:"total"`         // All questions since then.
	LastAskedAt core.Time         `json:"last_asked_at"` // Null if there was no question yet.
	Hours       []HourOfQuestions `json:"hours"`         // The last 24 hours, the oldest first; the last one is not over.
}

// HourOfQuestions is how many questions were answered in one hour.
type HourOfQuestions struct {
	Hour  core.Time `json:"hour"` // When it began.
	Count int64     `json:"count"`
}

// GetZoneQuestions returns how many questions for the zone of a builtin domain this server has
// answered. They are counted in memory, from the start of this server on.
func (s *Service) GetZoneQuestions(_ context.Context, who core.Actor, in GetZoneQuestionsIn) (*ZoneQuestions, error) {
	var d *store.Domain
	err := s.Store.View(func(tx *store.Tx) (err error) {
		d, err = core.DomainOf(tx, who, in.DomainID)
		if err == nil && d.DNSProvider != dnsprov.Builtin {
			err = zonedata.UnsupportedProvider(d)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if s.memory.stale.Load() {
		s.makeZonesFor(d.Name)
	}
	// A zone of the same name that belongs to another account has another owner.
	counted := s.memory.served.Questions(d.Name, d.ID, s.Now())
	out := &ZoneQuestions{Domain: d.Name, Since: core.Time{Time: counted.Since}, Total: int64(counted.Total), LastAskedAt: core.Time{Time: counted.Last}}
	for _, h := range counted.Hours {
		out.Hours = append(out.Hours, HourOfQuestions{core.Time{Time: h.Hour}, int64(h.Count)})
	}
	return out, nil
}
