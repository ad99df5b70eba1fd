//go:build killpoints

package killpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// The environment variables that say where to kill the program. MAILSTEAD_KILL_AT=NAME:N kills it
// when it calls At with NAME for the N-th time, counted from 1. If MAILSTEAD_KILL_AFTER is the path
// of a file, calls count only while the file exists.
var (
	name, killCall = parseKillAt(os.Getenv("MAILSTEAD_KILL_AT"))
	afterFile      = os.Getenv("MAILSTEAD_KILL_AFTER")
	countedCalls   atomic.Int64 // number of calls that count
)

// parseKillAt parses NAME:N. It returns "" and 0 if the text is invalid.
func parseKillAt(text string) (name string, call int64) {
	name, digits, _ := strings.Cut(text, ":")
	call, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return "", 0
	}
	return name, call
}

// At kills the process with SIGKILL if this is the call that the environment names.
func At(point string) {
	if point != name || !isCounting() || countedCalls.Add(1) != killCall {
		return
	}
	_, _ = os.Stderr.WriteString("killed at " + name + "\n")
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// isCounting reports whether calls of At count now.
func isCounting() bool {
	if afterFile == "" {
		return true
	}
	_, err := os.Stat(afterFile)
	return err == nil
}
