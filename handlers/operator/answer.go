package operator

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/code"
	"github.com/mailstead/mailstead/store/backup"
)

// localCommand returns a handler that calls a method of the service. Its request and response are
// JSON.
func localCommand[In, Out any](method func(context.Context, In) (Out, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in In
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		out, err := method(r.Context(), in)
		if err != nil {
			e := core.Explain(err)
			http.Error(w, e.Message, code.Status(e.Code))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out)
	})
}

// A ProgressLine is one line of the response to a long command that was asked for its progress (the
// query parameter ProgressQuery): how far the work is, or at the end its result or its error.
type ProgressLine struct {
	What   string          `json:"what,omitempty"`
	Done   int64           `json:"done,omitempty"`
	All    int64           `json:"all,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// ProgressQuery is the query parameter by which a long command is asked for its progress.
const ProgressQuery = "progress"

// progressEvery is the minimum time between two lines about the progress of a command.
const progressEvery = 200 * time.Millisecond

// runWithProgress runs a command and answers with a ProgressLine for each step of its progress,
// and with one for its end.
func runWithProgress(w http.ResponseWriter, r *http.Request, run func(context.Context) (any, error)) {
	var mu sync.Mutex
	var shown time.Time
	lines := json.NewEncoder(w)
	ctx := backup.WithProgress(r.Context(), func(what string, done, all int64) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(shown) >= progressEvery {
			shown = time.Now()
			_ = lines.Encode(ProgressLine{What: what, Done: done, All: all})
			_ = http.NewResponseController(w).Flush()
		}
	})
	out, err := run(ctx)
	last := ProgressLine{}
	if err == nil {
		last.Result, err = json.Marshal(out)
	}
	if err != nil {
		last.Error = withoutCode(err).Error()
	}
	mu.Lock()
	defer mu.Unlock()
	_ = lines.Encode(last)
}

// longCommand returns a handler for a command that may take hours. The operator gets the text of
// every error, also of internal ones.
func longCommand[In, Out any](method func(context.Context, In) (Out, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// If no server runs, the command has no connection. Then setting the deadlines fails, which
		// does not matter.
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Time{})
		_ = control.SetWriteDeadline(time.Time{})
		var in In
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err == nil {
			err = json.Unmarshal(body, &in)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if r.URL.Query().Has(ProgressQuery) {
			runWithProgress(w, r, func(ctx context.Context) (any, error) { return method(ctx, in) })
			return
		}
		out, err := method(r.Context(), in)
		answerOperator(w, out, err)
	})
}

// answerOperator answers a command with JSON, or with the text of the error.
func answerOperator(w http.ResponseWriter, out any, err error) {
	if err != nil {
		http.Error(w, withoutCode(err).Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
}

// withoutCode returns an error with only the message of a service error. It returns other errors
// unchanged.
func withoutCode(err error) error {
	if e, ok := core.AsError(err); ok {
		return errors.New(e.Message)
	}
	return err
}
