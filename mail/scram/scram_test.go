package scram

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

// A client is one exchange from the other side.
type client struct {
	header, name, password string
	binding                []byte
	first, auth            string
}

func (c *client) begin() string {
	c.first = "n=" + c.name + ",r=rOprNGfwEbeRWgbNEkqO"
	return c.header + c.first
}

func (c *client) finish(t *testing.T, answer string) string {
	t.Helper()
	parts := strings.Split(answer, ",")
	salt, err := base64.StdEncoding.DecodeString(parts[1][2:])
	if err != nil || parts[2] != "i=10000" {
		t.Fatal(answer, err)
	}
	salted, err := pbkdf2.Key(sha256.New, c.password, salt, 10000, 32)
	if err != nil {
		t.Fatal(err)
	}
	sum := func(key []byte, text string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	clientKey := sum(salted, "Client Key")
	stored := sha256.Sum256(clientKey)
	final := "c=" + base64.StdEncoding.EncodeToString(append([]byte(c.header), c.binding...)) + "," + parts[0]
	c.auth = c.first + "," + answer + "," + final
	signature := sum(stored[:], c.auth)
	for i := range signature {
		signature[i] ^= clientKey[i]
	}
	return final + ",p=" + base64.StdEncoding.EncodeToString(signature)
}

func exchange(t *testing.T, s *Server, c *client) error {
	t.Helper()
	if text, done, err := s.Next(nil); err != nil || done || text != nil {
		t.Fatalf("the first challenge: %q %v %v", text, done, err)
	}
	answer, done, err := s.Next([]byte(c.begin()))
	if err != nil || done {
		return err
	}
	final, done, err := s.Next([]byte(c.finish(t, string(answer))))
	if err != nil || done {
		return err
	}
	if !strings.HasPrefix(string(final), "v=") {
		t.Errorf("the last challenge: %q", final)
	}
	if _, done, err := s.Next([]byte{}); err != nil || !done {
		t.Errorf("the end: %v %v", done, err)
	}
	return nil
}

// TestExchange: each of several passwords works, with and without a channel binding, and nothing
// else does.
func TestExchange(t *testing.T) {
	salt := []byte("salt of the user")
	keys := []Keys{KeysOf("one", salt), KeysOf("two", salt), KeysOf("\u2168 \u00a0x", salt)}
	for what, c := range map[string]struct {
		client        client
		plus, offered bool
		want          error
		key           int
	}{
		"first":            {client: client{header: "n,,", password: "one"}, key: 0},
		"second":           {client: client{header: "y,,", password: "two"}, key: 1},
		"prepared":         {client: client{header: "n,,", password: "IX  x"}, key: 2},
		"wrong":            {client: client{header: "n,,", password: "three"}, want: ErrProof, key: -1},
		"identity":         {client: client{header: "n,a=us=3Der=2C,", password: "one"}, key: 0},
		"no identity":      {client: client{header: "n,a=,", password: "one"}, key: 0},
		"other identity":   {client: client{header: "n,a=other,", password: "one"}, want: ErrMessage},
		"bound":            {client: client{header: "p=tls-exporter,,", password: "one", binding: []byte("exported")}, plus: true, offered: true, key: 0},
		"bound to another": {client: client{header: "p=tls-exporter,,", password: "one", binding: []byte("exportex")}, plus: true, offered: true, want: ErrBinding},
		"unknown binding":  {client: client{header: "p=tls-unique,,", password: "one"}, plus: true, offered: true, want: ErrBinding},
		"not bound":        {client: client{header: "n,,", password: "one"}, plus: true, offered: true, want: ErrMessage},
		"bound unasked":    {client: client{header: "p=tls-exporter,,", password: "one", binding: []byte("exported")}, want: ErrMessage},
		"offer taken out":  {client: client{header: "y,,", password: "one"}, offered: true, want: ErrBinding},
		"not interested":   {client: client{header: "n,,", password: "one"}, offered: true, key: 0},
	} {
		got := -2
		s := &Server{
			Plus: c.plus, Offered: c.offered,
			Binding: func(kind string) []byte { return map[string][]byte{"tls-exporter": []byte("exported")}[kind] },
			Find: func(name string) (User, error) {
				if name != "us=er," {
					t.Errorf("%s: name %q", what, name)
				}
				return User{salt, keys}, nil
			},
			Done: func(_ string, key int) error { got = key; return nil },
		}
		c.client.name = "us=3Der=2C"
		err := exchange(t, s, &c.client)
		if !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
		if (c.want == nil || errors.Is(c.want, ErrProof)) && got != c.key {
			t.Errorf("%s: key %d, want %d", what, got, c.key)
		}
	}
}

// TestKeysOfTheRFC are those of the example in RFC 7677 section 3, which has 4096 iterations: only
// what follows from the salted password is compared.
func TestKeysOfTheRFC(t *testing.T) {
	salt, _ := base64.StdEncoding.DecodeString("W22ZaJ0SNY7soEsUEjb6gQ==")
	salted, err := pbkdf2.Key(sha256.New, "pencil", salt, 4096, 32)
	if err != nil {
		t.Fatal(err)
	}
	auth := "n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096," +
		"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
	if got := base64.StdEncoding.EncodeToString(mac(mac(salted, "Server Key"), auth)); got != "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=" {
		t.Errorf("the server's signature is %s", got)
	}
}

// FuzzServer: no message of a client breaks the server, and none without the password is taken.
func FuzzServer(f *testing.F) {
	salt := []byte("salt")
	keys := []Keys{KeysOf("one", salt)}
	f.Add("n,,n=user,r=abc", "c=biws,r=abc,p=AAAA")
	f.Add("p=tls-exporter,a=user,n=user,r=abc,x=y", "c=biws,r=,p=")
	f.Add("y,,m=x,n=user,r=abc", ",p=")
	f.Fuzz(func(t *testing.T, first, second string) {
		s := &Server{
			Find:    func(string) (User, error) { return User{salt, keys}, nil },
			Binding: func(string) []byte { return nil },
			Done: func(_ string, key int) error {
				if key >= 0 {
					t.Error("taken")
				}
				return nil
			},
		}
		answer, _, err := s.Next([]byte(first))
		if err != nil {
			return
		}
		nonce, _, _ := strings.Cut(string(answer), ",")
		second = strings.Replace(second, "r=abc", nonce, 1)
		if _, done, err := s.Next([]byte(second)); err == nil || done {
			t.Errorf("%q, %q were taken", first, second)
		}
	})
}
