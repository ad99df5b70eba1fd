package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Kinds of sinks. Each runs in a separate process, so that its processor time can be measured.
const (
	sinkNull  = "null"      // SMTP: discards every message
	sinkLog   = "log"       // SMTP: answers 250 after the message is in a synced log; one sync serves all waiting messages
	sinkBolt  = "log+bolt"  // SMTP: like log, and then writes a row for each message to bbolt
	sinkRelay = "relay"     // SMTP: discards every message, and answers after a delay
	sinkSign  = "RSA alone" // SMTP: signs every message and passes it on
	sinkHTTP  = "net/http"  // HTTP: checks a token, and answers with a file
	sinkHooks = "hooks"     // HTTPS: receives webhooks and counts them
)

// A sinkReady is the file that a sink writes once it listens.
type sinkReady struct {
	Addr string `json:"addr"`
}

// sink starts a sink with its data in a new directory.
func (b *bench) sink(kind string, args ...string) (p *process, addr string, err error) {
	dir, err := os.MkdirTemp(b.dir, "sink-")
	if err != nil {
		return nil, "", err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	p, err = b.start(dir, self, append([]string{"sink", "-dir", dir, "-kind", kind}, args...)...)
	if err != nil {
		return nil, "", err
	}
	var ready sinkReady
	if err := waitFile(filepath.Join(dir, "ready.json"), p, &ready); err != nil {
		p.stop()
		return nil, "", err
	}
	p.scratch = dir
	return p, ready.Addr, nil
}

// runSink is the main function of a sink's process. It ends with SIGTERM.
func runSink(args []string) error {
	flags := flag.NewFlagSet("sink", flag.ExitOnError)
	kind := flags.String("kind", sinkNull, "")
	dir := flags.String("dir", ".", "")
	file := flags.String("file", "", "")
	token := flags.String("token", "", "")
	delay := flags.Duration("delay", 0, "")
	relay := flags.String("relay", "", "")
	cert := flags.String("cert", "", "")
	key := flags.String("key", "", "")
	addresses := flags.Int("addresses", 1, "") // 127.0.0.1 and the addresses after it
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var listeners []net.Listener
	var err error
	for range 10 { // the port may be taken at one of the addresses
		listeners, err = listenAt(*addresses)
		if err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	l := listeners[0]
	switch *kind {
	case sinkHTTP:
		text, err := os.ReadFile(*file)
		if err != nil {
			return err
		}
		go func() { _ = http.Serve(l, bareAPI(text, *token)) }()
	case sinkHooks:
		s := &hookSink{seen: map[string]bool{}}
		for _, l := range listeners {
			go func() { _ = http.ServeTLS(l, s, *cert, *key) }()
		}
	default:
		s := &smtpSink{delay: *delay}
		if *kind == sinkLog || *kind == sinkBolt {
			s.store, err = newSinkStore(*dir, *kind == sinkBolt)
			if err != nil {
				return err
			}
			go s.store.run()
		}
		if *kind == sinkSign {
			s.onward, err = newSigningSink(*relay)
			if err != nil {
				return err
			}
		}
		for _, l := range listeners {
			go s.listen(l)
		}
	}
	text, err := json.Marshal(sinkReady{l.Addr().String()})
	if err != nil {
		return err
	}
	tmp := filepath.Join(*dir, "ready.tmp")
	if err := errors.Join(os.WriteFile(tmp, text, 0o600), os.Rename(tmp, filepath.Join(*dir, "ready.json"))); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// listenAt listens on consecutive loopback addresses, at the same port of each.
func listenAt(addresses int) (list []net.Listener, err error) {
	port := "0"
	for n := range addresses {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.%d:%s", n+1, port))
		if err != nil {
			for _, l := range list {
				l.Close()
			}
			return nil, err
		}
		list = append(list, l)
		_, port, _ = net.SplitHostPort(l.Addr().String())
	}
	return list, nil
}

// bareAPI answers every GET with the right token with the same JSON.
func bareAPI(text []byte, token string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	})
}

// An smtpSink accepts every message. It answers NOOP with the counts of messages and of their DKIM
// signatures.
type smtpSink struct {
	store      *sinkStore    // nil: messages are discarded
	onward     *signingSink  // nil: messages are not passed on
	delay      time.Duration // of the answer to a message
	taken      atomic.Int64
	signatures atomic.Int64
}

func (s *smtpSink) listen(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go s.serve(c)
	}
}

func (s *smtpSink) serve(c net.Conn) {
	defer c.Close()
	r, w := bufio.NewReaderSize(c, 64<<10), bufio.NewWriter(c)
	reply := func(text string) bool {
		_, _ = w.WriteString(text + "\r\n")
		return r.Buffered() > 0 || w.Flush() == nil // answer pipelined commands with one write
	}
	ok := reply("220 sink ESMTP")
	var body []byte
	var mail sinkMail
	for ok {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		switch verb, _, _ := strings.Cut(strings.ToUpper(strings.TrimSpace(string(line))), " "); verb {
		case "EHLO":
			ok = reply("250-sink\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250 SIZE 100000000")
		case "NOOP":
			ok = reply(fmt.Sprintf("250 %d %d", s.taken.Load(), s.signatures.Load()))
		case "AUTH":
			ok = reply("235 ok")
		case "MAIL":
			mail.from = inBrackets(line)
			ok = reply("250 ok")
		case "RCPT":
			mail.to = inBrackets(line)
			ok = reply("250 ok")
		case "QUIT":
			reply("221 bye")
			return
		case "DATA":
			if !reply("354 go on") || w.Flush() != nil {
				return
			}
			body, err = readBody(r, body[:0])
			if err != nil {
				return
			}
			if s.store != nil {
				if err := s.store.add(body); err != nil {
					ok = reply("451 " + err.Error())
					continue
				}
			}
			if s.onward != nil {
				mail.body, body = body, nil
				s.onward.waiting <- mail
			}
			s.signatures.Add(int64(bytes.Count(body, []byte("DKIM-Signature:"))))
			time.Sleep(s.delay)
			ok = reply(fmt.Sprintf("250 Ok id-%d", s.taken.Add(1)))
		default:
			ok = reply("250 ok")
		}
	}
}

func inBrackets(line []byte) string {
	_, text, _ := strings.Cut(string(line), "<")
	text, _, _ = strings.Cut(text, ">")
	return text
}

// readBody reads up to the line with a single dot.
func readBody(r *bufio.Reader, body []byte) ([]byte, error) {
	for whole := true; ; {
		part, err := r.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		if whole && string(part) == ".\r\n" {
			return body, nil
		}
		body = append(body, part...)
		whole = err == nil
	}
}

// A sinkStore is the simplest durable store of messages: a log, and rows. One sync serves all
// waiting messages.
type sinkStore struct {
	log     *os.File
	db      *bolt.DB // nil: only the log
	written int64
	rows    uint64
	waiting chan sinkWrite
}

type sinkWrite struct {
	body []byte
	done chan error
}

func newSinkStore(dir string, withRows bool) (s *sinkStore, err error) {
	s = &sinkStore{waiting: make(chan sinkWrite, 1024)}
	s.log, err = os.Create(filepath.Join(dir, "messages"))
	if err != nil || !withRows {
		return s, err
	}
	o := &bolt.Options{NoFreelistSync: true, FreelistType: bolt.FreelistMapType, InitialMmapSize: 1 << 30}
	s.db, err = bolt.Open(filepath.Join(dir, "rows.db"), 0o600, o)
	if err != nil {
		return nil, err
	}
	return s, s.db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket([]byte("rows"))
		return err
	})
}

func (s *sinkStore) add(body []byte) error {
	w := sinkWrite{body, make(chan error, 1)}
	s.waiting <- w
	return <-w.done
}

func (s *sinkStore) run() {
	var batch []sinkWrite
	for first := range s.waiting {
		batch = append(batch[:0], first)
		for more := true; more; {
			select {
			case w := <-s.waiting:
				batch = append(batch, w)
			default:
				more = false
			}
		}
		err := s.write(batch)
		for _, w := range batch {
			w.done <- err
		}
	}
}

func (s *sinkStore) write(batch []sinkWrite) error {
	at := make([]int64, len(batch))
	for i, w := range batch {
		at[i] = s.written
		n, err := s.log.Write(w.body)
		s.written += int64(n)
		if err != nil {
			return err
		}
	}
	if err := syscall.Fdatasync(int(s.log.Fd())); err != nil || s.db == nil {
		return err
	}
	return s.db.Update(func(tx *bolt.Tx) error {
		rows := tx.Bucket([]byte("rows"))
		rows.FillPercent = 0.9
		for _, offset := range at {
			s.rows++
			var value [200]byte // the size of a message's row in the program
			binary.BigEndian.PutUint64(value[:], uint64(offset))
			if err := rows.Put(binary.BigEndian.AppendUint64(nil, s.rows), value[:]); err != nil {
				return err
			}
		}
		return nil
	})
}
