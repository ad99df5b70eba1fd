package operator

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/code"
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
