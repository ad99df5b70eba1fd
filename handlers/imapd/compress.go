package imapd

import (
	"bufio"
	"strings"

	"github.com/mailstead/mailstead/handlers/imapd/deflate"
)

// compress answers COMPRESS (RFC 4978).
func (ss *session) compress(tag string, p *commandEditor) error {
	switch {
	case len(p.tokens) != 3 || p.word(2) != "DEFLATE":
		return badCommand("Only DEFLATE is supported")
	case ss.conn.compressed():
		return refusal("COMPRESSIONACTIVE", "The connection is compressed already")
	case !ss.server.acquireCompression():
		return refusal("LIMIT", "Too many connections are compressed")
	}
	ss.compressed = true
	ss.conn.setCaps(strings.ReplaceAll(capsAfterLogin, " COMPRESS=DEFLATE", ""))
	if err := ss.conn.compress(ss.server.pool, tag+" OK COMPRESS completed"); err != nil {
		ss.conn.ending = err
	}
	return nil
}

// compress compresses both directions of the connection after the answer. Decompressed input has
// the same limits as other input: on lines, literals and time.
func (w *protocolConn) compress(pool *deflate.Pool, answer string) error {
	w.writeReply("%s", answer)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.flushLocked(); err != nil {
		return err
	}
	w.pool = pool
	w.in = bufio.NewReaderSize(deflate.NewReader(w.in), 4096)
	return nil
}

func (w *protocolConn) compressed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pool != nil
}
