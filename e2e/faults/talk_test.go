package faults

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// processorTime is what the process has used of the processors so far, in steps of 10 ms. It does
// not depend on what else the machine does.
func processorTime(i *rig.Instance) time.Duration {
	i.T.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", i.Cmd.Process.Pid))
	if err != nil {
		i.T.Skip(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	var ticks int
	for _, field := range fields[11:13] { // utime and stime (proc(5)), in hundredths of a second
		n, err := strconv.Atoi(field)
		if err != nil {
			i.T.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
