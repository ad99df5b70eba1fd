package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"time"

	"github.com/urfave/cli/v2"
)

// longestProfile bounds how long a processor profile or a trace may take.
const longestProfile = time.Hour

// profileKinds are what can be profiled, in the order of the help.
var profileKinds = []struct{ name, usage string }{
	{"cpu", "where the server spends processor time"},
	{"heap", "what is in the server's memory"},
	{"goroutine", "what the server's goroutines do"},
	{"trace", "an execution trace, for go tool trace"},
}

func profileCommands() (list []*cli.Command) {
	for _, kind := range profileKinds {
		list = append(list, command(kind.name, kind.usage, "", profileCommand(kind.name),
			&cli.StringFlag{Name: "to", Usage: "the file to write"},
			&cli.IntFlag{Name: "seconds", Usage: "how long cpu and trace measure; the others show one moment", Value: 30}))
	}
	return list
}

// profileIn is a profile that the operator asks for.
type profileIn struct {
	Kind    string `json:"kind"`
	Seconds int    `json:"seconds"` // of cpu and trace
}

// profileCommand makes the command that writes a profile of the running server to a file.
func profileCommand(kind string) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := requireFlag(c, "to"); err != nil {
			return err
		}
		in := profileIn{kind, c.Int("seconds")}
		if in.Seconds < 1 || in.Seconds > int(longestProfile.Seconds()) {
			return usageError{fmt.Errorf("--seconds is from 1 to %d", int(longestProfile.Seconds()))}
		}
		answer, err := askServer(c, profilePath, in)
		if err != nil {
			return err
		}
		defer answer.Close()
		f, err := os.OpenFile(c.String("to"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		if _, err = io.Copy(f, answer); err != nil {
			err = fmt.Errorf("read the profile: %w", err)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return errors.Join(err, os.Remove(f.Name()))
		}
		return nil
	}
}

// serveProfile answers with a profile of this process, in the form of go tool pprof or go tool
// trace.
func serveProfile(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // it may take longer than other answers
	var in profileIn
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
func writeProfile(ctx context.Context, w io.Writer, in profileIn) error {
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
	case <-time.After(min(time.Duration(in.Seconds)*time.Second, longestProfile)):
	}
	return nil
}
