package faults

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// A cutDisk is what a disk has of a directory, by a trace of the system calls of the one process
// that writes to it: of each file what its last sync has put there, and of each directory the names
// that it had when that was synced last.
type cutDisk struct {
	root    string
	now     map[string]*cutFile // by path
	durable map[string]*cutFile
}

type cutFile struct {
	now     []byte
	durable []byte
}

func newCutDisk(t *testing.T, root, base string) *cutDisk {
	t.Helper()
	d := &cutDisk{root: root, now: map[string]*cutFile{}, durable: map[string]*cutFile{}}
	err := filepath.WalkDir(base, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		f := &cutFile{now: data, durable: bytes.Clone(data)}
		name := filepath.Join(root, strings.TrimPrefix(path, base))
		d.now[name], d.durable[name] = f, f
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// after writes down what the disk has after a power cut.
func (d *cutDisk) after(t *testing.T, dir string) {
	t.Helper()
	for _, sub := range []string{"segments", "spool"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for path, f := range d.durable {
		to := filepath.Join(dir, strings.TrimPrefix(path, d.root))
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, f.durable, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

var (
	callLine    = regexp.MustCompile(`^(\d+) +(\w+)\((.*)$`)
	resumedLine = regexp.MustCompile(`^(\d+) +<\.\.\. \w+ resumed>(.*)$`)
	writeCall   = regexp.MustCompile(`^\d+<([^>]*)>, "(.*)", (\d+)(?:, (\d+))?\) += (\d+)`)
	fileCall    = regexp.MustCompile(`^\d+<([^>]*)>(?:, (\d+))?\) += 0`)
	openedFile  = regexp.MustCompile(`O_CREAT.*\) += \d+<([^>]*)>`)
	renameCall  = regexp.MustCompile(`"([^"]*)".*"([^"]*)".*\) += 0`)
	unlinkCall  = regexp.MustCompile(`"([^"]*)".*\) += 0`)
	queuedAs    = regexp.MustCompile(`queued as (\w+)`)
	answeredID  = regexp.MustCompile(`"message_id":"([^"]+)"`)
)

// A cutReader follows a trace.
type cutReader struct {
	d       *cutDisk
	pending map[string]string         // calls that have begun, by thread
	syncing map[string]func()         // what their syncs will have put on disk
	acked   func(id string, line int) // told of each id that the server acknowledges
}

// line takes in one line of the trace. What a call writes counts from its end on, and a sync covers
// what was written before it began.
func (r *cutReader) line(n int, text string) {
	text = strings.TrimRight(text, "\n")
	var thread, name, rest string
	if m := resumedLine.FindStringSubmatch(text); m != nil {
		thread = m[1]
		var ok bool
		name, rest, ok = strings.Cut(r.pending[thread], "(")
		if !ok {
			return
		}
		delete(r.pending, thread)
		rest += strings.TrimLeft(m[2], " ")
	} else if m := callLine.FindStringSubmatch(text); m != nil {
		thread, name, rest = m[1], m[2], m[3]
		if name == "fsync" || name == "fdatasync" {
			r.syncing[thread] = r.syncOf(rest)
		}
		if name == "write" && strings.Contains(rest, "<socket:") { // it is acknowledged when the write begins
			r.acknowledged(n, rest)
		}
		if begun, ok := strings.CutSuffix(rest, "<unfinished ...>"); ok {
			r.pending[thread] = name + "(" + strings.TrimRight(begun, " ")
			return
		}
	} else {
		return
	}
	d := r.d
	switch name {
	case "pwrite64":
		if m := writeCall.FindStringSubmatch(rest); m != nil && d.now[m[1]] != nil {
			off, _ := strconv.Atoi(m[4])
			d.now[m[1]].write(unquote(m[2]), off)
		}
	case "ftruncate":
		if m := fileCall.FindStringSubmatch(rest); m != nil && d.now[m[1]] != nil {
			size, _ := strconv.Atoi(m[2])
			d.now[m[1]].truncate(size)
		}
	case "openat":
		if m := openedFile.FindStringSubmatch(rest); m != nil && strings.HasPrefix(m[1], d.root) && d.now[m[1]] == nil {
			d.now[m[1]] = &cutFile{}
		}
	case "rename", "renameat", "renameat2":
		if m := renameCall.FindStringSubmatch(rest); m != nil && d.now[m[1]] != nil {
			d.now[m[2]] = d.now[m[1]]
			delete(d.now, m[1])
		}
	case "unlink", "unlinkat":
		if m := unlinkCall.FindStringSubmatch(rest); m != nil {
			delete(d.now, m[1])
		}
	case "fsync", "fdatasync":
		if sync := r.syncing[thread]; sync != nil && fileCall.MatchString(rest) {
			sync()
		}
		delete(r.syncing, thread)
	}
}

// syncOf gives what a sync that begins now will have put on disk.
func (r *cutReader) syncOf(args string) func() {
	_, path, _ := strings.Cut(args, "<")
	path, _, _ = strings.Cut(path, ">")
	if f := r.d.now[path]; f != nil {
		data := bytes.Clone(f.now)
		return func() { f.durable = data }
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() && strings.HasPrefix(path, r.d.root) {
		names := map[string]*cutFile{}
		for name, f := range r.d.now {
			if filepath.Dir(name) == path {
				names[name] = f
			}
		}
		return func() {
			for name := range r.d.durable {
				if filepath.Dir(name) == path {
					delete(r.d.durable, name)
				}
			}
			for name, f := range names {
				r.d.durable[name] = f
			}
		}
	}
	return nil
}

func (r *cutReader) acknowledged(n int, args string) {
	text := string(unquote(args))
	if strings.Contains(text, "250 2.0.0 OK: queued as") {
		for _, m := range queuedAs.FindAllStringSubmatch(text, -1) {
			r.acked(m[1], n)
		}
	}
	if strings.Contains(text, "HTTP/1.1 200") {
		if m := answeredID.FindStringSubmatch(text); m != nil {
			r.acked(m[1], n)
		}
	}
}

func (f *cutFile) write(data []byte, off int) {
	if need := off + len(data); need > len(f.now) {
		f.now = append(f.now, make([]byte, need-len(f.now))...)
	}
	copy(f.now[off:], data)
}

func (f *cutFile) truncate(size int) {
	if size > len(f.now) {
		f.now = append(f.now, make([]byte, size-len(f.now))...)
	}
	f.now = f.now[:size]
}

// unquote reads a text as strace writes it.
func unquote(s string) []byte {
	out := make([]byte, 0, len(s)/2)
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			out = append(out, s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case 'x':
			b, _ := hex.DecodeString(s[i+1 : min(i+3, len(s))])
			out = append(out, b...)
			i += 2
		case 'n', 'r', 't', 'v', 'f':
			out = append(out, map[byte]byte{'n': '\n', 'r': '\r', 't': '\t', 'v': '\v', 'f': '\f'}[c])
		case '0', '1', '2', '3', '4', '5', '6', '7':
			end := i + 1
			for end < len(s) && end < i+3 && s[end] >= '0' && s[end] <= '7' {
				end++
			}
			v, _ := strconv.ParseUint(s[i:end], 8, 8)
			out = append(out, byte(v))
			i = end - 1
		default:
			out = append(out, c)
		}
	}
	return out
}

// TestPowerCut loses everything that was not synced, at random points under load in and out:
// nothing that was acknowledged is lost, and the store is whole. make soak-powercut cuts at 200
// points.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	cuts, lasts := rig.NumberFrom(t, "MAILSTEAD_CUTS", 2), time.Second
	if cuts > 2 {
		lasts = 2 * time.Second
	}
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("MAILSTEAD_SEED"), "1"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	strace := rig.Peer(t, "strace")
	i, box := rig.StartWithMailbox(t)
	i.Stop()
	base := t.TempDir()
	if err := os.CopyFS(base, os.DirFS(i.Dir)); err != nil {
		t.Fatal(err)
	}
	trace := filepath.Join(t.TempDir(), "trace")
	i.Wrapper = []string{strace, "-f", "--seccomp-bpf", "-y", "-x", "-s", "8000000", "-o", trace,
		"-e", "trace=openat,pwrite64,write,ftruncate,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat"}
	i.Start()

	// Mail comes in on four connections, and goes out by the API.
	var mu sync.Mutex
	subjects, recipients := map[string]string{}, map[string]string{} // by the id that was acknowledged
	end := time.Now().Add(lasts)
	const leastIn, leastOut = 20, 3
	goesOn := func() bool { // longer where the machine is busy
		mu.Lock()
		defer mu.Unlock()
		late := time.Since(end)
		return late < 0 || late < time.Minute && (len(subjects) < leastIn || len(recipients) < leastOut)
	}
	var load sync.WaitGroup
	for conn := range 4 {
		c := rig.TalkTo(t, i.Ready.SMTP)
		load.Go(func() {
			for n := 0; goesOn(); n++ {
				subject := fmt.Sprintf("m%d-%d", conn, n)
				c.Say("MAIL FROM:<bob@elsewhere.test>")
				c.Say("RCPT TO:<ann@example.test>")
				c.Say("DATA")
				code, text := c.Say(bulk(subject, 200+n%9*1000) + ".")
				if m := queuedAs.FindStringSubmatch(text); code == 250 && m != nil {
					mu.Lock()
					subjects[m[1]] = subject
					mu.Unlock()
				}
				time.Sleep(time.Duration(n%20) * time.Millisecond) // commits of different sizes
			}
		})
	}
	for n := 0; goesOn(); n++ {
		var out struct {
			MessageID string `json:"message_id"`
		}
		to := fmt.Sprintf("r%d@far.test", n)
		if i.Do("POST", "/v1/email-users/"+box+"/inbox/send", map[string]any{"to": to, "subject": "s", "text": "t"}, &out) == 200 {
			mu.Lock()
			recipients[out.MessageID] = to
			mu.Unlock()
		}
		time.Sleep(20 * time.Millisecond) // the pace of this load
	}
	load.Wait()
	time.Sleep(200 * time.Millisecond) // the first attempts to deliver are in the trace too
	i.Stop()
	i.Wrapper = nil

	lines := 0
	eachLine(t, trace, func(int, string) { lines++ })
	rnd := rand.New(rand.NewPCG(seed, 5))
	at := map[int]bool{}
	for len(at) < cuts {
		at[rnd.IntN(lines)] = true
	}
	acked := map[string]bool{}
	r := &cutReader{d: newCutDisk(t, i.Dir, base), pending: map[string]string{}, syncing: map[string]func(){}, acked: func(id string, _ int) { acked[id] = true }}
	most := 0
	eachLine(t, trace, func(n int, line string) {
		r.line(n, line)
		if !at[n] {
			return
		}
		dir := t.TempDir()
		r.d.after(t, dir)
		j := rig.StartExisting(t, dir, i.Token)
		have, sent := map[string]int{}, map[string]bool{}
		for _, row := range j.Inbox(box) {
			have[row.Subject]++
		}
		for _, to := range recipientsOfLog(j) {
			sent[to] = true
		}
		for id := range acked {
			if subject := subjects[id]; subject != "" && have[subject] != 1 {
				t.Errorf("seed %d, cut at line %d: %s (%s) was acknowledged and is there %d times", seed, n, subject, id, have[subject])
			}
			if to := recipients[id]; to != "" && !sent[to] {
				t.Errorf("seed %d, cut at line %d: the message to %s (%s) was acknowledged and is not there", seed, n, to, id)
			}
		}
		for subject, n := range have {
			if n > 1 {
				t.Errorf("seed %d: %s is there %d times", seed, subject, n)
			}
		}
		most = max(most, len(have)+len(sent))
		j.Check()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	t.Logf("seed %d: %d cuts in %d calls, %d messages in and %d out were acknowledged, up to %d seen after a cut", seed, cuts, lines, len(subjects), len(recipients), most)
	if len(acked) < len(subjects) || len(subjects) < leastIn || len(recipients) < leastOut {
		t.Errorf("%d acknowledgements are in the trace, of %d and %d", len(acked), len(subjects), len(recipients))
	}
}

// recipientsOfLog are those of all sent messages.
func recipientsOfLog(i *rig.Instance) (list []string) {
	i.T.Helper()
	for _, r := range i.SendingRows() {
		list = append(list, r.Recipient)
	}
	return list
}

func eachLine(t *testing.T, file string, fn func(n int, line string)) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<20)
	for n := 0; ; n++ {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		fn(n, line)
	}
}
