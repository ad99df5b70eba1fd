package settings

import (
	"context"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
)

// A Service shows, tries and changes settings.
type Service struct {
	*core.Core
	events *events.Service
	tries  *limit.Counter[string] // of TestSettings

	// changing is held while a change is planned and made, which may wait for the DNS. Whoever
	// writes the following fields holds mu too.
	changing sync.Mutex

	mu     sync.Mutex
	file   File     // nil: there is none, as in a test
	stored []Stored // the values in the store
	joined *Joined  // what holds
}

// New returns the room. Its settings cannot be listed or changed before Begin.
func New(c *core.Core, e *events.Service) *Service {
	return &Service{Core: c, events: e, tries: limit.NewCounter[string](time.Minute)}
}

// Begin tells the room what the service has started with: the file, the values in the store, and
// what they are together.
func (s *Service) Begin(file File, stored []Stored, joined *Joined) {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.remember(file, stored, joined)
}

// remember replaces what the room knows. s.changing is held.
func (s *Service) remember(file File, stored []Stored, joined *Joined) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file, s.stored, s.joined = file, stored, joined
}

// ListSettings returns all settings with what holds, and where it comes from.
func (s *Service) ListSettings(context.Context, core.Actor) (*core.List[Setting], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.joined == nil {
		return nil, errNoFile()
	}
	return core.ListOf(s.joined.List), nil
}

func errNoFile() error {
	return core.Errorf("not_configured", "The settings of this server cannot be shown: it runs without a settings file.")
}

// UseFile takes another file, which was read again while the server runs. If its settings are
// invalid, nothing changes.
func (s *Service) UseFile(file File) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	joined, err := file.Join(s.stored)
	if err != nil {
		return err
	}
	s.apply(file, s.stored, joined)
	return nil
}

// apply makes the settings hold. s.changing is held.
func (s *Service) apply(file File, stored []Stored, joined *Joined) {
	s.remember(file, stored, joined)
	s.ChangeSettings(func(now *core.Settings) { *now = joined.Settings })
}
