//go:build killpoints

package killpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// MAILSTEAD_KILL_AT=NAME:N kills the program the N-th time, from 1, that it passes a point. If
// MAILSTEAD_KILL_AFTER names a file, passes count only once the file exists.
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

// At kills the process with SIGKILL if this is the requested pass of the point. It does not return
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
