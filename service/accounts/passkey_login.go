package accounts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	fido "github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// assertion gives what an authenticator is asked to sign in with, with a challenge of the caller's.
// Which user it is for it says itself, so that nothing tells who has passkeys here.
func assertion(rp *webauthn.WebAuthn, challenge []byte) (*fido.CredentialAssertion, *webauthn.SessionData, error) {
	return rp.BeginDiscoverableLogin(func(o *fido.PublicKeyCredentialRequestOptions) error {
		o.Challenge = challenge
		return nil
	})
}

// OfferPasskey gives the options with which a browser signs in (navigator.credentials.get).
func (s *Service) OfferPasskey(_ context.Context, origin string) (*fido.CredentialAssertion, error) {
	rp, err := s.relyingParty(origin)
	if err != nil {
		return nil, err
	}
	options, _, err := assertion(rp, s.challenge("get", rp.Config.RPID))
	if err != nil {
		return nil, fmt.Errorf("ask for a passkey: %w", err)
	}
	return options, nil
}

// UsePasskeyIn is what a browser made of those options (PublicKeyCredential.toJSON).
type UsePasskeyIn struct {
	Credential json.RawMessage `json:"credential" required:"true"`
}

// UsePasskey begins the session of the user whose passkey it is: 401 invalid_credentials where it
// does not fit, was made for another site, or was sent before. It needs no second factor, being
// two.
func (s *Service) UsePasskey(ctx context.Context, v Visitor, origin string, in UsePasskeyIn) (*SignedIn, error) {
	rp, err := s.relyingParty(origin)
	if err != nil {
		return nil, err
	}
	parsed, err := fido.ParseCredentialRequestResponseBytes(in.Credential)
	if err != nil {
		return nil, badPasskey(err)
	}
	text := parsed.Response.CollectedClientData.Challenge
	challenge, err := s.checkChallenge(text, "get", rp.Config.RPID)
	if err != nil {
		return nil, err
	}
	done, err := s.LoginAttempts.Locks.Lock(ctx, "passkey "+text)
	if err != nil {
		return nil, err
	}
	defer done()
	if s.usedChallenges.Count(text, s.Now()) > 0 {
		return nil, badPasskey(errors.New("the challenge was used already"))
	}
	_, session, err := assertion(rp, challenge)
	if err != nil {
		return nil, fmt.Errorf("ask for a passkey: %w", err)
	}
	out, err := s.startPasskeySession(rp, session, parsed, v)
	if err != nil {
		return nil, err
	}
	s.usedChallenges.Add(text, s.Now())
	s.Log.Info("signed in", "user", out.UserID, "ip", v.IP, "how", "passkey")
	return out, nil
}

// startPasskeySession verifies what was signed by the record as it is, notes the passkey's use, and
// begins the session.
func (s *Service) startPasskeySession(rp *webauthn.WebAuthn, session *webauthn.SessionData, parsed *fido.ParsedCredentialAssertionData, v Visitor) (out *SignedIn, err error) {
	err = s.Store.Update(func(tx *store.Tx) error {
		u, err := store.Users.Get(tx, string(parsed.Response.UserHandle))
		if errors.Is(err, store.ErrNotFound) {
			return badPasskey(err)
		}
		if err == nil {
			err = core.NotSuspended(tx, u)
		}
		if err != nil {
			return err
		}
		if err := verifyPasskey(tx, rp, session, parsed, u); err != nil {
			return err
		}
		out, err = s.openSession(tx, u, v)
		return err
	})
	return out, err
}

// verifyPasskey verifies one signature. The user must be put after it.
func verifyPasskey(tx *store.Tx, rp *webauthn.WebAuthn, session *webauthn.SessionData, parsed *fido.ParsedCredentialAssertionData, u *store.User) error {
	owner, err := newPasskeyUser(u)
	if err != nil {
		return err
	}
	used, err := rp.ValidateDiscoverableLogin(func(_, _ []byte) (webauthn.User, error) { return owner, nil }, *session, parsed)
	if err != nil {
		return badPasskey(err)
	}
	if used.Authenticator.CloneWarning {
		return badPasskey(errors.New("the passkey has been copied: it counts backwards"))
	}
	for i, c := range owner.credentials {
		if string(c.ID) != string(used.ID) {
			continue
		}
		if u.Passkeys[i].Credential, err = json.Marshal(used); err != nil {
			return fmt.Errorf("write passkey %s: %w", u.Passkeys[i].ID, err)
		}
		u.Passkeys[i].LastUsedAt = tx.Now()
	}
	return nil
}
