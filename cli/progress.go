package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// A progressLine shows the progress of a long command in one line of a terminal, which it rewrites.
// It shows nothing if standard error is not a terminal, and with --json.
type progressLine struct {
	out   io.Writer // nil: show nothing
	mu    sync.Mutex
	shown time.Time
	width int // characters of the text that is shown
}

// progressEvery is the shortest time between two rewrites of the line.
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

// show shows how much is done, and of how much; all is 0 if unknown.
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

// end erases the line.
func (p *progressLine) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.width > 0 {
		fmt.Fprintf(p.out, "\r%*s\r", p.width, "")
		p.width = 0
	}
}
