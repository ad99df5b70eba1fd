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

// LongestProfile is the longest time that a processor profile or a trace may take.
const LongestProfile = time.Hour

// ProfileIn is the operator's request for a profile.
type ProfileIn struct {
	Kind    string `json:"kind"`
	Seconds int    `json:"seconds"` // for cpu and trace
}

// serveProfile sends a profile of this process, in the format of go tool pprof or go tool trace.
func serveProfile(w http.ResponseWriter, r *http.Request) {
	// It may take longer than other responses.
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

// writeProfile writes a profile. After an error nothing was written, because another profile is
// running.
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
		return fmt.Errorf("there is no profile %q", in.Kind)
	}
	select {
	case <-ctx.Done():
	case <-time.After(min(time.Duration(in.Seconds)*time.Second, LongestProfile)):
	}
	return nil
}
