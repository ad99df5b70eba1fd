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

// Kinds of sinks. A sink runs in a process of its own, so that its processor time can be measured.
const (
	sinkNull  = "null"      // an SMTP server that discards every message
	sinkLog   = "log"       // an SMTP server that appends messages to a log and syncs it (see sinkStore)
	sinkBolt  = "log+bolt"  // the same, and it writes a row for each message to bbolt
	sinkRelay = "relay"     // an SMTP server that discards every message, and answers after a delay
	sinkSign  = "RSA alone" // an SMTP server that signs every message and sends it to a relay
	sinkHTTP  = "net/http"  // an HTTP server that checks a token, and answers with a file
	sinkHooks = "hooks"     // an HTTPS server that receives and counts webhooks
)

// A sinkReady is the content of the file that a sink writes when it listens.
type sinkReady struct {
	Addr string `json:"addr"`
}

// startSink starts the process of a sink, with a new directory for its data, and returns its
// address.
func (b *bench) startSink(kind string, args ...string) (p *process, addr string, err error) {
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
	if err := waitForReadyFile(filepath.Join(dir, "ready.json"), p, &ready); err != nil {
		p.stop()
		return nil, "", err
	}
	p.scratch = dir
	return p, ready.Addr, nil
}

// runSink is the main function of the process of a sink. It returns after SIGTERM.
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
	addresses := flags.Int("addresses", 1, "") // number of loopback addresses, from 127.0.0.1
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var listeners []net.Listener
	var err error
	for range 10 { // the port may be in use at one of the addresses
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
		go func() { _ = http.Serve(l, fixedAPI(text, *token)) }()
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
			s.signer, err = newSigningSink(*relay)
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

// listenAt listens on a number of loopback addresses, from 127.0.0.1, with the same port on each.
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

// fixedAPI returns a handler that answers every request with the same JSON, or with 401 if the
// token is wrong.
func fixedAPI(text []byte, token string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	})
}

// An smtpSink is an SMTP server that accepts every message. It answers NOOP with the numbers of
// messages and of their DKIM signatures.
type smtpSink struct {
	store      *sinkStore    // stores the messages; nil to discard them
	signer     *signingSink  // signs and sends the messages; nil for neither
	delay      time.Duration // wait before the answer to a message
	accepted   atomic.Int64  // number of messages
	signatures atomic.Int64  // number of DKIM signatures
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
		return r.Buffered() > 0 || w.Flush() == nil // write the replies to pipelined commands at once
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
			ok = reply(fmt.Sprintf("250 %d %d", s.accepted.Load(), s.signatures.Load()))
		case "AUTH":
			ok = reply("235 ok")
		case "MAIL":
			mail.from = addressInBrackets(line)
			ok = reply("250 ok")
		case "RCPT":
			mail.to = addressInBrackets(line)
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
			if s.signer != nil {
				mail.body, body = body, nil
				s.signer.waiting <- mail
			}
			s.signatures.Add(int64(bytes.Count(body, []byte("DKIM-Signature:"))))
			time.Sleep(s.delay)
			ok = reply(fmt.Sprintf("250 Ok id-%d", s.accepted.Add(1)))
		default:
			ok = reply("250 ok")
		}
	}
}

// addressInBrackets returns the address between < and > in a command.
func addressInBrackets(line []byte) string {
	_, text, _ := strings.Cut(string(line), "<")
	text, _, _ = strings.Cut(text, ">")
	return text
}

// readBody appends the message up to the line with a single dot to body.
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

// A sinkStore is a minimal durable store of messages: a log, and optionally a database with a row
// for each message. It writes and syncs all waiting messages together.
type sinkStore struct {
	log     *os.File
	db      *bolt.DB       // nil for no rows
	written int64          // size of the log in bytes
	rows    uint64         // number of rows
	waiting chan sinkWrite // messages to store
}

// A sinkWrite is a message to store.
type sinkWrite struct {
	body []byte
	done chan error // gets the result
}

// newSinkStore creates a store in dir. withRows adds the database.
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

// add stores a message, and returns when the message is synced.
func (s *sinkStore) add(body []byte) error {
	w := sinkWrite{body, make(chan error, 1)}
	s.waiting <- w
	return <-w.done
}

// run stores waiting messages.
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

// write writes a batch of messages to the log, syncs it, and writes their rows.
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
			var value [200]byte // as large as the row of a message in Mailstead
			binary.BigEndian.PutUint64(value[:], uint64(offset))
			if err := rows.Put(binary.BigEndian.AppendUint64(nil, s.rows), value[:]); err != nil {
				return err
			}
		}
		return nil
	})
}
