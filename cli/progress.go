package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/mailstead/mailstead/store/backup"
)

// A progressLine shows the progress of a long command in one line of the terminal, and overwrites
// that line: what is done, of how much, how fast, and how long it will take. It shows nothing with
// --json, or if standard error is not a terminal.
type progressLine struct {
	out     io.Writer // the terminal; nil to show nothing
	now     func() time.Time
	mu      sync.Mutex
	shownAt time.Time // time of the last update
	width   int       // length of the text on the line, in columns

	task      string    // the task that is shown
	taskBegan time.Time // when it was first shown
	doneThen  int64     // how much of it was done then
}

// progressInterval is the minimum time between two updates of the line. After rateAfter, the rate
// of a task is known well enough to be shown.
const (
	progressInterval = 200 * time.Millisecond
	rateAfter        = 2 * time.Second
)

func (e *env) newProgressLine() *progressLine {
	p := &progressLine{now: time.Now}
	f, ok := e.stderr.(*os.File)
	if ok && !e.json && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		p.out = f
	}
	return p
}

// withProgress returns a context whose long work of package backup shows its progress on the line.
func (p *progressLine) withProgress(ctx context.Context) context.Context {
	if p.out == nil {
		return ctx
	}
	return backup.WithProgress(ctx, p.show)
}

// show shows that done of the task's all units have been processed. all is 0 if the total is
// unknown. The units are bytes if the name of the task begins with "bytes of ".
func (p *progressLine) show(task string, done, all int64) {
	if p.out == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if task != p.task {
		p.task, p.taskBegan, p.doneThen = task, now, done
	}
	if now.Sub(p.shownAt) < progressInterval {
		return
	}
	p.shownAt = now
	p.write(progressText(task, done, all, done-p.doneThen, now.Sub(p.taskBegan)))
}

// say shows a text on the line.
func (p *progressLine) say(text string) {
	if p.out == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write(text)
}

func (p *progressLine) write(text string) {
	text = plainText(text)
	n := textWidth(text)
	fmt.Fprintf(p.out, "\r%s%*s", text, max(0, p.width-n), "")
	p.width = n
}

// progressText returns the line for a task. since units were processed in the time took, which is
// how the rate is known.
func progressText(task string, done, all, since int64, took time.Duration) string {
	name, isBytes := strings.CutPrefix(task, "bytes of ")
	amount := func(n int64) string { return fmt.Sprint(n) }
	if isBytes {
		amount = bytesText
	}
	text := name
	switch {
	case all > 0:
		text += fmt.Sprintf(": %s of %s (%d %%)", amount(done), amount(all), 100*min(done, all)/all)
	case done > 0:
		text += ": " + amount(done)
	default:
		return text + " …"
	}
	if took < rateAfter || since <= 0 {
		return text
	}
	rate := float64(since) / took.Seconds()
	switch {
	case rate >= 1:
		text += fmt.Sprintf(", %s/s", amount(int64(rate)))
	default:
		text += fmt.Sprintf(", %s/min", amount(int64(rate*60)))
	}
	if all > done {
		text += ", " + spanText(time.Duration(float64(all-done)/rate*float64(time.Second))) + " left"
	}
	return text
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
