package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// A progressLine says on a terminal how far a long command is: one line, which is rewritten. Where
// standard error is no terminal, and with --json, it says nothing.
type progressLine struct {
	out   io.Writer // nil: nobody looks
	mu    sync.Mutex
	shown time.Time
	width int // of what stands there
}

// progressEvery is how often the line is rewritten at most.
const progressEvery = 200 * time.Millisecond

func (e *env) progress() *progressLine {
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

// show says what is done, and how much of all; all is 0 where that is not known.
func (p *progressLine) show(what string, done, all int64) {
	if p.out == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.shown) < progressEvery {
		return
	}
	p.shown = time.Now()
	text := what + " …"
	if done > 0 {
		text = fmt.Sprintf("%s: %d", what, done)
	}
	if all > 0 {
		text = fmt.Sprintf("%s: %d of %d (%d%%)", what, done, all, 100*done/all)
	}
	fmt.Fprintf(p.out, "\r%-*s", p.width, text)
	p.width = len(text)
}

// end takes the line away.
func (p *progressLine) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.width > 0 {
		fmt.Fprintf(p.out, "\r%*s\r", p.width, "")
		p.width = 0
	}
}
