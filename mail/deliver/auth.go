package deliver

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
)

var errNoMechanism = errors.New("the relay offers neither AUTH PLAIN nor AUTH LOGIN")

// ErrLogin is wrapped by the error of [Client.TryRelay] if the relay refuses the user name or the
// password.
var ErrLogin = errors.New("the relay refused the login")

// login authenticates with PLAIN or LOGIN, whichever the host offers (RFC 4954). It must be called
// only over TLS, unless the operator configured the relay without TLS.
func (s *session) login(username, password string) *failure {
	var secrets []string
	mechanism := "AUTH LOGIN"
	switch {
	case slices.Contains(s.ext.auth, "PLAIN"):
		mechanism = "AUTH PLAIN"
		secrets = []string{"\x00" + username + "\x00" + password} // RFC 4616
	case slices.Contains(s.ext.auth, "LOGIN"):
		secrets = []string{username, password}
	default:
		return &failure{stage: stageAuth, err: fmt.Errorf("%s: %w", s.hop.host, errNoMechanism), enhanced: "4.7.0"}
	}
	r, err := s.command(mechanism)
	for i := 0; err == nil && r.code == 334 && i < len(secrets); i++ {
		r, err = s.command(base64.StdEncoding.EncodeToString([]byte(secrets[i])))
	}
	for i, line := range r.lines { // a relay may repeat what it was sent
		for _, secret := range append(secrets, password) {
			line = strings.ReplaceAll(line, base64.StdEncoding.EncodeToString([]byte(secret)), "…")
		}
		if password != "" {
			line = strings.ReplaceAll(line, password, "…")
		}
		r.lines[i] = line
	}
	f := s.checkReply(stageAuth, 2, r, err)
	if f != nil && f.reply.code != 0 {
		f.err = fmt.Errorf("%w of %s: %s", ErrLogin, username, r)
	}
	return f
}
