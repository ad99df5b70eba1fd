package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/settings"
)

// exampleTable has texts of strangers that would control a terminal, and wide characters.
func exampleTable() *table {
	t := &table{heads: []string{"Time", "Status", "From", "Last answer"}, wide: []int{3, 2}, empty: "No messages."}
	t.add("2026-11-30T05:00:00Z", "delivered", "ann@example.com", "250 2.0.0 OK")
	t.add("2026-11-30T05:00:01Z", "bounced", "漢字@example.com", "550 \x1b[31mno\x1b]0;x\a such, \"user\"\u202e\r\nhere")
	return t
}

// TestTablesAreAligned compares a table with what is expected on a terminal, on a narrow one, and
// elsewhere.
func TestTablesAreAligned(t *testing.T) {
	for name, c := range map[string]struct {
		p    printer
		want string
	}{
		"a pipe": {printer{}, "" +
			"2026-11-30T05:00:00Z  delivered  ann@example.com   250 2.0.0 OK\n" +
			"2026-11-30T05:00:01Z  bounced    漢字@example.com  550  [31mno ]0;x  such, \"user\"   here\n"},
		"a terminal without colours": {printer{terminal: true, columns: 200}, "" +
			"Time                  Status     From              Last answer\n" +
			"2026-11-30T05:00:00Z  delivered  ann@example.com   250 2.0.0 OK\n" +
			"2026-11-30T05:00:01Z  bounced    漢字@example.com  550  [31mno ]0;x  such, \"user\"   here\n"},
		"a narrow terminal with colours": {printer{terminal: true, colours: true, columns: 60}, "" +
			"\x1b[1mTime\x1b[0m                  \x1b[1mStatus\x1b[0m     \x1b[1mFrom\x1b[0m            \x1b[1mLast answer\x1b[0m\n" +
			"2026-11-30T05:00:00Z  \x1b[32mdelivered\x1b[0m  ann@example.c…  250 2.0.0 …\n" +
			"2026-11-30T05:00:01Z  \x1b[31mbounced\x1b[0m    漢字@example.…  550  [31mn…\n"},
	} {
		var out bytes.Buffer
		c.p.out = &out
		if err := c.p.writeTable(exampleTable()); err != nil || out.String() != c.want {
			t.Errorf("%s: %v\n%q, want\n%q", name, err, out.String(), c.want)
		}
		for line := range strings.Lines(out.String()) {
			plain := strings.NewReplacer("\x1b[1m", "", "\x1b[31m", "", "\x1b[32m", "", "\x1b[0m", "", "\n", "").Replace(line)
			if c.p.columns > 0 && textWidth(plain) > c.p.columns {
				t.Errorf("%s: a line of %d columns: %q", name, textWidth(plain), plain)
			}
		}
	}
	var out bytes.Buffer
	for p, want := range map[*printer]string{{out: &out, terminal: true}: "No messages.\n", {out: &out}: ""} {
		out.Reset()
		if err := p.writeTable(&table{heads: []string{"A"}, empty: "No messages."}); err != nil || out.String() != want {
			t.Errorf("an empty table: %v, %q, want %q", err, out.String(), want)
		}
	}
}

// TestListsAsCSVAndJSON: both are the same on a terminal and elsewhere; the heads of CSV are the
// names of columns.
func TestListsAsCSVAndJSON(t *testing.T) {
	for _, c := range []struct {
		e    env
		want string
	}{
		{env{csv: true}, "time,status,from,last_answer\n2026-11-30T05:00:00Z,delivered,ann@example.com,250 2.0.0 OK\n" +
			"2026-11-30T05:00:01Z,bounced,漢字@example.com,\"550  [31mno ]0;x  such, \"\"user\"\"   here\"\n"},
		{env{json: true}, `{"count":2}` + "\n"},
	} {
		var out bytes.Buffer
		c.e.stdout = &out
		if err := c.e.printTable(map[string]int{"count": 2}, exampleTable()); err != nil || out.String() != c.want {
			t.Errorf("%v: %q, want %q", err, out.String(), c.want)
		}
	}
}

// TestColoursAreForTerminals: a file or a pipe gets none, and NO_COLOR switches them off.
func TestColoursAreForTerminals(t *testing.T) {
	var out bytes.Buffer
	if p := newPrinter(&out); p.terminal || p.colours || p.bold("x") != "x" || p.styled("", "x") != "x" {
		t.Errorf("%+v", p)
	}
	if got := (&printer{colours: true}).bold("x"); got != "\x1b[1mx\x1b[0m" {
		t.Errorf("%q", got)
	}
}

// TestAmountsForPeople: bytes and time spans have few digits.
func TestAmountsForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 15400: "15.4 kB", 999_499: "999 kB", 999_999: "1.0 MB", 734_003_200: "734 MB", 53_687_091_200: "53.7 GB", 12e15: "12000 TB"} {
		if got := bytesText(n); got != want {
			t.Errorf("%d bytes are %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{-time.Second: "0 s", 0: "0 s", 59 * time.Second: "59 s", 61 * time.Second: "1 min 1 s", 3*time.Hour + 20*time.Minute: "3 h 20 min", 50 * time.Hour: "2 d 2 h"} {
		if got := spanText(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

// FuzzTable: whatever strangers write into a cell, a table has no character that controls the
// terminal but its own, one line for each row, and lines that are not wider than the terminal.
func FuzzTable(f *testing.F) {
	for _, text := range []string{"", "plain", "\x1b]0;title\a", "a\r\nb", "漢字", "e\u0301", "\u202eabc", "\xff\xfe", strings.Repeat("長", 200), "\u0085\u009b31m"} {
		f.Add(text, 40)
	}
	f.Fuzz(func(t *testing.T, text string, columns int) {
		if columns < 30 || columns > 500 {
			return
		}
		tab := &table{heads: []string{"A", "B"}, wide: []int{1}}
		tab.add("x", text)
		var out bytes.Buffer
		p := &printer{out: &out, terminal: true, columns: columns}
		if err := p.writeTable(tab); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) != 2 {
			t.Fatalf("%q makes %d lines", text, len(lines))
		}
		for _, line := range lines {
			if plainText(line) != line || textWidth(line) > columns {
				t.Errorf("%q makes %q, %d columns wide of %d", text, line, textWidth(line), columns)
			}
		}
	})
}

// TestValuesOfSettings: what is not set is a dash, whatever its type.
func TestValuesOfSettings(t *testing.T) {
	for want, v := range map[string]any{"-": []string{}, "a,b": []string{"a", "b"}, "7": 7, "off": "off"} {
		value, err := settings.NewValue(v)
		if err != nil {
			t.Fatal(err)
		}
		if got := valueText(settings.Setting{Value: &value}); got != want {
			t.Errorf("%v is shown as %q, want %q", v, got, want)
		}
	}
	if got := valueText(settings.Setting{}); got != "-" {
		t.Errorf("no value is shown as %q", got)
	}
}
