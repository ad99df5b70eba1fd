package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// A progressLine shows the progress of a long command in one line of the terminal, and overwrites
// that line. It shows nothing with --json, or if standard error is not a terminal.
type progressLine struct {
	out     io.Writer // the terminal; nil to show nothing
	mu      sync.Mutex
	shownAt time.Time // time of the last update
	width   int       // length in bytes of the text on the line
}

// progressInterval is the minimum time between two updates of the line.
const progressInterval = 200 * time.Millisecond

func (e *env) newProgressLine() *progressLine {
	p := &progressLine{}
	f, ok := e.stderr.(*os.File)
	if !ok || e.json {
		return p
	}
	if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb" {
		p.out = f
	}
	return p
}

// show shows that done of the task's all units have been processed. all is 0 if the total is
// unknown.
func (p *progressLine) show(task string, done, all int64) {
	if p.out == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.shownAt) < progressInterval {
		return
	}
	p.shownAt = time.Now()
	text := task + " …"
	if done > 0 {
		text = fmt.Sprintf("%s: %d", task, done)
	}
	if all > 0 {
		text = fmt.Sprintf("%s: %d of %d (%d%%)", task, done, all, 100*done/all)
	}
	fmt.Fprintf(p.out, "\r%-*s", p.width, text)
	p.width = len(text)
}

// end erases the line.
func (p *progressLine) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.width > 0 {
		fmt.Fprintf(p.out, "\r%*s\r", p.width, "")
		p.width = 0
	}
}
