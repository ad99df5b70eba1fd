// Package scram implements the server side of SCRAM-SHA-256 and SCRAM-SHA-256-PLUS (RFC 5802, RFC
// 7677). A user may have several passwords, which have the same salt. The package does not know
// where passwords are stored.
package scram

import (
	"bytes"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Names of the mechanisms.
const (
	Name     = "SCRAM-SHA-256"
	NamePlus = "SCRAM-SHA-256-PLUS"
)

// Iterations is the iteration count of the password hash. RFC 7677 section 4 requires at least
// 4096.
const Iterations = 10_000

const (
	keySize    = sha256.Size
	maxMessage = 2048 // bytes of a message from the client
	nonceSize  = 18
)

// Keys are the keys that a server stores for a password: the StoredKey, followed by the ServerKey
// (RFC 5802 section 3).
type Keys [2 * keySize]byte

// KeysOf derives the keys of a password and a salt.
func KeysOf(password string, salt []byte) (k Keys) {
	salted, err := pbkdf2.Key(sha256.New, preparedPassword(password), salt, Iterations, keySize)
	if err != nil {
		panic(err) // cannot happen, since it fails only for invalid lengths
	}
	clientKey := mac(salted, "Client Key")
	stored := sha256.Sum256(clientKey)
	copy(k[:keySize], stored[:])
	copy(k[keySize:], mac(salted, "Server Key"))
	return k
}

// preparedPassword brings a password into the form that clients hash (SASLprep, RFC 4013). It
// refuses no password: it only removes differences between ways to type the same one.
func preparedPassword(password string) string {
	if strings.IndexFunc(password, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 || !utf8.ValidString(password) {
		return password
	}
	return norm.NFKC.String(strings.Map(func(r rune) rune {
		switch {
		case r == 0xad, r == 0x34f, r == 0x200b, r == 0x200c, r == 0x200d, r == 0x2060, r == 0xfeff, r >= 0xfe00 && r <= 0xfe0f:
			return -1
		case r >= utf8.RuneSelf && unicode.Is(unicode.Zs, r):
			return ' '
		}
		return r
	}, password))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// Errors of an exchange. ErrProof means that the password is wrong or the user unknown. The other
// errors mean that the client violated the protocol.
var (
	ErrProof   = errors.New("the SCRAM proof is wrong")
	ErrBinding = errors.New("the SCRAM channel binding is wrong")
	ErrMessage = errors.New("the SCRAM message is malformed")
)

// A User holds the login data of a user. For an unknown user, Keys must be empty, and Salt a fake
// that is always the same for that name.
type User struct {
	Salt []byte
	Keys []Keys
}

// A Server is the server side of one exchange. It implements sasl.Server of go-sasl.
type Server struct {
	// Plus says that the mechanism of this exchange is NamePlus, Offered that the server offers
	// NamePlus. A client that supports NamePlus but was not offered it says so in its message. If
	// NamePlus was offered, that reveals a downgrade attack (RFC 5802 section 6).
	Plus, Offered bool
	// Binding returns the channel binding data of the given type, nil if there is none.
	Binding func(kind string) []byte
	// Find returns the user with the name.
	Find func(name string) (User, error)
	// Done is called at the end of the exchange. key is the index in User.Keys of the password that
	// was used, -1 if the password was wrong. If Done returns an error, the exchange fails.
	Done func(name string, key int) error

	received int // number of messages received
	name     string
	user     User
	header   string // gs2-header
	binding  []byte
	first    string // client-first-message-bare
	answer   string // server-first-message
	nonce    string
	finished bool
}

// Next processes a message of the client and returns the next challenge. A nil challenge asks the
// client to begin.
func (s *Server) Next(response []byte) (challenge []byte, done bool, err error) {
	if response == nil && s.received == 0 {
		return nil, false, nil
	}
	if len(response) > maxMessage {
		return nil, false, ErrMessage
	}
	s.received++
	switch s.received {
	case 1:
		challenge, err = s.answerFirst(string(response))
		return challenge, false, err
	case 2:
		challenge, err = s.answerFinal(string(response))
		return challenge, false, err
	case 3:
		if s.finished && len(response) == 0 {
			return nil, true, nil
		}
	}
	return nil, false, ErrMessage
}

// answerFirst processes the client-first-message and returns the server-first-message (RFC 5802
// section 7).
func (s *Server) answerFirst(text string) ([]byte, error) {
	flag, rest, _ := strings.Cut(text, ",")
	identity, bare, ok := strings.Cut(rest, ",")
	if !ok {
		return nil, ErrMessage
	}
	s.header, s.first = text[:len(text)-len(bare)], bare
	kind, binds := strings.CutPrefix(flag, "p=")
	switch {
	case binds != s.Plus, !binds && flag != "n" && flag != "y":
		return nil, ErrMessage
	case flag == "y" && s.Offered: // an attacker has removed NamePlus from the offered mechanisms
		return nil, ErrBinding
	case binds:
		s.binding = s.Binding(kind)
		if s.binding == nil {
			return nil, ErrBinding
		}
	}
	fields := strings.Split(bare, ",")
	if len(fields) < 2 || !strings.HasPrefix(fields[0], "n=") || !strings.HasPrefix(fields[1], "r=") {
		return nil, ErrMessage // also for m=, a mandatory extension that is not supported
	}
	var valid bool
	s.name, valid = unescape(fields[0][2:])
	if !valid {
		return nil, ErrMessage
	}
	nonce := fields[1][2:]
	if nonce == "" || strings.IndexFunc(nonce, func(r rune) bool { return r <= ' ' || r >= 0x7f }) >= 0 {
		return nil, ErrMessage
	}
	if identity != "" && identity != "a=" { // GNU SASL sends "a=" if there is no identity
		as, valid := unescape(strings.TrimPrefix(identity, "a="))
		if !strings.HasPrefix(identity, "a=") || !valid || as != s.name {
			return nil, ErrMessage
		}
	}
	var err error
	s.user, err = s.Find(s.name)
	if err != nil {
		return nil, err
	}
	own := make([]byte, nonceSize)
	rand.Read(own)
	s.nonce = nonce + base64.StdEncoding.EncodeToString(own)
	s.answer = "r=" + s.nonce + ",s=" + base64.StdEncoding.EncodeToString(s.user.Salt) + ",i=" + strconv.Itoa(Iterations)
	return []byte(s.answer), nil
}

// unescape decodes a saslname (RFC 5802 section 7). It returns false if text is not valid.
func unescape(text string) (_ string, ok bool) {
	out := strings.NewReplacer("=2C", ",", "=3D", "=").Replace(text)
	left := strings.NewReplacer("=2C", "", "=3D", "").Replace(text)
	return out, out != "" && utf8.ValidString(out) && !strings.Contains(left, "=") && !strings.ContainsRune(out, 0)
}

// answerFinal processes the client-final-message and returns the server-final-message (RFC 5802
// section 7).
func (s *Server) answerFinal(text string) ([]byte, error) {
	i := strings.LastIndex(text, ",p=")
	if i < 0 {
		return nil, ErrMessage
	}
	without := text[:i]
	proof, err := base64.StdEncoding.Strict().DecodeString(text[i+3:])
	if err != nil || len(proof) != keySize {
		return nil, ErrMessage
	}
	fields := strings.Split(without, ",")
	if len(fields) < 2 || !strings.HasPrefix(fields[0], "c=") || fields[1] != "r="+s.nonce {
		return nil, ErrMessage
	}
	bound, err := base64.StdEncoding.Strict().DecodeString(fields[0][2:])
	if err != nil {
		return nil, ErrMessage
	}
	if subtle.ConstantTimeCompare(bound, append([]byte(s.header), s.binding...)) != 1 {
		return nil, ErrBinding
	}
	auth := s.first + "," + s.answer + "," + without
	found := -1
	for n, k := range s.user.Keys {
		clientKey := mac(k[:keySize], auth)
		subtle.XORBytes(clientKey, clientKey, proof)
		stored := sha256.Sum256(clientKey)
		if subtle.ConstantTimeCompare(stored[:], k[:keySize]) == 1 {
			found = n
		}
	}
	if err := s.Done(s.name, found); err != nil {
		return nil, err
	}
	if found < 0 {
		return nil, ErrProof
	}
	s.finished = true
	signature := mac(s.user.Keys[found][keySize:], auth)
	return append([]byte("v="), base64.StdEncoding.AppendEncode(nil, signature)...), nil
}

// Equal reports whether two values are keys of the same password. It compares them in constant
// time.
func (k Keys) Equal(other Keys) bool { return subtle.ConstantTimeCompare(k[:], other[:]) == 1 }

// KeysFrom converts stored bytes to keys. It returns false if their length is wrong.
func KeysFrom(kept []byte) (k Keys, ok bool) {
	if len(kept) != len(k) {
		return k, false
	}
	return Keys(bytes.Clone(kept)), true
}
