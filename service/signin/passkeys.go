package signin

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	fido "github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Limits of passkeys (WebAuthn level 3).
const (
	maxPasskeys         = 20      // passkeys of one user
	maxPasskeyBytes     = 8 << 10 // bytes of one stored passkey
	challengeLife       = 5 * time.Minute
	challengeNonceBytes = 16
)

// A passkeyUser adapts a user to the WebAuthn library.
type passkeyUser struct {
	*store.User
	credentials []webauthn.Credential
}

func (u passkeyUser) WebAuthnID() []byte { return []byte(u.ID) }

func (u passkeyUser) WebAuthnName() string { return u.Email }

func (u passkeyUser) WebAuthnDisplayName() string { return accounts.DisplayName(u.User) }

func (u passkeyUser) WebAuthnCredentials() []webauthn.Credential { return u.credentials }

func newPasskeyUser(u *store.User) (passkeyUser, error) {
	out := passkeyUser{User: u}
	for _, p := range u.Passkeys {
		var c webauthn.Credential
		if err := json.Unmarshal(p.Credential, &c); err != nil {
			return out, fmt.Errorf("read passkey %s: %w", p.ID, err)
		}
		out.credentials = append(out.credentials, c)
	}
	return out, nil
}

// relyingParty returns the identity that the server has for authenticators: in production the
// configured host, in a sandbox the host name in origin, since a sandbox is reached under several
// names. Browsers accept only names, no IP addresses.
func (s *Service) relyingParty(origin string) (*webauthn.WebAuthn, error) {
	id := s.Hostname()
	if s.Config.Sandbox {
		u, err := url.Parse(origin)
		if err != nil {
			return nil, errPasskeysUnavailable("under this address")
		}
		id = u.Hostname()
		if _, err := netip.ParseAddr(id); err == nil {
			return nil, errPasskeysUnavailable("at a numeric address; open the dashboard at localhost instead")
		}
	} else {
		origin = s.Config.BaseURL
		if !strings.HasPrefix(origin, "https://") {
			return nil, errPasskeysUnavailable("without HTTPS")
		}
	}
	rp, err := webauthn.New(&webauthn.Config{
		RPID: id, RPDisplayName: "Mailstead", RPOrigins: []string{origin}, AttestationPreference: fido.PreferNoAttestation,
		AuthenticatorSelection: fido.AuthenticatorSelection{
			ResidentKey: fido.ResidentKeyRequirementRequired, RequireResidentKey: fido.ResidentKeyRequired(),
			UserVerification: fido.VerificationRequired, // a passkey counts as two factors only if the authenticator verifies its user
		},
	})
	if err != nil {
		return nil, errPasskeysUnavailable("under this name").Because(err)
	}
	return rp, nil
}

func errPasskeysUnavailable(where string) *core.Error {
	return core.Errorf("passkeys_unavailable", "Browsers support no passkeys %s.", where)
}

// newChallenge returns a new challenge, the bytes that an authenticator signs. It contains its own
// expiry and a MAC, so that the server need not remember it.
func (s *Service) newChallenge(purpose, rpID string) []byte {
	out := make([]byte, challengeNonceBytes, challengeNonceBytes+8+32)
	rand.Read(out)
	out = binary.BigEndian.AppendUint64(out, uint64(s.Now().Add(challengeLife).Unix()))
	return append(out, s.challengeMAC(out, purpose, rpID)...)
}

func (s *Service) challengeMAC(text []byte, purpose, rpID string) []byte {
	return s.Keys.Mac("passkey challenge", string(text), purpose, rpID)
}

// checkChallenge decodes a challenge that a browser has sent back. It returns an error if this
// server did not make the challenge, or if it has expired.
func (s *Service) checkChallenge(text, purpose, rpID string) ([]byte, error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	const signedBytes = challengeNonceBytes + 8
	if err != nil || len(raw) <= signedBytes || !hmac.Equal(raw[signedBytes:], s.challengeMAC(raw[:signedBytes], purpose, rpID)) {
		return nil, errBadPasskey(errors.New("the challenge was not made by this server"))
	}
	if s.Now().Unix() >= int64(binary.BigEndian.Uint64(raw[challengeNonceBytes:])) {
		return nil, errBadPasskey(errors.New("the challenge is too old"))
	}
	return raw, nil
}

func errBadPasskey(err error) *core.Error {
	return core.Errorf("invalid_credentials", "This passkey was not accepted, or it took too long. Try again.").Because(err)
}

// creationOptions returns the options for creating a passkey, with the caller's challenge.
func creationOptions(rp *webauthn.WebAuthn, u passkeyUser, challenge []byte) (*fido.CredentialCreation, *webauthn.SessionData, error) {
	return rp.BeginRegistration(u, func(o *fido.PublicKeyCredentialCreationOptions) error {
		o.Challenge, o.CredentialExcludeList = challenge, nil
		for _, c := range u.credentials {
			o.CredentialExcludeList = append(o.CredentialExcludeList, c.Descriptor())
		}
		return nil
	})
}

// StartPasskey returns the options with which a browser makes a passkey
// (navigator.credentials.create). origin is the origin of the dashboard. The error for a wrong
// password is 403 wrong_password.
func (s *Service) StartPasskey(ctx context.Context, who core.Actor, origin string, in PasswordIn) (*fido.CredentialCreation, error) {
	if who.PasswordGiven {
		return nil, errPasswordNotOwn()
	}
	rp, err := s.relyingParty(origin)
	if err != nil {
		return nil, err
	}
	if _, err := s.accounts.ProvePassword(ctx, who, in.Password); err != nil {
		return nil, err
	}
	u, err := s.ownPasskeys(who)
	if err != nil {
		return nil, err
	}
	options, _, err := creationOptions(rp, u, s.newChallenge("create "+u.ID, rp.Config.RPID))
	if err != nil {
		return nil, fmt.Errorf("offer a passkey: %w", err)
	}
	return options, nil
}

// errPasswordNotOwn returns the error for a user who did not choose the password. Such a user gets
// no passkey and no OAuth grant, since these would stay valid after a change of the password.
func errPasswordNotOwn() *core.Error {
	return core.Errorf("person_required", "You did not choose your password. Choose one of your own first, in your profile.")
}

func (s *Service) ownPasskeys(who core.Actor) (out passkeyUser, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		u, _, err := sessionRecords(tx, who)
		if err != nil {
			return err
		}
		out, err = newPasskeyUser(u)
		return err
	})
	return out, err
}

// NewPasskeyIn is a passkey as the browser made it (PublicKeyCredential.toJSON).
type NewPasskeyIn struct {
	Name       string          `json:"name" max:"100"`
	Credential json.RawMessage `json:"credential" required:"true" audit:"-"`
}

// AddPasskey stores a passkey that the signed-in user's browser has made.
func (s *Service) AddPasskey(ctx context.Context, who core.Actor, origin string, in NewPasskeyIn) (*Session, error) {
	if err := core.CheckLine("name", in.Name); err != nil {
		return nil, err
	}
	if strings.TrimSpace(in.Name) == "" {
		in.Name = "Passkey"
	}
	made, err := s.readPasskey(who, origin, in.Credential)
	if err != nil {
		return nil, err
	}
	record, err := json.Marshal(made)
	if err != nil || len(record) > maxPasskeyBytes {
		return nil, core.Invalid("credential", "out_of_range", "is too large")
	}
	err = s.changeSelf(who, func(tx *store.Tx, u *store.User) error {
		if len(u.Passkeys) >= maxPasskeys {
			return core.Errorf("too_many_passkeys", "You have %d passkeys, which is the limit. Delete one first.", maxPasskeys)
		}
		known, err := newPasskeyUser(u)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(known.credentials, func(c webauthn.Credential) bool { return string(c.ID) == string(made.ID) }) {
			return core.Errorf("passkey_exists", "You have this passkey already.")
		}
		u.Passkeys = append(u.Passkeys, store.Passkey{ID: tx.NewID("pky"), Name: in.Name, Credential: record, CreatedAt: tx.Now()})
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.LogOf(ctx).Info("passkey added", "user", who.UserID, "ip", who.IP, "name", in.Name)
	return s.GetSession(context.Background(), who)
}

// readPasskey verifies a new passkey. Its attestation (the maker of the authenticator) is neither
// requested nor kept.
func (s *Service) readPasskey(who core.Actor, origin string, credential []byte) (*webauthn.Credential, error) {
	rp, err := s.relyingParty(origin)
	if err != nil {
		return nil, err
	}
	u, err := s.ownPasskeys(who)
	if err != nil {
		return nil, err
	}
	wrong := core.Invalid("credential", "invalid", "is not a browser's answer to these options, or it took too long; start again")
	parsed, err := fido.ParseCredentialCreationResponseBytes(credential)
	if err != nil {
		return nil, wrong.Because(err)
	}
	challenge, err := s.checkChallenge(parsed.Response.CollectedClientData.Challenge, "create "+u.ID, rp.Config.RPID)
	if err != nil {
		return nil, wrong.Because(err)
	}
	_, session, err := creationOptions(rp, u, challenge)
	if err != nil {
		return nil, fmt.Errorf("offer a passkey: %w", err)
	}
	made, err := rp.CreateCredential(u, *session, parsed)
	if err != nil {
		return nil, wrong.Because(err)
	}
	made.Attestation = webauthn.CredentialAttestation{}
	return made, nil
}

// PasskeyIn names one passkey.
type PasskeyIn struct {
	ID string `path:"id"`
}

// DeletePasskey deletes a passkey of the signed-in user.
func (s *Service) DeletePasskey(ctx context.Context, who core.Actor, in PasskeyIn) (*accounts.Deleted, error) {
	err := s.changeSelf(who, func(_ *store.Tx, u *store.User) error {
		at := slices.IndexFunc(u.Passkeys, func(p store.Passkey) bool { return p.ID == in.ID })
		if at < 0 {
			return core.Errorf("not_found", "There is no such passkey.")
		}
		u.Passkeys = slices.Delete(u.Passkeys, at, at+1)
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.LogOf(ctx).Info("passkey deleted", "user", who.UserID, "ip", who.IP, "passkey", in.ID)
	return &accounts.Deleted{Message: "The passkey can no longer sign in. Delete it in your browser or app too.", ID: in.ID}, nil
}

// assertionOptions returns the options for signing in with a passkey, with the caller's challenge.
// They do not name a user, since that would reveal who has passkeys here; the passkey names its
// user.
func assertionOptions(rp *webauthn.WebAuthn, challenge []byte) (*fido.CredentialAssertion, *webauthn.SessionData, error) {
	return rp.BeginDiscoverableLogin(func(o *fido.PublicKeyCredentialRequestOptions) error {
		o.Challenge = challenge
		return nil
	})
}

// OfferPasskey returns the options with which a browser signs in (navigator.credentials.get).
func (s *Service) OfferPasskey(_ context.Context, origin string) (*fido.CredentialAssertion, error) {
	rp, err := s.relyingParty(origin)
	if err != nil {
		return nil, err
	}
	options, _, err := assertionOptions(rp, s.newChallenge("get", rp.Config.RPID))
	if err != nil {
		return nil, fmt.Errorf("ask for a passkey: %w", err)
	}
	return options, nil
}

// UsePasskeyIn is the browser's answer to the options of OfferPasskey (PublicKeyCredential.toJSON).
type UsePasskeyIn struct {
	Credential json.RawMessage `json:"credential" required:"true"`
}

// UsePasskey begins the session of a passkey's user. The error is 401 invalid_credentials if the
// passkey does not match, was made for another site, or if the answer was used before. No second
// factor is asked for, since a passkey counts as two factors.
func (s *Service) UsePasskey(ctx context.Context, v Visitor, origin string, in UsePasskeyIn) (*SignedIn, error) {
	rp, err := s.relyingParty(origin)
	if err != nil {
		return nil, err
	}
	parsed, err := fido.ParseCredentialRequestResponseBytes(in.Credential)
	if err != nil {
		return nil, errBadPasskey(err)
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
		return nil, errBadPasskey(errors.New("the challenge was used already"))
	}
	_, session, err := assertionOptions(rp, challenge)
	if err != nil {
		return nil, fmt.Errorf("ask for a passkey: %w", err)
	}
	out, err := s.startPasskeySession(rp, session, parsed, v)
	if err != nil {
		return nil, err
	}
	s.usedChallenges.Add(text, s.Now())
	s.LogOf(ctx).Info("signed in", "user", out.UserID, "ip", v.IP, "how", "passkey")
	return out, nil
}

// startPasskeySession verifies the signature against the current user record, records the passkey's
// use, and begins the session.
func (s *Service) startPasskeySession(rp *webauthn.WebAuthn, session *webauthn.SessionData, parsed *fido.ParsedCredentialAssertionData, v Visitor) (out *SignedIn, err error) {
	tried := &store.User{}
	err = s.Store.Update(func(tx *store.Tx) error {
		u, err := store.Users.Get(tx, string(parsed.Response.UserHandle))
		if errors.Is(err, store.ErrNotFound) {
			return errBadPasskey(err)
		}
		if err == nil {
			err = core.CheckNotSuspended(tx, u)
		}
		if err != nil {
			return err
		}
		tried = u
		if err := verifyPasskey(tx, rp, session, parsed, u); err != nil {
			return err
		}
		out, err = s.openSession(tx, u, v, false)
		return err
	})
	if e, ours := core.AsError(err); ours && e.Code == "invalid_credentials" {
		s.accounts.RecordFailedLogin(core.UserActor(tried), tried.AccountID, v.IP, v.RequestID)
	}
	return out, err
}

// verifyPasskey verifies the signature of a passkey, and updates the passkey in u. The caller must
// store u.
func verifyPasskey(tx *store.Tx, rp *webauthn.WebAuthn, session *webauthn.SessionData, parsed *fido.ParsedCredentialAssertionData, u *store.User) error {
	owner, err := newPasskeyUser(u)
	if err != nil {
		return err
	}
	used, err := rp.ValidateDiscoverableLogin(func(_, _ []byte) (webauthn.User, error) { return owner, nil }, *session, parsed)
	if err != nil {
		return errBadPasskey(err)
	}
	if used.Authenticator.CloneWarning {
		return errBadPasskey(errors.New("the passkey may be a copy: its signature counter went backwards"))
	}
	for i, c := range owner.credentials {
		if string(c.ID) != string(used.ID) {
			continue
		}
		u.Passkeys[i].Credential, err = json.Marshal(used)
		if err != nil {
			return fmt.Errorf("write passkey %s: %w", u.Passkeys[i].ID, err)
		}
		u.Passkeys[i].LastUsedAt = tx.Now()
	}
	return nil
}
