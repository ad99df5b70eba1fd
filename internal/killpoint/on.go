//go:build killpoints

package killpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// MAILSTEAD_KILL_AT=NAME:N asks for the end at the N-th passing of a point, from 1. Where
// MAILSTEAD_KILL_AFTER names a file, passings count from when that is there.
var (
	name, passing = wanted(os.Getenv("MAILSTEAD_KILL_AT"))
	after         = os.Getenv("MAILSTEAD_KILL_AFTER")
	passed        atomic.Int64
)

func wanted(text string) (name string, passing int64) {
	name, digits, _ := strings.Cut(text, ":")
	passing, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return "", 0
	}
	return name, passing
}

// At ends the process with SIGKILL if this is the passing that was asked for. It does not return
// then.
func At(point string) {
	if point != name || !counts() || passed.Add(1) != passing {
		return
	}
	_, _ = os.Stderr.WriteString("killed at " + name + "\n")
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func counts() bool {
	if after == "" {
		return true
	}
	_, err := os.Stat(after)
	return err == nil
}
