package cli

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"golang.org/x/term"
	"golang.org/x/text/width"
)

// A printer writes to standard output. On a terminal it writes heads and colours, and shortens
// lines to the width of the terminal.
type printer struct {
	out      io.Writer
	terminal bool
	colours  bool
	columns  int // of the terminal; 0: lines are not shortened
}

// newPrinter returns a printer for w. It uses colours if w is a terminal, unless the environment
// has NO_COLOR (https://no-color.org) or TERM=dumb.
func newPrinter(w io.Writer) *printer {
	p := &printer{out: w}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return p
	}
	p.terminal = true
	p.colours = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if columns, _, err := term.GetSize(int(f.Fd())); err == nil {
		p.columns = columns
	}
	return p
}

// SGR codes (ECMA-48).
const (
	sgrBold   = "1"
	sgrDim    = "2"
	sgrRed    = "31"
	sgrGreen  = "32"
	sgrYellow = "33"
)

func (p *printer) styled(sgr, text string) string {
	if !p.colours || sgr == "" || text == "" {
		return text
	}
	return "\x1b[" + sgr + "m" + text + "\x1b[0m"
}

func (p *printer) bold(text string) string { return p.styled(sgrBold, text) }
func (p *printer) dim(text string) string  { return p.styled(sgrDim, text) }

// statusColours are the colours of the statuses that tables have.
var statusColours = map[string]string{
	"ok": sgrGreen, "active": sgrGreen, "complete": sgrGreen, "completed": sgrGreen, "healthy": sgrGreen, "verified": sgrGreen,
	"delivered": sgrGreen, "sent": sgrGreen, "relayed": sgrGreen, "captured": sgrGreen,
	"warning": sgrYellow, "pending": sgrYellow, "pending_ns": sgrYellow, "pending_dns_records": sgrYellow, "in_progress": sgrYellow, "queued": sgrYellow,
	"deferred": sgrYellow, "scheduled": sgrYellow, "held": sgrYellow, "degraded": sgrYellow, "propagating": sgrYellow, "parked": sgrYellow,
	"error": sgrRed, "failed": sgrRed, "failing": sgrRed, "bounced": sgrRed, "complained": sgrRed, "suspended": sgrRed, "rejected": sgrRed,
	"suppressed": sgrRed, "deleting": sgrRed, "missing": sgrRed, "mismatch": sgrRed,
}

// A table is what a list prints: the heads of its columns, and its rows.
type table struct {
	heads    []string
	rows     [][]string
	wide     []int  // indexes of columns that may be shortened, those that matter least first
	empty    string // printed on a terminal if there are no rows
	headless bool   // print no heads on a terminal either
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// printTable prints a list: v as JSON with --json, the table as CSV (RFC 4180) with --csv, else the
// table with aligned columns. CSV always has heads; the table has them on a terminal. Texts of
// strangers cannot control the terminal.
func (e *env) printTable(v any, t *table) error {
	if e.csv {
		w := csv.NewWriter(e.stdout)
		head := make([]string, len(t.heads))
		for i, h := range t.heads {
			head[i] = strings.ReplaceAll(strings.ToLower(h), " ", "_")
		}
		if err := w.Write(head); err != nil {
			return err
		}
		for _, row := range t.rows {
			clean := make([]string, len(row))
			for i, cell := range row {
				clean[i] = plainText(cell)
			}
			if err := w.Write(clean); err != nil {
				return err
			}
		}
		w.Flush()
		return w.Error()
	}
	if e.json {
		return e.print(v, "")
	}
	return newPrinter(e.stdout).writeTable(t)
}

// writeTable writes a table with aligned columns, two spaces apart.
func (p *printer) writeTable(t *table) error {
	widths := make([]int, len(t.heads))
	for i, h := range t.heads {
		if p.terminal {
			widths[i] = textWidth(h)
		}
		for _, row := range t.rows {
			widths[i] = max(widths[i], textWidth(plainText(row[i])))
		}
	}
	p.fit(widths, t)
	var out strings.Builder
	line := func(cells []string, style func(cell, text string) string) {
		var text strings.Builder
		for i, cell := range cells {
			cell = plainText(cell)
			short := shorten(cell, widths[i])
			pad := strings.Repeat(" ", widths[i]-textWidth(short)+2)
			text.WriteString(style(cell, short) + pad)
		}
		out.WriteString(strings.TrimRight(text.String(), " ") + "\n")
	}
	switch {
	case p.terminal && len(t.rows) > 0 && !t.headless:
		line(t.heads, func(_, text string) string { return p.bold(text) })
	case p.terminal && t.empty != "":
		out.WriteString(t.empty + "\n")
	}
	for _, row := range t.rows {
		line(row, func(cell, text string) string { return p.styled(statusColours[cell], text) })
	}
	_, err := io.WriteString(p.out, out.String())
	return err
}

// shortestColumn is the width below which fit shortens no column.
const shortestColumn = 10

// fit reduces the widths of the columns that may be shortened, so that lines fit into the terminal.
func (p *printer) fit(widths []int, t *table) {
	if p.columns == 0 {
		return
	}
	total := -2
	for _, w := range widths {
		total += w + 2
	}
	for _, i := range t.wide {
		least := max(shortestColumn, textWidth(t.heads[i]))
		if over := total - p.columns; over > 0 && widths[i] > least {
			less := min(over, widths[i]-least)
			widths[i] -= less
			total -= less
		}
	}
}

// plainText replaces characters that control a terminal, or that change the direction of the text
// after them, with spaces.
func plainText(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r), r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069, r == 0x200E, r == 0x200F:
			return ' '
		}
		return r
	}, text)
}

// textWidth returns the number of columns that a text takes on a terminal.
func textWidth(text string) (n int) {
	for _, r := range text {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	switch kind := width.LookupRune(r).Kind(); {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case kind == width.EastAsianWide || kind == width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// shorten cuts a text to a width, with "…" at the end.
func shorten(text string, columns int) string {
	if textWidth(text) <= columns {
		return text
	}
	n := 0
	for i, r := range text {
		n += runeWidth(r)
		if n > columns-1 {
			return text[:i] + "…"
		}
	}
	return text
}

// timeText returns a time of the API, in RFC 3339, to the second and in UTC. It returns "" for
// null.
func timeText(v any) string {
	text, _ := v.(string)
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return text
	}
	return at.UTC().Format("2006-01-02T15:04:05Z")
}

// bytesText returns a number of bytes for people, in powers of ten.
func bytesText(n int64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	value, unit := float64(n), 0
	for value >= 999.5 && unit < len(units)-1 {
		value, unit = value/1000, unit+1
	}
	if unit == 0 || value >= 100 {
		return fmt.Sprintf("%.0f %s", value, units[unit])
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}

// spanText returns a time span for people, in its two largest units.
func spanText(d time.Duration) string {
	if d < 0 {
		d = 0
	}
	switch {
	case d < time.Second:
		return "0 s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%d d %d h", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}
