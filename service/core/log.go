package core

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/otlp"
	"github.com/mailstead/mailstead/store"
)

// The log never has texts of people or what opens a door: no subject, body, file name, password,
// token or secret, and no address that may hold one, such as a return path. Traces have no address
// at all. What other servers answer may repeat any of these: it is in the sending log, for those
// whose mail it is about.

// logIDs are the ids of what a context is of; "" is none.
type logIDs struct{ request, job string }

type logIDsKey struct{}

// WithRequest gives a context whose lines of the log carry the id of a request.
func WithRequest(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, logIDsKey{}, logIDs{request: id})
}

// LogOf is the log for what ctx is of: its lines carry request_id or job_id.
func (s *Core) LogOf(ctx context.Context) *slog.Logger {
	ids, _ := ctx.Value(logIDsKey{}).(logIDs)
	switch {
	case ids.request != "":
		return s.Log.With("request_id", ids.request)
	case ids.job != "":
		return s.Log.With("job_id", ids.job)
	}
	return s.Log
}

// LogMessage writes the one line about what has become of a message, with the ids of what ctx is
// of. id is "" for a message that never got one. It allocates nothing where the log is above info.
func (s *Core) LogMessage(ctx context.Context, what, id string, more ...slog.Attr) {
	if !s.Log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	line := slog.NewRecord(time.Now(), slog.LevelInfo, what, 0)
	if id != "" {
		line.AddAttrs(slog.String("message_id", id))
	}
	if ids, ok := ctx.Value(logIDsKey{}).(logIDs); ok && ids.request != "" {
		line.AddAttrs(slog.String("request_id", ids.request))
	} else if ok {
		line.AddAttrs(slog.String("job_id", ids.job))
	}
	line.AddAttrs(more...)
	_ = s.Log.Handler().Handle(ctx, line) // nobody is left who could be told
}

// LoginName is a name that somebody gave for a log-in, as the log may have it: "" for what is no
// address, since it may be a password in the wrong field.
func LoginName(name string) string {
	if !strings.Contains(name, "@") {
		return ""
	}
	return name
}

// traceJobs has the jobs of the queue carry their ids in the log, and be spans of traces, below
// what has caused them.
func (s *Core) traceJobs() {
	s.Queue.Began = s.beginJob
	if s.Tracer != nil {
		s.Queue.Added = func(cause context.Context, j *store.Job) { s.Tracer.Link(cause, j.ID) }
	}
}

func (s *Core) beginJob(ctx context.Context, j *store.Job) (work context.Context, end func(err error)) {
	ctx = context.WithValue(ctx, logIDsKey{}, logIDs{job: j.ID})
	if s.Tracer == nil {
		return ctx, func(error) {}
	}
	ctx, span := s.Tracer.Start(s.Tracer.Follow(ctx, j.ID), otlp.Consumer, "job "+j.Kind)
	span.Set("job_id", j.ID)
	span.SetInt("attempt", j.Attempt)
	return ctx, func(err error) {
		if err != nil {
			span.Fail()
		}
		span.End()
	}
}
