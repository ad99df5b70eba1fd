package service

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/mailstead/mailstead/store"
)

// replayFor is how long the answer to a request with an Idempotency-Key is kept.
const replayFor = 24 * time.Hour

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
	return textHash(strings.Join([]string{who.TokenID, method, path, key}, "\x00"))
}

func textHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// Replay gives the kept answer to a request, nil if there is none. Another body under the same key is an error.
func (s *Service) Replay(id string, body []byte) (*Replayed, error) {
	var rec *store.Idempotency
	err := s.Store.View(func(tx *store.Tx) (err error) {
		rec, err = store.Idempotencies.Get(tx, id)
		return err
	})
	if errors.Is(err, store.ErrNotFound) || err == nil && s.now().Sub(rec.CreatedAt) >= replayFor {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if rec.BodyHash != textHash(string(body)) {
		return nil, Errorf(422, "idempotency_key_reused", "This Idempotency-Key came with another body before. Use a new key for a new request.")
	}
	plain, err := s.keys.Open("replay "+id, rec.Sealed)
	if err != nil {
		return nil, err
	}
	return &Replayed{Status: rec.Status, ContentType: rec.ContentType, Location: rec.Location, Body: plain}, nil
}

// KeepReplay keeps the answer, sealed, since it may hold a secret.
func (s *Service) KeepReplay(id string, body []byte, r Replayed) error {
	rec := &store.Idempotency{
		ID: id, BodyHash: textHash(string(body)), Status: r.Status, ContentType: r.ContentType, Location: r.Location,
		Sealed: s.keys.Seal("replay "+id, r.Body), CreatedAt: s.now(),
	}
	return s.Store.Update(func(tx *store.Tx) error { return store.Idempotencies.Put(tx, rec) })
}
