package core

import (
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core/password"
	"golang.org/x/crypto/bcrypt"
)

// TestForeignHashes has hashes of crypt(3), of the specification of SHA-crypt, and of bcrypt.
func TestForeignHashes(t *testing.T) {
	long := strings.Repeat("x", 72)
	cut, err := bcrypt.GenerateFromPassword([]byte(long), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	l := newLogins()
	for _, c := range []struct{ hash, password string }{
		{"$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1", "Hello world!"},
		{"$6$rounds=10000$saltstringsaltst$OW1/O6BYHV6BcXZu8QVeXbDWra3Oeqh0sbHbbMCVNSnCM/UrjmM0Dp8vOuZeHBy/YTBmSK6H9qs/y3RnOaw5v.", "Hello world!"},
		{"{SHA512-CRYPT}$6$rounds=5000$toolongsaltstrin$lQ8jolhgVRVhY4b5pZKaysCLi0QBxGoNeKQzQ3glMhwllF7oGDZxUhx1yxdYcz/e1JSbq3y6JMxxl8audkUEm0", "This is just a test"},
		{"{SHA256-CRYPT}$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5", "Hello world!"},
		{"$5$rounds=10000$saltstringsaltst$3xv.VbSHBb41AL9AvLeujZkZRBAwqFMz2.opqey6IcA", "Hello world!"},
		{"{BLF-CRYPT}$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", "U*U"},
		{"$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", "U*U"},
		{string(cut), long + "what comes behind 72 bytes does not count"},
		{"{CRYPT}" + string(cut), long},
		{l.Hash("argon"), "argon"},
	} {
		hash, err := password.CleanHash(c.hash)
		if err != nil {
			t.Errorf("%s: %v", c.hash, err)
			continue
		}
		for text, want := range map[string]bool{c.password: true, c.password[1:]: false, "": false} {
			if got, err := l.Verify(t.Context(), hash, text, Origin{}, time.Now()); got != want || err != nil {
				t.Errorf("%s: %q: %v, %v", hash, text, got, err)
			}
		}
		if password.IsForeign(hash) == strings.HasPrefix(hash, "$argon2id$") {
			t.Errorf("%s: foreign %v", hash, password.IsForeign(hash))
		}
	}
	for _, bad := range []string{
		"", "secret", "{PLAIN}secret", "$1$salt$hash", "{SSHA}abc", "$6$", "$6$salt", "$6$rounds=2000000$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1", "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz",
		"$2y$31$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", "$2y$05$", "$argon2id$v=19$m=9999999,t=3,p=1$c2FsdA$aGFzaA", "$argon2id$v=19$m=64,t=999,p=1$c2FsdA$aGFzaA", "$argon2id$v=19",
	} {
		if hash, err := password.CleanHash(bad); err == nil {
			t.Errorf("%q became %q", bad, hash)
		}
	}
}
