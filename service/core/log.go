package core

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/otlp"
	"github.com/mailstead/mailstead/store"
)

// The log never contains texts of people or secrets: no subject, body, file name, password or
// token, and no address that may contain one, such as a return path. Traces contain no address at
// all. The replies of other servers may repeat any of these: they are in the sending log, which
// only the owners of the mail can read.

// logIDs are the ids of the request or job that a context belongs to; "": none.
type logIDs struct{ request, job string }

type logIDsKey struct{}

// WithRequest returns a context whose log lines have the id of a request.
func WithRequest(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, logIDsKey{}, logIDs{request: id})
}

// LogOf returns the logger for a context. Its lines have request_id or job_id.
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

// LogMessage writes a log line about a message, with the ids of the context's request or job. id is
// "" for a message that never got one. It allocates nothing if the log level is above info.
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
	_ = s.Log.Handler().Handle(ctx, line) // there is no place left to report the error
}

// LoginName returns a login name for the log: "" if it is not an address, since it may be a
// password in the wrong field.
func LoginName(name string) string {
	if !strings.Contains(name, "@") {
		return ""
	}
	return name
}

// traceJobs gives jobs of the queue a context with their id for the log, and a trace span below the
// span that queued them.
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
