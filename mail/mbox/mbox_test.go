package mbox

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// read gives all messages of a file.
func read(t *testing.T, text string, max int) (all []Message, err error) {
	t.Helper()
	r := NewReader(strings.NewReader(text), max)
	for {
		m, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if errors.Is(err, ErrTooLarge) {
			m.Flags = "too large"
		} else if err != nil {
			return all, err
		}
		all = append(all, m)
	}
}

func TestNext(t *testing.T) {
	const from = "From ann@x.test Tue Nov 24 10:00:00 2026\n"
	for name, c := range map[string]struct {
		file string
		want []string // flags, then the message
	}{
		"two":                     {from + "Subject: a\n\none\n\n" + from + "Subject: b\n\ntwo\n\n", []string{"", "Subject: a\r\n\r\none\r\n", "", "Subject: b\r\n\r\ntwo\r\n"}},
		"CRLF":                    {strings.ReplaceAll(from+"Subject: a\n\none\n\n"+from+"Subject: b\n\ntwo\n\n", "\n", "\r\n"), []string{"", "Subject: a\r\n\r\none\r\n", "", "Subject: b\r\n\r\ntwo\r\n"}},
		"quoted":                  {from + "A: b\n\n>From here\n>>From there\n> From\n>Fromage\n\n", []string{"", "A: b\r\n\r\nFrom here\r\n>From there\r\n> From\r\n>Fromage\r\n"}},
		"From in text":            {from + "A: b\n\nFrom now on\n\nFrom now on too\n\n", []string{"", "A: b\r\n\r\nFrom now on\r\n\r\nFrom now on too\r\n"}},
		"flags":                   {from + "Status: RO\nA: b\nX-Status: AFDT\n\nStatus: R\n\n", []string{"SRFTD", "A: b\r\n\r\nStatus: R\r\n"}},
		"no text":                 {from + "A: b\n\n\n" + from + "C: d\n\n" + from + "E: f\n", []string{"", "A: b\r\n\r\n", "", "C: d\r\n\r\n", "", "E: f\r\n"}},
		"no end":                  {from + "A: b\n\nend", []string{"", "A: b\r\n\r\nend"}},
		"empty lines":             {"\n\n" + from + "A: b\n\nx\n\n\n\n" + from + "A: b\n\n", []string{"", "A: b\r\n\r\nx\r\n\r\n\r\n", "", "A: b\r\n\r\n"}},
		"nothing":                 {"", nil},
		"too large":               {from + "A: b\n\n" + strings.Repeat("x", 200) + "\n\n" + from + "A: b\n\n", []string{"too large", "", "", "A: b\r\n\r\n"}},
		"a Status that is a text": {from + "Status: " + strings.Repeat("x", 95) + "\n\n", []string{"", "Status: " + strings.Repeat("x", 95) + "\r\n\r\n"}},
	} {
		all, err := read(t, c.file, 150)
		var got []string
		for _, m := range all {
			got = append(got, m.Flags, string(m.Text))
			if m.Flags != "too large" && !m.Date.Equal(time.Date(2026, 11, 24, 10, 0, 0, 0, time.UTC)) || !strings.HasPrefix(c.file[m.Offset:], "From ") {
				t.Errorf("%s: %+v", name, m)
			}
		}
		if err != nil || strings.Join(got, "|") != strings.Join(c.want, "|") {
			t.Errorf("%s: %v\n%q\nwant\n%q", name, err, got, c.want)
		}
	}
	if _, err := read(t, "Subject: a\n\nb\n", 1000); !errors.Is(err, ErrNotMbox) {
		t.Error(err)
	}
}

func TestFromDates(t *testing.T) {
	want := time.Date(2015, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, line := range []string{
		"From ann@x.test Fri Jan  2 03:04:05 2015", "From - Fri Jan 02 03:04:05 2015", "From 123@xxx Fri Jan 02 03:04:05 +0000 2015",
		"From ann@x.test Fri Jan  2 04:04:05 2015 +0100", "From ann smith Fri Jan  2 03:04:05 2015", "From ann@x.test  Fri Jan  2 03:04:05 UTC 2015",
	} {
		if got := fromDate([]byte(line + "\r\n")); !got.Equal(want) {
			t.Errorf("%q: %s", line, got)
		}
	}
	for _, line := range []string{"From now on", "From", "From ann@x.test", "From ann@x.test Fri Jan 32 03:04:05 2015"} {
		if got := fromDate([]byte(line)); !got.IsZero() {
			t.Errorf("%q: %s", line, got)
		}
	}
}

// messages that a file must keep as they are.
var kept = []string{
	"A: b\r\n\r\n", "A: b\r\n\r\nFrom x Tue Nov 24 10:00:00 2026\r\n>From\r\n>From y\r\n>>From z\r\n", "A: b\r\n\r\nx\r\n\r\n\r\n", "A: b\r\n\r\n\r\n\r\nx\r\n",
	"From: a\r\nA: " + strings.Repeat("x", 100_000) + "\r\n\r\n" + strings.Repeat("y", 100_000) + "\r\n", "A: b\r\n\r\nöä\xff\x00\r\n",
}

func TestWrite(t *testing.T) {
	var file bytes.Buffer
	w := bufio.NewWriter(&file)
	date := time.Date(2026, 2, 3, 4, 5, 6, 0, time.FixedZone("", 3600))
	for i, m := range kept {
		if err := Write(w, []string{"ann@x.test", "", "a b@x.test"}[i%3], date, []string{"", "S", "SRFTD"}[i%3], strings.NewReader(m)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(file.String(), "From ann@x.test Tue Feb  3 03:05:06 2026\nStatus: O\nA: b\n\n\nFrom MAILER-DAEMON Tue ") {
		t.Errorf("%.200q", file.String())
	}
	all, err := read(t, file.String(), 1<<20)
	if err != nil || len(all) != len(kept) {
		t.Fatalf("%d messages, %v", len(all), err)
	}
	for i, m := range all {
		if string(m.Text) != kept[i] || !m.Date.Equal(date) || m.Flags != []string{"", "S", "SRFTD"}[i%3] {
			t.Errorf("message %d: %s %q %.200q", i, m.Date, m.Flags, m.Text)
		}
	}
}

func FuzzNext(f *testing.F) {
	for _, m := range kept {
		f.Add([]byte("From x Tue Nov 24 10:00:00 2026\n" + m + "\nFrom x Tue Nov 24 10:00:00 2026\n"))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		const max = 1000
		r := NewReader(bytes.NewReader(file), max)
		for before := int64(-1); ; {
			m, err := r.Next()
			if err != nil && !errors.Is(err, ErrTooLarge) {
				return
			}
			if m.Offset <= before || len(m.Text) > max || bytes.Contains(bytes.ReplaceAll(m.Text, []byte("\r\n"), nil), []byte("\n")) {
				t.Fatalf("offset %d after %d, %q", m.Offset, before, m.Text)
			}
			before = m.Offset
			if err != nil || !bytes.HasSuffix(m.Text, []byte("\r\n")) || bytes.HasPrefix(m.Text, []byte("\r\n")) || !bytes.Contains(m.Text, []byte("\r\n\r\n")) {
				continue
			}
			// What was read comes back from a file that it is written to.
			var again bytes.Buffer
			w := bufio.NewWriter(&again)
			if err := Write(w, "x@y", time.Unix(1e9, 0), m.Flags, bytes.NewReader(m.Text)); err != nil || w.Flush() != nil {
				t.Fatal(err)
			}
			back, err := NewReader(&again, 10*max).Next()
			if err != nil || !bytes.Equal(back.Text, m.Text) {
				t.Fatalf("%v: %q, was %q", err, back.Text, m.Text)
			}
		}
	})
}
