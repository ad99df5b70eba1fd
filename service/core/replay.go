package core

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/store"
)

// ReplayFor is how long the answer to a request with an Idempotency-Key is kept.
const ReplayFor = 24 * time.Hour

// Replayed is a kept answer.
type Replayed struct {
	Status                int
	ContentType, Location string
	Body                  []byte
}

// WriteTo sets the answer's headers.
func (r *Replayed) WriteTo(h http.Header) {
	h.Set("Content-Type", r.ContentType)
	if r.Location != "" {
		h.Set("Location", r.Location)
	}
}

// ReplayID names a request by token, method, path and key.
func ReplayID(who Actor, method, path, key string) string {
	return TextHash(strings.Join([]string{who.TokenID, method, path, key}, "\x00"))
}

func TextHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// A Once is a request with an Idempotency-Key, which is to be done once however often it comes,
// over a crash too.
type Once struct {
	ID string // see ReplayID
	// Answer gives the answer that the client gets when the operation answers out.
	Answer func(out any) (Replayed, error)

	bodyHash string
	kept     atomic.Bool
}

// NewOnce makes a Once for a request with this body.
func NewOnce(id string, body []byte, answer func(out any) (Replayed, error)) *Once {
	sum := sha256.Sum256(body)
	return &Once{ID: id, Answer: answer, bodyHash: hex.EncodeToString(sum[:])}
}

type onceKey struct{}

// Context gives a context with which an operation knows of the Once.
func (o *Once) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, onceKey{}, o)
}

// Replay gives the kept answer to a request, nil if there is none. Another body under the same key
// is an error.
func (s *Core) Replay(o *Once) (*Replayed, error) {
	var rec *store.Idempotency
	err := s.Store.View(func(tx *store.Tx) (err error) {
		rec, err = store.Idempotencies.Find(tx, o.ID)
		return err
	})
	if rec == nil || err != nil || s.Now().Sub(rec.CreatedAt) >= ReplayFor {
		return nil, err
	}
	if rec.BodyHash != o.bodyHash {
		return nil, Errorf("idempotency_key_reused", "This Idempotency-Key came with another body before. Use a new key for a new request.")
	}
	plain, err := s.Keys.Open("replay "+o.ID, rec.Sealed)
	if err != nil {
		return nil, err
	}
	return &Replayed{Status: rec.Status, ContentType: rec.ContentType, Location: rec.Location, Body: plain}, nil
}

// KeepReplay keeps the answer, unless the operation has done that itself.
func (s *Core) KeepReplay(o *Once, r Replayed) error {
	if o.kept.Load() {
		return nil
	}
	return s.Store.Update(func(tx *store.Tx) error { return s.putReplay(tx, o, r) })
}

// KeepAnswer keeps an operation's answer for the Idempotency-Key of its request, if that has one,
// in the transaction that does what was asked for. Kept afterwards, it would be lost with a crash
// in between, and the operation be done again.
func (s *Core) KeepAnswer(ctx context.Context, tx *store.Tx, out any) error {
	o, _ := ctx.Value(onceKey{}).(*Once)
	if o == nil {
		return nil
	}
	r, err := o.Answer(out)
	if err != nil {
		return err
	}
	tx.After(func() { o.kept.Store(true) })
	return s.putReplay(tx, o, r)
}

// putReplay writes an answer, sealed, since it may hold a secret.
func (s *Core) putReplay(tx *store.Tx, o *Once, r Replayed) error {
	return store.Idempotencies.Put(tx, &store.Idempotency{
		ID: o.ID, BodyHash: o.bodyHash, Status: r.Status, ContentType: r.ContentType, Location: r.Location,
		Sealed: s.Keys.Seal("replay "+o.ID, r.Body), CreatedAt: tx.Now(),
	})
}
