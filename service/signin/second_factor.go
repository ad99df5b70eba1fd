package signin

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Limits on wrong codes of one user in a day: a code is short, and whoever guesses codes has the
// password already. Codes from networks from which the user has signed in lately are counted
// separately, so that a stranger cannot lock the user out.
const (
	codeWindow    = 24 * time.Hour // the time to which maxWrongCodes applies
	maxWrongCodes = 20

	recoveryCodeCount = 10        // how many a user gets; ten characters each, 57 bits
	totpSetupLife     = time.Hour // a secret that was not confirmed by then is dropped
)

func hasTOTP(u *store.User) bool { return u.TOTP != nil && u.TOTP.Confirmed }

// withSecondFactor runs fn in a transaction with the current record of a user. If the user has a
// second factor, code must be right, and the same transaction uses it up. The errors are 401
// second_factor_required, 401 invalid_code, 403 account_suspended, and 429 after too many wrong
// codes.
func (s *Service) withSecondFactor(who *store.User, v Visitor, code string, fn func(*store.Tx, *store.User) error) error {
	key := s.codeKey(who, v.IP)
	if code != "" { // counted before it is checked, so that parallel requests do not evade the limit
		s.wrongCodes.Add(key, s.Now())
	}
	if s.wrongCodes.Count(key, s.Now()) > maxWrongCodes {
		e := core.Errorf("rate_limited", "Too many wrong codes. Wait a day, or ask the operator of this server to turn two-factor authentication off for you.")
		e.RetryAfter = codeWindow
		return e
	}
	err := s.Store.Update(func(tx *store.Tx) error {
		u, err := store.Users.Get(tx, who.ID)
		if errors.Is(err, store.ErrNotFound) {
			return core.Errorf("invalid_credentials", "The email address or the password is wrong.")
		}
		if err == nil {
			err = core.CheckNotSuspended(tx, u)
		}
		if err != nil {
			return err
		}
		if hasTOTP(u) {
			if code == "" {
				return core.Errorf("second_factor_required", "Enter the 6-digit code of your authenticator app, or a recovery code.")
			}
			if right, err := s.useCode(u, code, tx.Now()); err != nil {
				return err
			} else if !right {
				return core.Errorf("invalid_code", "The code is wrong or was used already. Wait for the next one.")
			}
		}
		return fn(tx, u)
	})
	if err == nil {
		s.wrongCodes.Delete(key)
	}
	if e, ours := core.AsError(err); ours && e.Code == "invalid_code" {
		s.accounts.RecordFailedLogin(core.UserActor(who), who.AccountID, v.IP, v.RequestID)
	}
	return err
}

// codeKey returns the key under which the wrong codes of a user are counted.
func (s *Service) codeKey(u *store.User, ip string) string {
	if network := core.Network(ip); core.IsKnownNetwork(u.Seen, network, s.Now()) {
		return u.ID + " " + network
	}
	return u.ID
}

// useCode uses up a code of the second factor, or a recovery code. The caller must store the user.
func (s *Service) useCode(u *store.User, code string, now time.Time) (right bool, err error) {
	secret, err := s.Keys.Open(store.TOTPBinding(u.ID), u.TOTP.Sealed)
	if err != nil {
		return false, err
	}
	if step := totpStep(secret, code, now); step > u.TOTP.LastStep {
		u.TOTP.LastStep = step
		return true, nil
	}
	found := -1
	s.Keys.MatchesMac(func(given []byte) bool { // the hashes may have been made with an earlier master key
		for i, kept := range u.TOTP.Recovery {
			if subtle.ConstantTimeCompare(given, kept) == 1 {
				found = i
			}
		}
		return found >= 0
	}, recoveryMAC, u.ID, normalizeCode(code))
	if found >= 0 {
		u.TOTP.Recovery = slices.Delete(u.TOTP.Recovery, found, found+1)
	}
	return found >= 0, nil
}

const recoveryMAC = "recovery code" // purpose of the MAC of recovery codes

// recoveryHash returns the MAC that is stored in place of a recovery code. The key of the MAC is
// not in the database.
func (s *Service) recoveryHash(userID, code string) []byte {
	return s.Keys.Mac(recoveryMAC, userID, normalizeCode(code))
}

// normalizeCode removes the dashes and spaces with which people write a recovery code.
func normalizeCode(code string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(core.PasswordAlphabet, r) {
			return r
		}
		return -1
	}, code)
}

// A TOTPSecret is the secret for an authenticator app. URI is the content of its QR code.
type TOTPSecret struct {
	Secret string `json:"secret"`
	URI    string `json:"uri"`
}

// PasswordIn has the user's current password. It proves that the user is present. Otherwise a
// stranger at an open browser could lock the user out with a second factor, or add a passkey and
// come back with it.
type PasswordIn struct {
	Password string `json:"password" required:"true" max:"1024" audit:"-"`
}

// StartTOTP makes a secret for a second factor. The factor is used only after ConfirmTOTP gets a
// code made with the secret. The error for a wrong password is 403 wrong_password.
func (s *Service) StartTOTP(ctx context.Context, who core.Actor, in PasswordIn) (*TOTPSecret, error) {
	checkUnchanged, err := s.accounts.ProvePassword(ctx, who, in.Password)
	if err != nil {
		return nil, err
	}
	secret := make([]byte, 20)
	rand.Read(secret)
	out := &TOTPSecret{Secret: base32.StdEncoding.EncodeToString(secret)}
	err = s.changeSelf(who, func(tx *store.Tx, u *store.User) error {
		if hasTOTP(u) {
			return core.Errorf("totp_enabled", "Two-factor authentication is on already. Turn it off before you set it up again.")
		}
		u.TOTP = &store.TOTP{Sealed: s.Keys.Seal(store.TOTPBinding(u.ID), secret), CreatedAt: tx.Now()}
		out.URI = totpURI(s.Hostname(), u.Email, out.Secret)
		return checkUnchanged(tx, u)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// totpURI returns the URI that authenticator apps read from a QR code.
func totpURI(host, email, secret string) string {
	issuer := "Mailstead " + host
	return "otpauth://totp/" + url.PathEscape(issuer+":"+email) + "?" + strings.ReplaceAll(url.Values{
		"secret": {secret}, "issuer": {issuer}, "algorithm": {"SHA1"}, "digits": {strconv.Itoa(totpDigits)}, "period": {strconv.Itoa(totpPeriod)},
	}.Encode(), "+", "%20")
}

// TOTPCodeIn is the first code that an authenticator app shows.
type TOTPCodeIn struct {
	Code string `json:"code" required:"true" max:"64" audit:"-"`
}

// RecoveryCodes can each be used once in place of a code of the second factor. They are shown only
// in this answer.
type RecoveryCodes struct {
	Codes []string `json:"recovery_codes"`
}

// ConfirmTOTP switches the second factor on. Every other session of the user ends, since it began
// without the factor.
func (s *Service) ConfirmTOTP(ctx context.Context, who core.Actor, in TOTPCodeIn) (*RecoveryCodes, error) {
	out := &RecoveryCodes{}
	for range recoveryCodeCount {
		out.Codes = append(out.Codes, core.RandomText(5, core.PasswordAlphabet)+"-"+core.RandomText(5, core.PasswordAlphabet))
	}
	err := s.changeSelf(who, func(tx *store.Tx, u *store.User) error {
		switch {
		case hasTOTP(u):
			return core.Errorf("totp_enabled", "Two-factor authentication is on already.")
		case u.TOTP == nil || tx.Now().Sub(u.TOTP.CreatedAt) > totpSetupLife:
			return core.Errorf("totp_not_started", "Start the setup first. A setup that is not confirmed expires after an hour.")
		}
		if right, err := s.useCode(u, in.Code, tx.Now()); err != nil {
			return err
		} else if !right {
			return core.Errorf("invalid_code", "The code is wrong. Enter the one that the app shows now, and check that its clock is right.")
		}
		u.TOTP.Confirmed = true
		for _, code := range out.Codes {
			u.TOTP.Recovery = append(u.TOTP.Recovery, s.recoveryHash(u.ID, code))
		}
		return errors.Join(s.endMailClientLogins(tx, u), accounts.RevokeTokens(tx, u.ID, accounts.SessionsExcept(who.TokenID)))
	})
	if err != nil {
		return nil, err
	}
	s.LogOf(ctx).Info("two-factor authentication turned on", "user", who.UserID, "ip", who.IP)
	return out, nil
}

// DropTOTP switches the second factor off. It is not an error if there is none. The error for a
// wrong password is 403 wrong_password.
func (s *Service) DropTOTP(ctx context.Context, who core.Actor, in PasswordIn) (*Message, error) {
	checkUnchanged, err := s.accounts.ProvePassword(ctx, who, in.Password)
	if err != nil {
		return nil, err
	}
	err = s.changeSelf(who, func(tx *store.Tx, u *store.User) error {
		u.TOTP = nil
		return checkUnchanged(tx, u)
	})
	if err != nil {
		return nil, err
	}
	s.LogOf(ctx).Info("two-factor authentication turned off", "user", who.UserID, "ip", who.IP)
	return &Message{"Two-factor authentication is off."}, nil
}

// Time-based codes as every authenticator app makes them (RFC 6238 over RFC 4226, SHA-1).
const (
	totpPeriod = 30 // seconds
	totpDigits = 6
	totpSkew   = 1 // steps by which the user's clock may differ, either way
)

// hotp returns the code of a counter value (RFC 4226 section 5.3).
func hotp(secret []byte, counter uint64, digits int) string {
	h := hmac.New(sha1.New, secret)
	_ = binary.Write(h, binary.BigEndian, counter) // writing to a hash never fails
	sum := h.Sum(nil)
	at := sum[len(sum)-1] & 0xf
	n := uint64(binary.BigEndian.Uint32(sum[at:at+4]) & 0x7fffffff)
	mod := uint64(1)
	for range digits {
		mod *= 10
	}
	return fmt.Sprintf("%0*d", digits, n%mod)
}

// totpStep returns the newest time step, within the skew, for which code is right; -1 if there is
// none. Spaces in code are ignored.
func totpStep(secret []byte, code string, now time.Time) int64 {
	code, found := strings.ReplaceAll(code, " ", ""), int64(-1)
	for step := now.Unix()/totpPeriod - totpSkew; step <= now.Unix()/totpPeriod+totpSkew; step++ {
		if subtle.ConstantTimeCompare([]byte(code), []byte(hotp(secret, uint64(step), totpDigits))) == 1 {
			found = step
		}
	}
	return found
}
