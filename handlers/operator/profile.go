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

// LongestProfile is the longest time for which a CPU profile or a trace may be recorded.
const LongestProfile = time.Hour

// ProfileIn is the request for a profile of the running server.
type ProfileIn struct {
	Kind    string `json:"kind"`    // cpu, trace, heap or goroutine
	Seconds int    `json:"seconds"` // how long to record, for cpu and trace
}

// serveProfile sends a profile of this process in the format of go tool pprof, or a trace in that
// of go tool trace.
func serveProfile(w http.ResponseWriter, r *http.Request) {
	// A profile may take longer than the write timeout of other responses.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
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

// writeProfile writes a profile. If it returns an error, it has written nothing; another profile is
// running, or the kind is unknown.
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
		runtime.GC() // otherwise the profile shows the heap of an earlier collection
		return pprof.Lookup("heap").WriteTo(w, 0)
	case "goroutine":
		return pprof.Lookup("goroutine").WriteTo(w, 0)
	default:
		return fmt.Errorf("there is no profile of the kind %q", in.Kind)
	}
	select {
	case <-ctx.Done():
	case <-time.After(min(time.Duration(in.Seconds)*time.Second, LongestProfile)):
	}
	return nil
}
