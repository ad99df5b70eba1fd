package zones

import (
	"context"

	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/store"
)

// What tests outside of the package use.

const (
	MaxCustomRecords  = maxCustomRecords
	MaxAccountRecords = maxAccountRecords
	KeptChanges       = keptChanges
	RowsPerWrite      = zonedata.RowsPerWrite
	RenewCopies       = renewInterval
	ZonesAtATime      = zonesPerView
)

func (s *Service) Copied(origin string) (builtin.CopiedZone, bool) { return s.zoneToCopy(origin) }

// StageImport begins an import and writes its records, but does not make them the present ones, as
// if the program had ended then.
func (s *Service) StageImport(ctx context.Context, who core.Actor, in ImportZoneIn) error {
	p, leave, err := s.planImport(ctx, who, in)
	if err != nil {
		return err
	}
	defer leave()
	st, err := s.peekState(ctx, who, in.DomainID)
	if err != nil {
		return err
	}
	e, err := p.edit(st)
	if err == nil {
		_, err = s.stageEdit(ctx, st, e, st.domain.ZoneGeneration+1)
	}
	return err
}

func (s *Service) Note(name string) { s.memory.markChanged(name) }

func (s *Service) RenewZones() error { return s.renewZones() }

func (s *Service) Resign(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	return s.renewSignatures(ctx, j)
}
