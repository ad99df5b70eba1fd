package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"time"
)

// LongestProfile bounds how long a processor profile or a trace may take.
const LongestProfile = time.Hour

// ProfileIn is a profile that the operator asks for.
type ProfileIn struct {
	Kind    string `json:"kind"`
	Seconds int    `json:"seconds"` // of cpu and trace
}

// serveProfile answers with a profile of this process, in the form of go tool pprof or go tool
// trace.
func serveProfile(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // it may take longer than other answers
	var in ProfileIn
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := writeProfile(r.Context(), w, in); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

// writeProfile writes a profile. An error means that nothing was written, since another one runs.
func writeProfile(ctx context.Context, w io.Writer, in ProfileIn) error {
	switch in.Kind {
	case "cpu":
		if err := pprof.StartCPUProfile(w); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	case "trace":
		if err := trace.Start(w); err != nil {
			return err
		}
		defer trace.Stop()
	case "heap":
		runtime.GC() // without it the profile shows the heap of the last collection
		return pprof.Lookup("heap").WriteTo(w, 0)
	case "goroutine":
		return pprof.Lookup("goroutine").WriteTo(w, 0)
	default:
		return fmt.Errorf("there is no profile %q", in.Kind)
	}
	select {
	case <-ctx.Done():
	case <-time.After(min(time.Duration(in.Seconds)*time.Second, LongestProfile)):
	}
	return nil
}
