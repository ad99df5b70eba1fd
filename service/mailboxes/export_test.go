package mailboxes

import (
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// What tests outside of the package use.

const (
	ExportBatch = exportBatch
)

type (
	ExportReader = exportReader
)

func (s *Service) ExportFile(e *store.Export) (*core.File, error) { return s.exportFile(e) }
