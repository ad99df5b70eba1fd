package outbound

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	maxSignatures = 256
	maxOpenedKeys = 1024

	keyLogInterval = time.Minute // between two lines of the log about the keys of one domain
)

// A signer makes DKIM signatures for domains. It caches the newest signatures, since a message to
// many recipients has the same for each, and the opened keys.
type signer struct {
	keys  *core.Keys
	slots chan struct{} // held while signing: an RSA signature occupies a core for a millisecond, and the store needs a core too

	mu         sync.Mutex
	opened     map[string]openedKeys // by domain ID
	loggedAt   map[string]time.Time  // when unusable keys of a domain were last logged, by domain ID
	signatures map[signatureID]*signature
	order      []signatureID // keys of signatures, oldest first
}

type openedKeys struct {
	sealed [sha256.Size]byte // digest of the sealed keys
	keys   []auth.Key
}

type signatureID struct {
	submission    string
	omitMessageID bool
}

// A signature has the DKIM-Signature fields of one message. The first caller makes them; others
// wait for it.
type signature struct {
	once   sync.Once
	fields []byte
	err    error
}

func newSigner(keys *core.Keys) *signer {
	return &signer{keys: keys, slots: make(chan struct{}, runtime.GOMAXPROCS(0)), opened: map[string]openedKeys{}, loggedAt: map[string]time.Time{}, signatures: map[signatureID]*signature{}}
}

// sign returns the DKIM-Signature fields for a submission's message; none if the domain has no keys
// or the message cannot be signed. omitMessageID excludes the Message-ID from the signature.
func (s *signer) sign(d *store.Domain, submission string, message io.Reader, omitMessageID bool) ([]byte, error) {
	if d == nil || len(d.DKIM) == 0 {
		return nil, nil
	}
	id := signatureID{submission, omitMessageID}
	sig := s.signature(id)
	sig.once.Do(func() { sig.fields, sig.err = s.makeSignatureFields(d, message, omitMessageID) })
	if sig.err != nil {
		s.forgetSignature(id)
	}
	return sig.fields, sig.err
}

func (s *signer) signature(id signatureID) *signature {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sig := s.signatures[id]; sig != nil {
		return sig
	}
	if len(s.order) == maxSignatures {
		delete(s.signatures, s.order[0])
		s.order = append(s.order[:0], s.order[1:]...)
	}
	sig := &signature{}
	s.signatures[id] = sig
	s.order = append(s.order, id)
	return sig
}

func (s *signer) forgetSignature(id signatureID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.signatures, id)
}

func (s *signer) makeSignatureFields(d *store.Domain, message io.Reader, omitMessageID bool) ([]byte, error) {
	keys, err := s.openKeys(d)
	if err != nil {
		return nil, err
	}
	s.slots <- struct{}{}
	defer func() { <-s.slots }()
	fields, err := auth.Sign(message, auth.SignOptions{Keys: keys, OmitMessageID: omitMessageID})
	if errors.Is(err, auth.ErrUnsignable) {
		return nil, nil
	}
	return fields, err
}

// seal returns the ARC set for a message that a domain forwards. It returns none if the domain has
// no RSA key, or if the message cannot be sealed, for example because its chain was broken on
// arrival.
func (s *signer) seal(d *store.Domain, message io.Reader, o auth.SealOptions) ([]byte, error) {
	if d == nil || len(d.DKIM) == 0 {
		return nil, nil
	}
	keys, err := s.openKeys(d)
	if err != nil {
		return nil, err
	}
	o.Key = keys[0]
	s.slots <- struct{}{}
	defer func() { <-s.slots }()
	fields, err := auth.Seal(message, o)
	if errors.Is(err, auth.ErrUnsealable) || errors.Is(err, auth.ErrKey) {
		return nil, nil
	}
	return fields, err
}

// mayLog reports whether unusable keys of a domain may be logged again.
func (s *signer) mayLog(domain string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.loggedAt[domain]) < keyLogInterval {
		return false
	}
	if len(s.loggedAt) >= maxOpenedKeys {
		clear(s.loggedAt)
	}
	s.loggedAt[domain] = now
	return true
}

// openKeys returns the domain's private keys, RSA first.
func (s *signer) openKeys(d *store.Domain) ([]auth.Key, error) {
	sum := sha256.New()
	for _, k := range d.DKIM {
		fmt.Fprintf(sum, "%d:%s%d:%s", len(k.Selector), k.Selector, len(k.Sealed), k.Sealed)
	}
	sealed := [sha256.Size]byte(sum.Sum(nil))
	s.mu.Lock()
	have, ok := s.opened[d.ID]
	s.mu.Unlock()
	if ok && have.sealed == sealed {
		return have.keys, nil
	}
	have = openedKeys{sealed: sealed}
	for _, k := range d.DKIM {
		text, err := s.keys.Open(store.DKIMBinding(d.ID), k.Sealed)
		if err != nil {
			return nil, err
		}
		key, err := auth.ParseKey(text)
		if err != nil {
			return nil, fmt.Errorf("parse DKIM key %s of %s: %w", k.Selector, d.Name, err)
		}
		have.keys = append(have.keys, auth.Key{Domain: d.Name, Selector: k.Selector, Signer: key})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.opened) >= maxOpenedKeys {
		clear(s.opened)
	}
	s.opened[d.ID] = have
	return have.keys, nil
}
