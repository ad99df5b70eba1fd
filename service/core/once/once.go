// Package once makes sure that a request with an Idempotency-Key is carried out once: it stores the
// answer and returns it again. It does not know what was requested.
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

// AnswerTTL is how long the answer to a request with an Idempotency-Key is stored.
const AnswerTTL = 24 * time.Hour

// MaxStoredBody is the largest body of a stored answer, in bytes. For a larger answer only the
// status is stored, so that the request is not carried out again.
const MaxStoredBody = 256 << 10

// Answer is a stored answer.
type Answer struct {
	Status                int
	ContentType, Location string
	Body                  []byte
	Omitted               bool // the body was too large to be stored
}

// SetHeaders sets the headers of the answer.
func (r *Answer) SetHeaders(h http.Header) {
	h.Set("Content-Type", r.ContentType)
	if r.Location != "" {
		h.Set("Location", r.Location)
	}
}

// ID returns the id of a request: a hash of its token, method, path and key.
func ID(who core.Actor, method, path, key string) string {
	return core.TextHash(strings.Join([]string{who.TokenID, method, path, key}, "\x00"))
}

// A Request is a request with an Idempotency-Key. It is carried out once even if it is repeated,
// also after a crash.
type Request struct {
	ID string // as returned by ID
	// Answer converts the result of the operation to the answer that the client gets.
	Answer func(out any) (Answer, error)

	bodyHash string      // SHA-256 of the request's body, in hex
	stored   atomic.Bool // KeepAnswer has stored an answer
}

// New returns a Request with this body.
func New(id string, body []byte, answer func(out any) (Answer, error)) *Request {
	sum := sha256.Sum256(body)
	return &Request{ID: id, Answer: answer, bodyHash: hex.EncodeToString(sum[:])}
}

type requestKey struct{}

// Context returns a context that carries the Request to the operation.
func (o *Request) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, requestKey{}, o)
}

// Replay returns the stored answer to a request, nil if there is none. It returns an error if the
// key was used with another body, or if the answer was too large to be stored.
func Replay(s *core.Core, o *Request) (*Answer, error) {
	var rec *store.Idempotency
	err := s.Store.View(func(tx *store.Tx) (err error) {
		rec, err = store.Idempotencies.Find(tx, o.ID)
		return err
	})
	if rec == nil || err != nil || s.Now().Sub(rec.CreatedAt) >= AnswerTTL {
		return nil, err
	}
	if rec.BodyHash != o.bodyHash {
		return nil, core.Errorf("idempotency_key_reused", "This Idempotency-Key was used with another body. Use a new key for a new request.")
	}
	if rec.Omitted {
		return nil, core.Errorf("answer_not_kept", "The first request with this Idempotency-Key was carried out (status %d), and is not carried out again. Its answer had more than %d KiB, and was not kept: list or get what it was about, or use a new key to ask again.", rec.Status, MaxStoredBody>>10)
	}
	plain, err := s.Keys.Open(store.ReplayBinding(o.ID), rec.Sealed)
	if err != nil {
		return nil, err
	}
	return &Answer{Status: rec.Status, ContentType: rec.ContentType, Location: rec.Location, Body: plain}, nil
}

// KeepIfUnstored stores the answer to a request, unless KeepAnswer has already stored one.
func KeepIfUnstored(s *core.Core, o *Request, r Answer) error {
	if o.stored.Load() {
		return nil
	}
	return s.Store.Update(func(tx *store.Tx) error { return put(s, tx, o, r) })
}

// KeepAnswer stores an operation's answer if its request has an Idempotency-Key. It is called in
// the transaction that carries out the operation: an answer that is stored later could be lost in a
// crash, and the operation would be repeated.
func KeepAnswer(ctx context.Context, s *core.Core, tx *store.Tx, out any) error {
	o, _ := ctx.Value(requestKey{}).(*Request)
	if o == nil {
		return nil
	}
	r, err := o.Answer(out)
	if err != nil {
		return err
	}
	tx.After(func() { o.stored.Store(true) })
	return put(s, tx, o, r)
}

// put writes an answer. It seals the body, which may contain a secret.
func put(s *core.Core, tx *store.Tx, o *Request, r Answer) error {
	kept := &store.Idempotency{ID: o.ID, BodyHash: o.bodyHash, Status: r.Status, ContentType: r.ContentType, Location: r.Location, CreatedAt: tx.Now()}
	kept.Omitted = r.Omitted || len(r.Body) > MaxStoredBody
	if !kept.Omitted {
		kept.Sealed = s.Keys.Seal(store.ReplayBinding(o.ID), r.Body)
	}
	return store.Idempotencies.Put(tx, kept)
}
