// Package once has a request with an Idempotency-Key carried out once: it keeps the answer, and
// gives it again. It does not know what was asked.
package once

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// KeptFor is how long the answer to a request with an Idempotency-Key is kept.
const KeptFor = 24 * time.Hour

// MostKept is the most bytes of an answer that is kept. Of a larger one is kept that there was
// one, so that the request is not carried out again.
const MostKept = 256 << 10

// Answer is a kept answer.
type Answer struct {
	Status                int
	ContentType, Location string
	Body                  []byte
	Omitted               bool // the body is too large to be kept
}

// SetHeaders sets the headers of the answer.
func (r *Answer) SetHeaders(h http.Header) {
	h.Set("Content-Type", r.ContentType)
	if r.Location != "" {
		h.Set("Location", r.Location)
	}
}

// ID names a request by token, method, path and key.
func ID(who core.Actor, method, path, key string) string {
	return core.TextHash(strings.Join([]string{who.TokenID, method, path, key}, "\x00"))
}

// A Request is one with an Idempotency-Key, which is to be done once however often it comes,
// over a crash too.
type Request struct {
	ID string // see ID
	// Answer gives the answer that the client gets when the operation answers out.
	Answer func(out any) (Answer, error)

	bodyHash string
	kept     atomic.Bool
}

// New makes a Request with this body.
func New(id string, body []byte, answer func(out any) (Answer, error)) *Request {
	sum := sha256.Sum256(body)
	return &Request{ID: id, Answer: answer, bodyHash: hex.EncodeToString(sum[:])}
}

type onceKey struct{}

// Context gives a context with which an operation knows of it.
func (o *Request) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, onceKey{}, o)
}

// Replay gives the kept answer to a request, nil if there is none. Another body under the same key
// is an error, and so is an answer that was too large to be kept.
func Replay(s *core.Core, o *Request) (*Answer, error) {
	var rec *store.Idempotency
	err := s.Store.View(func(tx *store.Tx) (err error) {
		rec, err = store.Idempotencies.Find(tx, o.ID)
		return err
	})
	if rec == nil || err != nil || s.Now().Sub(rec.CreatedAt) >= KeptFor {
		return nil, err
	}
	if rec.BodyHash != o.bodyHash {
		return nil, core.Errorf("idempotency_key_reused", "This Idempotency-Key was used with another body. Use a new key for a new request.")
	}
	if rec.Omitted {
		return nil, core.Errorf("answer_not_kept", "The first request with this Idempotency-Key was carried out (status %d), and is not carried out again. Its answer had more than %d KiB, and was not kept: list or get what it was about, or use a new key to ask again.", rec.Status, MostKept>>10)
	}
	plain, err := s.Keys.Open(store.ReplayPlace(o.ID), rec.Sealed)
	if err != nil {
		return nil, err
	}
	return &Answer{Status: rec.Status, ContentType: rec.ContentType, Location: rec.Location, Body: plain}, nil
}

// Keep keeps the answer, unless the operation has done that itself.
func Keep(s *core.Core, o *Request, r Answer) error {
	if o.kept.Load() {
		return nil
	}
	return s.Store.Update(func(tx *store.Tx) error { return put(s, tx, o, r) })
}

// KeepAnswer keeps an operation's answer for the Idempotency-Key of its request, if that has one,
// in the transaction that does what was asked for. Kept afterwards, it would be lost with a crash
// in between, and the operation be done again.
func KeepAnswer(ctx context.Context, s *core.Core, tx *store.Tx, out any) error {
	o, _ := ctx.Value(onceKey{}).(*Request)
	if o == nil {
		return nil
	}
	r, err := o.Answer(out)
	if err != nil {
		return err
	}
	tx.After(func() { o.kept.Store(true) })
	return put(s, tx, o, r)
}

// put writes an answer, sealed, since it may hold a secret.
func put(s *core.Core, tx *store.Tx, o *Request, r Answer) error {
	kept := &store.Idempotency{ID: o.ID, BodyHash: o.bodyHash, Status: r.Status, ContentType: r.ContentType, Location: r.Location, CreatedAt: tx.Now()}
	kept.Omitted = r.Omitted || len(r.Body) > MostKept
	if !kept.Omitted {
		kept.Sealed = s.Keys.Seal(store.ReplayPlace(o.ID), r.Body)
	}
	return store.Idempotencies.Put(tx, kept)
}
